//! Nodes reconnect after a restart and after a kill of the gateway.

use sa_gateway_kit::{Hello, SdkNode, Setup, eventually};
use serde_json::json;

#[tokio::test]
async fn nodes_come_back_by_themselves_after_the_gateway_restarts() {
    let mut gateway = Setup::new().spawn(crate::SWITCHBOARD).await;
    let node = SdkNode::echo(&gateway, "n").await;
    let address = gateway.address().to_owned();
    gateway.kill().await;
    let gateway = Setup::new().on(&gateway).at(&address).spawn(crate::SWITCHBOARD).await;
    let operator = gateway.operator();
    eventually("the node back", || async {
        (operator.get("/v1/nodes").await.body["nodes"][0]["online"] == true).then_some(())
    })
    .await;
    assert_eq!(operator.call("n.echo", json!({ "x": 1 })).await.result(), json!({ "x": 1 }));
    node.stop().await;
    gateway.stop().await;
}

/// Only saved nodes have it.
const FIELD_OF_A_NODE: &[u8] = b"\"bare_names\":";

#[tokio::test]
async fn nodes_are_remembered_over_a_kill_of_the_gateway() {
    let setup = |wait: &str| Setup::new().config(&format!("[limits]\nreconnect_wait_ms = {wait}"));
    let mut gateway = setup("100").spawn(crate::SWITCHBOARD).await;
    let _node = Hello::old("mac-01").capability("a").connect(&gateway).await;
    let is_saved = |path: std::path::PathBuf| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.windows(FIELD_OF_A_NODE.len()).any(|bytes| bytes == FIELD_OF_A_NODE)
    };
    eventually("the node in a file", || async {
        let mut files = std::fs::read_dir(gateway.data_dir()).unwrap();
        files.any(|file| is_saved(file.unwrap().path())).then_some(())
    })
    .await;
    // Whatever was written before a token is made is on the disk with it.
    gateway.token(json!({ "name": "any", "role": "agent" })).await;
    gateway.kill().await;
    let mut gateway = setup("100").on(&gateway).spawn(crate::SWITCHBOARD).await;
    assert_eq!(gateway.operator().tool_names().await, ["a"]);
    let reply = gateway.operator().call("a.b", json!({})).await;
    reply.assert_problem(503, "offline");
    assert_eq!(reply.body["retryable"], true);

    // The node is known after a second kill, too, though it was not here in between.
    gateway.kill().await;
    let gateway = setup("10000").on(&gateway).spawn(crate::SWITCHBOARD).await;
    let call = gateway.operator().call_later("a.b", json!({}));
    eventually("the call waiting", || async { (gateway.running_calls().await == 1).then_some(()) })
        .await;
    let mut node = Hello::old("mac-01").capability("a").connect(&gateway).await;
    let request = node.request().await;
    node.answer(&request.id, json!("back")).await;
    assert_eq!(call.await.unwrap().result(), "back");
    gateway.stop().await;
}
