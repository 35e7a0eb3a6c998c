//! The tokens of a login are in no log, no list and no file.

use sa_gateway_kit::upstream::{assert_greeted, authority, config, hello, open, until, upstream};
use sa_gateway_kit::{Setup, assert_nowhere, find_in_files, is_private};

use crate::SWITCHBOARD;

#[tokio::test]
async fn somebody_logs_in_and_out_and_nobody_sees_their_tokens() {
    let authority = authority().await;
    let setup = || Setup::new().config(&config(&authority));
    let at = setup().spawn(SWITCHBOARD).await;
    let waiting = until(&at, "hosted", "login_needed").await;
    let why = waiting["last_error"].as_str().unwrap();
    assert!(why.contains("switchboard upstream login hosted"), "{why}");
    assert_eq!(waiting["logged_in"], false);
    assert_eq!(authority.counts().turned_away, 0, "it is known that there is no use in asking");

    // The command prints the address, and waits until the user has logged in there.
    let login = at.cli(&["upstream", "login", "hosted"]).start();
    let said = login.says("/authorize?").await;
    let address = said.lines().find(|line| line.starts_with("http")).unwrap().to_owned();
    let back = authority.agree(&address).await;
    assert!(
        back.starts_with(&format!("http://{}/v1/upstream/hosted/callback?", at.address())),
        "{back}"
    );
    let (status, headers, page) = open(&back).await;
    assert!(status == 200 && page.contains("logged in to hosted"), "{page}");
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    assert!(
        headers["referrer-policy"] == "no-referrer" && headers["cache-control"] == "no-store",
        "{headers:?}"
    );
    let ended = login.end().await;
    ended.assert_code(0);
    assert!(ended.stdout.contains("logged in to hosted"), "{}", ended.stdout);

    // The code in the address works only once.
    let (status, _, replayed) = open(&back).await;
    assert!(status == 400 && replayed.contains("start again"), "{replayed}");
    assert_eq!(authority.counts().granted, 1);

    until(&at, "hosted", "ready").await;
    assert_greeted(&hello(&at).await);
    assert_eq!(upstream(&at, "hosted").await["logged_in"], true);

    // First the token is revoked without notice. Then it has a short lifetime, and is renewed
    // before it expires.
    authority.end_tokens();
    assert_greeted(&hello(&at).await);
    authority.change(|behaviour| behaviour.lifetime_s = 1);
    authority.end_tokens();
    assert_greeted(&hello(&at).await);
    let renewed = authority.counts().renewed;
    assert_greeted(&hello(&at).await);
    assert!(authority.counts().renewed > renewed, "it was not renewed before it was over");
    authority.change(|behaviour| behaviour.lifetime_s = 3_600);

    // A new gateway process has the same login.
    let again = setup().on(&at);
    let mut seen = at.stderr();
    at.stop().await;
    let at = again.spawn(SWITCHBOARD).await;
    assert_greeted(&hello(&at).await);
    authority.end_tokens();
    assert_greeted(&hello(&at).await);
    assert_eq!((authority.counts().registered, authority.counts().granted), (1, 1));
    assert_eq!(authority.counts().reused, 0);

    let operator = at.operator();
    let mut shown = page + &replayed + &said + &ended.stdout + &ended.stderr;
    for path in ["/v1/upstream", "/v1/audit", "/v1/tools", "/v1/calls", "/v1/status", "/metrics"] {
        shown += &operator.get_text(path).await;
    }
    for args in [["upstream", "list"], ["doctor", "--json"]] {
        let ended = at.cli(&args).run().await;
        shown += &(ended.stdout + &ended.stderr);
    }
    assert!(shown.contains("upstream.logged_in"), "it is in the audit");

    let out = at.cli(&["upstream", "logout", "hosted"]).run().await;
    out.assert_code(0);
    let waiting = until(&at, "hosted", "login_needed").await;
    assert_eq!(waiting["logged_in"], false);
    let refused = hello(&at).await;
    assert!(refused.text.contains("switchboard upstream login hosted"), "{}", refused.text);
    shown += &refused.text;

    let again = setup().on(&at);
    let dir = at.dir.clone();
    seen += &at.stderr();
    at.stop().await;
    assert!(is_private(&dir.path().join("data/settings.key")));
    for canary in authority.granted() {
        assert_nowhere(&canary, &[("what was shown", &shown), ("the log", &seen)]);
        assert_eq!(find_in_files(dir.path(), &canary), Vec::<std::path::PathBuf>::new());
    }
    let at = again.spawn(SWITCHBOARD).await;
    until(&at, "hosted", "login_needed").await;
    at.stop().await;
}
