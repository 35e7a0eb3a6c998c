//! A peer that disappears without a close is detected by its silence; a peer that is only slow is
//! not.

use sa_gateway_kit::{Hello, Setup, Traffic, eventually};
use serde_json::json;

const QUICK: &str = "[nodes]\nping_interval_ms = 100\ndead_after_ms = 400";

#[tokio::test]
async fn a_node_that_answers_no_ping_is_dead() {
    let gateway =
        Setup::new().config(QUICK).config("[limits]\nreconnect_wait_ms = 1").start().await;
    // The test does not read this socket, so the gateway's pings are not answered.
    let node = Hello::new("n").capability("a").connect(&gateway).await;
    let reply = gateway.operator().call("a.b", json!({})).await;
    reply.assert_problem(503, "offline");
    assert_eq!(gateway.refused("node", "silent").await, 1);
    let nodes = gateway.operator().get("/v1/nodes").await.body;
    assert_eq!(nodes["nodes"][0]["online"], false);
    drop(node);
}

#[tokio::test]
async fn a_quiet_peer_that_answers_pings_stays() {
    let gateway = Setup::new().config(QUICK).start().await;
    let traffic = Traffic::start(&gateway).await;
    let node = Hello::new("n").capability("a").connect(&gateway).await.echo();
    let _idle = Hello::new("dead").connect(&gateway).await;
    eventually("the dead one gone", || async {
        (gateway.refused("node", "silent").await == 1).then_some(())
    })
    .await;
    assert_eq!(gateway.operator().call("a.b", json!({ "x": 1 })).await.result(), json!({ "x": 1 }));
    traffic.end().await;
    node.abort();
}

#[tokio::test]
async fn an_agent_that_answers_no_ping_loses_its_calls() {
    let gateway = Setup::new().config(QUICK).start().await;
    let (registry, mut gate) = sa_gateway_kit::gate("a.gate");
    let _node = sa_gateway_kit::SdkNode::start(&gateway, "n", registry, |builder| builder).await;
    let mut socket = gateway.operator().socket().await;
    socket.call("1", "a.gate", json!({})).await;
    let started = sa_gateway_kit::soon(gate.started.recv()).await;
    assert_eq!(sa_gateway_kit::soon(gate.cancelled.recv()).await, started);
    drop(socket);
}

#[tokio::test]
async fn a_half_closed_socket_is_a_closed_one() {
    let gateway = Setup::new().config("[limits]\nreconnect_wait_ms = 1").start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let call = gateway.operator().call_later("a.b", json!({}));
    node.request().await;
    node.half_close().await;
    call.await.unwrap().assert_problem(503, "offline");
}
