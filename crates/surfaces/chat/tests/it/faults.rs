//! For any fault of a model server, the client receives an error in OpenAI's format that explains
//! it, and the server's key is never exposed.

use sa_testkit::chat::{Streamed, ask, complete, with};
use sa_testkit::{Hello, ModelReply, ScriptedModel, Setup, assert_nowhere};
use serde_json::{Value, json};

use crate::gateway::{Serve as _, behind};

fn raw(status: u16, headers: &[(&'static str, &str)], body: &str) -> ModelReply {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    ModelReply::Raw { status, headers, body: body.into() }
}

fn piece(delta: Value) -> String {
    json!({ "id": "x", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": delta }] }).to_string()
}

#[tokio::test]
async fn every_fault_of_the_server_has_its_error() {
    let echoed = format!("Incorrect API key provided: {}", ScriptedModel::KEY);
    let table = [
        (ModelReply::error(401, &echoed), 502, "upstream_unauthorized"),
        (ModelReply::error(403, &echoed), 502, "upstream_unauthorized"),
        (raw(429, &[("retry-after", "7")], "slow down"), 429, "rate_limit_exceeded"),
        (ModelReply::error(400, &format!("bad field in {echoed}")), 400, "upstream_refused"),
        (ModelReply::error(404, "no such model"), 404, "upstream_refused"),
        (ModelReply::error(500, &echoed), 502, "upstream_failed"),
        (raw(503, &[("retry-after", "3")], "<html>"), 503, "upstream_overloaded"),
        (raw(504, &[], ""), 504, "upstream_timeout"),
        (
            raw(307, &[("location", "http://127.0.0.1:1/v1/chat/completions")], ""),
            502,
            "upstream_redirected",
        ),
        (raw(200, &[], "<html>not what was asked for</html>"), 502, "upstream_bad_answer"),
        (raw(200, &[], "[]"), 502, "upstream_bad_answer"),
        (raw(200, &[], "{\"choices\":[]}"), 502, "upstream_bad_answer"),
        (
            raw(
                200,
                &[("content-type", "application/json")],
                "{\"error\":{\"message\":\"out of memory\"}}",
            ),
            502,
            "upstream_failed",
        ),
    ];
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    for (reply, status, code) in table {
        model.then(|_| {}, reply.clone());
        let answer = complete(&gateway, &ask("go")).await;
        assert_eq!(
            (answer.status, answer.body["error"]["code"].as_str()),
            (status, Some(code)),
            "{}",
            answer.text
        );
        for field in ["message", "type"] {
            assert!(answer.body["error"][field].is_string(), "{}", answer.text);
        }
        assert_nowhere(ScriptedModel::KEY, &[("the error", &answer.text)]);
        let expected = match &reply {
            ModelReply::Raw { headers, .. } => headers
                .iter()
                .find(|(name, _)| *name == "retry-after")
                .map(|(_, value)| value.clone()),
            _ => None,
        };
        let told =
            answer.headers.get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(told, expected, "{code}");
        let never = matches!(code, "upstream_unauthorized" | "upstream_redirected");
        assert_eq!(
            answer.headers.get("x-should-retry").is_some_and(|value| value == "false"),
            never,
            "{code}"
        );
        // Checks the same faults before a stream begins, except for answers that are not streams.
        if status != 502 || !code.ends_with("answer") {
            model.then(|_| {}, reply);
            let streamed = Streamed::of(&gateway, ask("go")).await;
            assert_eq!(streamed.error["code"], code, "{streamed:?}");
            assert!(!streamed.done);
        }
    }
    model.finish();
}

#[tokio::test]
async fn a_stream_that_breaks_ends_in_an_error() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "idle_timeout_ms = 300").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    let begun = || vec![piece(json!({ "role": "assistant", "content": "Once" }))];
    let error = json!({ "error": { "message": format!("overheated, {}", ScriptedModel::KEY) } })
        .to_string();
    let table = [
        (ModelReply::Cut(begun()), "upstream_cut_off"),
        (ModelReply::Events(begun()), "upstream_cut_off"),
        (ModelReply::Silence(begun()), "upstream_timeout"),
        (
            ModelReply::Events([begun(), vec!["{\"choices\"".into()]].concat()),
            "upstream_bad_answer",
        ),
        (ModelReply::Events([begun(), vec![error]].concat()), "upstream_failed"),
    ];
    // With the gateway's tools, and without them, where the stream is only forwarded.
    for tools in ["all", "none"] {
        for (reply, code) in table.clone() {
            model.then(|_| {}, reply);
            let body = with(ask("go"), "switchboard", json!({ "tools": tools }));
            let streamed = Streamed::of(&gateway, body).await;
            assert_eq!((streamed.status, streamed.text.as_str()), (200, "Once"), "{code}");
            assert_eq!(streamed.error["code"], code, "{streamed:?}");
            assert!(!streamed.done);
            assert_nowhere(ScriptedModel::KEY, &[("the error", &streamed.error.to_string())]);
        }
    }
    model.finish();
}

#[tokio::test]
async fn a_stream_without_its_last_word_is_whole_if_it_says_how_it_ends() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    let last = json!({ "id": "x", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    model.then(
        |_| {},
        ModelReply::Events(vec![piece(json!({ "content": "All" })), last.to_string()]),
    );
    let streamed = Streamed::of(&gateway, ask("go")).await;
    assert_eq!(
        (streamed.text.as_str(), streamed.finish.as_str(), streamed.done),
        ("All", "stop", true)
    );
    model.finish();
}

#[tokio::test]
async fn a_server_that_cannot_stream_is_understood() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    let whole = |message: Value, finish: &str| {
        let answer = json!({ "id": "x", "object": "chat.completion", "choices": [{ "index": 0, "message": message, "finish_reason": finish }] });
        raw(200, &[("content-type", "application/json")], &answer.to_string())
    };
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "a_x", "arguments": "{\"k\":1}" } });
    let last = json!({ "role": "assistant", "content": "done" });
    model
        .then(
            |_| {},
            whole(
                json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
                "tool_calls",
            ),
        )
        .then(
            |request| assert_eq!(sa_testkit::chat::result(request, "c1"), "{\"k\":1}"),
            whole(last.clone(), "stop"),
        )
        .then(|_| {}, whole(last, "stop"));
    for tools in ["all", "none"] {
        let streamed =
            Streamed::of(&gateway, with(ask("go"), "switchboard", json!({ "tools": tools }))).await;
        assert_eq!(
            (streamed.text.as_str(), streamed.finish.as_str(), streamed.done),
            ("done", "stop", true)
        );
    }
    model.finish();
}

#[tokio::test]
async fn once_tools_have_run_the_gateway_tries_again_and_the_client_is_told_not_to() {
    let model = ScriptedModel::start().await;
    let gateway = behind(&model, "").await;
    let _node = Hello::new("n").tool("a.x").connect(&gateway).await.echo();
    let call = || ModelReply::calls(&[("c1", "a_x", json!({}))]);
    let busy = || raw(429, &[("retry-after", "0")], "");
    model
        .then(|_| {}, call())
        .then(|_| {}, busy())
        .then(|_| {}, busy())
        .then(|_| {}, ModelReply::text("done"));
    assert_eq!(
        complete(&gateway, &ask("go")).await.body["choices"][0]["message"]["content"],
        "done"
    );
    model.then(|_| {}, call()).then(|_| {}, raw(400, &[], "no"));
    let reply = complete(&gateway, &ask("go")).await;
    assert_eq!(
        (reply.status, &reply.headers["x-should-retry"]),
        (400, &"false".parse().unwrap()),
        "{}",
        reply.text
    );
    model.finish();
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    let config = "[models.gone]\nbase_url = \"http://127.0.0.1:9/v1\"\n";
    let gateway = Setup::new().config(config).serve().await;
    let reply = complete(&gateway, &with(ask("go"), "model", json!("gone"))).await;
    assert_eq!(
        (reply.status, &reply.body["error"]["code"]),
        (502, &json!("upstream_unreachable")),
        "{}",
        reply.text
    );
}

#[tokio::test]
async fn a_key_that_cannot_be_read_is_named_by_its_place() {
    let config =
        "[models.m]\nbase_url = \"http://127.0.0.1:9/v1\"\napi_key = \"env:NO_SUCH_KEY_HERE\"\n";
    let gateway = Setup::new().config(config).serve().await;
    let reply = complete(&gateway, &with(ask("go"), "model", json!("m"))).await;
    assert_eq!(
        (reply.status, &reply.body["error"]["code"]),
        (500, &json!("model_misconfigured")),
        "{}",
        reply.text
    );
    assert!(reply.text.contains("NO_SUCH_KEY_HERE"));
}
