//! Node events outside of calls reach operators in the feed and in the list of nodes. A flood or
//! invalid events are counted and dropped without harm.

use sa_node_sdk::NodeEvents;
use sa_testkit::{Hello, SdkNode, Setup, registry};
use serde_json::{Value, json};

fn event(name: &str, data: Value) -> Value {
    json!({ "type": "node_event", "event": name, "data": data })
}

#[tokio::test]
async fn operators_see_an_event_as_it_happens_and_agents_do_not() {
    let gateway = Setup::new().start().await;
    let events = NodeEvents::new();
    let echo = registry("n.echo", |_, args| async { Ok(args) });
    let _node = SdkNode::start(&gateway, "laptop", echo, |builder| builder.events(&events)).await;
    let (mut feed, agent) = (gateway.operator().follow().await, gateway.new_agent("a").await);
    let mut agents_feed = agent.follow().await;
    events.send(
        "process.finished",
        json!({ "command": "make", "exitCode": 0, "password": "hunter2" }),
    );
    let seen = feed.wait_for("node_event").await;
    assert_eq!((&seen["node"], &seen["event"]), (&json!("laptop"), &json!("process.finished")));
    assert_eq!(seen["data"], json!({ "command": "make", "exitCode": 0, "password": "***" }));
    assert!(seen["at_ms"].as_i64().unwrap() > 1_700_000_000_000);
    let nodes = gateway.operator().get("/v1/nodes").await.body;
    assert_eq!(nodes["nodes"][0]["recent_events"], json!([seen]));
    // The agent's next event is its own call.
    agent.call("n.echo", json!({})).await.result();
    loop {
        let (name, data) = agents_feed.next().await.unwrap();
        assert_ne!(name, "node_event", "{data}");
        if name == "call_ended" {
            break;
        }
    }
}

#[tokio::test]
async fn a_flood_is_dropped_and_nobody_else_notices() {
    let gateway = Setup::new().start().await;
    let mut noisy = Hello::new("noisy").tool("Bash").connect(&gateway).await;
    let mut quiet = Hello::new("quiet").tool("a.b").connect(&gateway).await;
    let mut feed = gateway.operator().follow().await;
    for n in 0..2_000 {
        noisy.send(event("noise", json!(n))).await;
    }
    noisy.settle().await;
    assert!(gateway.refused("node", "event_flood").await > 1_000);
    quiet.send(event("word", Value::Null)).await;
    loop {
        let seen = feed.wait_for("node_event").await;
        if seen["node"] == "quiet" {
            assert_eq!((&seen["event"], seen.get("data")), (&json!("word"), None));
            break;
        }
    }
    // The noisy node still works.
    let call = gateway.operator().call_later("noisy__Bash", json!({}));
    let request = noisy.request().await;
    noisy.answer(&request.id, json!(1)).await;
    assert_eq!(call.await.unwrap().result(), 1);
    let nodes = gateway.operator().get("/v1/nodes").await.body;
    assert!(nodes["nodes"][0]["recent_events"].as_array().unwrap().len() <= 16);
}

#[tokio::test]
async fn nonsense_is_counted_and_dropped() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").tool("a.b").connect(&gateway).await;
    let mut feed = gateway.operator().follow().await;
    for name in ["", "Process Ended", "a\u{1b}[2J", "a..b"] {
        node.send(event(name, json!(1))).await;
    }
    let unreadable = r#"{"type":"node_event","event":"a","data":1e999}"#;
    node.send_raw(sa_testkit::Message::text(unreadable)).await;
    node.send(event("large", json!("x".repeat(40_000)))).await;
    node.send(json!({ "type": "node_event", "data": 1 })).await;
    node.send(json!({ "type": "node_event", "event": "late", "at_ms": 9_000_000_000_000_000_i64 }))
        .await;
    let seen = feed.wait_for("node_event").await;
    assert_eq!(seen["event"], "late", "only what can be used is passed on");
    assert!(
        seen["at_ms"].as_i64().unwrap() < 9_000_000_000_000_i64,
        "nothing happens in the future"
    );
    assert_eq!(gateway.refused("node", "bad_event").await, 5);
    assert_eq!(gateway.refused("node", "event_too_large").await, 1);
    assert_eq!(gateway.refused("node", "bad_frame").await, 1);
}
