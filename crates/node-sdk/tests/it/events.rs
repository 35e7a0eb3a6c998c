//! A node's events reach a gateway that supports them, even if they were sent while none was
//! connected. When the queue is full the oldest event is lost, and no invalid event is sent.

use serde_json::json;

use crate::support::*;
use sa_node_sdk::NodeEvents;
use sa_node_sdk::protocol::MAX_EVENT_BYTES;

#[tokio::test]
async fn events_arrive_at_once_and_wait_for_a_gateway() {
    let gateway = Gateway::start().await;
    let events = NodeEvents::new();
    events.send("process.started", json!({ "command": "make" }));
    let node = Node::start(gateway.builder().events(&events), echo());
    let mut peer = gateway.upgrade().await;
    assert!(peer.recv().await["features"].as_array().unwrap().contains(&json!("events")));
    peer.send(json!({ "type": "gateway_welcome", "features": ["events"] })).await;
    let early = peer.recv().await;
    assert_eq!(
        (&early["type"], &early["event"]),
        (&json!("node_event"), &json!("process.started"))
    );
    assert_eq!(early["data"], json!({ "command": "make" }));
    assert!(early["at_ms"].as_i64().unwrap() > 1_700_000_000_000);
    // The connection is idle: nothing else would wake it.
    events.send("process.finished", json!(null));
    let idle = peer.recv().await;
    assert_eq!((&idle["event"], idle.get("data")), (&json!("process.finished"), None));
    drop(peer);
    let mut again = gateway.welcome(&["events"]).await;
    events.send("again", json!(1));
    assert_eq!(again.recv().await["event"], "again");
    node.shut_down().await;
}

#[tokio::test]
async fn a_gateway_that_did_not_ask_gets_none_and_the_next_one_gets_them() {
    let gateway = Gateway::start().await;
    let events = NodeEvents::new();
    let node = Node::start(gateway.builder().events(&events), echo());
    let mut old = gateway.welcome(&["tool_cancel"]).await;
    events.send("kept", json!(null));
    old.request("r", "t.echo", json!({})).await;
    assert_eq!(old.recv().await["type"], "tool_response");
    drop(old);
    let mut new = gateway.welcome(&["events"]).await;
    assert_eq!(new.recv().await["event"], "kept");
    node.shut_down().await;
}

#[tokio::test]
async fn a_node_without_events_does_not_list_them() {
    let gateway = Gateway::start().await;
    let node = Node::start(gateway.builder(), echo());
    let mut peer = gateway.upgrade().await;
    assert!(!peer.recv().await["features"].as_array().unwrap().contains(&json!("events")));
    drop(peer);
    node.shut_down().await;
}

#[tokio::test]
async fn what_waits_is_bounded_in_number_and_in_size() {
    let gateway = Gateway::start().await;
    let events = NodeEvents::new();
    for n in 0..300 {
        events.send("count", json!(n));
    }
    let node = Node::start(gateway.builder().events(&events), echo());
    let mut peer = gateway.welcome(&["events"]).await;
    assert_eq!(peer.recv().await["data"], 44, "the oldest are lost");
    for n in 45..300 {
        assert_eq!(peer.recv().await["data"], n);
    }
    events.send("large", json!("\u{1}".repeat(MAX_EVENT_BYTES)));
    let large = peer.recv().await;
    assert_eq!(large["data"]["_truncated"], true);
    assert!(large["data"].to_string().len() <= MAX_EVENT_BYTES);
    node.shut_down().await;
}

#[test]
fn a_name_that_no_gateway_takes_is_refused_at_once() {
    let events = NodeEvents::new();
    for name in ["", "Process", "a b", "a..b", ".a", "a\u{7}", &"a".repeat(129)] {
        assert!(events.try_send(name, json!(null)).is_err(), "{name:?}");
        events.send(name, json!(null));
    }
    assert!(format!("{events:?}").contains("waiting: 0"), "{events:?}");
    assert!(events.try_send("a.b_c-1", json!(null)).is_ok());
}
