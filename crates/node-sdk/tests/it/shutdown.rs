//! In every state, a node that is shut down ends with `Shutdown`.

use std::time::Duration;

use sa_node_sdk::ReconnectBackoff;
use serde_json::Value;

use crate::support::*;

#[tokio::test]
async fn while_connecting() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), echo());
    let _silent = gateway.tcp().await;
    node.shut_down().await;
}

#[tokio::test]
async fn while_waiting_for_the_welcome() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), echo());
    let mut peer = gateway.upgrade().await;
    peer.recv().await;
    node.shut_down().await;
}

#[tokio::test]
async fn while_backing_off() {
    let gateway = Gateway::start().await;
    let hour = Duration::from_hours(1);
    let backoff =
        ReconnectBackoff { initial_delay: hour, max_delay: hour, ..ReconnectBackoff::default() };
    let node = Node::start(gateway.builder().reconnect_backoff(backoff), echo());
    gateway.refuse("503 Service Unavailable", "").await;
    node.shut_down().await;
}

#[tokio::test]
async fn while_a_tool_runs() {
    let gateway = Gateway::start().await;
    let mut gate = gate();
    let node = Node::start(gateway.builder(), gate.registry);
    let mut peer = gateway.welcome(&[]).await;
    peer.request("a", "t.gate", Value::Null).await;
    soon(gate.started.recv()).await;
    node.shut_down().await;
    assert_eq!(u16::from(peer.recv_close().await.unwrap().code), 1000);
    assert_eq!(soon(gate.cancelled.recv()).await.unwrap(), "a");
}

#[tokio::test]
async fn before_it_started() {
    let gateway = Gateway::start().await;
    let client = gateway.builder().build().unwrap();
    let shutdown = tokio_util::sync::CancellationToken::new();
    shutdown.cancel();
    assert!(matches!(
        soon(client.run(echo(), shutdown)).await,
        Err(sa_node_sdk::NodeSdkError::Shutdown)
    ));
}
