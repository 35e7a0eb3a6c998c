//! An agent's bad frames on the WebSocket for calls are answered and do not affect others.

use futures_util::SinkExt as _;
use sa_testkit::{Gateway, Hello, Message, Setup, Traffic};
use serde_json::json;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

async fn gateway() -> Gateway {
    Setup::new().config("[limits]\nmax_frame_bytes = 1_000_000").start().await
}

#[tokio::test]
async fn frames_that_cannot_be_read_are_answered() {
    let gateway = gateway().await;
    let traffic = Traffic::start(&gateway).await;
    let mut socket = gateway.operator().socket().await;
    let deep = format!("{{\"type\":\"call\",\"x\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let frames = [
        "",
        "nonsense",
        "[]",
        "{}",
        "{\"type\":5}",
        "{\"type\":\"call\"}",
        "{\"type\":\"call\",\"id\":\"1\"}",
        "{\"type\":\"call\",\"id\":1,\"tool\":\"a.b\"}",
        "{\"type\":\"call\",\"id\":\"1\",\"tool\":\"a.b\",\"timeout_ms\":\"long\"}",
        "{\"type\":\"call\",\"id\":\"1\",\"id\":\"2\",\"tool\":\"a.b\"}",
        "{\"type\":\"cancel\"}",
        // By default the deserializer would read a list as the fields of a frame in order.
        "[\"listen\"]",
        "[\"call\",\"1\",\"a.b\",{}]",
        &deep,
    ];
    for frame in frames {
        socket.send_raw(Message::text(frame)).await;
        let answer = socket.recv().await;
        assert_eq!(
            (&answer["type"], &answer["kind"]),
            (&json!("error"), &json!("invalid_args")),
            "{frame}: {answer}"
        );
    }
    assert_eq!(gateway.refused("calls_ws", "bad_frame").await, frames.len() as u64);
    // Valid frames with invalid values are refused, as over REST.
    for (field, value) in [("timeout_ms", json!(0)), ("idempotency_key", json!("k".repeat(257)))] {
        let mut call = json!({ "type": "call", "id": "1", "tool": "a.b", "args": {} });
        call[field] = value;
        socket.send(call).await;
        let answer = socket.recv().await;
        assert_eq!(
            (&answer["id"], &answer["kind"]),
            (&json!("1"), &json!("invalid_args")),
            "{answer}"
        );
        assert!(answer["message"].as_str().unwrap().contains(field), "{answer}");
    }
    // The answer names the call if its id can be read.
    socket
        .send_raw(Message::text(
            "{\"type\":\"call\",\"id\":\"7\",\"tool\":\"a.b\",\"timeout_ms\":\"long\"}",
        ))
        .await;
    assert_eq!(socket.recv().await["id"], "7");
    traffic.end().await;
}

#[tokio::test]
async fn a_type_that_is_not_known_is_answered_where_somebody_waits_for_an_answer() {
    let gateway = gateway().await;
    let mut socket = gateway.operator().socket().await;
    for kind in ["cal", "Call", "done"] {
        socket
            .send(json!({ "type": kind, "id": "4", "tool": "a.b", "timeout_ms": "ignored" }))
            .await;
        let answer = socket.recv().await;
        assert_eq!((&answer["type"], &answer["id"]), (&json!("error"), &json!("4")), "{answer}");
        assert_eq!(answer["kind"], "invalid_args", "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(&format!("\"{kind}\"")), "{answer}");
    }
    // A frame without an id gets no answer, and frames of a later version are ignored.
    socket.send(json!({ "type": "from_the_future" })).await;
    socket.send(json!({ "type": "from_the_future", "id": [1] })).await;
    socket.send(json!({ "type": "ping", "timestamp": 7 })).await;
    assert_eq!(socket.recv().await, json!({ "type": "pong", "timestamp": 7 }));
    assert_eq!(gateway.refused("calls_ws", "bad_frame").await, 3);
}

#[tokio::test]
async fn arguments_that_are_too_deep_are_refused_and_the_node_never_sees_them() {
    let gateway = gateway().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let request = gateway.operator().request(reqwest::Method::POST, "/v1/tools/a.b/call");
    let reply = sa_testkit::Reply::of(request.body(format!("{{\"args\":{deep}}}"))).await;
    reply.assert_problem(422, "invalid_args");
    let mut socket = gateway.operator().socket().await;
    let frame = format!("{{\"type\":\"call\",\"id\":\"1\",\"tool\":\"a.b\",\"args\":{deep}}}");
    socket.send_raw(Message::text(frame)).await;
    assert_eq!(socket.recv().await["kind"], "invalid_args");
    node.settle().await;
}

#[tokio::test]
async fn what_breaks_the_protocol_ends_that_connection() {
    let gateway = gateway().await;
    let traffic = Traffic::start(&gateway).await;
    let text =
        |bytes: Vec<u8>| Message::Frame(Frame::message(bytes, OpCode::Data(Data::Text), true));
    for (message, code, reason) in [
        (Message::binary(vec![1]), 1003, "binary"),
        (text(vec![b'"', 0xff, b'"']), 1007, "not_utf8"),
        (Message::text("x".repeat(1_000_001)), 1009, "too_large"),
    ] {
        let mut socket = gateway.operator().socket().await;
        let _ = socket.socket.send(message).await;
        assert_eq!(socket.closed().await.0, code);
        sa_testkit::eventually(reason, || async {
            (gateway.refused("calls_ws", reason).await == 1).then_some(())
        })
        .await;
    }
    traffic.end().await;
}

#[tokio::test]
async fn an_id_in_use_is_a_conflict_and_the_first_call_goes_on() {
    let gateway = gateway().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let mut socket = gateway.operator().socket().await;
    socket.call("1", "a.b", json!({})).await;
    let request = node.request().await;
    socket.call("1", "a.b", json!({})).await;
    assert_eq!(socket.recv().await["kind"], "conflict");
    node.answer(&request.id, json!("first")).await;
    assert_eq!(socket.wait_for("done", "1").await["result"], "first");
    // The id is free again.
    socket.call("1", "a.b", json!({})).await;
    let request = node.request().await;
    node.answer(&request.id, json!("second")).await;
    assert_eq!(socket.wait_for("done", "1").await["result"], "second");
}

#[tokio::test]
async fn an_id_that_is_too_long_to_be_sent_back_is_refused_and_counted() {
    let gateway = Setup::new().start().await;
    let mut socket = gateway.operator().socket().await;
    socket.call(&"x".repeat(257), "a.b", json!({})).await;
    let refused = socket.recv().await;
    assert_eq!(
        (&refused["type"], &refused["kind"], refused.get("id")),
        (&json!("error"), &json!("invalid_args"), None)
    );
    assert_eq!(gateway.refused("calls_ws", "bad_call").await, 1);
}
