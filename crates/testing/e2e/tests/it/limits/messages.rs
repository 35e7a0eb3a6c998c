//! A wrong message from a peer gets a clear error or a closed connection, costs bounded memory, is
//! counted, and never disturbs another call.
//!
//! Each test sends one kind of wrong message to every affected endpoint of a gateway. Then it
//! checks that exactly these refusals were counted, and checks the memory. It also checks the calls
//! that were made meanwhile, and one call that ran the whole time.

use futures_util::SinkExt as _;
use sa_gateway_kit::{Gateway, Hello, Message};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::Data;

use crate::limits::bystanders::{Scene, piece};

const SMALL: &str = "[limits]\nmax_frame_bytes = 1_000_000\nmax_body_bytes = 1_000_000\n\
    [channels]\nmax_message_bytes = 20_000\nmax_attachment_bytes = 10_000";

/// Returns the number of calls on a surface with this outcome.
async fn ended(gateway: &Gateway, surface: &str, outcome: &str) -> u64 {
    let metrics = gateway.operator().get_text("/metrics").await;
    let ends = metrics.lines().filter_map(|line| line.strip_prefix("switchboard_calls_total{"));
    let (surface, outcome) = (format!("surface=\"{surface}\""), format!("outcome=\"{outcome}\""));
    let ends = ends.filter(|line| line.contains(&surface) && line.contains(&outcome));
    ends.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// Sends the same error to all endpoints, each of which must answer.
async fn say_everywhere(
    scene: &Scene,
    node: &[&str],
    call: &[&str],
    channel: &[&str],
    body: &[&str],
) {
    let mut bad = scene.node().await;
    for frame in node {
        bad.send_raw(Message::text(*frame)).await;
    }
    // A node gets no error, and its connection still works.
    bad.settle().await;
    let mut socket = scene.gateway.operator().socket().await;
    for frame in call {
        socket.send_raw(Message::text(*frame)).await;
        let answer = socket.recv().await;
        assert_eq!(
            (&answer["type"], &answer["kind"]),
            (&json!("error"), &json!("invalid_args")),
            "{frame}: {answer}"
        );
    }
    let mut participant = scene.participant().await;
    for frame in channel {
        participant.socket.send(Message::text(*frame)).await.unwrap();
        let answer = participant.recv().await;
        assert_eq!(
            (&answer["kind"], &answer["code"]),
            (&json!("error"), &json!("validation-error")),
            "{frame}"
        );
    }
    for body in body {
        scene.post((*body).to_owned()).await.assert_problem(400, "bad_request");
    }
}

#[tokio::test]
async fn malformed_frames() {
    let scene = Scene::start("").await;
    let frames = ["", "nonsense", "{", "[]", "null", "5", "\"text\"", "{} and more"];
    say_everywhere(&scene, &frames, &frames, &frames, &["nonsense", "{", "[]", "5", "{} and more"])
        .await;
    let expected = [
        ("node", "bad_frame", 8),
        ("calls_ws", "bad_frame", 8),
        ("channel", "bad_frame", 8),
        ("http", "bad_request", 5),
    ];
    scene.end(&expected).await;
}

#[tokio::test]
async fn wrong_types() {
    let scene = Scene::start("").await;
    let node = [
        "{\"type\":5}",
        "{\"type\":\"tool_response\",\"request_id\":5,\"ok\":true}",
        "{\"type\":\"tool_response\",\"request_id\":\"x\",\"ok\":\"yes\"}",
        "{\"type\":\"tool_progress\",\"request_id\":\"x\",\"progress\":\"half\"}",
    ];
    let call = [
        "{\"type\":5}",
        "{\"type\":\"call\",\"id\":1,\"tool\":\"a.b\"}",
        "{\"type\":\"call\",\"id\":\"1\",\"tool\":\"a.b\",\"timeout_ms\":\"long\"}",
        // A valid frame with an invalid value.
        "{\"type\":\"call\",\"id\":\"1\",\"tool\":\"a.b\",\"timeout_ms\":0}",
    ];
    let channel = [
        "{\"action\":5}",
        "{\"action\":\"publish\",\"type\":5,\"payload\":1}",
        "{\"action\":\"publish\",\"type\":\"message\",\"payload\":{\"id\":5}}",
    ];
    let body = ["{\"args\":{},\"timeout_ms\":\"long\"}", "{\"args\":{},\"timeout_ms\":0}"];
    say_everywhere(&scene, &node, &call, &channel, &body).await;
    let expected = [
        ("node", "bad_frame", 4),
        ("calls_ws", "bad_frame", 3),
        ("calls_ws", "bad_call", 1),
        ("channel", "bad_frame", 2),
        ("channel", "refused_message", 1),
        ("http", "bad_request", 2),
    ];
    scene.end(&expected).await;
}

#[tokio::test]
async fn deeply_nested_json() {
    let scene = Scene::start("").await;
    let deep = nested(50_000);
    let node = format!(
        "{{\"type\":\"tool_response\",\"request_id\":\"x\",\"ok\":true,\"result\":{deep}}}"
    );
    let call = format!("{{\"type\":\"call\",\"id\":\"1\",\"tool\":\"a.b\",\"args\":{deep}}}");
    let channel = format!("{{\"action\":\"publish\",\"type\":\"a\",\"payload\":{deep}}}");
    let body = format!("{{\"args\":{deep}}}");
    say_everywhere(&scene, &[&node], &[&call], &[&channel], &[]).await;
    scene.post(body).await.assert_problem(422, "invalid_args");
    let expected = [
        ("node", "bad_frame", 1),
        ("calls_ws", "bad_frame", 1),
        ("channel", "refused_message", 1),
        ("http", "bad_request", 1),
    ];
    scene.end(&expected).await;
}

#[tokio::test]
async fn unknown_tools() {
    let scene = Scene::start("").await;
    scene.gateway.operator().call("no.such", json!({})).await.assert_problem(404, "not_found");
    let mut socket = scene.gateway.operator().socket().await;
    socket.call("1", "no.such", json!({})).await;
    assert_eq!(socket.recv().await["kind"], "not_found");
    // These are calls, and are counted as calls.
    for surface in ["rest", "calls_ws"] {
        assert_eq!(ended(&scene.gateway, surface, "not_found").await, 1, "{surface}");
    }
    scene.end(&[]).await;
}

#[tokio::test]
async fn huge_messages() {
    let scene = Scene::start(SMALL).await;
    let huge = "x".repeat(1_000_001);
    let mut node = scene.node().await;
    node.try_send(Message::text(huge.clone())).await;
    assert_eq!(node.closed().await.0, 1009);
    let mut socket = scene.gateway.operator().socket().await;
    let _ = socket.socket.send(Message::text(huge.clone())).await;
    assert_eq!(socket.closed().await.0, 1009);
    let mut participant = scene.participant().await;
    let _ = participant.socket.send(Message::text(huge.clone())).await;
    assert_eq!(participant.closed().await.0, 1009);
    scene.post(huge.clone()).await.assert_problem(413, "too_large");
    // A large answer that names its call does not close the connection.
    let mut node = scene.node().await;
    let call = scene.gateway.operator().call_later("bad.x", json!({}));
    let request = node.request().await;
    node.answer(&request.id, json!(huge)).await;
    call.await.unwrap().assert_problem(502, "failed");
    node.settle().await;
    let expected = [
        ("node", "too_large", 2),
        ("calls_ws", "too_large", 1),
        ("channel", "too_large", 1),
        ("http", "too_large", 1),
    ];
    scene.end(&expected).await;
}

#[tokio::test]
async fn large_messages_leave_nothing_behind() {
    let scene = Scene::start("").await;
    let large = format!("{{\"type\":\"from_the_future\",\"x\":\"{}\"}}", "x".repeat(8 << 20));
    let mut nodes = Vec::new();
    // Thirty messages that stay in memory take 240 MiB.
    for number in 0..30 {
        let mut node = Hello::new(&format!("large-{number}"))
            .capability("large")
            .connect(&scene.gateway)
            .await;
        node.send_raw(Message::text(large.clone())).await;
        node.settle().await;
        nodes.push(node);
    }
    scene.end(&[]).await;
    drop(nodes);
}

#[tokio::test]
async fn bad_utf8() {
    let scene = Scene::start("").await;
    let bad = || piece(b"\"\xff\xfe\"", Data::Text, true);
    let mut node = scene.node().await;
    node.send_raw(bad()).await;
    assert_eq!(node.closed().await.0, 1007);
    let mut socket = scene.gateway.operator().socket().await;
    socket.send_raw(bad()).await;
    assert_eq!(socket.closed().await.0, 1007);
    let mut participant = scene.participant().await;
    participant.socket.send(bad()).await.unwrap();
    assert_eq!(participant.closed().await.0, 1007);
    scene.post(b"{\"args\":{\"x\":\"\xff\"}}".to_vec()).await.assert_problem(400, "bad_request");
    let expected = [
        ("node", "not_utf8", 1),
        ("calls_ws", "not_utf8", 1),
        ("channel", "not_utf8", 1),
        ("http", "bad_request", 1),
    ];
    scene.end(&expected).await;
}

/// Sends a message of up to a million fragments, until the connection closes.
async fn flood(socket: &mut WebSocketStream<TcpStream>, fragment: &[u8]) {
    let mut gone = socket.feed(piece(b"{", Data::Text, false)).await.is_err();
    for _ in 0..1_000_000 {
        gone = gone || socket.feed(piece(fragment, Data::Continue, false)).await.is_err();
        if gone {
            return;
        }
    }
    let _ = socket.flush().await;
}

#[tokio::test]
async fn fragments_by_the_million() {
    let scene = Scene::start("").await;
    for fragment in [b"".as_slice(), b" "] {
        let mut node = scene.node().await;
        flood(&mut node.socket, fragment).await;
        let (code, why) = node.closed().await;
        assert_eq!((code, why.contains("more than 100000 fragments")), (1008, true), "{why}");
        let mut socket = scene.gateway.operator().socket().await;
        flood(&mut socket.socket, fragment).await;
        assert_eq!(socket.closed().await.0, 1008);
        let mut participant = scene.participant().await;
        flood(&mut participant.socket, fragment).await;
        assert_eq!(participant.closed().await.0, 1008);
    }
    let reason = "too_many_fragments";
    scene.end(&[("node", reason, 2), ("calls_ws", reason, 2), ("channel", reason, 2)]).await;
}

/// Autobahn's suite cuts a message into 65,536 fragments.
#[tokio::test]
async fn many_fragments_are_one_message() {
    let scene = Scene::start("").await;
    let mut node = scene.node().await;
    for _ in 0..2 {
        node.socket
            .feed(piece(b"{\"type\":\"ping\",\"timestamp\":77", Data::Text, false))
            .await
            .unwrap();
        for _ in 0..66_000 {
            node.socket.feed(piece(b" ", Data::Continue, false)).await.unwrap();
        }
        node.send_raw(piece(b"}", Data::Continue, true)).await;
        assert_eq!(node.recv().await, json!({ "type": "pong", "timestamp": 77 }));
    }
    scene.end(&[]).await;
}
