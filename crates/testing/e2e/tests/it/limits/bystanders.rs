//! The scene for misbehaving peers: a gateway, its counters, and bystanders that must not be
//! affected.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::Method;
use sa_gateway_kit::{
    FakeNode, Gateway, Hello, Message, Participant, Reply, Setup, TIMEOUT, Traffic, peak_resident,
    soon,
};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::SWITCHBOARD;

/// The allowed increase of the gateway's peak memory. Messages of 8 MiB take up to 90 MiB for a
/// moment, because freed memory is returned with a delay.
const MEMORY: u64 = 128 << 20;

/// A gateway, and bystanders that must not be affected.
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

    /// Calls a tool with any request body.
    pub(crate) async fn post(&self, body: impl Into<reqwest::Body>) -> Reply {
        Reply::of(
            self.gateway.operator().request(Method::POST, "/v1/tools/patient.wait/call").body(body),
        )
        .await
    }

    /// Checks that exactly this was counted, that memory stayed bounded, and that no bystander was
    /// affected.
    pub(crate) async fn end(self, expected: &[(&str, &str, u64)]) {
        let of = |(at, reason, count): &(&str, &str, u64)| {
            (((*at).to_owned(), (*reason).to_owned()), *count)
        };
        let expected: Counts = expected.iter().map(of).collect();
        let until = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let mut counted = refusals(&self.gateway).await;
            for (what, before) in &self.before {
                counted.entry(what.clone()).and_modify(|count| *count -= before);
            }
            counted.retain(|_, count| *count > 0);
            if counted == expected {
                break;
            }
            // The end of a connection is counted a moment after the peer has seen it.
            let over = |(what, count): (&(String, String), &u64)| {
                *count > expected.get(what).copied().unwrap_or(0)
            };
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

/// Returns all refusals so far, by boundary and reason.
pub(crate) async fn refusals(gateway: &Gateway) -> Counts {
    let metrics = gateway.operator().get_text("/metrics").await;
    let refused =
        metrics.lines().filter_map(|line| line.strip_prefix("switchboard_refused_total{at=\""));
    let words = refused.map(|rest| {
        let (at, rest) = rest.split_once("\",reason=\"").unwrap();
        let (reason, count) = rest.split_once("\"} ").unwrap();
        ((at.to_owned(), reason.to_owned()), count.parse().unwrap())
    });
    words.collect()
}

/// A call that runs until the test ends it.
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
        let call =
            json!({ "type": "call", "id": "1", "tool": "patient.wait", "timeout_ms": 120_000 });
        socket.send(call).await;
        // Both ends are read all the time, so they answer pings.
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
                    _ = &mut asked => return node.answer(&id, json!("waited")).await,
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
        assert_eq!(soon(self.call).await.unwrap()["result"], "waited");
    }
}

pub(crate) fn piece(bytes: &[u8], opcode: Data, last: bool) -> Message {
    Message::Frame(Frame::message(bytes.to_vec(), OpCode::Data(opcode), last))
}
