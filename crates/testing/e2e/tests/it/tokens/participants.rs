//! The command line reports what a participant's token cannot do.

use sa_gateway_kit::Setup;

use crate::SWITCHBOARD;

#[tokio::test]
async fn whoever_makes_such_a_token_is_told() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let create = |name: &'static str, more: &[&'static str]| {
        let args = [&["token", "create", name, "--role", "participant"], more].concat();
        gateway.cli(&args).run()
    };
    let none = create("ann", &[]).await;
    assert!(none.assert_code(0).stderr.contains("no tools of the gateway"), "{}", none.stderr);
    assert!(
        none.stderr.contains("--tool") && none.stdout.trim().starts_with("sb_"),
        "{}",
        none.stdout
    );
    let some = create("bob", &["--tool", "demo_*"]).await;
    assert!(!some.assert_code(0).stderr.contains("no tools"), "{}", some.stderr);
    assert!(some.stderr.contains("no tool matches now: demo_*"), "{}", some.stderr);
    assert!(
        some.stderr.contains("use no channels and no models")
            && some.stderr.contains("--channel and --model"),
        "{}",
        some.stderr
    );
    let all = create("cid", &["--tool", "demo_*", "--channel", "a", "--model", "b"]).await;
    assert!(!all.assert_code(0).stderr.contains("may use"), "{}", all.stderr);
    let wrong = create("dan", &["--tool", "models/gpt"]).await;
    assert!(wrong.assert_code(2).stderr.contains("--model"), "{}", wrong.stderr);
    gateway.stop().await;
}
