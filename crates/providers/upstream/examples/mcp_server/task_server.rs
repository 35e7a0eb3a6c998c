//! An MCP server of 2025-11-25 on stdin and stdout, written from the specification without a
//! library. It runs its tools only as tasks.

use serde_json::{Value, json};

/// Serves until the client closes the input. `note` receives the ids of cancelled tasks.
pub(crate) fn run(note: impl Fn(&str, &str)) {
    // The request that waits for the client's answer to a question.
    let mut asking = Value::Null;
    for line in std::io::stdin().lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let (id, params) = (&message["id"], &message["params"]);
        let Some(method) = message["method"].as_str() else {
            let name = message["result"]["content"]["name"].as_str().unwrap();
            answer(&asking, &text(name));
            continue;
        };
        match (method, params["name"].as_str().or(params["taskId"].as_str())) {
            ("initialize", _) => {
                let tasks = json!({ "cancel": {}, "requests": { "tools": { "call": {} } } });
                answer(
                    id,
                    &json!({
                        "protocolVersion": "2025-11-25", "serverInfo": { "name": "tasks", "version": "1" },
                        "capabilities": { "tools": {}, "tasks": tasks },
                    }),
                );
            }
            ("tools/list", _) => {
                let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" }, "execution": { "taskSupport": "required" } });
                let tools = ["work", "ask", "hang"].map(tool);
                answer(id, &json!({ "tools": tools }));
            }
            ("tools/call", _) if params["task"].is_null() => {
                let mut refused = text("requires task augmentation");
                refused["isError"] = json!(true);
                answer(id, &refused);
            }
            ("tools/call", Some(name)) => {
                let at = "2025-11-25T10:00:00Z";
                let task = json!({ "taskId": name, "status": "working", "createdAt": at, "lastUpdatedAt": at, "ttl": 60_000 });
                answer(id, &json!({ "task": task }));
            }
            ("tasks/result", Some("work")) => answer(id, &text("done")),
            ("tasks/result", Some("ask")) => {
                asking = id.clone();
                let params = json!({ "mode": "form", "message": "Your name?", "requestedSchema":
                    { "type": "object", "properties": { "name": { "type": "string" } } } });
                send(&json!({ "id": 0, "method": "elicitation/create", "params": params }));
            }
            ("tasks/result", _) => note("running", "hang"),
            ("tasks/cancel", Some(task)) => {
                note("cancelled", task);
                answer(id, &json!({ "taskId": task, "status": "cancelled" }));
            }
            _ if id.is_null() => {}
            _ => send(
                &json!({ "id": id, "error": { "code": -32601, "message": "Method not found" } }),
            ),
        }
    }
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn answer(id: &Value, result: &Value) {
    send(&json!({ "id": id, "result": result }));
}

fn send(message: &Value) {
    let mut message = message.clone();
    message["jsonrpc"] = json!("2.0");
    println!("{message}");
}
