//! A long call becomes a task, which outlives its client and the gateway, and is visible only to
//! its principal.

use sa_core::{Output, Passthrough, Question, RawJson, Scope, Tool};
use sa_testkit::{Gateway, Hello, Setup, eventually};
use serde_json::{Value, json};

use crate::SWITCHBOARD;
use crate::mcp_support::attach;

const SOON: &str = "[mcp]\ntask_after_ms = 50";

/// Sends a raw request of the newer revision, from a client with task support.
async fn ask(gateway: &Gateway, token: &str, method: &str, name: &str, params: Value) -> Value {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "0" },
        "io.modelcontextprotocol/clientCapabilities":
            { "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } },
    });
    let response = reqwest::Client::new()
        .post(format!("{}/mcp", gateway.url))
        .bearer_auth(token)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method)
        .header("mcp-name", name)
        .json(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
        .send()
        .await
        .unwrap();
    response.json().await.unwrap()
}

async fn start(gateway: &Gateway, tool: &str) -> String {
    let task = ask(
        gateway,
        &gateway.operator,
        "tools/call",
        tool,
        json!({ "name": tool, "arguments": {} }),
    )
    .await;
    assert_eq!(task["result"]["resultType"], "task", "{task}");
    assert_eq!(task["result"]["status"], "working", "{task}");
    task["result"]["taskId"].as_str().unwrap().to_owned()
}

async fn get(gateway: &Gateway, token: &str, id: &str) -> Value {
    ask(gateway, token, "tasks/get", id, json!({ "taskId": id })).await
}

async fn until(gateway: &Gateway, id: &str, status: &str) -> Value {
    eventually(&format!("the task to be {status}"), || async {
        let task = get(gateway, &gateway.operator, id).await["result"].clone();
        (task["status"] == status).then_some(task)
    })
    .await
}

#[tokio::test]
async fn a_long_call_is_answered_with_a_handle_and_its_result_is_kept() {
    let mut gateway = Setup::new().config(SOON).spawn(SWITCHBOARD).await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let id = start(&gateway, "slow_work").await;
    let (_, other) = gateway.token(json!({ "name": "other", "role": "agent" })).await;
    assert_eq!(get(&gateway, &other, &id).await["error"]["code"], -32602);
    assert_eq!(get(&gateway, &gateway.operator, &id).await["result"]["status"], "working");
    let asked = node.request().await;
    node.answer(&asked.id, json!({ "done": true })).await;
    until(&gateway, &id, "completed").await;
    gateway.kill().await;
    let again = Setup::new().config(SOON).on(&gateway).spawn(SWITCHBOARD).await;
    let task = get(&again, &again.operator, &id).await;
    assert_eq!(task["result"]["result"]["structuredContent"], json!({ "done": true }), "{task}");
    assert_eq!(get(&again, &other, &id).await["error"]["code"], -32602);
}

#[tokio::test]
async fn a_task_that_ran_when_the_gateway_died_says_so() {
    let mut gateway = Setup::new().config(SOON).spawn(SWITCHBOARD).await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let id = start(&gateway, "slow_work").await;
    node.request().await;
    gateway.kill().await;
    let again = Setup::new().config(SOON).on(&gateway).spawn(SWITCHBOARD).await;
    let task = get(&again, &again.operator, &id).await;
    assert_eq!(task["result"]["status"], "failed", "{task}");
    assert!(
        task["result"]["error"]["message"].as_str().unwrap().contains("restarted while"),
        "{task}"
    );
    // It is still hidden from others, and cannot be cancelled or answered any more.
    let (_, other) = again.token(json!({ "name": "other", "role": "agent" })).await;
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let params = json!({ "taskId": id, "inputResponses": {} });
        let stolen = ask(&again, &other, method, &id, params.clone()).await;
        assert_eq!(stolen["error"]["code"], -32602, "{method}: {stolen}");
        let own = ask(&again, &again.operator, method, &id, params).await;
        assert!(own.get("result").is_some(), "{method}: {own}");
    }
    assert_eq!(get(&again, &again.operator, &id).await["result"]["status"], "failed");
}

#[tokio::test]
async fn a_task_is_cancelled_by_its_principal_alone() {
    let gateway = Setup::new().config(SOON).start().await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let id = start(&gateway, "slow_work").await;
    let asked = node.request().await;
    let (_, other) = gateway.token(json!({ "name": "other", "role": "agent" })).await;
    let stolen = ask(&gateway, &other, "tasks/cancel", &id, json!({ "taskId": id })).await;
    assert_eq!(stolen["error"]["code"], -32602, "{stolen}");
    let taken =
        ask(&gateway, &gateway.operator, "tasks/cancel", &id, json!({ "taskId": id })).await;
    assert!(taken.get("result").is_some(), "{taken}");
    node.cancelled(&asked).await;
    until(&gateway, &id, "cancelled").await;
}

#[tokio::test]
async fn a_task_asks_and_takes_the_answer() {
    let gateway = Setup::new().config(SOON).start().await;
    let (go, gone) = tokio::sync::watch::channel(false);
    let _asker = attach(
        &gateway,
        "asker",
        Scope::Everyone,
        vec![Tool::named("ask")],
        move |_, updates| {
            let mut gone = gone.clone();
            Box::pin(async move {
                gone.wait_for(|go| *go).await.unwrap();
                let params = json!({ "message": "Name?", "requestedSchema": { "type": "object", "properties": {} } });
                let question = Question {
                    kind: "elicitation/create".into(),
                    params: Passthrough::new("mcp", RawJson::of(&params)),
                };
                Ok(Output::json(updates.ask(question).await?))
            })
        },
    );
    let id = start(&gateway, "ask").await;
    go.send(true).unwrap();
    let task = until(&gateway, &id, "input_required").await;
    let name = task["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let answers = json!({ name: { "action": "accept", "content": { "name": "Ada" } } });
    let update = json!({ "taskId": id, "inputResponses": answers });
    ask(&gateway, &gateway.operator, "tasks/update", &id, update).await;
    let task = until(&gateway, &id, "completed").await;
    assert_eq!(task["result"]["structuredContent"]["content"]["name"], "Ada", "{task}");
}
