//! When a node dies, its calls fail at once. A call during its restart waits and succeeds, and a
//! call to a node that is away for longer gets an error.

use sa_core::store::Records as _;
use sa_testkit::{Gateway, Hello, SdkNode, Setup, eventually};
use serde_json::json;

#[tokio::test]
async fn a_node_that_dies_in_the_middle_fails_its_calls_at_once() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("mac-01").capability("a").connect(&gateway).await;
    let call = gateway.operator().call_later("a.b", json!({}));
    node.request().await;
    drop(node);
    let reply = call.await.unwrap();
    reply.assert_problem(503, "offline");
    assert!(reply.detail().contains("mac-01"), "{}", reply.text);
    assert_eq!(reply.body["retryable"], false, "it may have had an effect");
}

#[tokio::test]
async fn a_call_during_a_restart_waits_and_succeeds() {
    let gateway = Setup::new().start().await;
    let node = Hello::new("n").capability("a").connect(&gateway).await;
    drop(node);
    let operator = gateway.operator();
    eventually("it gone", || async {
        (operator.get("/v1/nodes").await.body["nodes"][0]["online"] == false).then_some(())
    })
    .await;
    let call = operator.call_later("a.b", json!({}));
    eventually("the call waiting", || async { (gateway.running_calls().await == 1).then_some(()) })
        .await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let request = node.request().await;
    node.answer(&request.id, json!("back")).await;
    assert_eq!(call.await.unwrap().result(), "back");
}

#[tokio::test]
async fn a_node_that_is_gone_for_longer_is_named_with_its_absence() {
    let gateway = Setup::new().config("[limits]\nreconnect_wait_ms = 100").start().await;
    let node = Hello::new("mac-01").capability("a").connect(&gateway).await;
    drop(node);
    let reply = gateway.operator().call("a.b", json!({})).await;
    reply.assert_problem(503, "offline");
    for words in ["the tool \"a.b\" exists", "mac-01", "disconnected"] {
        assert!(reply.detail().contains(words), "{}", reply.text);
    }
    assert_eq!(reply.body["retryable"], true);
}

#[tokio::test]
async fn a_node_that_was_stopped_is_named_as_such() {
    let gateway = Setup::new().config("[limits]\nreconnect_wait_ms = 1").start().await;
    SdkNode::echo(&gateway, "mac-01").await.stop().await;
    eventually("it gone", || async {
        (gateway.operator().get("/v1/nodes").await.body["nodes"][0]["online"] == false)
            .then_some(())
    })
    .await;
    let reply = gateway.operator().call("mac-01.echo", json!({})).await;
    reply.assert_problem(503, "offline");
    for words in ["the tool \"mac-01.echo\" exists", "its node \"mac-01\" was stopped"] {
        assert!(reply.detail().contains(words), "{}", reply.text);
    }
    assert!(
        reply.body["hint"].as_str().unwrap().contains("start the node again"),
        "{}",
        reply.text
    );
    let node = gateway.operator().get("/v1/nodes").await.body["nodes"][0].clone();
    assert_eq!((&node["online"], &node["stopped"]), (&json!(false), &json!(true)));
}

#[tokio::test]
async fn an_orderly_restart_costs_no_call() {
    // Long enough even on a busy machine.
    let gateway = Setup::new().config("[limits]\nreconnect_wait_ms = 80_000").start().await;
    SdkNode::echo(&gateway, "n").await.stop().await;
    let operator = gateway.operator();
    eventually("it gone", || async {
        (operator.get("/v1/nodes").await.body["nodes"][0]["stopped"] == true).then_some(())
    })
    .await;
    let call = operator.call_later("n.echo", json!({ "args": { "x": 1 } }));
    eventually("the call waiting", || async { (gateway.running_calls().await == 1).then_some(()) })
        .await;
    let node = SdkNode::echo(&gateway, "n").await;
    assert_eq!(call.await.unwrap().result(), json!({ "x": 1 }));
    assert_eq!(operator.get("/v1/nodes").await.body["nodes"][0].get("stopped"), None);
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_is_gone_for_good_is_forgotten() {
    let gateway = Setup::new().config("[nodes]\noffline_memory_ms = 50").start().await;
    let node = Hello::new("n").capability("a").connect(&gateway).await;
    drop(node);
    eventually("it forgotten", || async {
        gateway.inner().router.directory().sweep();
        let nodes = gateway.operator().get("/v1/nodes").await.body;
        nodes["nodes"].as_array()?.is_empty().then_some(())
    })
    .await;
    gateway.operator().call("a.b", json!({})).await.assert_problem(404, "not_found");
}

#[tokio::test]
async fn nodes_are_remembered_over_a_restart_of_the_gateway() {
    let setup = |wait: &str| Setup::new().config(&format!("[limits]\nreconnect_wait_ms = {wait}"));
    let gateway = setup("10000").start().await;
    let _node = Hello::old("mac-01").capability("a").connect(&gateway).await;
    let again = setup("100").on(&gateway);
    gateway.stop().await;
    let gateway = again.start().await;
    let operator = gateway.operator();
    assert_eq!(operator.tool_names().await, ["a"]);
    let reply = operator.call("a.b", json!({})).await;
    reply.assert_problem(503, "offline");
    assert_eq!(reply.body["retryable"], true);
    assert_eq!(operator.get("/v1/nodes").await.body["nodes"][0]["online"], false);

    let again = setup("10000").on(&gateway);
    // The node is still known after a second restart, even though it was not connected in between.
    gateway.stop().await;
    let gateway = again.start().await;
    let call = gateway.operator().call_later("a.b", json!({}));
    eventually("the call waiting", || async { (gateway.running_calls().await == 1).then_some(()) })
        .await;
    let mut node = Hello::old("mac-01").capability("a").connect(&gateway).await;
    let request = node.request().await;
    node.answer(&request.id, json!("back")).await;
    assert_eq!(call.await.unwrap().result(), "back");
}

#[tokio::test]
async fn a_node_that_was_stopped_is_not_waited_for_after_a_restart() {
    let gateway = Setup::new().start().await;
    let node = SdkNode::echo(&gateway, "n").await;
    // The node is saved as online before it stops.
    let saved = async || gateway.inner().store.get("nodes", "n").await.unwrap();
    eventually("it saved", || async { saved().await.is_some().then_some(()) }).await;
    node.stop().await;
    let stopped = async |gateway: &Gateway| {
        gateway.operator().get("/v1/nodes").await.body["nodes"][0]["stopped"].clone()
    };
    eventually("it stopped", || async { (stopped(&gateway).await == true).then_some(()) }).await;
    let again = Setup::new().on(&gateway);
    gateway.stop().await;
    let gateway = again.start().await;
    assert_eq!(stopped(&gateway).await, true);
}

#[tokio::test]
async fn a_node_whose_token_is_gone_is_forgotten_by_a_restart() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "secret").start().await;
    let _node = Hello::new("n").capability("a").token("secret").connect(&gateway).await;
    let (same, none) = (Setup::new().env("SA_NODE_TOKEN", "other").on(&gateway), Setup::new());
    gateway.stop().await;
    // The same grant with a new secret, as after a rotation by the operator.
    let gateway = same.start().await;
    assert_eq!(gateway.operator().tool_names().await, ["a"]);
    let none = none.on(&gateway);
    gateway.stop().await;
    let gateway = none.start().await;
    assert_eq!(gateway.operator().tool_names().await, [] as [&str; 0]);
    gateway.operator().call("a.b", json!({})).await.assert_problem(404, "not_found");
}
