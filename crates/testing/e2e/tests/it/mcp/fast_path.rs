//! A plain call takes a faster code path than others, with exactly the same answers.

use futures_util::StreamExt as _;
use sa_core::{CallError, CallErrorKind, Output, Passthrough, Question, RawJson, Scope, Tool};
use sa_gateway_kit::mcp::{Ask, attach};
use sa_gateway_kit::upstream::until;
use sa_gateway_kit::{FakeNode, Gateway, Hello, Message, Setup};
use serde_json::{Value, json};

use crate::upstream::server::stdio;

/// Connects a node with tools for every kind of answer.
async fn node(gateway: &Gateway) {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let header = json!({ "type": "object", "properties": { "n": { "type": "string", "x-mcp-header": "N" } } });
    let mut hello = Hello::new("mac")
        .describe(json!({ "name": "t.strict", "input_schema": schema }))
        .describe(json!({ "name": "t.header", "input_schema": header }));
    for name in ["t.echo", "t.text", "t.null", "t.blocks", "t.picture", "t.fail", "t.strange"] {
        hello = hello.tool(name);
    }
    let node = hello.connect(gateway).await;
    tokio::spawn(serve(node));
}

#[derive(serde::Deserialize)]
struct Given<'a> {
    #[serde(borrow)]
    args: &'a serde_json::value::RawValue,
}

async fn serve(mut node: FakeNode) {
    while let Some(Ok(message)) = node.socket.next().await {
        let Message::Text(text) = message else { continue };
        let frame: Value = serde_json::from_str(&text).unwrap();
        let (Some(id), Some(tool)) = (frame["request_id"].as_str(), frame["tool"].as_str()) else {
            continue;
        };
        let image = json!({ "type": "image", "data": "AA==", "mimeType": "image/png" });
        match tool {
            "t.text" => node.answer(id, json!("plain \u{1F600}")).await,
            "t.null" => node.answer(id, Value::Null).await,
            "t.blocks" => {
                node.answer(
                    id,
                    json!({ "content": [image], "structuredContent": { "b": 1, "a": 2.50 } }),
                )
                .await;
            }
            "t.picture" => {
                let picture = json!([{ "mime_type": "image/png", "data": "aGk=" }, { "mime_type": "x/y", "data": "aGk=" }]);
                node.send(json!({ "type": "tool_response", "request_id": id, "ok": true, "result": { "w": 1 },
                    "attachments": picture }))
                    .await;
            }
            "t.fail" => node.fail(id, "failed", "it broke").await,
            "t.strange" => node.fail(id, "no_such_kind", "").await,
            // Returns the arguments byte for byte.
            _ => {
                let args = serde_json::from_str::<Given<'_>>(&text).unwrap().args.get();
                node.answer(id, json!({ "sent": args })).await;
            }
        }
    }
}

async fn start() -> (Gateway, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let gateway = Setup::new().config(&stdio("up", &[], dir.path(), "")).start().await;
    node(&gateway).await;
    until(&gateway, "up", "ready").await;
    (gateway, dir)
}

#[tokio::test]
async fn results_and_failures_are_the_same() {
    let (gateway, _dir) = start().await;
    let ask = |name: &str, arguments: &str| Ask::new(&gateway, name, arguments);
    for (name, is_error) in [
        ("t_echo", false),
        ("t_text", false),
        ("t_null", false),
        ("t_blocks", false),
        ("t_picture", false),
        ("t_fail", true),
        ("t_strange", true),
        ("up__media", false),
        ("up__fail", true),
        ("no_such_tool", true),
        ("t_strict", true),
        ("up__echo", true),
        ("find_tools", true),
        ("session_list", false),
    ] {
        let (status, answer) = ask(name, "{}").both(&gateway).await;
        assert_eq!(status, 200, "{name}: {answer}");
        assert_eq!(answer["result"]["isError"] == true, is_error, "{name}: {answer}");
    }
    let (_, token) =
        gateway.token(json!({ "name": "reader", "role": "agent", "tools": ["t.text"] })).await;
    for name in ["t_text", "t_echo", "session_list"] {
        Ask { token: token.clone(), ..ask(name, "{}") }.both(&gateway).await;
    }
}

#[tokio::test]
async fn arguments_reach_the_tool_as_they_were_written() {
    let (gateway, _dir) = start().await;
    for arguments in [
        r#"{"b":1,"a":2}"#,
        r#"{"n":1.0}"#,
        r#"{"n":1e2}"#,
        r#"{"n":-0.0}"#,
        r#"{"n":18446744073709551615}"#,
        r#"{"n":123456789012345678901234567890}"#,
        r#"{"n":0.1000000000000000055511151231257827}"#,
        r#"{"n":1e400}"#,
        r#"{"n":[ {} , [ ] ]}"#,
        r#"{"\u00e4":"\u0000\ud83d\ude00"}"#,
        r#"{"x":1,"x":2}"#,
        r#"{"x":{"y":1,"\u0079":2}}"#,
        "null",
        "[]",
        "1",
        r#""{}""#,
        "{} ",
    ] {
        for name in ["t_echo", "t_strict", "up__echo"] {
            Ask::new(&gateway, name, arguments).both(&gateway).await;
        }
    }
    Ask { arguments: String::new(), ..Ask::new(&gateway, "t_echo", "") }.both(&gateway).await;
    for depth in [98, 99, 100, 101, 119, 120, 200] {
        let deep = format!("{{\"x\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
        Ask::new(&gateway, "t_echo", &deep).both(&gateway).await;
    }
    let (_, exact) = Ask::new(&gateway, "t_echo", r#"{"n":123456789012345678901234567890}"#)
        .both(&gateway)
        .await;
    let sent = exact["result"]["structuredContent"]["sent"].as_str().unwrap();
    assert!(sent.contains("123456789012345678901234567890"), "{exact}");
}

#[tokio::test]
async fn what_is_odd_about_a_request_is_judged_the_same() {
    let (gateway, _dir) = start().await;
    let ask = || Ask::new(&gateway, "t_echo", "{}");
    for id in [
        "0",
        "-1",
        "1.0",
        "1e2",
        "1.5",
        "9223372036854775807",
        "9223372036854775808",
        "\"\"",
        "\"\\u00e4\"",
        "null",
        "[]",
    ] {
        Ask { id, ..ask() }.both(&gateway).await;
    }
    for capabilities in [
        "{}",
        "null",
        "1",
        "[]",
        r#"{"x":1}"#,
        r#"{"elicitation":1}"#,
        r#"{"extensions":{}}"#,
        r#"{"roots":{},"roots":{}}"#,
    ] {
        Ask { capabilities, ..ask() }.both(&gateway).await;
    }
    for client in [
        "",
        r#""io.modelcontextprotocol/clientInfo":1,"#,
        r#""io.modelcontextprotocol/clientInfo":null,"#,
    ] {
        Ask { client, ..ask() }.both(&gateway).await;
    }
    for more in [
        r#","task":{}"#,
        r#","requestState":"x""#,
        r#","inputResponses":{}"#,
        r#","arguments":{"a":1}"#,
        r#","name":"t_text""#,
        r#","x":1"#,
    ] {
        Ask { more: more.into(), ..ask() }.both(&gateway).await;
    }
    for query in [
        "?session=none",
        "?channel=none",
        "?search=1",
        "?search=0",
        "?search=x",
        "?search=1&search=0",
        "?x=1",
    ] {
        Ask { query: query.into(), ..ask() }.both(&gateway).await;
    }
    for (name, value) in [
        ("mcp-name", "t_text"),
        ("mcp-name", ""),
        ("mcp-name", "=?base64?dF9lY2hv?="),
        ("mcp-name", "T_ECHO"),
        ("mcp-method", "tools/list"),
        ("mcp-method", "TOOLS/CALL"),
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-protocol-version", "2099-01-01"),
        ("mcp-session-id", "x"),
        ("mcp-param-n", "x"),
        ("accept", "application/json"),
        ("accept", "*/*"),
        ("content-type", "application/jsonp"),
        ("content-type", "APPLICATION/JSON"),
        ("content-type", "text/plain"),
        ("last-event-id", "1"),
        ("traceparent", "nonsense"),
    ] {
        ask().header(name, value).both(&gateway).await;
        ask().header(name, value).header(name, value).both(&gateway).await;
    }
    for name in ["mcp-name", "mcp-method", "mcp-protocol-version"] {
        ask().header(name, b"\xff".to_vec()).both(&gateway).await;
    }
    let unicode = Ask::new(&gateway, "t_\u{e9}cho", "{}");
    unicode.clone().header("mcp-name", "t_\u{e9}cho".as_bytes()).both(&gateway).await;
    unicode.header("mcp-name", "=?base64?dF/DqWNobw==?=").both(&gateway).await;
    for name in ["", " ", "t_echo ", "=?x", "a\tb", "t.echo"] {
        Ask::new(&gateway, name, "{}").both(&gateway).await;
    }
    for arguments in [r#"{"n":"x"}"#, "{}", r#"{"n":1}"#] {
        Ask::new(&gateway, "t_header", arguments).both(&gateway).await;
        Ask::new(&gateway, "t_header", arguments).header("mcp-param-n", "x").both(&gateway).await;
    }
    let (id, token) = gateway.token(json!({ "name": "gone", "role": "agent" })).await;
    assert_eq!(gateway.operator().delete(&format!("/v1/tokens/{id}")).await.status, 200);
    assert_eq!(Ask { token, ..ask() }.both(&gateway).await.0, 401);
}

/// Attaches a tool that asks all questions of its arguments at once, and one that fails with
/// protocol errors.
fn asking(gateway: &Gateway) -> sa_core::directory::Registration {
    let tools = vec![Tool::named("ask"), Tool::named("refuse")];
    attach(&gateway.inner().router, "asker", Scope::Everyone, tools, |call, updates| {
        Box::pin(async move {
            let args: Value = serde_json::from_str(call.args.as_str()).unwrap();
            if &*call.tool == "refuse" {
                let error = RawJson::of(&json!({ "error": args }));
                return Err(CallError::new(CallErrorKind::Failed, "no")
                    .with_passthrough(Passthrough::new("mcp", error)));
            }
            let form = json!({ "message": "Your name?", "requestedSchema": { "type": "object", "properties": {} } });
            let questions = (0..args["many"].as_u64().unwrap()).map(|_| {
                updates.ask(Question {
                    kind: "elicitation/create".into(),
                    params: Passthrough::new("mcp", RawJson::of(&form)),
                })
            });
            let mut answers = Vec::new();
            for answer in futures_util::future::join_all(questions).await {
                answers.push(serde_json::from_str::<Value>(answer?.as_str()).unwrap());
            }
            Ok(Output::json(RawJson::of(
                &json!({ "answers": answers, "args": call.args.as_str() }),
            )))
        })
    })
}

#[tokio::test]
async fn questions_and_errors_of_the_protocol_are_the_same() {
    let (gateway, _dir) = start().await;
    let _asker = asking(&gateway);
    for code in
        [-32002, -32020, -32021, -32022, -32042, -32600, -32601, -32602, -32603, -32700, 0, 17]
    {
        let error = json!({ "code": code, "message": "so it is", "data": { "b": 1, "a": 2 } });
        let (_, answer) = Ask::new(&gateway, "refuse", &error.to_string()).both(&gateway).await;
        assert_eq!(answer["error"]["message"], "so it is", "{answer}");
    }
    for capabilities in
        ["{}", r#"{"elicitation":{}}"#, r#"{"elicitation":{"url":{}}}"#, r#"{"sampling":{}}"#]
    {
        for (name, arguments) in [
            ("ask", r#"{"many":1}"#),
            ("ask", r#"{"many":3}"#),
            ("ask", r#"{"many":20}"#),
            ("up__ask", "{}"),
        ] {
            Ask { capabilities, ..Ask::new(&gateway, name, arguments) }.both(&gateway).await;
        }
    }
    let (_, all) =
        Ask { capabilities: r#"{"elicitation":{}}"#, ..Ask::new(&gateway, "ask", r#"{"many":3}"#) }
            .both(&gateway)
            .await;
    assert_eq!(all["result"]["inputRequests"].as_object().unwrap().len(), 3, "{all}");
}

#[tokio::test]
async fn whoever_was_asked_comes_back_with_answers_whatever_the_arguments_look_like() {
    let (gateway, _dir) = start().await;
    let _asker = asking(&gateway);
    for (arguments, again) in [
        (
            r#"{"many":2,"n":1e2,"big":123456789012345678901}"#,
            r#"{"many":2,"n":1e2,"big":123456789012345678901}"#,
        ),
        (r#"{ "many": 1, "a": "\u00e4" }"#, r#"{"a":"ä","many":1}"#),
        (r#"{"many":1,"x":1,"x":2}"#, r#"{"many":1,"x":1,"x":2}"#),
    ] {
        for unusual in [false, true] {
            let ask = Ask {
                capabilities: r#"{"elicitation":{}}"#,
                ..Ask::new(&gateway, "ask", arguments)
            };
            let first: Value = serde_json::from_str(&ask.send(&gateway, unusual).await.2).unwrap();
            let names = first["result"]["inputRequests"]
                .as_object()
                .unwrap_or_else(|| panic!("{first}"))
                .keys();
            let answers: serde_json::Map<_, _> =
                names.map(|name| (name.clone(), json!({ "action": "decline" }))).collect();
            let more = format!(
                r#","requestState":{},"inputResponses":{}"#,
                first["result"]["requestState"],
                json!(answers)
            );
            let ask = Ask { more, arguments: format!(r#","arguments":{again}"#), ..ask };
            let last: Value = serde_json::from_str(&ask.send(&gateway, false).await.2).unwrap();
            let given = &last["result"]["structuredContent"]["args"];
            assert_eq!(*given, *arguments, "{last}");
        }
    }
}
