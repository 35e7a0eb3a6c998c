//! Bad frames from a node never affect others. Unreadable frames are dropped and counted, and a
//! frame that is too large ends its own call. A protocol violation closes that connection with a
//! code for the reason.

use sa_testkit::{FakeNode, Gateway, Hello, Message, Reply, Request, Setup, Traffic, eventually};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

async fn start() -> (Gateway, Traffic, FakeNode) {
    let gateway = Setup::new().config("[limits]\nmax_frame_bytes = 2_000_000").start().await;
    let traffic = Traffic::start(&gateway).await;
    let node = Hello::new("bad").capability("bad").connect(&gateway).await;
    (gateway, traffic, node)
}

async fn counted(gateway: &Gateway, reason: &str) {
    eventually(reason, || async { (gateway.refused("node", reason).await > 0).then_some(()) })
        .await;
}

fn piece(bytes: Vec<u8>, opcode: Data, last: bool) -> Message {
    Message::Frame(Frame::message(bytes, OpCode::Data(opcode), last))
}

#[tokio::test]
async fn frames_that_cannot_be_read_are_dropped_and_counted() {
    let (gateway, traffic, mut node) = start().await;
    let deep = format!(
        "{{\"type\":\"tool_response\",\"result\":{}1{}}}",
        "[".repeat(50_000),
        "]".repeat(50_000)
    );
    let id = "01890000-0000-7000-8000-000000000000";
    let frames = [
        "",
        "nonsense",
        "null",
        "[]",
        "5",
        "\"text\"",
        "{",
        "{}",
        "{\"type\":5}",
        "{\"type\":null}",
        "{\"type\":\"tool_response\"}",
        "{\"type\":\"tool_response\",\"request_id\":5,\"ok\":true}",
        "{\"type\":\"tool_response\",\"request_id\":\"x\",\"ok\":\"yes\"}",
        "{\"type\":\"tool_response\",\"type\":\"ping\"}",
        "{\"type\":\"ping\",\"timestamp\":\"now\"}",
        &format!("{{\"type\":\"tool_progress\",\"request_id\":\"{id}\",\"progress\":\"half\"}}"),
        &format!("{{\"type\":\"tool_response\",\"request_id\":\"{id}\",\"ok\":false,\"error\":5}}"),
        &deep,
        "{\"type\":\"ping\",\"timestamp\":1} trailing",
    ];
    for frame in frames {
        node.send_raw(Message::text(frame)).await;
    }
    node.settle().await;
    let count = gateway.refused("node", "bad_frame").await;
    assert!(count >= frames.len() as u64 - 2, "{count} of {} were counted", frames.len());

    // The node still works.
    let call = gateway.operator().call_later("bad.x", json!({}));
    let request = node.request().await;
    node.answer(&request.id, json!(1)).await;
    assert_eq!(call.await.unwrap().result(), 1);
    traffic.end().await;
}

#[tokio::test]
async fn what_it_need_not_know_is_ignored() {
    let (_gateway, traffic, mut node) = start().await;
    for frame in [
        json!({ "type": "from_the_future", "x": [1, 2] }),
        json!({ "type": "gateway_welcome" }),
        json!({ "type": "tool_request", "request_id": "x", "tool": "y" }),
        json!({ "type": "pong", "timestamp": 1, "new": true }),
        json!({ "type": "bin_probe_result", "probe_id": "p", "bins": {} }),
    ] {
        node.send(frame).await;
    }
    node.settle().await;
    traffic.end().await;
}

#[tokio::test]
async fn a_second_hello_changes_nothing() {
    let (gateway, traffic, mut node) = start().await;
    node.send(Hello::new("bystander").capability("bystander").frame()).await;
    node.send(Hello::new("bad").capability("other").frame()).await;
    node.settle().await;
    let nodes = gateway.operator().get("/v1/nodes").await.body;
    let ids: Vec<_> =
        nodes["nodes"].as_array().unwrap().iter().map(|node| node["id"].clone()).collect();
    assert_eq!(ids, ["bad", "bystander"]);
    gateway.operator().call("other.x", json!({})).await.assert_problem(404, "not_found");
    traffic.end().await;
}

#[tokio::test]
async fn a_huge_message_ends_the_connection_with_1009() {
    let (gateway, traffic, mut node) = start().await;
    node.try_send(Message::text("x".repeat(2_000_001))).await;
    assert_eq!(node.closed().await.0, 1009);
    counted(&gateway, "too_large").await;
    traffic.end().await;
}

/// Starts two calls on a node.
async fn two_calls(gateway: &Gateway, node: &mut FakeNode) -> [(Request, JoinHandle<Reply>); 2] {
    let first = gateway.operator().call_later("bad.large", json!({}));
    let first = (node.request().await, first);
    let second = gateway.operator().call_later("bad.other", json!({}));
    [first, (node.request().await, second)]
}

/// Returns a text that is larger than this gateway's limit.
fn too_much() -> String {
    "é".repeat(1_000_001)
}

#[tokio::test]
async fn an_answer_that_is_too_large_ends_its_own_call_alone() {
    let (gateway, traffic, mut node) = start().await;
    let [(large, larger), (other, goes_on)] = two_calls(&gateway, &mut node).await;
    let answer = json!({ "type": "tool_response", "request_id": large.id, "ok": true, "result": too_much() });
    let bytes = answer.to_string().len().to_string();
    node.send(answer).await;
    let reply = larger.await.unwrap();
    reply.assert_problem(502, "failed");
    for words in ["\"bad\"", &bytes, "2000000"] {
        assert!(reply.detail().contains(words), "{words}: {}", reply.text);
    }
    assert!(
        reply.body["hint"].as_str().unwrap().contains("limits.max_frame_bytes"),
        "{}",
        reply.text
    );
    node.answer(&other.id, json!("as ever")).await;
    assert_eq!(goes_on.await.unwrap().result(), "as ever");
    assert_eq!(gateway.refused("node", "too_large").await, 1);
    traffic.end().await;
}

#[tokio::test]
async fn so_does_one_in_fragments_with_pings_between_them() {
    let (gateway, traffic, mut node) = start().await;
    let [(large, larger), (other, goes_on)] = two_calls(&gateway, &mut node).await;
    let answer = json!({ "type": "tool_response", "request_id": large.id, "ok": true, "result": too_much() });
    // Each cut is in the middle of a character.
    let answer = answer.to_string().into_bytes();
    let mut fragments = answer.chunks(300_001).map(<[u8]>::to_vec).peekable();
    let mut opcode = Data::Text;
    while let Some(fragment) = fragments.next() {
        node.send_raw(piece(fragment, opcode, fragments.peek().is_none())).await;
        node.send_raw(Message::Ping("between".into())).await;
        opcode = Data::Continue;
    }
    node.answer(&other.id, json!("as ever")).await;
    larger.await.unwrap().assert_problem(502, "failed");
    assert_eq!(goes_on.await.unwrap().result(), "as ever");
    assert_eq!(gateway.refused("node", "too_large").await, 1);
    traffic.end().await;
}

#[tokio::test]
async fn a_part_that_is_too_large_ends_its_call_and_the_node_is_told() {
    let (gateway, traffic, mut node) = start().await;
    let [(large, larger), (other, goes_on)] = two_calls(&gateway, &mut node).await;
    let (id, text) = (&large.id, too_much());
    let chunk =
        format!("{{\"type\":\"tool_chunk\",\"request_id\":\"{id}\",\"content\":\"{text}\"}}");
    node.send_raw(Message::text(chunk)).await;
    larger.await.unwrap().assert_problem(502, "failed");
    node.cancelled(&large).await;
    // A large frame that belongs to no call is dropped.
    let event = format!("{{\"type\":\"node_event\",\"event\":\"a.b\",\"data\":\"{text}\"}}");
    node.send_raw(Message::text(event)).await;
    // A large answer to an unknown call is counted as a stray reply, whatever its size.
    node.answer(id, json!(text)).await;
    node.answer(&other.id, json!("as ever")).await;
    assert_eq!(goes_on.await.unwrap().result(), "as ever");
    assert_eq!(gateway.refused("node", "too_large").await, 2);
    assert_eq!(gateway.refused("node", "stray_reply").await, 1);
    traffic.end().await;
}

#[tokio::test]
async fn where_nobody_can_tell_whose_answer_it_is_every_call_hears_why_the_connection_ends() {
    let (gateway, traffic, mut node) = start().await;
    let [(large, larger), (_, other)] = two_calls(&gateway, &mut node).await;
    let (text, id) = (too_much(), large.id);
    let answer = format!(
        "{{\"type\":\"tool_response\",\"ok\":true,\"result\":\"{text}\",\"request_id\":\"{id}\"}}"
    );
    node.send_raw(Message::text(answer)).await;
    assert_eq!(node.closed().await.0, 1009);
    for call in [larger, other] {
        let reply = call.await.unwrap();
        reply.assert_problem(503, "offline");
        assert!(reply.detail().contains("larger than this gateway accepts"), "{}", reply.text);
    }
    counted(&gateway, "too_large").await;
    assert_eq!(gateway.refused("node", "too_large").await, 1);
    traffic.end().await;
}

#[tokio::test]
async fn a_message_of_endless_fragments_ends_with_1009() {
    let (gateway, traffic, mut node) = start().await;
    node.send_raw(piece(vec![b' '; 10_000], Data::Text, false)).await;
    // The gateway skips an oversized message for a while, to keep other calls alive, but not
    // without a limit.
    for _ in 0..4_000 {
        if !node.try_send(piece(vec![b' '; 10_000], Data::Continue, false)).await {
            break;
        }
    }
    assert_eq!(node.closed().await.0, 1009);
    counted(&gateway, "too_large").await;
    traffic.end().await;
}

#[tokio::test]
async fn text_that_is_not_utf8_ends_with_1007() {
    let (gateway, traffic, mut node) = start().await;
    node.send_raw(piece(vec![b'"', 0xff, 0xfe, b'"'], Data::Text, true)).await;
    assert_eq!(node.closed().await.0, 1007);
    counted(&gateway, "not_utf8").await;
    traffic.end().await;
}

#[tokio::test]
async fn binary_frames_end_with_1003() {
    let (gateway, traffic, mut node) = start().await;
    node.send_raw(Message::binary(vec![0, 1, 2])).await;
    assert_eq!(node.closed().await.0, 1003);
    counted(&gateway, "binary").await;
    traffic.end().await;
}

#[tokio::test]
async fn frames_against_the_protocol_end_with_1002() {
    let (gateway, traffic, mut node) = start().await;
    // A continuation without a message.
    node.send_raw(piece(b"x".to_vec(), Data::Continue, true)).await;
    assert_eq!(node.closed().await.0, 1002);
    counted(&gateway, "protocol").await;
    traffic.end().await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_ends_its_call_at_once() {
    let (gateway, traffic, mut node) = start().await;
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let unreadable = [
        r#""ok":"yes""#,
        r#""ok":false,"error":5"#,
        r#""ok":false,"error":["failed","why"]"#,
        &format!(r#""ok":true,"result":{deep}"#),
        r#""ok":true,"result":"\ud800""#,
        r#""ok":true,"result":[1e999]"#,
        r#""ok":true,"ok":true,"result":1"#,
        r#""ok":true,"request_id":"ID","result":1"#,
        r#""ok":true,"result":NaN"#,
        r#""ok":true,"result":{"#,
        r#""ok":true,"result":1,"attachments":[{"mime_type":"text/plain","data":"aGk="},{"mime_type":"text/plain","data":"%"}]"#,
    ];
    for rest in unreadable {
        let call = gateway.operator().call_later("bad.x", json!({}));
        let request = node.request().await;
        let rest = rest.replace("ID", &request.id);
        let frame =
            format!("{{\"type\":\"tool_response\",\"request_id\":\"{}\",{rest}}}", request.id);
        node.send_raw(Message::text(frame)).await;
        let reply = call.await.unwrap();
        reply.assert_problem(502, "failed");
        assert!(
            reply.detail().contains("the node \"bad\" returned an invalid response"),
            "{}",
            reply.text
        );
    }
    assert_eq!(gateway.refused("node", "bad_frame").await, unreadable.len() as u64);
    traffic.end().await;
}

#[tokio::test]
async fn what_cannot_be_read_of_a_chunk_ends_its_call_and_says_what_it_is() {
    let (gateway, traffic, mut node) = start().await;
    let file =
        |name: &str, data: &str| json!({ "mime_type": "text/plain", "name": name, "data": data });
    let call = gateway.operator().call_later("bad.x", json!({}));
    let request = node.request().await;
    let attachments = [file("good.txt", "aGk="), file("bad.txt", "not base64")];
    node.send(json!({ "type": "tool_chunk", "request_id": request.id, "content": 1, "attachments": attachments }))
        .await;
    let reply = call.await.unwrap();
    reply.assert_problem(502, "failed");
    assert!(reply.detail().contains("attachment 2 (bad.txt)"), "{}", reply.text);
    assert_eq!(gateway.refused("node", "bad_frame").await, 1);
    traffic.end().await;
}
