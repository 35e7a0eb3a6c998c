//! `POST /v1/tools/{name}/call` and `/v1/tools/invoke` run a tool and return its result exactly as
//! the node wrote it.

use sa_testkit::{Hello, Setup};
use serde_json::json;

#[tokio::test]
async fn an_answer_has_the_members_that_scripts_read() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").tool("a.b").connect(&gateway).await;
    let body = json!({ "args": { "x": 1.50 }, "session_key": "s1", "timeout_ms": 5_000 });
    let call = gateway.operator().call_later("a_b", body);

    let request = node.request().await;
    assert_eq!((request.tool.as_str(), &request.args), ("a.b", &json!({ "x": 1.5 })));
    assert_eq!(request.frame["session_key"], "s1");
    assert!(request.frame["deadline_ms"].as_u64().unwrap() <= 5_000);
    node.answer(&request.id, json!({ "y": [1, null, "ü"] })).await;

    let reply = call.await.unwrap();
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["x-call-id"], reply.body["call_id"].as_str().unwrap());
    assert!(reply.body["duration_ms"].is_u64());
    let mut body = reply.body;
    for volatile in ["call_id", "duration_ms"] {
        body.as_object_mut().unwrap().remove(volatile);
    }
    assert_eq!(body, json!({ "ok": true, "result": { "y": [1, null, "ü"] } }));
}

#[tokio::test]
async fn arguments_and_results_pass_through_as_they_are_written() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").tool("a.b").connect(&gateway).await;
    // Numbers that no double can represent, and a key order that no map preserves.
    let exact = r#"{"z":12345678901234567890123,"a":1.10,"m":1e2}"#;
    let request = gateway.operator().request(reqwest::Method::POST, "/v1/tools/a_b/call");
    let body = format!(r#"{{"args":{exact}}}"#);
    let call = tokio::spawn(sa_testkit::Reply::of(
        request.header("content-type", "application/json").body(body),
    ));
    let text = loop {
        use futures_util::StreamExt as _;
        match sa_testkit::soon(node.socket.next()).await {
            Some(Ok(sa_testkit::Message::Text(text))) => break text.to_string(),
            other => assert!(matches!(other, Some(Ok(_))), "{other:?}"),
        }
    };
    assert!(text.contains(exact), "{text}");
    let id = serde_json::from_str::<serde_json::Value>(&text).unwrap()["request_id"].clone();
    let answer =
        format!(r#"{{"type":"tool_response","request_id":{id},"ok":true,"result":{exact}}}"#);
    node.send_raw(sa_testkit::Message::text(answer)).await;
    let reply = call.await.unwrap();
    assert!(reply.text.contains(exact), "{}", reply.text);
}

#[tokio::test]
async fn blocks_and_attachments_come_along() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").tool("a.b").connect(&gateway).await;
    let call = gateway.operator().call_later("a_b", json!({}));
    let request = node.request().await;
    assert_eq!(request.args, json!({}), "no arguments are an empty object");
    node.send(json!({
        "type": "tool_response", "request_id": request.id, "ok": true,
        "result": { "content": [{ "type": "text", "text": "hi" }] },
        "attachments": [{ "mime_type": "text/plain", "name": "a.txt", "data": "aGk=" }],
    }))
    .await;
    let body = call.await.unwrap().body;
    assert_eq!(body["blocks"], json!([{ "type": "text", "text": "hi" }]));
    assert_eq!(body["attachments"][0]["data"], "aGk=", "{body}");
}

#[tokio::test]
async fn invoke_takes_the_tool_in_the_body_and_answers_in_the_nodes_words() {
    let gateway = Setup::new().start().await;
    let _node = Hello::new("n").capability("a").connect(&gateway).await.echo();
    let operator = gateway.operator();
    let body =
        json!({ "tool": "a.b", "args": { "x": 1 }, "session_key": "s", "timeout_ms": 5_000 });
    let reply = operator.post("/v1/tools/invoke", &body).await;
    assert_eq!((reply.status, &reply.body["ok"]), (200, &json!(true)), "{}", reply.text);
    assert_eq!((&reply.body["result"], &reply.body["tool"]), (&json!({ "x": 1 }), &json!("a.b")));
    assert!(reply.body["request_id"].is_string() && reply.body["duration_ms"].is_u64());

    let reply =
        operator.post("/v1/tools/invoke", &json!({ "tool": "nothing.here", "args": {} })).await;
    reply.assert_problem(404, "not_found");
    assert_eq!(
        (&reply.body["ok"], &reply.body["error"]["kind"]),
        (&json!(false), &json!("not_found"))
    );
    assert!(reply.body["error"]["message"].as_str().unwrap().contains("nothing.here"));
}

#[tokio::test]
async fn a_call_is_there_for_whoever_asks_as_soon_as_it_has_ended() {
    let gateway = Setup::new().start().await;
    let _node = Hello::new("n").capability("a").connect(&gateway).await.echo();
    let operator = gateway.operator();
    for _ in 0..20 {
        let id = operator.call("a.b", json!({})).await.body["call_id"].as_str().unwrap().to_owned();
        let shown = operator.get(&format!("/v1/calls/{id}")).await;
        assert_eq!((shown.status, &shown.body["state"]), (200, &json!("ended")), "{}", shown.text);
    }
    let unknown = operator.get("/v1/calls/01890000-0000-7000-8000-000000000000").await;
    unknown.assert_problem(404, "not_found");
}

#[tokio::test]
async fn a_tool_that_is_named_in_the_body_runs_once_under_a_key() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let operator = gateway.operator();
    let body = json!({ "tool": "a.b", "args": {}, "idempotency_key": "k" });
    let first = tokio::spawn(async move { operator.post("/v1/tools/invoke", &body).await });
    let request = node.request().await;
    node.answer(&request.id, json!(1)).await;
    assert_eq!(first.await.unwrap().result(), json!(1));
    let operator = gateway.operator();
    let body = json!({ "tool": "a.b", "args": {}, "idempotency_key": "k" });
    assert_eq!(operator.post("/v1/tools/invoke", &body).await.result(), json!(1));
    node.settle().await;
}

#[tokio::test]
async fn a_retry_gets_the_recorded_outcome_while_another_provider_stands_in() {
    let gateway = Setup::new().start().await;
    let mut first = Hello::new("first").tool("a.b").connect(&gateway).await;
    let mut second = Hello::new("second").tool("a.b").connect(&gateway).await;
    let body = json!({ "args": {}, "idempotency_key": "k" });
    let call = gateway.operator().call_later("a_b", body.clone());
    let request = first.request().await;
    first.answer(&request.id, json!(1)).await;
    assert_eq!(call.await.unwrap().result(), json!(1));
    drop(first);
    let other = gateway.operator().call_later("a.b", json!({ "args": {} }));
    let request = second.request().await;
    second.answer(&request.id, json!(2)).await;
    assert_eq!(other.await.unwrap().result(), json!(2), "it stands in");
    assert_eq!(gateway.operator().call_with("a_b", body.clone()).await.result(), json!(1));
    let other_name = gateway.operator().call_with("a.b", body).await;
    other_name.assert_problem(409, "conflict");
    second.settle().await;
}

#[tokio::test]
async fn a_name_with_capitals_passes_nothing_by() {
    let gateway =
        Setup::new().config("[policy]\ndeny = [\"mac.secret\", \"mac_hidden\"]").start().await;
    let schema = json!({ "type": "object", "required": ["query"] });
    let mut node = Hello::new("mac")
        .capability("mac")
        .tool("mac.hidden")
        .describe(json!({ "name": "mac.search", "input_schema": schema }))
        .connect(&gateway)
        .await;
    for name in ["mac.secret", "mac.SECRET", "mac.hidden", "mac.Hidden", "mac_hidden"] {
        gateway.operator().call(name, json!({})).await.assert_problem(403, "not_allowed");
    }
    for name in ["mac.search", "mac.SEARCH"] {
        gateway.operator().call(name, json!({})).await.assert_problem(422, "invalid_args");
    }
    node.settle().await;
    let call = gateway.operator().call_later("mac.SEARCH", json!({ "args": { "query": 1 } }));
    let request = node.request().await;
    assert_eq!(request.tool, "mac.search");
    node.answer(&request.id, json!(1)).await;
    assert_eq!(call.await.unwrap().result(), json!(1));
    // Arguments of a tool without a schema are passed on unchecked.
    let call = gateway.operator().call_later("mac.getAll", json!({ "args": {} }));
    let request = node.request().await;
    assert_eq!(request.tool, "mac.getAll");
    node.answer(&request.id, json!(2)).await;
    assert_eq!(call.await.unwrap().result(), json!(2));
}

#[tokio::test]
async fn what_is_denied_as_it_is_listed_is_denied_where_it_is_not() {
    let gateway = Setup::new().config("[policy]\ndeny = [\"mac_notes_*\"]").start().await;
    let mut node =
        Hello::new("mac").capability("mac.notes").tool("mac.notes.list").connect(&gateway).await;
    for name in ["mac_notes_list", "mac.notes.list", "mac.notes.delete"] {
        gateway.operator().call(name, json!({})).await.assert_problem(403, "not_allowed");
    }
    node.settle().await;
}

#[tokio::test]
async fn the_header_idempotency_key_is_the_same_as_the_field() {
    let gateway = Setup::new().start().await;
    let _node = Hello::new("n").tool("a.b").connect(&gateway).await.echo();
    for path in ["/v1/tools/a_b/call", "/v1/tools/invoke"] {
        let call = async |header: &str, field: Option<&str>| {
            let mut body = json!({ "args": {}, "idempotency_key": field });
            if path.ends_with("/invoke") {
                body["tool"] = json!("a_b");
            }
            let request = gateway.operator().request(reqwest::Method::POST, path);
            sa_testkit::Reply::of(request.header("Idempotency-Key", header).json(&body)).await
        };
        let first = call(path, None).await;
        assert_eq!(first.status, 200, "{}", first.text);
        for field in [None, Some(path)] {
            let again = call(path, field).await;
            assert_eq!(again.headers["x-call-id"], first.headers["x-call-id"], "{path} {field:?}");
        }
        let refused = call(path, Some("another")).await;
        assert_eq!((refused.status, &refused.body["kind"]), (400, &json!("bad_request")));
    }
}
