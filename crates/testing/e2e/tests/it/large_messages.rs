//! Who sends or answers megabytes of JSON holds nobody up, though the gateway has one thread for all connections; and who
//! sends them by the dozen waits for a turn, instead of taking memory and a thread for each.

use std::time::Instant;

use futures_util::SinkExt as _;
use reqwest::Method;
use sa_testkit::{Agent, FakeNode, Gateway, Hello, Message, Reply, Setup};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

/// Enough to be busy with for a while, and less than a body may have.
fn large() -> Value {
    items(40_000)
}

pub(crate) fn items(count: u32) -> Value {
    let item = |number: u32| json!({ "number": number, "words": ["some", "more", "text"] });
    json!({ "items": (0..count).map(item).collect::<Vec<_>>() })
}

/// A node whose tool takes no such items, so that its schema is what all the work is for.
async fn refusing(gateway: &Gateway) -> FakeNode {
    let schema = json!({ "type": "object", "properties": { "items": { "type": "string" } } });
    let tool = json!({ "name": "a.b", "input_schema": schema });
    Hello::new("n").capability("a").describe(tool).connect(gateway).await
}

async fn gateway() -> Gateway {
    with("").await
}

/// One with a thread for everything, and more of a configuration.
pub(crate) async fn with(more: &str) -> Gateway {
    Setup::new().config(&format!("[server]\nworkers = 1\n{more}\n")).spawn(SWITCHBOARD).await
}

/// Makes small requests while `busy` runs, and says how many were answered meanwhile for each that would have been if the
/// gateway had nothing else to do.
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

/// Several who are busy at once, so that the gateway is never idle: what others have beside a single one, they may have while
/// that one waits for something else than the gateway.
pub(crate) async fn crowd<F: Future<Output = ()> + Send + 'static>(work: impl Fn() -> F) {
    let workers: Vec<_> = (0..4).map(|_| tokio::spawn(work())).collect();
    for worker in workers {
        worker.await.unwrap();
    }
}

/// Where they are held up they have nothing, or next to it; how much more than that they have depends on who else is busy on the
/// machine, those who send and read all this text among them.
#[track_caller]
pub(crate) fn assert_share(share: f64, beside: &str) {
    assert!(share > 0.03, "beside {beside} others had {share:.2} of what they have alone");
}

/// A node that answers whatever it is asked with the same text.
pub(crate) fn answer_all(mut node: FakeNode, result: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let id = node.request().await.id;
            let frame = format!(r#"{{"type":"tool_response","request_id":"{id}","ok":true,"result":{result}}}"#);
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
    // As text, for whoever writes it down once is not busy with that while the gateway should be.
    let body = json!({ "args": large() }).to_string();
    let work = crowd(|| {
        let call = busy.request(Method::POST, "/v1/tools/a.b/call").header("content-type", "application/json");
        let call = call.body(body.clone());
        async move { _ = Reply::of(call).await.assert_problem(422, "invalid_args") }
    });
    assert_share(share_beside(&other, work).await, "large arguments");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_results_hold_nobody_up() {
    let gateway = gateway().await;
    let node = answer_all(Hello::new("n").capability("a").connect(&gateway).await, large().to_string());
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
    let mut calls: Vec<_> = (0..AT_ONCE / 2).map(|_| agent.call_later("a.b", body.clone())).collect();
    let mut most = 0;
    while !calls.iter().all(tokio::task::JoinHandle::is_finished) {
        most = most.max(threads());
        tokio::task::yield_now().await;
    }
    for call in calls.drain(..) {
        call.await.unwrap().assert_problem(422, "invalid_args");
    }
    // One that steps aside leaves its thread to the others, and threads stay for a while: there are more of them than turns.
    assert!(most < before + AT_ONCE / 2, "{most} threads, of which {before} were there before");
    gateway.stop().await;
}
