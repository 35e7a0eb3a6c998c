//! A model that keeps calling tools is stopped at a limit, with an end that names the limit. When a
//! client disconnects, its request to the model server and its calls on nodes are cancelled.

use futures_util::StreamExt as _;
use sa_testkit::chat::{Streamed, ask, complete, with};
use sa_testkit::{Hello, ModelReply, ScriptedModel, eventually, soon};
use serde_json::{Value, json};

use crate::gateway::behind;

fn call() -> ModelReply {
    ModelReply::calls(&[("c1", "a_x", json!({}))])
}

#[tokio::test]
async fn each_limit_ends_the_answer_and_says_so() {
    for (more, extension, reason, rounds) in [
        ("max_rounds = 3", json!({}), "max_rounds", 3),
        ("", json!({ "max_rounds": 2 }), "max_rounds", 2),
        ("max_rounds = 3", json!({ "max_rounds": 9 }), "max_rounds", 3),
        ("max_tool_calls = 2", json!({}), "max_tool_calls", 3),
        ("max_total_tokens = 50", json!({}), "max_total_tokens", 2),
    ] {
        let model = ScriptedModel::start().await;
        model.always(|_| call());
        let gateway = behind(&model, more).await;
        let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
        let body = with(ask("go"), "switchboard", extension);
        let answer = complete(&gateway, &body).await.body;
        assert_eq!(answer["switchboard"]["stopped"]["reason"], reason, "{answer}");
        assert_eq!(answer["choices"][0]["finish_reason"], "length");
        let content = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(content.contains("stopped"), "{content}");
        assert_eq!(model.requests().len(), rounds, "{reason}");
        let streamed = Streamed::of(&gateway, body).await;
        assert_eq!((streamed.finish.as_str(), streamed.done), ("length", true));
        assert_eq!(streamed.events.last().unwrap()["stopped"]["reason"], reason);
        assert!(streamed.text.contains("stopped"), "{streamed:?}");
        assert_eq!(model.requests().len(), 2 * rounds, "{reason}");
    }
}

#[tokio::test]
async fn tokens_are_counted_in_a_stream_though_the_client_does_not_ask() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "max_total_tokens = 1000").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    model.then(
        |request| {
            assert_eq!(request["stream_options"], json!({ "include_usage": true, "other": 1 }));
        },
        ModelReply::text("hello"),
    );
    let streamed =
        Streamed::of(&gateway, with(ask("go"), "stream_options", json!({ "other": 1 }))).await;
    assert_eq!((streamed.text.as_str(), streamed.usage.is_null()), ("hello", true), "{streamed:?}");
    model.finish();
}

#[tokio::test]
async fn the_deadline_cancels_what_runs() {
    for stream in [false, true] {
        let model = ScriptedModel::start().await;
        model.then(|_| {}, call());
        let gateway = behind(&model, "").await;
        let mut node = Hello::new("n").tool("a.x").connect(&gateway).await;
        let body = with(ask("go"), "switchboard", json!({ "timeout_ms": 700 }));
        let node = tokio::spawn(async move {
            let request = node.request().await;
            node.cancelled(&request).await
        });
        let (finish, reason) = if stream {
            let answer = Streamed::of(&gateway, body).await;
            (json!(answer.finish), answer.events.last().unwrap()["stopped"]["reason"].clone())
        } else {
            let answer = complete(&gateway, &body).await.body;
            (
                answer["choices"][0]["finish_reason"].clone(),
                answer["switchboard"]["stopped"]["reason"].clone(),
            )
        };
        assert_eq!((finish, reason), (json!("length"), json!("deadline")));
        node.await.unwrap();
        model.finish();
    }
}

#[tokio::test]
async fn a_deadline_before_any_text_is_an_error() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "timeout_ms = 300").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    for stream in [false, true] {
        model.then(|_| {}, ModelReply::Nothing);
        let reply = complete(&gateway, &with(ask("go"), "stream", json!(stream))).await;
        assert_eq!(reply.status, 504, "{}", reply.text);
    }
    model.finish();
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_calls_at_the_node() {
    for stream in [false, true] {
        let model = ScriptedModel::start().await;
        model.then(|_| {}, call().saying("Looking."));
        let gateway = behind(&model, "").await;
        let mut node = Hello::new("n").tool("a.x").connect(&gateway).await;
        let (agent, body) = (gateway.operator(), with(ask("go"), "stream", json!(stream)));
        let client = tokio::spawn(async move { agent.post("/v1/chat/completions", &body).await });
        let request = node.request().await;
        client.abort();
        assert_eq!(node.cancelled(&request).await, "disconnected", "stream: {stream}");
        eventually("the call gone", || async {
            (gateway.running_calls().await == 0).then_some(())
        })
        .await;
        model.finish();
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_request_to_the_server() {
    let piece = json!({ "id": "x", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": { "content": "Once" } }] });
    for (reply, stream) in [
        (ModelReply::Nothing, false),
        (ModelReply::Nothing, true),
        (ModelReply::Silence(vec![piece.to_string()]), true),
    ] {
        let mut model = ScriptedModel::start().await;
        let reads = matches!(reply, ModelReply::Silence(_));
        model.then(|_| {}, reply);
        let gateway = behind(&model, "").await;
        let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
        let agent = gateway.operator();
        let request = agent.request(reqwest::Method::POST, "/v1/chat/completions").json(&with(
            ask("go"),
            "stream",
            json!(stream),
        ));
        if reads {
            let mut body = soon(request.send()).await.unwrap().bytes_stream();
            assert!(soon(body.next()).await.unwrap().unwrap().starts_with(b"data: "));
            drop(body);
        } else {
            let sent = tokio::spawn(request.send());
            model.asked().await;
            sent.abort();
        }
        model.hung_up().await;
        model.finish();
    }
}

#[tokio::test]
async fn a_token_that_is_revoked_ends_the_answer() {
    let mut model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    model.then(|_| {}, ModelReply::Nothing);
    let (id, token) = gateway.token(json!({ "name": "bot", "role": "agent" })).await;
    let agent = gateway.agent(&token);
    let client = tokio::spawn(async move { agent.post("/v1/chat/completions", &ask("go")).await });
    model.asked().await;
    gateway.operator().delete(&format!("/v1/tokens/{id}")).await;
    let reply = client.await.unwrap();
    assert_eq!(
        (reply.status, &reply.body["error"]["code"]),
        (401, &json!("token_over")),
        "{}",
        reply.text
    );
    model.hung_up().await;
    model.finish();
}

#[tokio::test]
async fn an_answer_that_was_cut_off_by_its_length_runs_nothing() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    let ModelReply::Message { message, usage, .. } = call().saying("I was") else { unreachable!() };
    model.then(|_| {}, ModelReply::Message { message, usage, finish: "length".into() });
    let answer: Value = complete(&gateway, &ask("go")).await.body;
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["choices"][0]["message"]["content"], "I was");
    assert_eq!(gateway.operator().get("/v1/calls").await.body["calls"], json!([]));
    model.finish();
}
