//! Whatever a peer does wrong gets a clear error or a closed connection, costs bounded memory, is counted, and never
//! disturbs another call.
//!
//! Each test does one kind of it to a gateway at every door that it can be done at, and then looks at all that was counted,
//! which has to be that and nothing else; at what it took of memory; at calls that were made all the while; and at one that
//! was running from beginning to end.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::Method;
use sa_testkit::{
    FakeNode, Gateway, Hello, Message, PATIENCE, Participant, RawHttp, Reply, Setup, Traffic, peak_resident, soon,
};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::SWITCHBOARD;

/// What a peer that does wrong may cost, beside what calls take that go on meanwhile.
const MEMORY: u64 = 48 << 20;

const SMALL: &str = "[limits]\nmax_frame_bytes = 1_000_000\nmax_body_bytes = 1_000_000\n\
    [channels]\nmax_message_bytes = 20_000\nmax_attachment_bytes = 10_000";

/// A gateway, and those who must notice nothing.
struct Scene {
    gateway: Gateway,
    traffic: Traffic,
    patient: Patient,
    before: Counts,
    memory: u64,
}

type Counts = BTreeMap<(String, String), u64>;

impl Scene {
    async fn start(config: &str) -> Self {
        let gateway = Setup::new().config(config).spawn(SWITCHBOARD).await;
        let traffic = Traffic::start(&gateway).await;
        let patient = Patient::start(&gateway).await;
        let (before, memory) = (refusals(&gateway).await, peak_resident(gateway.pid()));
        Self { gateway, traffic, patient, before, memory }
    }

    async fn node(&self) -> FakeNode {
        Hello::new("bad").capability("bad").connect(&self.gateway).await
    }

    async fn participant(&self) -> Participant {
        Participant::join(&self.gateway, "room", "bad").await
    }

    /// Calls a tool with this body, whatever it is.
    async fn post(&self, body: impl Into<reqwest::Body>) -> Reply {
        Reply::of(self.gateway.operator().request(Method::POST, "/v1/tools/patient.wait/call").body(body)).await
    }

    /// Makes sure that this was counted and nothing else, that it took little, and that nobody noticed.
    async fn end(self, expected: &[(&str, &str, u64)]) {
        let of = |(at, reason, count): &(&str, &str, u64)| (((*at).to_owned(), (*reason).to_owned()), *count);
        let expected: Counts = expected.iter().map(of).collect();
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let mut counted = refusals(&self.gateway).await;
            for (what, before) in &self.before {
                counted.entry(what.clone()).and_modify(|count| *count -= before);
            }
            counted.retain(|_, count| *count > 0);
            if counted == expected {
                break;
            }
            // An end is counted a moment after the peer has seen it.
            let over = |(what, count): (&(String, String), &u64)| *count > expected.get(what).copied().unwrap_or(0);
            let too_much = counted.iter().any(over) || tokio::time::Instant::now() > until;
            assert!(!too_much, "counted {counted:?}, not {expected:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let took = peak_resident(self.gateway.pid()) - self.memory;
        assert!(took < MEMORY, "it took {} MiB", took >> 20);
        self.patient.end().await;
        self.traffic.end().await;
        self.gateway.stop().await;
    }
}

/// All that was refused so far, by boundary and reason.
async fn refusals(gateway: &Gateway) -> Counts {
    let metrics = gateway.operator().get_text("/metrics").await;
    let refused = metrics.lines().filter_map(|line| line.strip_prefix("switchboard_refused_total{at=\""));
    let words = refused.map(|rest| {
        let (at, rest) = rest.split_once("\",reason=\"").unwrap();
        let (reason, count) = rest.split_once("\"} ").unwrap();
        ((at.to_owned(), reason.to_owned()), count.parse().unwrap())
    });
    words.collect()
}

/// How many calls of a surface have ended so.
async fn ended(gateway: &Gateway, surface: &str, outcome: &str) -> u64 {
    let metrics = gateway.operator().get_text("/metrics").await;
    let ends = metrics.lines().filter_map(|line| line.strip_prefix("switchboard_calls_total{"));
    let (surface, outcome) = (format!("surface=\"{surface}\""), format!("outcome=\"{outcome}\""));
    let ends = ends.filter(|line| line.contains(&surface) && line.contains(&outcome));
    ends.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// One call that runs until it is told to end.
struct Patient {
    request: String,
    answer: oneshot::Sender<()>,
    node: JoinHandle<()>,
    call: JoinHandle<Value>,
}

impl Patient {
    async fn start(gateway: &Gateway) -> Self {
        let mut node = Hello::new("patient").tool("patient.wait").connect(gateway).await;
        let mut socket = gateway.operator().socket().await;
        let call = json!({ "type": "call", "id": "1", "tool": "patient.wait", "timeout_ms": 120_000 });
        socket.send(call).await;
        // Both ends are read all the while, and so answer pings.
        let call = tokio::spawn(async move {
            loop {
                match socket.socket.next().await {
                    Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    other => panic!("a bystander's call was disturbed: {other:?}"),
                }
            }
        });
        let request = node.request().await.id;
        let (answer, mut asked) = oneshot::channel();
        let id = request.clone();
        let node = tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = &mut asked => return node.answer(&id, json!("patience")).await,
                    message = node.socket.next() => match message {
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                        other => panic!("a bystander was disturbed: {other:?}"),
                    },
                }
            }
        });
        Self { request, answer, node, call }
    }

    async fn end(self) {
        self.answer.send(()).expect("a bystander was disturbed");
        soon(self.node).await.unwrap();
        assert_eq!(soon(self.call).await.unwrap()["result"], "patience");
    }
}

fn piece(bytes: &[u8], opcode: Data, last: bool) -> Message {
    Message::Frame(Frame::message(bytes.to_vec(), OpCode::Data(opcode), last))
}

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// Says the same at all doors, each of which has to answer.
async fn say_everywhere(scene: &Scene, node: &[&str], call: &[&str], channel: &[&str], body: &[&str]) {
    let mut bad = scene.node().await;
    for frame in node {
        bad.send_raw(Message::text(*frame)).await;
    }
    // A node is told nothing; it is as good as before.
    bad.settle().await;
    let mut socket = scene.gateway.operator().socket().await;
    for frame in call {
        socket.send_raw(Message::text(*frame)).await;
        let answer = socket.recv().await;
        assert_eq!((&answer["type"], &answer["kind"]), (&json!("error"), &json!("invalid_args")), "{frame}: {answer}");
    }
    let mut participant = scene.participant().await;
    for frame in channel {
        participant.socket.send(Message::text(*frame)).await.unwrap();
        let answer = participant.recv().await;
        assert_eq!((&answer["kind"], &answer["code"]), (&json!("error"), &json!("validation-error")), "{frame}");
    }
    for body in body {
        scene.post((*body).to_owned()).await.assert_problem(400, "bad_request");
    }
}

#[tokio::test]
async fn malformed_frames() {
    let scene = Scene::start("").await;
    let frames = ["", "nonsense", "{", "[]", "null", "5", "\"text\"", "{} and more"];
    say_everywhere(&scene, &frames, &frames, &frames, &["nonsense", "{", "[]", "5", "{} and more"]).await;
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
        // This can be read, and not be meant.
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
    let node = format!("{{\"type\":\"tool_response\",\"request_id\":\"x\",\"ok\":true,\"result\":{deep}}}");
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
    // They are calls, and counted as those.
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
    // What says which call it is about costs the connection nothing.
    let mut node = scene.node().await;
    let call = scene.gateway.operator().call_later("bad.x", json!({}));
    let request = node.request().await;
    node.answer(&request.id, json!(huge)).await;
    call.await.unwrap().assert_problem(502, "failed");
    node.settle().await;
    let expected =
        [("node", "too_large", 2), ("calls_ws", "too_large", 1), ("channel", "too_large", 1), ("http", "too_large", 1)];
    scene.end(&expected).await;
}

#[tokio::test]
async fn large_messages_leave_nothing_behind() {
    let scene = Scene::start("").await;
    let large = format!("{{\"type\":\"from_the_future\",\"x\":\"{}\"}}", "x".repeat(8 << 20));
    let mut nodes = Vec::new();
    for number in 0..10 {
        let mut node = Hello::new(&format!("large-{number}")).capability("large").connect(&scene.gateway).await;
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
    let expected =
        [("node", "not_utf8", 1), ("calls_ws", "not_utf8", 1), ("channel", "not_utf8", 1), ("http", "bad_request", 1)];
    scene.end(&expected).await;
}

/// A message of a million fragments, as far as they are taken.
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

/// Autobahn's suite cuts a message into 65,536 of them.
#[tokio::test]
async fn many_fragments_are_one_message() {
    let scene = Scene::start("").await;
    let mut node = scene.node().await;
    for _ in 0..2 {
        node.socket.feed(piece(b"{\"type\":\"ping\",\"timestamp\":77", Data::Text, false)).await.unwrap();
        for _ in 0..66_000 {
            node.socket.feed(piece(b" ", Data::Continue, false)).await.unwrap();
        }
        node.send_raw(piece(b"}", Data::Continue, true)).await;
        assert_eq!(node.recv().await, json!({ "type": "pong", "timestamp": 77 }));
    }
    scene.end(&[]).await;
}

#[tokio::test]
async fn a_node_that_never_says_hello() {
    let scene = Scene::start("[nodes]\nhello_timeout_ms = 500").await;
    let mut silent = FakeNode::upgrade(&scene.gateway, "").await.unwrap();
    assert_eq!(silent.closed().await.0, 4408);
    // Fragments of one are none, either.
    let mut endless = FakeNode::upgrade(&scene.gateway, "").await.unwrap();
    endless.send_raw(piece(b"{", Data::Text, false)).await;
    assert_eq!(endless.closed().await.0, 4408);
    scene.end(&[("node", "refused", 2)]).await;
}

#[tokio::test]
async fn half_open_sockets() {
    let scene = Scene::start("[nodes]\nping_interval_ms = 300\ndead_after_ms = 2_000").await;
    // Nothing reads these, so nothing answers the gateway's pings.
    let (mut node, mut socket) = (scene.node().await, scene.gateway.operator().socket().await);
    let mut participant = scene.participant().await;
    let gateway = &scene.gateway;
    sa_testkit::eventually("all of them gone", || async {
        let refused = refusals(gateway).await;
        let silent = refused.iter().filter(|((_, reason), _)| reason == "silent");
        (silent.map(|(_, count)| count).sum::<u64>() == 3).then_some(())
    })
    .await;
    for code in [node.closed().await.0, socket.closed().await.0, participant.closed().await.0] {
        assert_eq!(code, 1006, "there is nobody to say it to");
    }
    scene.end(&[("node", "silent", 1), ("calls_ws", "silent", 1), ("channel", "silent", 1)]).await;
}

#[tokio::test]
async fn ten_thousand_pings() {
    let scene = Scene::start("").await;
    let (mut sink, stream) = scene.node().await.socket.split();
    let writer = tokio::spawn(async move {
        for timestamp in 0..10_000 {
            let ping = json!({ "type": "ping", "timestamp": timestamp }).to_string();
            sink.feed(Message::text(ping)).await.unwrap();
            sink.feed(Message::Ping(Vec::new().into())).await.unwrap();
        }
        sink.flush().await.unwrap();
        sink
    });
    let pongs = stream.filter(|message| std::future::ready(matches!(message, Ok(Message::Text(_))))).take(10_000);
    assert_eq!(soon(pongs.count()).await, 10_000, "each is answered, and there is nothing wrong with them");
    drop(writer.await.unwrap());
    scene.end(&[]).await;
}

#[tokio::test]
async fn replies_to_calls_that_are_not_its_own() {
    let scene = Scene::start("").await;
    let mut forger = scene.node().await;
    // That of the bystander, for which this would be the end.
    forger.answer(&scene.patient.request, json!("forged")).await;
    forger.fail(&scene.patient.request, "failed", "forged").await;
    forger.answer("01890000-0000-7000-8000-000000000000", json!("of nobody's")).await;
    forger.answer("no id at all", json!(1)).await;
    forger.settle().await;
    scene.end(&[("node", "forged_reply", 2), ("node", "stray_reply", 2)]).await;
}

#[tokio::test]
async fn a_second_node_with_the_same_id() {
    let scene = Scene::start("").await;
    let gateway = &scene.gateway;
    let (_, token) = gateway.token(json!({ "name": "first", "role": "node" })).await;
    let (_, other) = gateway.token(json!({ "name": "second", "role": "node" })).await;
    let (_, bound) = gateway.token(json!({ "name": "third", "role": "node", "node_id": "elsewhere" })).await;
    let mut first = Hello::new("twin").token(&token).connect(gateway).await;
    let mut second = Hello::new("twin").token(&token).connect(gateway).await;
    assert_eq!(first.closed().await.0, 4410);
    for token in [other, bound] {
        let mut impostor = Hello::new("twin").token(&token).greet(gateway).await.unwrap();
        assert_eq!(impostor.closed().await.0, 4409);
    }
    second.settle().await;
    scene.end(&[("node", "replaced", 1), ("node", "impostor", 2)]).await;
}

#[tokio::test]
async fn tokens_that_are_wrong_empty_or_revoked() {
    let scene = Scene::start("").await;
    let gateway = &scene.gateway;
    let (agent, node) = (json!({ "name": "bot", "role": "agent" }), json!({ "name": "builder", "role": "node" }));
    let (agent, node) = (gateway.token(agent).await, gateway.token(node).await);
    for (id, _) in [&agent, &node] {
        assert_eq!(gateway.operator().delete(&format!("/v1/tokens/{id}")).await.status, 200);
    }
    for token in ["sb_wrong", "", &agent.1] {
        gateway.agent(token).get("/v1/tools").await.assert_problem(401, "unauthorized");
        let socket = gateway.agent(token).request(Method::GET, "/v1/calls/ws");
        Reply::of(socket).await.assert_problem(401, "unauthorized");
        let mut participant = Participant::connect(gateway, &format!("/v1/channels/ws?channel=a&token={token}")).await;
        assert_eq!(participant.closed().await.0, 4001);
    }
    for token in ["sb_wrong", "", &node.1] {
        let refused = FakeNode::upgrade(gateway, &format!("token={token}")).await.unwrap_err();
        assert_eq!((refused.status, &refused.body["kind"]), (401, &json!("unauthorized")));
    }
    scene.end(&[("http", "token", 6), ("channel", "door", 3), ("node", "token", 3)]).await;
}

#[tokio::test]
async fn heads_and_bodies_that_never_end() {
    let scene = Scene::start("").await;
    let (mut head, mut body) = (RawHttp::connect(&scene.gateway).await, RawHttp::connect(&scene.gateway).await);
    head.write("GET /healthz HTTP/1.1\r\nhost: ").await;
    let (address, token) = (scene.gateway.address(), &scene.gateway.operator);
    let begun = format!(
        "POST /v1/tools/patient.wait/call HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{\"args\":"
    );
    body.write(&begun).await;
    // The gateway has more patience than tests have otherwise.
    let rest = async |raw: &mut RawHttp| {
        let mut answer = Vec::new();
        let read = tokio::time::timeout(3 * PATIENCE, raw.stream.read_to_end(&mut answer)).await;
        let _ = read.expect("the connection to be closed");
        String::from_utf8_lossy(&answer).into_owned()
    };
    let (head, body) = tokio::join!(rest(&mut head), rest(&mut body));
    assert!(head.is_empty() || head.starts_with("HTTP/1.1 408"), "{head}");
    assert!(body.starts_with("HTTP/1.1 408") && body.contains("the body did not come"), "{body}");
    scene.end(&[("http", "slow_head", 1), ("http", "slow_body", 1)]).await;
}
