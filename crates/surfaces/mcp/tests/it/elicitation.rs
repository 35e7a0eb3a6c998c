//! A provider's question reaches the client that made the call, with old and new revisions, and the
//! client's answer reaches the provider.

use sa_core::directory::Registration;
use sa_core::{Output, Passthrough, Question, RawJson, Scope, Tool};
use sa_testkit::mcp::{ERAS, Era, Knows, attach, connect, request, value};
use sa_testkit::{Gateway, Setup, eventually};
use serde_json::{Value, json};

/// Attaches a tool that asks the questions in its arguments and returns the answers.
fn asking(gateway: &Gateway) -> Registration {
    attach(
        &gateway.inner().router,
        "requester",
        Scope::Everyone,
        vec![Tool::named("ask")],
        |call, updates| {
            Box::pin(async move {
                let args: Value = serde_json::from_str(call.args.as_str()).unwrap();
                let mut answers = Vec::new();
                for question in args["questions"].as_array().unwrap() {
                    let what = question["what"].as_str().unwrap().to_owned();
                    let answer = updates
                        .ask(Question {
                            kind: what,
                            params: Passthrough::new("mcp", RawJson::of(&question["params"])),
                        })
                        .await?;
                    answers.push(serde_json::from_str::<Value>(answer.as_str()).unwrap());
                }
                Ok(Output::json(RawJson::of(&json!({ "answers": answers }))))
            })
        },
    )
}

fn questions() -> Value {
    json!({ "questions": [
        { "what": "elicitation/create", "params": { "message": "Your name?", "requestedSchema": {
            "type": "object", "properties": { "name": { "type": "string" } } } } },
        { "what": "sampling/createMessage", "params": { "maxTokens": 10, "messages": [
            { "role": "user", "content": { "type": "text", "text": "Hi" } }] } },
        { "what": "roots/list", "params": null },
    ] })
}

#[tokio::test]
async fn every_question_is_answered_by_the_client_that_called() {
    for era in ERAS {
        let gateway = Setup::new().start().await;
        let _requester = asking(&gateway);
        let client = connect(&gateway, &gateway.operator, "", era, Knows).await.unwrap();
        let result = value(&client.call_tool(request("ask", questions())).await.unwrap());
        let answers = &result["structuredContent"]["answers"];
        assert_eq!(answers[0]["content"]["name"], "Ada", "{era:?}: {result}");
        assert_eq!(answers[1]["content"]["text"], "Hello", "{era:?}: {result}");
        assert_eq!(answers[2]["roots"][0]["uri"], "file:///here", "{era:?}: {result}");
    }
}

#[tokio::test]
async fn a_client_is_not_asked_what_it_cannot_answer() {
    for era in ERAS {
        let gateway = Setup::new().start().await;
        let _requester = asking(&gateway);
        let client = connect(&gateway, &gateway.operator, "", era, ()).await.unwrap();
        let result = client.call_tool(request("ask", questions())).await;
        match era {
            Era::Sessions => assert_eq!(value(&result.unwrap())["isError"], true),
            // Newer revisions have a dedicated error for this.
            Era::Stateless => assert!(result.unwrap_err().to_string().contains("-32021")),
        }
    }
}

/// Sends a raw request of the newer revision.
async fn call(gateway: &Gateway, token: &str, more: Value) -> (u16, Value) {
    let mut params = json!({
        "name": "ask",
        "arguments": questions(),
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "0" },
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {}, "sampling": {}, "roots": {} },
        },
    });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let response = reqwest::Client::new()
        .post(format!("{}/mcp", gateway.url))
        .bearer_auth(token)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "ask")
        .json(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }))
        .send()
        .await
        .unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn a_call_that_waits_is_its_principals_and_takes_only_answers() {
    let gateway = Setup::new().start().await;
    let _requester = asking(&gateway);
    let (_, other) = gateway.token(json!({ "name": "other", "role": "agent" })).await;
    let (_, first) = call(&gateway, &gateway.operator, json!({})).await;
    let result = &first["result"];
    assert_eq!(result["resultType"], "input_required", "{first}");
    let state = result["requestState"].clone();
    let (key, _) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let with = |answer: Value| json!({ "requestState": state, "inputResponses": { key: answer } });
    let good = json!({ "action": "accept", "content": { "name": "Ada" } });
    let (_, stolen) = call(&gateway, &other, with(good.clone())).await;
    assert_eq!(stolen["error"]["code"], -32602, "{stolen}");
    let (_, forged) = call(&gateway, &gateway.operator, json!({ "requestState": "x" })).await;
    assert_eq!(forged["error"]["code"], -32602, "{forged}");
    let (_, nonsense) = call(&gateway, &gateway.operator, with(json!({ "action": 1 }))).await;
    assert_eq!(nonsense["result"]["resultType"], "input_required", "{nonsense}");
    assert_eq!(nonsense["result"]["requestState"], state);
    let (_, next) = call(&gateway, &gateway.operator, with(good)).await;
    let requests = next["result"]["inputRequests"].as_object().unwrap();
    assert_eq!(requests.values().next().unwrap()["method"], "sampling/createMessage", "{next}");
    assert_eq!(gateway.running_calls().await, 1, "it is one call all the while");
}

#[tokio::test]
async fn a_waiting_call_ends_with_its_deadline() {
    let gateway = Setup::new().config("[limits]\ndefault_timeout_ms = 200").start().await;
    let _requester = asking(&gateway);
    let (_, first) = call(&gateway, &gateway.operator, json!({})).await;
    assert_eq!(first["result"]["resultType"], "input_required");
    eventually("the call to be gone", || async {
        (gateway.running_calls().await == 0).then_some(())
    })
    .await;
    let key = first["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let answer = json!({ "requestState": first["result"]["requestState"],
        "inputResponses": { key: { "action": "decline" } } });
    let (_, late) = call(&gateway, &gateway.operator, answer).await;
    assert_eq!(late["result"]["isError"], true, "{late}");
}
