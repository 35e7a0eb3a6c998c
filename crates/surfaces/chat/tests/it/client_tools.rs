//! Calls of the client's own tools are returned to the client in its own format. When the client
//! continues, the gateway's own calls are inserted into the conversation. The conversation is valid
//! with or without them.

use sa_testkit::chat::{Streamed, ask, complete, result, tool_names, with};
use sa_testkit::{Gateway, Hello, ModelReply, ScriptedModel, Setup};
use serde_json::{Value, json};

use crate::gateway::{Serve as _, behind};

fn own_tool() -> Value {
    json!([{ "type": "function", "function": { "name": "my_tool", "parameters": { "type": "object" } } }])
}

async fn start(model: &ScriptedModel, more: &str) -> (Gateway, tokio::task::JoinHandle<()>) {
    let gateway = behind(model, more).await;
    let node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    (gateway, node)
}

/// Returns the tool calls of the answer, streamed or not, and its finish reason.
async fn calls(gateway: &Gateway, body: &Value, stream: bool) -> (Value, String) {
    if stream {
        let answer = Streamed::of(gateway, body.clone()).await;
        return (json!(answer.calls), answer.finish);
    }
    let answer = complete(gateway, body).await.body;
    let choice = &answer["choices"][0];
    (choice["message"]["tool_calls"].clone(), choice["finish_reason"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_round_of_both_runs_the_gateway_s_and_returns_the_client_s() {
    for stream in [false, true] {
        let model = ScriptedModel::start().await;
        let (gateway, _node) = start(&model, "").await;
        let offered = |request: &Value| assert_eq!(tool_names(request), ["my_tool", "a_x"]);
        model
            .then(offered, ModelReply::calls(&[("r1", "a_x", json!({ "round": 1 }))]))
            .then(
                offered,
                ModelReply::calls(&[
                    ("r2", "a_x", json!({ "round": 2 })),
                    ("m1", "my_tool", json!({ "q": "ä" })),
                    ("m2", "my_tool", json!({})),
                ]),
            )
            .then(
                |request| {
                    assert_eq!(result(request, "r1"), "{\"round\":1}");
                    assert_eq!(result(request, "r2"), "{\"round\":2}");
                    let roles: Vec<_> = request["messages"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|message| message["role"].as_str().unwrap())
                        .collect();
                    assert_eq!(
                        roles,
                        ["user", "assistant", "tool", "assistant", "tool", "tool", "tool"]
                    );
                    assert_eq!(request["messages"][5]["content"], "mine", "{request}");
                },
                ModelReply::text("done"),
            );
        let body = with(ask("go"), "tools", own_tool());
        let (calls, finish) = calls(&gateway, &body, stream).await;
        assert_eq!(
            (calls.as_array().unwrap().len(), finish.as_str()),
            (2, "tool_calls"),
            "{calls}"
        );
        assert_eq!(
            calls[0]["function"],
            json!({ "name": "my_tool", "arguments": "{\"q\":\"ä\"}" })
        );
        let mut again = body.clone();
        let messages = again["messages"].as_array_mut().unwrap();
        messages.push(json!({ "role": "assistant", "content": null, "tool_calls": calls }));
        for call in calls.as_array().unwrap() {
            messages.push(json!({ "role": "tool", "tool_call_id": call["id"], "content": "mine" }));
        }
        assert_eq!(
            complete(&gateway, &again).await.body["choices"][0]["message"]["content"],
            "done"
        );
        model.finish();
    }
}

#[tokio::test]
async fn a_gateway_that_has_forgotten_still_sends_a_valid_conversation() {
    let model = ScriptedModel::start().await;
    let (gateway, node) = start(&model, "").await;
    model
        .then(|_| {}, ModelReply::calls(&[("r1", "a_x", json!({})), ("m1", "my_tool", json!({}))]));
    let body = with(ask("go"), "tools", own_tool());
    let (calls, _) = calls(&gateway, &body, false).await;
    let mut again = body.clone();
    let messages = again["messages"].as_array_mut().unwrap();
    messages.push(json!({ "role": "assistant", "content": null, "tool_calls": calls }));
    messages.push(json!({ "role": "tool", "tool_call_id": calls[0]["id"], "content": "mine" }));
    // Another principal cannot see them, and after a restart they are lost.
    let check = |request: &Value| assert_eq!(request["messages"].as_array().unwrap().len(), 3);
    model.then(check, ModelReply::text("done")).then(check, ModelReply::text("done"));
    let other = gateway.new_agent("other").await;
    assert_eq!(other.post("/v1/chat/completions", &again).await.status, 200);
    node.abort();
    let restarted = Setup::new().config(&model.config("")).on(&gateway);
    gateway.stop().await;
    let gateway = restarted.serve().await;
    assert_eq!(complete(&gateway, &again).await.status, 200);
    model.finish();
}

#[tokio::test]
async fn a_tool_that_client_and_gateway_both_have_is_the_client_s() {
    let model = ScriptedModel::start().await;
    let (gateway, _node) = start(&model, "").await;
    let tools =
        json!([{ "type": "function", "function": { "name": "a_x", "description": "mine" } }]);
    model.then(
        |request| assert_eq!(request["tools"].as_array().unwrap().len(), 1),
        ModelReply::calls(&[("m1", "a_x", json!({ "k": 1 }))]),
    );
    let (calls, finish) = calls(&gateway, &with(ask("go"), "tools", tools), true).await;
    assert_eq!((&calls[0]["function"]["name"], finish.as_str()), (&json!("a_x"), "tool_calls"));
    assert_eq!(gateway.operator().get("/v1/calls").await.body["calls"], json!([]));
    model.finish();
}

#[tokio::test]
async fn the_older_form_of_calls_in_and_out() {
    for stream in [false, true] {
        let model = ScriptedModel::start().await;
        let (gateway, _node) = start(&model, "").await;
        let forced = json!({ "type": "function", "function": { "name": "my_tool" } });
        let expected = forced.clone();
        model
            .then(
                move |request| {
                    assert!(
                        request.get("functions").is_none()
                            && request.get("function_call").is_none(),
                        "{request}"
                    );
                    assert_eq!(tool_names(request), ["my_tool", "a_x"]);
                    assert_eq!(request["tool_choice"], expected);
                },
                ModelReply::calls(&[
                    ("r1", "a_x", json!({ "k": 1 })),
                    ("m1", "my_tool", json!({ "q": 1 })),
                ]),
            )
            .then(
                |request| {
                    assert_eq!(
                        result(request, "r1"),
                        "{\"k\":1}",
                        "what the gateway did is there again"
                    );
                    let last = request["messages"].as_array().unwrap().last().unwrap();
                    assert_eq!((&last["role"], &last["content"]), (&json!("tool"), &json!("mine")));
                },
                ModelReply::text("done"),
            );
        let mut body = with(
            ask("go"),
            "functions",
            json!([{ "name": "my_tool", "parameters": { "type": "object" } }]),
        );
        body["function_call"] = json!({ "name": "my_tool" });
        let (call, finish) = if stream {
            let answer = Streamed::of(&gateway, body.clone()).await;
            (answer.function_call, answer.finish)
        } else {
            let answer = complete(&gateway, &body).await.body;
            let choice = &answer["choices"][0];
            assert!(choice["message"].get("tool_calls").is_none(), "{answer}");
            (
                choice["message"]["function_call"].clone(),
                choice["finish_reason"].as_str().unwrap().to_owned(),
            )
        };
        assert_eq!(call, json!({ "name": "my_tool", "arguments": "{\"q\":1}" }));
        assert_eq!(finish, "function_call");
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(json!({ "role": "assistant", "content": null, "function_call": call }));
        messages.push(json!({ "role": "function", "name": "my_tool", "content": "mine" }));
        body["function_call"] = json!("auto");
        assert_eq!(
            complete(&gateway, &body).await.body["choices"][0]["message"]["content"],
            "done"
        );
        model.finish();
    }
}

#[tokio::test]
async fn a_server_that_knows_only_the_older_form() {
    let model = ScriptedModel::start().await;
    let (gateway, _node) = start(&model, "legacy_functions = true").await;
    let call = json!({ "name": "a_x", "arguments": "{\"k\":1}" });
    let called = ModelReply::Message {
        message: json!({ "role": "assistant", "content": null, "function_call": call }),
        finish: "function_call".into(),
        usage: json!({}),
    };
    model
        .then(
            |request| {
                assert!(
                    request.get("tools").is_none() && request.get("parallel_tool_calls").is_none(),
                    "{request}"
                );
                assert_eq!(request["functions"][0]["name"], "a_x");
            },
            called,
        )
        .then(
            |request| {
                let messages = request["messages"].as_array().unwrap();
                assert_eq!(messages[1]["function_call"]["arguments"], "{\"k\":1}", "{request}");
                assert_eq!(
                    messages[2],
                    json!({ "role": "function", "name": "a_x", "content": "{\"k\":1}" })
                );
            },
            ModelReply::text("done"),
        );
    let body = with(ask("go"), "parallel_tool_calls", json!(true));
    assert_eq!(complete(&gateway, &body).await.body["choices"][0]["message"]["content"], "done");
    model.finish();
}

#[tokio::test]
async fn with_no_tools_of_the_gateway_s_the_stream_passes_untouched() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    model.then(|_| {}, ModelReply::calls(&[("m1", "my_tool", json!({ "q": "ä" }))]));
    let answer = Streamed::of(&gateway, with(ask("go"), "tools", own_tool())).await;
    assert_eq!(
        (answer.calls[0]["id"].as_str(), answer.finish.as_str(), answer.done),
        (Some("m1"), "tool_calls", true)
    );
    model.finish();
}
