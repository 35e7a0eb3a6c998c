//! Where peers do wrong: a gateway, what it counts, and those who must notice nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::Method;
use sa_testkit::{
    FakeNode, Gateway, Hello, Message, PATIENCE, Participant, Reply, Setup, Traffic, peak_resident, soon,
};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::SWITCHBOARD;

/// How much more memory than before the gateway may have at its peak. A message of 8 MiB takes up to 59 MiB for a moment,
/// since freed memory is given back with a delay. Ten such messages that were kept would take more than 80 MiB.
const MEMORY: u64 = 72 << 20;

/// A gateway, and those who must notice nothing.
pub(crate) struct Scene {
    pub(crate) gateway: Gateway,
    traffic: Traffic,
    pub(crate) patient: Patient,
    before: Counts,
    memory: u64,
}

pub(crate) type Counts = BTreeMap<(String, String), u64>;

impl Scene {
    pub(crate) async fn start(config: &str) -> Self {
        let gateway = Setup::new().config(config).spawn(SWITCHBOARD).await;
        let traffic = Traffic::start(&gateway).await;
        let patient = Patient::start(&gateway).await;
        let (before, memory) = (refusals(&gateway).await, peak_resident(gateway.pid()));
        Self { gateway, traffic, patient, before, memory }
    }

    pub(crate) async fn node(&self) -> FakeNode {
        Hello::new("bad").capability("bad").connect(&self.gateway).await
    }

    pub(crate) async fn participant(&self) -> Participant {
        Participant::join(&self.gateway, "room", "bad").await
    }

    /// Calls a tool with this body, whatever it is.
    pub(crate) async fn post(&self, body: impl Into<reqwest::Body>) -> Reply {
        Reply::of(self.gateway.operator().request(Method::POST, "/v1/tools/patient.wait/call").body(body)).await
    }

    /// Makes sure that this was counted and nothing else, that it took little, and that nobody noticed.
    pub(crate) async fn end(self, expected: &[(&str, &str, u64)]) {
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
pub(crate) async fn refusals(gateway: &Gateway) -> Counts {
    let metrics = gateway.operator().get_text("/metrics").await;
    let refused = metrics.lines().filter_map(|line| line.strip_prefix("switchboard_refused_total{at=\""));
    let words = refused.map(|rest| {
        let (at, rest) = rest.split_once("\",reason=\"").unwrap();
        let (reason, count) = rest.split_once("\"} ").unwrap();
        ((at.to_owned(), reason.to_owned()), count.parse().unwrap())
    });
    words.collect()
}

/// One call that runs until it is told to end.
pub(crate) struct Patient {
    pub(crate) request: String,
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

pub(crate) fn piece(bytes: &[u8], opcode: Data, last: bool) -> Message {
    Message::Frame(Frame::message(bytes.to_vec(), OpCode::Data(opcode), last))
}
