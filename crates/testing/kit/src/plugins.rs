//! Plugins and calls of plugin hosts, over HTTP.

use serde_json::{Value, json};

use crate::{Agent, Reply};

/// Adds a plugin by its manifest.
pub async fn add(agent: &Agent, manifest: &Value) {
    let reply = agent.post("/v1/plugins", &json!({ "manifest": manifest })).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
}

/// Posts a payload to the plugin gateway.
pub async fn gateway(agent: &Agent, payload: &Value) -> Reply {
    agent.post("/api/gateway", payload).await
}

/// Returns the payload of a call of the function `run`.
pub fn payload(identifier: &str, arguments: Value) -> Value {
    json!({ "identifier": identifier, "apiName": "run", "arguments": arguments.to_string() })
}
