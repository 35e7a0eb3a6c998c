//! Clients and nodes that send megabytes of JSON delay no other request, even though the gateway
//! has one thread for all connections. Many such messages wait in a queue, instead of each taking
//! memory and a thread.

use std::time::Instant;

use futures_util::SinkExt as _;
use reqwest::Method;
use sa_gateway_kit::{Agent, FakeNode, Gateway, Hello, Message, Reply, Setup};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

/// Large enough to be processed for a while, and below the body limit.
fn large() -> Value {
    items(40_000)
}

pub(crate) fn items(count: u32) -> Value {
    let item = |number: u32| json!({ "number": number, "words": ["some", "more", "text"] });
    json!({ "items": (0..count).map(item).collect::<Vec<_>>() })
}

/// Connects a node with a tool that rejects these items, so that schema validation is the main
/// work.
async fn refusing(gateway: &Gateway) -> FakeNode {
    let schema = json!({ "type": "object", "properties": { "items": { "type": "string" } } });
    let tool = json!({ "name": "a.b", "input_schema": schema });
    Hello::new("n").capability("a").describe(tool).connect(gateway).await
}

async fn gateway() -> Gateway {
    with("").await
}

/// Starts a gateway with one worker thread and additional configuration.
pub(crate) async fn with(more: &str) -> Gateway {
    Setup::new().config(&format!("[server]\nworkers = 1\n{more}\n")).spawn(SWITCHBOARD).await
}

/// Makes small requests while `busy` runs. Returns the number of answered requests relative to an
/// idle gateway.
pub(crate) async fn share_beside<T>(agent: &Agent, busy: impl Future<Output = T>) -> f64 {
    let began = Instant::now();
    for _ in 0..20 {
        agent.get_text("/healthz").await;
    }
    let each = began.elapsed().as_secs_f64() / 20.0;
    let (mut busy, mut answered, began) = (std::pin::pin!(busy), 0, Instant::now());
    loop {
        tokio::select! {
            biased;
            _ = &mut busy => return f64::from(answered) * each / began.elapsed().as_secs_f64(),
            _ = agent.get_text("/healthz") => answered += 1,
        }
    }
}

/// Runs several copies of the work at once, so that the gateway is never idle. With a single
/// client, others could be served while that client is not waiting for the gateway.
pub(crate) async fn crowd<F: Future<Output = ()> + Send + 'static>(work: impl Fn() -> F) {
    let workers: Vec<_> = (0..4).map(|_| tokio::spawn(work())).collect();
    for worker in workers {
        worker.await.unwrap();
    }
}

/// Blocked requests would have a share near zero. The exact share depends on other work on the
/// machine, including the clients that send and read all this text.
#[track_caller]
pub(crate) fn assert_share(share: f64, beside: &str) {
    assert!(share > 0.03, "beside {beside} others had {share:.2} of what they have alone");
}

/// Answers every request to the node with the same text.
pub(crate) fn answer_all(mut node: FakeNode, result: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let id = node.request().await.id;
            let frame = format!(
                r#"{{"type":"tool_response","request_id":"{id}","ok":true,"result":{result}}}"#
            );
            if node.socket.send(Message::text(frame)).await.is_err() {
                return;
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_arguments_hold_nobody_up() {
    let gateway = gateway().await;
    let _node = refusing(&gateway).await;
    let (busy, other) = (gateway.new_agent("busy").await, gateway.new_agent("other").await);
    // Serialised once, so that the client spends no time on it during the test.
    let body = json!({ "args": large() }).to_string();
    let work = crowd(|| {
        let call = busy
            .request(Method::POST, "/v1/tools/a.b/call")
            .header("content-type", "application/json");
        let call = call.body(body.clone());
        async move { _ = Reply::of(call).await.assert_problem(422, "invalid_args") }
    });
    assert_share(share_beside(&other, work).await, "large arguments");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_results_hold_nobody_up() {
    let gateway = gateway().await;
    let node =
        answer_all(Hello::new("n").capability("a").connect(&gateway).await, large().to_string());
    let (busy, other) = (gateway.new_agent("busy").await, gateway.new_agent("other").await);
    let work = crowd(|| {
        let call = busy.request(Method::POST, "/v1/tools/a.b/call").json(&json!({ "args": {} }));
        async move { assert!(call.send().await.unwrap().text().await.unwrap().len() > 1_000_000) }
    });
    assert_share(share_beside(&other, work).await, "large results");
    node.abort();
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_calls_take_turns() {
    const AT_ONCE: usize = 100;
    let gateway = gateway().await;
    let _node = refusing(&gateway).await;
    let agent = gateway.new_agent("busy").await;
    let threads = || std::fs::read_dir(format!("/proc/{}/task", gateway.pid())).unwrap().count();
    let before = threads();
    let body = json!({ "args": items(2_500) });
    let socket_body = body["args"].clone();
    let mut socket = agent.socket().await;
    for number in 0..AT_ONCE / 2 {
        socket.call(&number.to_string(), "a.b", socket_body.clone()).await;
    }
    let mut calls: Vec<_> =
        (0..AT_ONCE / 2).map(|_| agent.call_later("a.b", body.clone())).collect();
    let mut most = 0;
    while !calls.iter().all(tokio::task::JoinHandle::is_finished) {
        most = most.max(threads());
        tokio::task::yield_now().await;
    }
    for call in calls.drain(..) {
        call.await.unwrap().assert_problem(422, "invalid_args");
    }
    // Offloaded work leaves its thread free for others, and threads live for a while. So there are
    // more threads than concurrent tasks.
    assert!(most < before + AT_ONCE / 2, "{most} threads, of which {before} were there before");
    gateway.stop().await;
}
