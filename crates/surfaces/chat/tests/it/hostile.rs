//! For any output of a model server, even cut anywhere or endless, the client gets an answer or an
//! error. The gateway keeps its limits, and running work ends with its client.

use futures_util::StreamExt as _;
use sa_testkit::chat::{Streamed, ask, complete, result, with};
use sa_testkit::{Gateway, Hello, ModelReply, ScriptedModel, eventually, soon};
use serde_json::{Value, json};

use crate::gateway::behind;

/// Returns one chunk of a stream.
fn piece(delta: Value, finish: Value) -> String {
    json!({ "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
    .to_string()
}

fn pieces(bytes: &[u8], size: usize) -> ModelReply {
    ModelReply::Bytes(bytes.chunks(size).map(<[u8]>::to_vec).collect())
}

/// Streams once with the gateway's tools and once without, where the stream is only forwarded.
async fn both_ways(gateway: &Gateway, body: &Value) -> [Streamed; 2] {
    let asked = |tools: &str| with(body.clone(), "switchboard", json!({ "tools": tools }));
    [Streamed::of(gateway, asked("all")).await, Streamed::of(gateway, asked("none")).await]
}

#[tokio::test]
async fn a_stream_may_be_written_and_cut_in_every_way() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    let events = [
        piece(json!({ "role": "assistant", "content": "Grüße, " }), Value::Null),
        piece(json!({ "content": "🦀!" }), Value::Null),
        piece(json!({}), json!("stop")),
    ];
    let [a, b, c] = &events;
    let ways = [
        format!("data: {a}\n\ndata: {b}\n\ndata: {c}\n\ndata: [DONE]\n\n"),
        format!("data:{a}\n\ndata:{b}\n\ndata:{c}\n\ndata:[DONE]\n\n"),
        format!("data: {a}\r\n\r\ndata: {b}\r\n\r\ndata: {c}\r\n\r\ndata: [DONE]\r\n\r\n"),
        format!(
            ": hello\n\nevent: message\nid: 1\nretry: 5\ndata: {a}\n\n: PROCESSING\n\ndata: {b}\n\ndata: {c}\n\ndata: [DONE]\n\n"
        ),
        format!("data: {a}\n\ndata: {b}\n\ndata: {c}\n\n"),
        format!("data: {a}\n\ndata: {b}\n\ndata: {c}\n\ndata: [DONE]"),
        format!("\u{feff}data: {a}\n\ndata: {b}\n\ndata: {c}\n\ndata: [DONE]\n\n"),
        format!("data: {a}\r\rdata: {b}\r\rdata: {c}\r\rdata: [DONE]\r\r"),
    ];
    for way in &ways {
        for size in [1, 3, 4096] {
            model
                .then(|_| {}, pieces(way.as_bytes(), size))
                .then(|_| {}, pieces(way.as_bytes(), size));
            for streamed in both_ways(&gateway, &ask("go")).await {
                assert_eq!(
                    (streamed.text.as_str(), streamed.finish.as_str()),
                    ("Grüße, 🦀!", "stop"),
                    "{way:?} by {size}: {streamed:?}"
                );
                assert!(streamed.done && streamed.error.is_null(), "{streamed:?}");
            }
        }
    }
    model.finish();
}

#[tokio::test]
async fn calls_may_be_cut_and_numbered_in_every_way() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    let call = |index: Value, id: Value, name: &str, arguments: &str| json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": arguments } }] });
    let one_by_one = |text: &str, of: &dyn Fn(&str) -> Value| -> Vec<Value> {
        text.chars().map(|c| of(&c.to_string())).collect()
    };
    let mut letters =
        vec![json!({ "tool_calls": [{ "index": 0, "id": "c1", "type": "function" }] })];
    letters.extend(one_by_one(
        "a_x",
        &|part| json!({ "tool_calls": [{ "index": 0, "function": { "name": part } }] }),
    ));
    letters.extend(one_by_one(
        "{\"k\":\"é\"}",
        &|part| json!({ "tool_calls": [{ "index": 0, "function": { "arguments": part } }] }),
    ));
    let ways: Vec<(Vec<Value>, usize)> = vec![
        (letters, 1),
        (
            vec![
                call(json!(0), json!("c1"), "a_x", "{\"k\":\"é\"}"),
                call(json!(0), json!("c2"), "a_x", "{\"k\":\"é\"}"),
            ],
            2,
        ),
        (
            vec![
                call(json!(0), Value::Null, "a_x", "{\"k\":\"é\"}"),
                call(json!(1), Value::Null, "a_x", "{\"k\":\"é\"}"),
            ],
            2,
        ),
        (
            vec![
                call(Value::Null, json!("same"), "a_x", "{\"k\":\"é\"}"),
                call(Value::Null, json!("same"), "a_x", "{\"k\":\"é\"}"),
            ],
            2,
        ),
        (
            vec![
                json!({ "function_call": { "name": "a_x", "arguments": "{\"k\":" } }),
                json!({ "function_call": { "arguments": "\"é\"}" } }),
            ],
            1,
        ),
    ];
    for (deltas, calls) in ways {
        let events =
            deltas.iter().map(|delta| format!("data: {}\n\n", piece(delta.clone(), Value::Null)));
        let mut text = events.collect::<Vec<_>>().concat();
        text += &format!("data: {}\n\ndata: [DONE]\n\n", piece(json!({}), json!("tool_calls")));
        model.then(|_| {}, pieces(text.as_bytes(), 1));
        // The scripted server also checks that each call has its own id, and that each result has a
        // call.
        let told = move |request: &Value| {
            let results: Vec<_> = request["messages"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|message| message["role"] == "tool")
                .collect();
            assert_eq!(results.len(), calls, "{request}");
            assert!(results.iter().all(|result| result["content"] == "{\"k\":\"é\"}"), "{request}");
        };
        model.then(told, ModelReply::text("done"));
        let streamed = Streamed::of(&gateway, ask("go")).await;
        assert_eq!(
            (streamed.text.as_str(), streamed.finish.as_str()),
            ("done", "stop"),
            "{streamed:?}"
        );
    }
    model.finish();
}

#[tokio::test]
async fn arguments_that_are_none_are_told_to_the_model() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    let bad = ["{\"k\":", "not JSON", "[1]", "\"text\"", "7"];
    let calls: Vec<(String, String)> =
        bad.iter().enumerate().map(|(at, text)| (format!("c{at}"), (*text).to_owned())).collect();
    let named: Vec<(&str, &str, String)> =
        calls.iter().map(|(id, text)| (id.as_str(), "a_x", text.clone())).collect();
    for stream in [false, true] {
        model.then(|_| {}, ModelReply::raw_calls(&named));
        model.then(
            |request| {
                for at in 0..5 {
                    let told = result(request, &format!("c{at}"));
                    assert!(told.contains("invalid_args"), "{told}");
                }
            },
            ModelReply::text("sorry"),
        );
        let reply = complete(&gateway, &with(ask("go"), "stream", json!(stream))).await;
        assert!(reply.text.contains("so"), "{}", reply.text);
    }
    assert_eq!(
        gateway.operator().get("/v1/calls").await.body["calls"],
        json!([]),
        "none of it was a call"
    );
    model.finish();
}

#[tokio::test]
async fn more_calls_than_there_may_be_run_none() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "max_tool_calls = 100000").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    let ids: Vec<String> = (0..3_000).map(|at| format!("c{at}")).collect();
    let calls: Vec<(&str, &str, Value)> =
        ids.iter().map(|id| (id.as_str(), "a_x", json!({}))).collect();
    model.then(|_| {}, ModelReply::calls(&calls));
    let answer = complete(&gateway, &ask("go")).await.body;
    assert_eq!(answer["switchboard"]["stopped"]["reason"], "max_tool_calls", "{answer}");
    let all: Vec<Value> = ids
        .iter()
        .enumerate()
        .map(|(index, id)| json!({ "index": index, "id": id, "function": { "name": "a_x", "arguments": "{}" } }))
        .collect();
    let events: Vec<String> = all
        .chunks(100)
        .map(|calls| format!("data: {}\n\n", piece(json!({ "tool_calls": calls }), Value::Null)))
        .collect();
    let text = events.concat() + &format!("data: {}\n\n", piece(json!({}), json!("tool_calls")));
    model.then(|_| {}, pieces(text.as_bytes(), 1 << 16));
    let streamed = Streamed::of(&gateway, ask("go")).await;
    assert_eq!(
        streamed.events.last().unwrap()["stopped"]["reason"],
        "max_tool_calls",
        "{streamed:?}"
    );
    assert_eq!(gateway.operator().get("/v1/calls").await.body["calls"], json!([]));
    model.finish();
}

#[tokio::test]
async fn what_has_no_end_is_ended() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    // An event without an end, and a whole answer without an end.
    let line = || ModelReply::Endless { head: b"data: ".to_vec(), again: vec![b'x'; 1 << 16] };
    for _ in 0..2 {
        model.then(|_| {}, line());
    }
    for streamed in both_ways(&gateway, &ask("go")).await {
        assert_eq!(streamed.error["code"], "upstream_bad_answer", "{streamed:?}");
    }
    model.then(|_| {}, line());
    let whole = complete(&gateway, &ask("go")).await;
    assert_eq!(
        (whole.status, &whole.body["error"]["code"]),
        (502, &json!("upstream_bad_answer")),
        "{}",
        whole.text
    );
    model.finish();
}

#[tokio::test]
async fn an_answer_without_end_is_over_at_the_deadline() {
    let mut model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    let again =
        format!("data: {}\n\n", piece(json!({ "content": "and " }), Value::Null)).into_bytes();
    for tools in ["all", "none"] {
        model.then(|_| {}, ModelReply::Endless { head: Vec::new(), again: again.clone() });
        let body = with(ask("go"), "switchboard", json!({ "tools": tools, "timeout_ms": 400 }));
        let streamed = Streamed::of(&gateway, body).await;
        assert!(streamed.text.starts_with("and and "), "{tools}");
        assert!(
            streamed.finish == "length" || streamed.error["code"] == "deadline",
            "{tools}: {} {}",
            streamed.finish,
            streamed.error
        );
        model.hung_up().await;
    }
    model.finish();
}

#[tokio::test]
async fn who_leaves_an_answer_without_end_ends_it() {
    let mut model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    let again =
        format!("data: {}\n\n", piece(json!({ "content": "and " }), Value::Null)).into_bytes();
    for tools in ["all", "none"] {
        model.then(|_| {}, ModelReply::Endless { head: Vec::new(), again: again.clone() });
        let mut body = with(ask("go"), "stream", json!(true));
        body["switchboard"] = json!({ "tools": tools });
        let agent = gateway.operator();
        let request = agent.request(reqwest::Method::POST, "/v1/chat/completions").json(&body);
        let mut read = soon(request.send()).await.unwrap().bytes_stream();
        soon(read.next()).await.unwrap().unwrap();
        drop(read);
        model.hung_up().await;
    }
    eventually("nothing left running", || async {
        (gateway.running_calls().await == 0).then_some(())
    })
    .await;
    model.finish();
}

#[tokio::test]
async fn a_result_of_megabytes_is_cut_for_the_model() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "max_result_bytes = 10000").await;
    let mut node = Hello::new("n").tool("a.x").connect(&gateway).await;
    let node = tokio::spawn(async move {
        let request = node.request().await;
        node.answer(&request.id, json!({ "text": "é".repeat(1 << 20) })).await;
        node
    });
    model.then(|_| {}, ModelReply::calls(&[("c1", "a_x", json!({}))]));
    let cut = |request: &Value| {
        let told = result(request, "c1");
        assert!((1_000..=11_000).contains(&told.len()), "{} bytes", told.len());
        assert!(
            told.contains("cut") || told.contains("truncated"),
            "{}",
            &told[told.len() - 200..]
        );
    };
    model.then(cut, ModelReply::text("done"));
    assert_eq!(
        complete(&gateway, &ask("go")).await.body["choices"][0]["message"]["content"],
        "done"
    );
    node.await.unwrap();
    model.finish();
}

#[tokio::test]
async fn what_clients_leave_empty_is_left_out() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    let mut body = ask("go");
    for field in [
        "tools",
        "tool_choice",
        "functions",
        "function_call",
        "n",
        "stream",
        "stream_options",
        "parallel_tool_calls",
        "user",
        "switchboard",
    ] {
        body[field] = Value::Null;
    }
    model.then(
        |request| assert_eq!(request["tools"].as_array().unwrap().len(), 1),
        ModelReply::text("hello"),
    );
    let reply = complete(&gateway, &body).await;
    assert_eq!(reply.body["choices"][0]["message"]["content"], "hello", "{}", reply.text);
    // Several answers at once are possible only without tools.
    let several = with(ask("go"), "n", json!(2));
    let refused = complete(&gateway, &several).await;
    assert_eq!(
        (refused.status, &refused.body["error"]["param"]),
        (400, &json!("n")),
        "{}",
        refused.text
    );
    model.then(|request| assert_eq!(request["n"], 2), ModelReply::text("hello"));
    assert_eq!(
        complete(&gateway, &with(several, "switchboard", json!({ "tools": "none" }))).await.status,
        200
    );
    // The token count of all rounds is sent at the end, on request.
    model
        .then(|_| {}, ModelReply::calls(&[("c1", "a_x", json!({}))]))
        .then(|_| {}, ModelReply::text("done"));
    let counted =
        Streamed::of(&gateway, with(ask("go"), "stream_options", json!({ "include_usage": true })))
            .await;
    assert_eq!(counted.usage["total_tokens"], 42, "{counted:?}");
    model.finish();
}
