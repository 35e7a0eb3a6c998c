//! Clients with their own loop get tool definitions in the format of each model vendor. The gateway
//! runs the calls of replies in any of these formats. A failed call is a result, not a failure of
//! the request.

use sa_testkit::{Gateway, Hello, Setup};
use serde_json::{Value, json};

use crate::gateway::Serve as _;

async fn start() -> (Gateway, tokio::task::JoinHandle<()>) {
    let gateway = Setup::new().config("[sessions]\nenabled = false").serve().await;
    let schema = json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": false, "required": ["q"],
        "properties": { "q": { "type": "string" }, "limit": { "type": ["integer", "null"] } } });
    let search =
        json!({ "name": "notes.search", "description": "Searches.", "input_schema": schema });
    let node = Hello::new("n").describe(search).tool("9.lives").connect(&gateway).await.echo();
    (gateway, node)
}

async fn list(gateway: &Gateway, query: &str) -> Value {
    let reply = gateway.operator().get(&format!("/v1/functions{query}")).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.body
}

async fn execute(gateway: &Gateway, body: Value) -> Value {
    let reply = gateway.operator().post("/v1/functions/execute", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.body
}

#[tokio::test]
async fn definitions_in_every_format() {
    let (gateway, _node) = start().await;
    let openai = list(&gateway, "").await;
    assert_eq!(openai, list(&gateway, "?format=openai").await);
    let function = &openai["tools"][1]["function"];
    assert_eq!(
        (&function["name"], &function["parameters"]["required"]),
        (&json!("notes_search"), &json!(["q"]))
    );
    assert!(function["parameters"].get("$schema").is_none());
    let legacy = list(&gateway, "?format=openai-legacy").await;
    assert_eq!(legacy["functions"][1], *function);
    let anthropic = list(&gateway, "?format=anthropic&tools=notes_*").await;
    assert_eq!(anthropic["tools"].as_array().unwrap().len(), 1);
    assert_eq!(anthropic["tools"][0]["input_schema"]["type"], "object");
    let gemini = list(&gateway, "?format=gemini").await;
    let declared = &gemini["tools"][0]["functionDeclarations"];
    assert_eq!(declared[0], json!({ "name": "_9_lives", "description": "_9_lives" }));
    let limit = json!({ "type": "INTEGER", "nullable": true });
    let parameters = json!({ "type": "OBJECT", "properties": { "q": { "type": "STRING" }, "limit": limit }, "required": ["q"] });
    assert_eq!(declared[1]["parameters"], parameters);
    let mcp = list(&gateway, "?format=mcp").await;
    assert_eq!(mcp["tools"][1]["inputSchema"]["additionalProperties"], false);
    let reply = gateway.operator().get("/v1/functions?format=cobol").await;
    assert_eq!(
        (reply.status, &reply.body["error"]["param"]),
        (400, &json!("format")),
        "{}",
        reply.text
    );
    let (_, token) =
        gateway.token(json!({ "name": "bot", "role": "agent", "tools": ["other"] })).await;
    assert_eq!(gateway.agent(&token).get("/v1/functions").await.body, json!({ "tools": [] }));
}

#[tokio::test]
async fn replies_of_every_format_are_executed() {
    let (gateway, _node) = start().await;
    let call = json!({ "id": "c1", "type": "function", "function": { "name": "notes_search", "arguments": "{\"q\":\"x\"}" } });
    let message = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let done = execute(&gateway, json!({ "choices": [{ "message": message }] })).await;
    assert_eq!(done["format"], "openai");
    assert_eq!(
        done["messages"],
        json!([{ "role": "tool", "tool_call_id": "c1", "content": "{\"q\":\"x\"}" }])
    );
    assert_eq!(
        (&done["calls"][0]["name"], &done["calls"][0]["ok"]),
        (&json!("notes_search"), &json!(true))
    );
    let id = done["calls"][0]["call_id"].as_str().unwrap();
    assert_eq!(
        gateway.operator().get(&format!("/v1/calls/{id}")).await.body["surface"],
        "functions"
    );

    let legacy = json!({ "role": "assistant", "function_call": { "name": "notes_search", "arguments": "{\"q\":\"x\"}" } });
    let done = execute(&gateway, json!({ "reply": legacy })).await;
    assert_eq!(
        done["messages"],
        json!([{ "role": "function", "name": "notes_search", "content": "{\"q\":\"x\"}" }])
    );

    let block =
        json!({ "type": "tool_use", "id": "t1", "name": "notes_search", "input": { "q": "x" } });
    let done = execute(
        &gateway,
        json!({ "role": "assistant", "content": [block], "stop_reason": "tool_use" }),
    )
    .await;
    let content = json!([{ "type": "text", "text": "{\"q\":\"x\"}" }]);
    let result = json!({ "type": "tool_result", "tool_use_id": "t1", "content": content });
    assert_eq!(done["messages"], json!([{ "role": "user", "content": [result] }]));

    let part = |name: &str, args: Value| json!({ "functionCall": { "name": name, "args": args } });
    let parts = [part("notes_search", json!({ "q": "x" })), part("_9_lives", json!({ "n": 1 }))];
    let done = execute(
        &gateway,
        json!({ "candidates": [{ "content": { "role": "model", "parts": parts } }] }),
    )
    .await;
    let response = |name: &str, result: Value| json!({ "functionResponse": { "name": name, "response": { "result": result } } });
    let parts =
        [response("notes_search", json!({ "q": "x" })), response("_9_lives", json!({ "n": 1 }))];
    assert_eq!(done["messages"], json!([{ "role": "user", "parts": parts }]));

    let request = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "notes_search", "arguments": { "q": "x" } } });
    let done = execute(&gateway, json!({ "reply": [request], "format": "mcp" })).await;
    assert_eq!(
        (&done["messages"][0]["id"], &done["messages"][0]["result"]["structuredContent"]),
        (&json!(7), &json!({ "q": "x" }))
    );
}

#[tokio::test]
async fn what_fails_is_a_result_that_the_model_can_act_on() {
    let (gateway, _node) = start().await;
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    let calls = [
        call("1", "notes_search", "{\"q\":"),
        call("2", "notes_search", "{\"limit\":1}"),
        call("3", "nothing", "{}"),
        call("4", "my_own", "{}"),
        call("5", "notes_search", "{\"q\":\"x\"}"),
    ];
    let message = json!({ "role": "assistant", "tool_calls": calls });
    let done = execute(&gateway, json!({ "reply": message, "leave": ["my_own"] })).await;
    let contents: Vec<&str> = done["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    for (content, words) in contents.iter().zip(["not valid JSON", "q", "not_found"]) {
        assert!(content.starts_with("Error: ") && content.contains(words), "{content}");
    }
    assert_eq!(contents[3], "{\"q\":\"x\"}");
    assert_eq!(done["left"], json!([{ "id": "4", "name": "my_own" }]));
    let oks: Vec<_> = done["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["ok"].as_bool().unwrap())
        .collect();
    assert_eq!(oks, [false, false, false, true]);
}

#[tokio::test]
async fn a_reply_without_calls_and_one_that_is_none() {
    let (gateway, _node) = start().await;
    let done = execute(&gateway, json!({ "role": "assistant", "content": "hello" })).await;
    assert_eq!((&done["messages"], &done["calls"]), (&json!([]), &json!([])));
    for body in [
        json!({ "hello": 1 }),
        json!(5),
        json!({ "reply": {}, "format": "cobol" }),
        json!({ "reply": {}, "oops": 1 }),
    ] {
        let reply = gateway.operator().post("/v1/functions/execute", &body).await;
        assert_eq!(
            (reply.status, reply.body["error"].is_object()),
            (400, true),
            "{body}: {}",
            reply.text
        );
    }
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_the_calls() {
    let gateway = Setup::new().serve().await;
    let mut node = Hello::new("n").tool("a.x").connect(&gateway).await;
    let agent = gateway.operator();
    let reply = json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "1", "name": "a_x", "input": {} }] });
    let client = tokio::spawn(async move { agent.post("/v1/functions/execute", &reply).await });
    let request = node.request().await;
    client.abort();
    assert_eq!(node.cancelled(&request).await, "disconnected");
}
