//! The gateway offers the principal's tools to a model, runs its tool calls concurrently, and
//! returns the results until the model answers. Streamed and whole answers work the same way.

use sa_testkit::chat::{Streamed, ask, complete, result, tool_names, with};
use sa_testkit::{FakeNode, Hello, ModelReply, Reply, ScriptedModel, SdkNode};
use serde_json::{Value, json};

use crate::gateway::behind;

fn search() -> Value {
    json!({ "name": "notes.search", "description": "Searches notes.", "input_schema": { "type": "object",
        "properties": { "query": { "type": "string" } }, "required": ["query"] } })
}

#[tokio::test]
async fn one_call_and_its_answer_whole_and_in_pieces() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("mac").describe(search()).connect(&gateway).await.echo();
    for stream in [false, true] {
        model
            .then(
                move |request| {
                    let function = &request["tools"][0]["function"];
                    assert_eq!(
                        (&function["name"], &function["description"]),
                        (&json!("notes_search"), &json!("Searches notes."))
                    );
                    assert_eq!(function["parameters"]["required"], json!(["query"]));
                    assert_eq!(
                        request.get("stream"),
                        if stream { Some(&json!(true)) } else { None }
                    );
                },
                ModelReply::calls(&[("c1", "notes_search", json!({ "query": "größe" }))])
                    .saying("Let me look."),
            )
            .then(
                |request| {
                    let call = &request["messages"][1];
                    assert_eq!(call["content"], "Let me look.", "{request}");
                    assert_eq!(
                        call["tool_calls"][0]["function"]["arguments"],
                        "{\"query\":\"größe\"}"
                    );
                    assert_eq!(result(request, "c1"), "{\"query\":\"größe\"}");
                },
                ModelReply::text("Found it."),
            );
        let body =
            with(ask("Where is my note?"), "stream_options", json!({ "include_usage": true }));
        let body = if stream { body } else { ask("Where is my note?") };
        let (text, finish, usage) = if stream {
            let answer = Streamed::of(&gateway, body).await;
            assert!(
                answer.done && answer.calls.is_empty() && answer.events.is_empty(),
                "{answer:?}"
            );
            (answer.text, answer.finish, answer.usage)
        } else {
            let answer = complete(&gateway, &body).await.body;
            let message = &answer["choices"][0]["message"];
            assert!(
                message.get("tool_calls").is_none() && answer.get("switchboard").is_none(),
                "{answer}"
            );
            assert_eq!(answer["system_fingerprint"], "fp_1", "what the server adds passes");
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (
                text(&message["content"]),
                text(&answer["choices"][0]["finish_reason"]),
                answer["usage"].clone(),
            )
        };
        assert_eq!((text.as_str(), finish.as_str()), ("Let me look.\n\nFound it.", "stop"));
        assert_eq!(
            usage,
            json!({ "prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42 }),
            "of both rounds"
        );
    }
    model.finish();
}

/// Waits for requests of two tools, and answers them in reverse order. Only concurrent calls can
/// complete this way.
async fn answer_backwards(mut node: FakeNode) -> FakeNode {
    let (first, second) = (node.request().await, node.request().await);
    for request in [second, first] {
        let result = json!(format!("{} done", request.tool));
        node.answer(&request.id, result).await;
    }
    node
}

#[tokio::test]
async fn calls_of_one_round_run_at_once_and_keep_their_order() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let node = Hello::new("n").tool("a.x").tool("a.y").connect(&gateway).await;
    let calls = ModelReply::calls(&[("c1", "a_x", json!({})), ("c2", "a_y", json!({}))]);
    model.then(|_| {}, calls).then(
        |request| {
            let results: Vec<_> = request["messages"].as_array().unwrap()[2..]
                .iter()
                .map(|m| m["content"].clone())
                .collect();
            assert_eq!(results, [json!("a.x done"), json!("a.y done")]);
        },
        ModelReply::text("both"),
    );
    let node = tokio::spawn(answer_backwards(node));
    let answer = Streamed::of(&gateway, ask("go")).await;
    assert_eq!(answer.text, "both");
    node.await.unwrap();
    model.finish();
}

#[tokio::test]
async fn without_parallel_calls_they_run_one_after_another() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let mut node = Hello::new("n").tool("a.x").tool("a.y").connect(&gateway).await;
    let calls = ModelReply::calls(&[("c1", "a_x", json!({})), ("c2", "a_y", json!({}))]);
    model
        .then(|request| assert_eq!(request["parallel_tool_calls"], false), calls)
        .then(|_| {}, ModelReply::text("both"));
    let node = tokio::spawn(async move {
        let first = node.request().await;
        // Only the pong arrives: the second call waits for the first.
        node.settle().await;
        node.answer(&first.id, json!(1)).await;
        let second = node.request().await;
        node.answer(&second.id, json!(2)).await;
        (first.tool, second.tool)
    });
    let answer = complete(&gateway, &with(ask("go"), "parallel_tool_calls", json!(false))).await;
    assert_eq!(answer.body["choices"][0]["message"]["content"], "both");
    assert_eq!(node.await.unwrap(), ("a.x".to_owned(), "a.y".to_owned()));
    model.finish();
}

#[tokio::test]
async fn what_goes_wrong_is_told_to_the_model() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("mac").describe(search()).connect(&gateway).await.echo();
    let calls = [
        ("bad", "notes_search", "{\"query\":".to_owned()),
        ("list", "notes_search", "[1]".to_owned()),
        ("wrong", "notes_search", "{\"query\":5}".to_owned()),
        ("none", "no_such_tool", "{}".to_owned()),
        ("good", "notes_search", "{\"query\":\"x\"}".to_owned()),
    ];
    model.then(|_| {}, ModelReply::raw_calls(&calls)).then(
        |request| {
            for (id, words) in [
                ("bad", "not valid JSON"),
                ("list", "object"),
                ("wrong", "query"),
                ("none", "not_found"),
            ] {
                let result = result(request, id);
                assert!(result.starts_with("Error: ") && result.contains(words), "{id}: {result}");
            }
            assert_eq!(result(request, "good"), "{\"query\":\"x\"}");
        },
        ModelReply::text("I see."),
    );
    assert_eq!(
        complete(&gateway, &ask("go")).await.body["choices"][0]["message"]["content"],
        "I see."
    );
    model.finish();
}

#[tokio::test]
async fn images_follow_the_results_as_a_message_of_the_users() {
    let image = json!({ "content": [{ "type": "text", "text": "the screen" }, { "type": "image", "data": "iVBO", "mimeType": "image/png" }] });
    for (more, seen) in [("", true), ("images = false", false)] {
        let model = ScriptedModel::start().await;
        let gateway = behind(&model, more).await;
        let image = image.clone();
        let registry = sa_testkit::registry("screen.shot", move |_, _| {
            let image = image.clone();
            async { Ok(image) }
        });
        let _node = SdkNode::start(&gateway, "screen", registry, |builder| builder).await;
        let calls = [("c1", "screen_shot", json!({})), ("c2", "screen_shot", json!({}))];
        model.then(|_| {}, ModelReply::calls(&calls)).then(
            move |request| {
                let messages = request["messages"].as_array().unwrap();
                assert!(result(request, "c1").starts_with("the screen\n["), "{request}");
                assert_eq!(messages.len(), if seen { 5 } else { 4 });
                if seen {
                    assert_eq!(messages[4]["role"], "user");
                    let url = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBO" } });
                    assert_eq!((&messages[4]["content"][1], &messages[4]["content"][3]), (&url, &url));
                }
            },
            ModelReply::text("a cat"),
        );
        assert_eq!(
            complete(&gateway, &ask("look")).await.body["choices"][0]["message"]["content"],
            "a cat"
        );
        model.finish();
    }
}

#[tokio::test]
async fn a_principal_s_tools_are_offered_and_no_others() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "tools = [\"a_*\", \"b_*\"]\nmax_tools = 2").await;
    let _node = Hello::new("n")
        .tool("a.x")
        .tool("a.y")
        .tool("b.z")
        .tool("c.w")
        .connect(&gateway)
        .await
        .echo();
    let check = |expected: &'static [&'static str]| {
        move |request: &Value| assert_eq!(tool_names(request), expected)
    };
    let answer = || ModelReply::text("hello");
    model.then(check(&["a_x", "a_y"]), answer());
    let reply = complete(&gateway, &ask("hello")).await;
    assert_eq!(reply.headers["x-switchboard-tools-left-out"], "1", "the server takes two");
    model.then(check(&["b_z"]), answer());
    complete(&gateway, &with(ask("hello"), "switchboard", json!({ "tools": ["b_*", "c_w"] })))
        .await;
    model.then(check(&[]), answer());
    complete(&gateway, &with(ask("hello"), "switchboard", json!({ "tools": "none" }))).await;
    model.then(check(&[]), answer());
    let body = ask("hello");
    let request =
        gateway.operator().request(reqwest::Method::POST, "/v1/chat/completions").json(&body);
    Reply::of(request.header("x-switchboard-tools", "none")).await;
    let (_, token) = gateway
        .token(json!({ "name": "bot", "role": "agent", "tools": ["a_y"], "models": ["*"] }))
        .await;
    model.then(check(&["a_y"]), answer());
    assert_eq!(gateway.agent(&token).post("/v1/chat/completions", &body).await.status, 200);
    let (_, token) = gateway.token(json!({ "name": "node", "role": "node" })).await;
    assert_eq!(gateway.agent(&token).post("/v1/chat/completions", &body).await.status, 403);
    model.finish();
}

#[tokio::test]
async fn unknown_fields_pass_as_they_were_written() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    let check = |request: &Value| {
        assert_eq!(request["temperature"], 0.1);
        assert_eq!(request["future"], json!({ "b": [1, null], "a": "ä" }));
        assert_eq!(request["messages"][0]["strange"], true);
    };
    model
        .then(check, ModelReply::calls(&[("c1", "a_x", json!({}))]))
        .then(check, ModelReply::text("done"));
    let body = json!({ "model": "scripted", "temperature": 0.1, "future": { "b": [1, null], "a": "ä" },
        "messages": [{ "role": "user", "content": "x", "strange": true }] });
    assert_eq!(complete(&gateway, &body).await.status, 200);
    model.finish();
}

#[tokio::test]
async fn what_the_gateway_does_is_told_to_those_who_ask() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let mut node = Hello::new("n").tool("a.x").connect(&gateway).await;
    model
        .then(|_| {}, ModelReply::calls(&[("c1", "a_x", json!({ "k": 1 }))]))
        .then(|_| {}, ModelReply::text("done"));
    let node = tokio::spawn(async move {
        let request = node.request().await;
        node.progress(&request.id, 0.5).await;
        node.answer(&request.id, json!("r")).await;
    });
    let answer =
        Streamed::of(&gateway, with(ask("go"), "switchboard", json!({ "events": true }))).await;
    let events: Vec<_> =
        answer.events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["tool_call", "tool_progress", "tool_result", "end"], "{answer:?}");
    assert_eq!(
        (&answer.events[0]["name"], &answer.events[0]["arguments"]),
        (&json!("a_x"), &json!("{\"k\":1}"))
    );
    assert_eq!((&answer.events[2]["ok"], &answer.events[2]["result"]), (&json!(true), &json!("r")));
    let call = answer.events[0]["call_id"].as_str().unwrap();
    let record = gateway.operator().get(&format!("/v1/calls/{call}")).await.body;
    assert_eq!((&record["tool"], &record["surface"]), (&json!("a_x"), &json!("chat")), "{record}");
    node.await.unwrap();
    model.finish();
}

#[tokio::test]
async fn a_choice_forces_the_first_round_alone() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    let choice = json!({ "type": "function", "function": { "name": "a_x" } });
    let expected = choice.clone();
    model
        .then(
            move |request| assert_eq!(request["tool_choice"], expected),
            ModelReply::calls(&[("c1", "a_x", json!({}))]),
        )
        .then(|request| assert_eq!(request["tool_choice"], "auto"), ModelReply::text("done"));
    assert_eq!(complete(&gateway, &with(ask("go"), "tool_choice", choice)).await.status, 200);
    model.finish();
}

#[tokio::test]
async fn models_are_listed_and_an_unknown_one_is_not_found() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let operator = gateway.operator();
    let list = operator.get("/v1/models").await.body;
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!("scripted")));
    assert_eq!(operator.get("/v1/models/scripted").await.body["object"], "model");
    let reply = complete(&gateway, &with(ask("x"), "model", json!("gpt-9"))).await;
    assert_eq!((reply.status, &reply.body["error"]["code"]), (404, &json!("model_not_found")));
    assert!(
        reply.body["error"]["message"].as_str().unwrap().contains("scripted"),
        "{}",
        reply.text
    );
    assert_eq!(
        complete(&gateway, &json!({ "model": "scripted" })).await.body["error"]["param"],
        "messages"
    );
    model.then(|request| assert_eq!(request["n"], 2), ModelReply::text("hello"));
    assert_eq!(
        complete(&gateway, &with(ask("x"), "n", json!(2))).await.status,
        200,
        "without tools it just passes"
    );
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    assert_eq!(
        complete(&gateway, &with(ask("x"), "n", json!(2))).await.body["error"]["param"],
        "n"
    );
    model.finish();
}

#[tokio::test]
async fn fifty_chats_at_once() {
    let model = ScriptedModel::start().await;
    model.always(|request| {
        let messages = request["messages"].as_array().unwrap();
        let text = messages[0]["content"].as_str().unwrap();
        if messages.len() == 1 {
            let calls = [
                ("c1", "n_echo", json!({ "who": text })),
                ("c2", "n_echo", json!({ "again": text })),
            ];
            return ModelReply::calls(&calls);
        }
        assert_eq!(result(request, "c1"), json!({ "who": text }).to_string());
        ModelReply::text(&format!("answer to {text}"))
    });
    let gateway = behind(&model, "").await;
    let _node = SdkNode::echo(&gateway, "n").await;
    let chats = (0..50).map(|number| {
        let gateway = &gateway;
        async move {
            let text = format!("question {number}");
            let answer = if number % 2 == 0 {
                Streamed::of(gateway, ask(&text)).await.text
            } else {
                complete(gateway, &ask(&text)).await.body["choices"][0]["message"]["content"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            };
            assert_eq!(answer, format!("answer to {text}"));
        }
    });
    futures_util::future::join_all(chats).await;
    assert_eq!(model.requests().len(), 100);
    assert_eq!(gateway.running_calls().await, 0);
}
