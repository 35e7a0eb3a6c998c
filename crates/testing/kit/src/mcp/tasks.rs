//! Calls that become tasks, over MCP.

use serde_json::{Value, json};

use crate::{Server, eventually};

/// Sends a raw request of the newer revision, from a client with task support.
pub async fn ask(gateway: &Server, token: &str, method: &str, name: &str, params: Value) -> Value {
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

/// Calls a tool, and returns the id of the task that the call became.
pub async fn start(gateway: &Server, tool: &str) -> String {
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

/// Returns the answer to a request for a task.
pub async fn get(gateway: &Server, token: &str, id: &str) -> Value {
    ask(gateway, token, "tasks/get", id, json!({ "taskId": id })).await
}

/// Waits until a task has this status.
pub async fn until(gateway: &Server, id: &str, status: &str) -> Value {
    eventually(&format!("the task to be {status}"), || async {
        let task = get(gateway, &gateway.operator, id).await["result"].clone();
        (task["status"] == status).then_some(task)
    })
    .await
}
