//! Who sends or answers megabytes of JSON holds nobody up, though the gateway has one thread for all connections; and who
//! sends them by the dozen waits for a turn, instead of taking memory and a thread for each.

use std::time::Instant;

use sa_testkit::{Agent, FakeNode, Gateway, Hello, Setup};
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_arguments_hold_nobody_up() {
    let gateway = gateway().await;
    let _node = refusing(&gateway).await;
    let (busy, other) = (gateway.new_agent("busy").await, gateway.new_agent("other").await);
    let body = json!({ "args": large() });
    let work = tokio::spawn(async move {
        for _ in 0..3 {
            busy.call_with("a.b", body.clone()).await.assert_problem(422, "invalid_args");
        }
    });
    let share = share_beside(&other, async { work.await.unwrap() }).await;
    assert!(share > 0.1, "beside large arguments others had {share:.2} of what they have alone");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_results_hold_nobody_up() {
    let gateway = gateway().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let (busy, other) = (gateway.new_agent("busy").await, gateway.new_agent("other").await);
    let large = large();
    let work = tokio::spawn(async move {
        for _ in 0..3 {
            let call = busy.call_later("a.b", json!({ "args": {} }));
            let request = node.request().await;
            node.answer(&request.id, large.clone()).await;
            assert_eq!(call.await.unwrap().status, 200);
        }
    });
    let share = share_beside(&other, async { work.await.unwrap() }).await;
    assert!(share > 0.1, "beside large results others had {share:.2} of what they have alone");
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
    assert!(most < before + AT_ONCE / 4, "{most} threads, of which {before} were there before");
    gateway.stop().await;
}
