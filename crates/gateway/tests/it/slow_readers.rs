//! A slow reader costs no more memory than its queue, and affects no one else. Its own connection
//! is closed with a reason. A node's connection carries calls of many callers, so only the calls
//! that do not fit are refused.

use sa_gateway_kit::{Hello, Message, Setup, Traffic, eventually};
use serde_json::json;

const LIMITS: &str = "[limits]\nmax_outbox_bytes = 2_000_000";

#[tokio::test]
async fn a_call_that_a_slow_node_has_no_room_for_fails_alone() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("slow").capability("a").connect(&gateway).await;
    let (bystander, other) =
        (gateway.new_agent("bystander").await, gateway.new_agent("other").await);
    let (mut bystander, mut other) = (bystander.socket().await, other.socket().await);
    bystander.call("1", "a.wait", json!({})).await;
    let waiting = node.request().await;

    // One fills the connection, another one the queue; a third does not fit.
    let large = json!({ "text": "x".repeat(10_000_000) });
    other.call("0", "a.b", large.clone()).await;
    sa_gateway_kit::soon(node.socket.get_ref().peek(&mut [0])).await.unwrap();
    other.call("1", "a.b", large.clone()).await;
    other.call("2", "a.b", large.clone()).await;
    let refusal = other.recv().await;
    assert_eq!(
        (&refusal["type"], &refusal["kind"]),
        (&json!("error"), &json!("overloaded")),
        "{refusal}"
    );
    assert_eq!(refusal["retryable"], true);
    let words = refusal["message"].as_str().unwrap();
    assert!(words.contains("\"slow\"") && words.contains("has to read 100"), "{words}");
    assert!(refusal["hint"].as_str().unwrap().contains("limits.max_outbox_bytes"), "{refusal}");
    // Control frames still get through: a cancel is queued even when the queue has no space for
    // calls.
    bystander.call("2", "a.b", json!({})).await;
    bystander.send(json!({ "type": "cancel", "id": "1" })).await;
    assert_eq!(bystander.wait_for("error", "1").await["kind"], "cancelled");

    // The node continues to read. All of this came on one connection: two large calls, the
    // bystander's second call, and its cancel.
    let (mut answered, mut cancelled) = (0, 0);
    while (answered, cancelled) != (3, 1) {
        let frame = node.recv().await;
        match frame["type"].as_str().unwrap() {
            "tool_request" => {
                let size = frame["args"]["text"].as_str().map_or(0, str::len);
                node.answer(frame["request_id"].as_str().unwrap(), json!(size)).await;
                answered += 1;
            }
            "tool_cancel" => {
                assert_eq!(frame["request_id"], waiting.id);
                cancelled += 1;
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(bystander.wait_for("done", "2").await["result"], 0);
    for _ in 0..2 {
        let done = other.recv().await;
        assert_eq!(
            (&done["type"], &done["result"]),
            (&json!("done"), &json!(10_000_000)),
            "{done}"
        );
    }
    node.settle().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_node_that_asks_and_does_not_read_is_closed_with_4429() {
    let gateway = Setup::new().config(LIMITS).start().await;
    let traffic = Traffic::start(&gateway).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    // A pong is as long as its ping and must be sent; nothing else can be dropped for it. A number
    // may have any number of digits after the point.
    let ping = format!("{{\"type\":\"ping\",\"timestamp\":1.{}}}", "0".repeat(1_000_000));
    for _ in 0..40 {
        // The gateway drops the connection when nothing is read after its close frame.
        if !node.try_send(Message::text(ping.clone())).await {
            break;
        }
    }
    // Counted for the code 4429 only.
    eventually("it counted", || async {
        (gateway.refused("node", "too_slow").await == 1).then_some(())
    })
    .await;
    traffic.end().await;
}

#[tokio::test]
async fn a_reader_of_events_that_is_too_far_behind_loses_its_call() {
    let gateway = Setup::new().start().await;
    let traffic = Traffic::start(&gateway).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let mut events = gateway.operator().stream("a.b", json!({})).await;
    let request = node.request().await;
    let large = "x".repeat(20_000);
    for _ in 0..2_000 {
        node.chunk(&request.id, json!(large)).await;
    }
    assert_eq!(node.cancelled(&request).await, "reader_too_slow");
    assert_eq!(events.wait_for("error").await["kind"], "overloaded");
    traffic.end().await;
}

#[tokio::test]
async fn so_it_does_for_few_events_that_are_large() {
    let gateway = Setup::new().config(LIMITS).start().await;
    let traffic = Traffic::start(&gateway).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let mut events = gateway.operator().stream("a.b", json!({})).await;
    let request = node.request().await;
    // More than the connection and the queue can buffer, but far fewer events than the queue's
    // limit.
    let large = json!("x".repeat(1_000_000));
    for _ in 0..40 {
        node.chunk(&request.id, large.clone()).await;
    }
    assert_eq!(node.cancelled(&request).await, "reader_too_slow");
    // The queued events are discarded. The data that was already sent arrives, and then the reason.
    let mut chunks = 0;
    let error = loop {
        match events.next().await.unwrap() {
            (name, _) if name == "chunk" => chunks += 1,
            (name, error) => break (name, error),
        }
    };
    assert_eq!((&*error.0, &error.1["kind"]), ("error", &json!("overloaded")), "{}", error.1);
    assert!(chunks < 38, "{chunks} of 40");
    traffic.end().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_node_that_reads_nothing_at_all_does_not_keep_its_calls() {
    let timeout = "[nodes]\nping_interval_ms = 1000\ndead_after_ms = 5000";
    let gateway =
        Setup::new().config(LIMITS).config("reconnect_wait_ms = 100").config(timeout).start().await;
    let traffic = Traffic::start(&gateway).await;
    let deaf = Hello::new("n").capability("a").connect(&gateway).await;
    let operator = gateway.operator();
    let body = json!({ "args": "x".repeat(1_000_000), "timeout_ms": 60_000 });
    // More than the connection can buffer, so a write blocks in the middle of a message.
    let calls: Vec<_> = (0..40).map(|_| operator.call_later("a.b", body.clone())).collect();
    let mut kinds = Vec::new();
    for call in calls {
        let reply = call.await.unwrap();
        kinds.push(reply.body["kind"].as_str().unwrap().to_owned());
    }
    // Calls that do not fit are refused at once; the others end with the node.
    assert!(kinds.iter().all(|kind| kind == "overloaded" || kind == "offline"), "{kinds:?}");
    assert!(
        kinds.iter().any(|kind| kind == "overloaded") && kinds.iter().any(|kind| kind == "offline"),
        "{kinds:?}"
    );
    // A peer that blocks a write is counted as not reading. A peer that sends nothing meanwhile is
    // counted as silent.
    eventually("it counted", || async {
        let ends = gateway.refused("node", "reads_nothing").await
            + gateway.refused("node", "silent").await;
        (ends == 1).then_some(())
    })
    .await;
    traffic.end().await;
    drop(deaf);
}
