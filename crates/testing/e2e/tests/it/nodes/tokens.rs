//! The command line and the log report what the first and the last node token change.

use sa_gateway_kit::{FakeNode, Gateway, Hello, Setup};
use serde_json::json;

async fn refused(gateway: &Gateway, query: &str) {
    let refused = FakeNode::upgrade(gateway, query).await.expect_err(query);
    assert_eq!(
        (refused.status, &refused.body["kind"]),
        (401, &json!("unauthorized")),
        "{query}: {}",
        refused.body
    );
    assert!(refused.body["hint"].is_string());
}

#[tokio::test]
async fn revoking_the_last_token_for_nodes_leaves_the_door_closed_and_says_so() {
    let gateway = Setup::new().spawn(crate::SWITCHBOARD).await;
    Hello::new("open").connect(&gateway).await;
    gateway.token(json!({ "name": "one", "role": "node" })).await;
    gateway.token(json!({ "name": "two", "role": "node" })).await;
    let first = gateway.cli(&["token", "revoke", "one"]).run().await;
    assert_eq!(first.assert_code(0).stderr, "", "another one is valid");
    let last = gateway.cli(&["token", "revoke", "two"]).run().await;
    assert!(
        last.assert_code(0).stderr.contains("switchboard token create NAME --role node"),
        "{}",
        last.stderr
    );
    refused(&gateway, "").await;
    // The restriction survives a restart.
    let again = Setup::new().on(&gateway);
    gateway.stop().await;
    let gateway = again.spawn(crate::SWITCHBOARD).await;
    refused(&gateway, "").await;
    // The warning appears for no other kind of token.
    gateway.token(json!({ "name": "bot", "role": "agent" })).await;
    assert_eq!(gateway.cli(&["token", "revoke", "bot"]).run().await.stderr, "");
    // An expired token causes no warning either.
    gateway.token(json!({ "name": "brief", "role": "node", "expires_in_s": 1 })).await;
    sa_gateway_kit::eventually("its end", || async {
        gateway
            .cli(&["token", "show", "brief"])
            .run()
            .await
            .stdout
            .contains("expired")
            .then_some(())
    })
    .await;
    assert_eq!(gateway.cli(&["token", "revoke", "brief"]).run().await.stderr, "");
    gateway.stop().await;
}

#[tokio::test]
async fn with_no_token_anywhere_this_machine_is_let_in_with_a_warning() {
    let gateway = Setup::new().spawn(crate::SWITCHBOARD).await;
    // The two outputs are read separately, so the warning may be seen after a line that was printed
    // later.
    sa_gateway_kit::eventually("the warning", || async {
        gateway.stderr().contains("no node token is set").then_some(())
    })
    .await;
    Hello::new("n").connect(&gateway).await;
    // Without node tokens, the node's own token is ignored.
    Hello::new("m").token("whatever").connect(&gateway).await;
    gateway.stop().await;
}
