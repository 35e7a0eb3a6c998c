//! A node pings at its interval and answers pings with their own timestamp.

use std::time::Duration;

use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn pings_come_again_and_again() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder().heartbeat_interval(Duration::from_millis(5)), echo());
    let mut peer = gateway.welcome(&[]).await;
    for _ in 0..3 {
        let ping = peer.recv().await;
        assert_eq!(ping["type"], "ping");
        assert!(ping["timestamp"].as_i64().unwrap() > 1_600_000_000_000);
        peer.send(json!({"type":"pong","timestamp":ping["timestamp"]})).await;
    }
    node.shut_down().await;
}

#[tokio::test]
async fn a_pong_echoes_the_timestamp() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), echo());
    let mut peer = gateway.welcome(&[]).await;
    for timestamp in ["1708099200000", "-5", "18446744073709551615"] {
        peer.send_text(&format!(r#"{{"type":"ping","timestamp":{timestamp}}}"#)).await;
        let pong = peer.recv_text().await;
        assert_eq!(pong, format!(r#"{{"type":"pong","timestamp":{timestamp}}}"#));
    }
    node.shut_down().await;
}

#[tokio::test]
async fn a_gateway_that_has_gone_silent_is_left() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), echo());
    let mut silent = gateway.welcome(&[]).await;
    // An answer shows that the node has received the welcome.
    silent.request("a", "t.echo", json!(1)).await;
    silent.recv().await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(2)).await;
    tokio::time::resume();
    let mut next = gateway.welcome(&[]).await;
    next.request("b", "t.echo", json!(2)).await;
    assert_eq!(next.recv().await["result"], 2);
    node.shut_down().await;
}
