//! Several programs with one token are one participant, and a call to it runs once, in one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sa_gateway_kit::messaging::{backoff, join};
use sa_gateway_kit::{Gateway, Participant, Setup, eventually, soon};
use sa_messaging::{CallOptions, Client, Method, MethodContext};
use serde_json::{Value, json};

use crate::SWITCHBOARD;
use crate::messaging::javascript::Programs;

struct Worker<'a> {
    gateway: &'a Gateway,
    token: String,
    runs: Arc<AtomicUsize>,
}

impl Worker<'_> {
    /// Starts a program of the participant, with a method that returns the program's name.
    async fn start(&self, name: &'static str, method: &str) -> Client {
        let runs = Arc::clone(&self.runs);
        let method =
            Method::raw(method, json!({ "type": "object" }), move |_: Value, _: MethodContext| {
                runs.fetch_add(1, Ordering::SeqCst);
                async move { Ok::<_, String>(name) }
            });
        let client = Client::builder()
            .server(&self.gateway.url)
            .token(&self.token)
            .channel("room")
            .handle("worker");
        client.reconnect(backoff()).method(method).connect().await.unwrap()
    }

    async fn connections(&self, count: usize) {
        let operator = self.gateway.operator();
        eventually("the connections of the participant", || async {
            let room = operator.get("/v1/channels/room").await.body;
            let worker =
                room["participants"].as_array()?.iter().find(|one| one["id"] == "worker")?.clone();
            (worker["connections"] == count).then_some(())
        })
        .await;
    }
}

async fn call(client: &Client, method: &str) -> Value {
    let call = client.call_method("worker", method, json!({}), CallOptions::new());
    soon(call.result()).await.unwrap().content
}

#[tokio::test]
async fn a_call_runs_once_however_many_programs_a_participant_is() {
    let gateway = Setup::new().start().await;
    let token = Participant::token(&gateway, "worker").await;
    let worker = Worker { gateway: &gateway, token, runs: Arc::default() };
    let ann = join(&gateway, "ann").await;
    let first = worker.start("first", "work").await;
    let second = worker.start("second", "work").await;
    for _ in 0..20 {
        assert_eq!(call(&ann, "work").await, "second");
    }
    assert_eq!(call(&first, "work").await, "second", "one may call the other");
    assert_eq!(call(&second, "work").await, "second", "and itself");
    let agent = gateway.new_agent("agent").await;
    let reply =
        agent.post("/v1/tools/pubsub_worker_work/call?channel=room", &json!({ "args": {} })).await;
    assert_eq!(reply.body["result"], "second");
    // Any second run would have finished before this later call.
    assert_eq!(worker.runs.load(Ordering::SeqCst), 23);

    second.close().await;
    worker.connections(1).await;
    assert_eq!(call(&ann, "work").await, "first");
    // A program with other methods represents the participant only while it is connected.
    let third = worker.start("third", "other").await;
    assert_eq!(call(&ann, "other").await, "third");
    let work = ann.call_method("worker", "work", json!({}), CallOptions::new());
    assert_eq!(soon(work.result()).await.unwrap_err().code(), "method-not-found");
    third.close().await;
    worker.connections(1).await;
    assert_eq!(call(&ann, "work").await, "first");
    assert_eq!(worker.runs.load(Ordering::SeqCst), 26);
    gateway.stop().await;
}

#[tokio::test]
async fn one_in_rust_leaves_the_calls_of_one_in_typescript_alone() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let ann = join(&gateway, "ann").await;
    let programs = Programs::install();
    let token = Participant::token(&gateway, "worker").await;
    let worker = Worker { gateway: &gateway, token, runs: Arc::default() };
    let rust = worker.start("rust", "search").await;
    let typescript = programs.worker_with(&gateway, &worker.token).await;
    let found =
        ann.call_method("worker", "search", json!({ "pattern": ".rs" }), CallOptions::new());
    assert_eq!(soon(found.result()).await.unwrap().content, json!(["c.rs"]));
    assert_eq!(worker.runs.load(Ordering::SeqCst), 0);
    assert_eq!(call(&ann, "stop").await, "stopping");
    typescript.end().await.assert_code(0);
    worker.connections(1).await;
    assert_eq!(call(&ann, "search").await, "rust");
    drop(rust);
    gateway.stop().await;
}
