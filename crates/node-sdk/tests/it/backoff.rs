//! A node reconnects after every loss. It gives up after the configured number of failures in a
//! row, and a welcome resets the count.

use std::time::Duration;

use sa_node_sdk::{NodeSdkError, ReconnectBackoff};
use serde_json::json;

use crate::support::*;

fn quick(max_attempts: u32) -> ReconnectBackoff {
    let delay = Duration::from_millis(1);
    ReconnectBackoff { initial_delay: delay, max_delay: delay, backoff_factor: 1.0, max_attempts }
}

#[tokio::test]
async fn comes_back_after_a_loss() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), echo());
    for code in [1001, 4408, 4410, 4429] {
        gateway.welcome(&[]).await.close(code, "later").await;
    }
    drop(gateway.welcome(&[]).await);
    let mut peer = gateway.welcome(&[]).await;
    peer.request("r", "t.echo", json!("back")).await;
    assert_eq!(peer.recv().await["result"], "back");
    node.shut_down().await;
}

#[tokio::test]
async fn gives_up_after_max_attempts() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder().reconnect_backoff(quick(3)), echo());
    for _ in 0..3 {
        gateway.refuse("503 Service Unavailable", "starting").await;
    }
    assert!(matches!(node.end().await, NodeSdkError::ReconnectExhausted(3)));
}

#[tokio::test]
async fn a_welcome_resets_the_count() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder().reconnect_backoff(quick(2)), echo());
    for _ in 0..3 {
        gateway.refuse("503 Service Unavailable", "").await;
        gateway.welcome(&[]).await.close(1001, "").await;
    }
    gateway.refuse("503 Service Unavailable", "").await;
    gateway.refuse("503 Service Unavailable", "").await;
    assert!(matches!(node.end().await, NodeSdkError::ReconnectExhausted(2)));
}

#[tokio::test]
async fn a_node_that_was_replaced_waits_longest() {
    let gateway = Gateway::start().await;
    let backoff = ReconnectBackoff { max_delay: Duration::from_hours(1), ..quick(0) };
    let node = Node::start(gateway.builder().reconnect_backoff(backoff), echo());
    gateway.welcome(&[]).await.close(1001, "").await;
    gateway.welcome(&[]).await.close(4410, "replaced").await;
    // The node now waits for an hour. A node that did not wait would connect before the shutdown
    // completes.
    tokio::select! {
        biased;
        _ = gateway.tcp() => panic!("the node came back at once"),
        () = node.shut_down() => {}
    }
}
