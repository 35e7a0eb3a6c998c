//! The list of tokens says what each is for and until when, and whoever makes one twice is told so.

use sa_testkit::Setup;
use serde_json::json;

use crate::SWITCHBOARD;

#[tokio::test]
async fn what_a_token_is_for_and_until_when() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    gateway
        .token(json!({ "name": "bot", "role": "agent", "tools": ["mail_*", "notes_read"], "expires_in_s": 86_400 }))
        .await;
    let room = json!({ "name": "ann", "role": "participant", "channels": ["lobby"], "channel_rights": ["read"] });
    gateway.token(room).await;
    gateway.token(json!({ "name": "lap", "role": "node", "node_id": "laptop" })).await;
    let tokens = gateway.operator().get("/v1/tokens").await.body["tokens"].clone();
    let of = |name: &str, key: &str| {
        let at = tokens.as_array().unwrap().iter().find(|token| token["name"] == name).unwrap()[key].as_i64().unwrap();
        jiff::Timestamp::from_millisecond(at).unwrap()
    };
    let (until, made) =
        (of("bot", "expires_ms").strftime("%Y-%m-%d %H:%M"), of("bot", "created_ms").strftime("%Y-%m-%d %H:%M"));
    let shown = gateway.cli(&["token", "list"]).run().await.assert_code(0).stdout.clone();
    let row =
        |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{shown}")).to_owned();
    for (name, words) in [
        ("bot", &[&*format!("until {until}"), &made.to_string(), "tools: mail_*, notes_read"][..]),
        ("ann", &["none of the gateway's", "channels: lobby (read)"]),
        ("lap", &["node: laptop", "valid"]),
    ] {
        for word in words {
            assert!(row(name).contains(word), "{word}: {shown}");
        }
    }
    // Where there is no room for all, each is told whole by its name.
    for columns in [80, 40] {
        let narrow = gateway.cli(&["token", "list"]).run_on_terminal(columns).await.stdout;
        for token in tokens.as_array().unwrap() {
            assert!(narrow.contains(token["id"].as_str().unwrap()), "{narrow}");
        }
        assert!(
            narrow.lines().all(|line| line.trim_start_matches("\u{1b}[1m").chars().count() <= columns.into()),
            "{narrow}"
        );
    }
    let shown = gateway.cli(&["token", "show", "ann"]).run_on_terminal(80).await.stdout;
    assert!(shown.contains("channels  lobby (read)") && shown.contains("role"), "{shown}");
    gateway.cli(&["token", "show", "nobody"]).run().await.assert_code(5);
    gateway.stop().await;
}

#[tokio::test]
async fn a_name_that_a_valid_token_has_is_pointed_out() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let make = || gateway.cli(&["token", "create", "bot"]).run();
    assert_eq!(make().await.assert_code(0).stderr, "");
    let tokens = gateway.operator().get("/v1/tokens").await.body["tokens"].clone();
    let first = tokens.as_array().unwrap().iter().find(|token| token["name"] == "bot").unwrap()["id"].as_str().unwrap();
    let second = make().await;
    assert!(second.assert_code(0).stderr.contains(&format!("switchboard token revoke {first}")), "{}", second.stderr);
    assert!(make().await.stderr.contains("2 other valid tokens"));
    gateway.cli(&["token", "revoke", first]).run().await.assert_code(0);
    assert!(make().await.stderr.contains("2 other valid tokens"), "a revoked one does not count");
    gateway.stop().await;
}
