//! The token list shows the purpose and expiry of each token, and creating a duplicate prints a
//! warning.

use sa_gateway_kit::Setup;
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
        let at = tokens.as_array().unwrap().iter().find(|token| token["name"] == name).unwrap()
            [key]
            .as_i64()
            .unwrap();
        jiff::Timestamp::from_millisecond(at).unwrap()
    };
    let (until, made) = (
        of("bot", "expires_ms").strftime("%Y-%m-%d %H:%M"),
        of("bot", "created_ms").strftime("%Y-%m-%d %H:%M"),
    );
    let shown = gateway.cli(&["token", "list"]).run().await.assert_code(0).stdout.clone();
    let row = |name: &str| {
        shown
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{shown}"))
            .to_owned()
    };
    for (name, words) in [
        ("bot", &[&*format!("until {until}"), &made.to_string(), "tools: mail_*, notes_read"][..]),
        ("ann", &["  channels: lobby (read)"]),
        ("lap", &["node: laptop", "valid"]),
    ] {
        for word in words {
            assert!(row(name).contains(word), "{word}: {shown}");
        }
    }
    // When the table is too narrow, each token is shown completely below its name.
    for columns in [80, 40] {
        let narrow = gateway.cli(&["token", "list"]).run_on_terminal(columns).await.stdout;
        for token in tokens.as_array().unwrap() {
            assert!(narrow.contains(&token["id"].as_str().unwrap()[..13]), "{narrow}");
        }
        for narrowed in ["tools:", "node:"] {
            assert!(narrow.contains(narrowed), "{narrow}");
        }
        assert!(
            narrow
                .lines()
                .all(|line| line.trim_start_matches("\u{1b}[1m").chars().count() <= columns.into()),
            "{narrow}"
        );
    }
    let shown = gateway.cli(&["token", "show", "ann"]).run_on_terminal(80).await.stdout;
    assert!(shown.contains("channels  lobby (read)") && shown.contains("role"), "{shown}");
    assert!(shown.contains("tools     none") && shown.contains("models    none"), "{shown}");
    gateway.cli(&["token", "show", "nobody"]).run().await.assert_code(5);
    gateway.stop().await;
}

#[tokio::test]
async fn a_name_that_a_valid_token_has_is_pointed_out() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let make = || gateway.cli(&["token", "create", "bot"]).run();
    assert_eq!(make().await.assert_code(0).stderr, "");
    let tokens = gateway.operator().get("/v1/tokens").await.body["tokens"].clone();
    let first =
        tokens.as_array().unwrap().iter().find(|token| token["name"] == "bot").unwrap()["id"]
            .as_str()
            .unwrap();
    let second = make().await;
    assert!(
        second.assert_code(0).stderr.contains(&format!("switchboard token revoke {first}")),
        "{}",
        second.stderr
    );
    assert!(make().await.stderr.contains("2 other tokens"));
    gateway.cli(&["token", "revoke", first]).run().await.assert_code(0);
    assert!(make().await.stderr.contains("2 other tokens"), "a revoked one does not count");
    gateway.stop().await;
}

/// A narrow terminal shows only the beginning of an id.
#[tokio::test]
async fn the_beginning_of_an_id_is_enough_where_no_others_is_the_same() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let (first, _) = gateway.token(json!({ "name": "bot", "role": "agent" })).await;
    gateway.token(json!({ "name": "bot", "role": "agent" })).await;
    let shown = gateway.cli(&["token", "show", &first[..30]]).run().await;
    assert!(shown.assert_code(0).stdout.contains(&first), "{}", shown.stdout);
    let several = gateway.cli(&["token", "revoke", &first[..8]]).run().await;
    assert!(several.assert_code(2).stderr.contains(&first), "{}", several.stderr);
    // A prefix that is too short could be a misspelt name.
    gateway.cli(&["token", "revoke", &first[..3]]).run().await.assert_code(5);
    let revoked = gateway.cli(&["token", "revoke", &first[..30]]).run().await;
    assert_eq!(revoked.assert_code(0).stdout, format!("revoked {first}\n"));
    gateway.cli(&["token", "revoke", &first[..30]]).run().await.assert_code(5);
    gateway.stop().await;
}

/// A restriction that does not apply to the role is refused, because it would have no effect.
#[tokio::test]
async fn what_says_nothing_for_a_role_is_refused() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    for (role, option) in [
        ("monitor", "--tool"),
        ("node", "--tool"),
        ("monitor", "--channel"),
        ("node", "--channel"),
        ("monitor", "--model"),
        ("node", "--model"),
        ("agent", "--node-id"),
    ] {
        let refused =
            gateway.cli(&["token", "create", "x", "--role", role, option, "a"]).run().await;
        assert!(refused.assert_code(2).stderr.contains(option), "{role}: {}", refused.stderr);
    }
    gateway
        .cli(&["token", "create", "x", "--role", "node", "--channel-right", "read"])
        .run()
        .await
        .assert_code(2);
    gateway.stop().await;
}

#[tokio::test]
async fn the_last_token_for_operators_is_revoked_only_where_that_is_said() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let (_, other) = gateway.token(json!({ "name": "other", "role": "operator" })).await;
    gateway.cli(&["token", "revoke", "other"]).run().await.assert_code(0);
    gateway.agent(&other).get("/v1/tokens").await.assert_problem(401, "unauthorized");
    let refused = gateway.cli(&["token", "revoke", "operator"]).run().await;
    let told = &refused.assert_code(9).stderr;
    assert!(
        told.contains("last valid operator token")
            && told.contains("restart")
            && told.contains("--yes"),
        "{told}"
    );
    gateway.operator().delete("/v1/tokens/operator").await.assert_problem(409, "conflict");
    gateway.cli(&["token", "revoke", "operator", "--yes"]).run().await.assert_code(0);
    gateway.operator().get("/v1/tokens").await.assert_problem(401, "unauthorized");
    // Restarts the gateway, as the warning advises.
    gateway.begin_stop();
    assert_eq!(gateway.exit_code().await, Some(0));
    let again = Setup::new().on(&gateway).spawn(SWITCHBOARD).await;
    again.cli(&["token", "list"]).run().await.assert_code(0);
    again.stop().await;
}

#[tokio::test]
async fn a_token_is_made_for_a_time_that_calendars_have() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    for time in ["0", "36500000d"] {
        let refused = gateway.cli(&["token", "create", "bot", "--expires-in", time]).run().await;
        assert!(refused.assert_code(2).stderr.contains("from 1s to 36500d"), "{}", refused.stderr);
    }
    for seconds in [0, 36_501 * 86_400_u64, u64::MAX] {
        let body = json!({ "name": "bot", "role": "agent", "expires_in_s": seconds });
        gateway.operator().post("/v1/tokens", &body).await.assert_problem(400, "bad_request");
    }
    gateway
        .token(json!({ "name": "bot", "role": "agent", "expires_in_s": 36_500 * 86_400_u64 }))
        .await;
    let list = gateway.cli(&["token", "list"]).run().await;
    assert!(!list.assert_code(0).stdout.contains("1970"), "{}", list.stdout);
    gateway.stop().await;
}
