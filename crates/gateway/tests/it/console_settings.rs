//! An operator has the same settings of plugins in the console and on the command line.

use reqwest::Method;
use sa_gateway_kit::plugins::{add, gateway, payload};
use sa_gateway_kit::{Agent, PluginServer, Reply, Setup};
use serde_json::{Value, json};

fn schema() -> Value {
    json!({ "type": "object", "required": ["apiKey"], "properties": {
        "apiKey": { "type": "string", "minLength": 8, "format": "password" },
        "endpoint": { "type": "string", "default": "https://api.example.com" }
    } })
}

async fn store(agent: &Agent, path: &str, settings: Value) -> Reply {
    Reply::of(agent.request(Method::PUT, path).json(&json!({ "settings": settings }))).await
}

/// Returns the key that the plugin's server received last.
fn key_seen(server: &PluginServer) -> Value {
    let header = server.last().headers.get("sperax-plugin-settings").cloned();
    header.map_or(Value::Null, |header| {
        serde_json::from_slice::<Value>(header.as_bytes()).unwrap()["apiKey"].clone()
    })
}

#[tokio::test]
async fn the_operator_has_the_same_ones_in_the_console() {
    let server = PluginServer::echo().await;
    let at = Setup::new().config(&server.allowed()).start().await;
    let operator = at.operator();
    add(&operator, &server.manifest("w", json!({ "settings": schema() }))).await;
    let path = "/v1/plugins/w/settings";
    store(&operator, path, json!({ "apiKey": "the operator's key" })).await;
    let sign_in = async || {
        let signed = operator.request(Method::POST, "/v1/console/sign-in").send().await.unwrap();
        let session: Value = signed.json().await.unwrap();
        at.agent(session["token"].as_str().unwrap())
    };
    let console = sign_in().await;
    assert_eq!(console.get(path).await.body["settings"], json!({ "apiKey": "***" }));
    gateway(&console, &payload("w", json!({ "city": "x" }))).await;
    assert_eq!(key_seen(&server), "the operator's key");
    // Settings from the console outlive its session and also apply on the command line.
    store(&console, path, json!({ "apiKey": "set in the console" })).await;
    console.request(Method::POST, "/v1/console/sign-out").send().await.unwrap();
    assert_eq!(sign_in().await.get(path).await.body["settings"], json!({ "apiKey": "***" }));
    gateway(&operator, &payload("w", json!({ "city": "x" }))).await;
    assert_eq!(key_seen(&server), "set in the console");
    // Another operator is a different user, and so is an agent.
    let (_, other) = at.token(json!({ "name": "deputy", "role": "operator" })).await;
    for stranger in [at.agent(&other), at.new_agent("bot").await] {
        assert_eq!(stranger.get(path).await.body.get("settings"), None);
    }
}
