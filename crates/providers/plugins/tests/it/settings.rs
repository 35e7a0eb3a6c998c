//! Settings belong to one user. They are checked, encrypted at rest, never shown, and sent only to
//! the servers for which they were stored.

use reqwest::Method;
use sa_testkit::plugins::{add, gateway, payload};
use sa_testkit::{Agent, PluginServer, Reply, Setup};
use serde_json::{Value, json};

use crate::gateway::Serve as _;

const CANARY: &str = "canary-5f0c71d2e9";

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
async fn each_user_has_their_own() {
    let server = PluginServer::echo().await;
    let at = Setup::new().config(&server.allowed()).serve().await;
    let operator = at.operator();
    add(&operator, &server.manifest("w", json!({ "settings": schema() }))).await;
    let (ann, ben) = (at.new_agent("ann").await, at.new_agent("ben").await);
    let path = "/v1/plugins/w/settings";
    assert!(ann.get(path).await.body["problem"].as_str().unwrap().contains("apiKey"));
    let call = async |agent: &Agent| gateway(agent, &payload("w", json!({ "city": "x" }))).await;

    store(&ann, path, json!({})).await.assert_problem(422, "invalid_args");
    let short = store(&ann, path, json!({ "apiKey": "canary" })).await;
    assert!(short.detail().contains("apiKey") && !short.text.contains("canary"), "{}", short.text);
    let stored = store(&ann, path, json!({ "apiKey": "the key of ann" })).await;
    assert_eq!(
        (stored.status, &stored.body["settings"]),
        (200, &json!({ "apiKey": "***" })),
        "{}",
        stored.text
    );
    assert_eq!(call(&ann).await.status, 200);
    assert_eq!(key_seen(&server), "the key of ann");
    assert_eq!(
        call(&ben).await.body["errorType"],
        "PluginSettingsInvalid",
        "nobody has set any for him"
    );

    // Shared settings apply to users without their own, and only operators can set them.
    store(&ben, "/v1/plugins/w/settings?shared=true", json!({ "apiKey": "for everyone" }))
        .await
        .assert_problem(403, "not_allowed");
    assert_eq!(
        store(&operator, "/v1/plugins/w/settings?shared=true", json!({ "apiKey": "for everyone" }))
            .await
            .status,
        200
    );
    call(&ben).await;
    assert_eq!(key_seen(&server), "for everyone");
    call(&ann).await;
    assert_eq!(key_seen(&server), "the key of ann");

    // A form with the masked value keeps the secret.
    assert_eq!(
        store(&ann, path, json!({ "apiKey": "***", "endpoint": "https://other.example" }))
            .await
            .status,
        200
    );
    call(&ann).await;
    assert_eq!(key_seen(&server), "the key of ann");
    assert_eq!(
        ann.get(path).await.body["settings"],
        json!({ "apiKey": "***", "endpoint": "https://other.example" })
    );
    assert_eq!(ann.delete(path).await.status, 204);
    store(&ann, path, json!({ "apiKey": "***" })).await.assert_problem(422, "invalid_args");
    // Settings in a request apply only to that call.
    let request = ann
        .request(Method::POST, "/api/gateway")
        .header("x-lobe-plugin-settings", r#"{"apiKey":"of this call"}"#);
    Reply::of(request.json(&payload("w", json!({ "city": "x" })))).await;
    assert_eq!(key_seen(&server), "of this call");
}

#[tokio::test]
async fn a_misspelling_is_refused_and_a_secret_that_is_left_out_stays() {
    let server = PluginServer::echo().await;
    let at = Setup::new().config(&server.allowed()).serve().await;
    let operator = at.operator();
    add(&operator, &server.manifest("w", json!({ "settings": schema() }))).await;
    let path = "/v1/plugins/w/settings";
    store(&operator, path, json!({ "apiKey": "the first key", "endpoint": "https://a.example" }))
        .await;
    let misspelt = store(&operator, path, json!({ "api_key": CANARY })).await;
    misspelt.assert_problem(422, "invalid_args");
    assert!(
        misspelt.detail().contains("\"api_key\"; did you mean \"apiKey\"?"),
        "{}",
        misspelt.text
    );
    assert!(!misspelt.text.contains(CANARY), "{}", misspelt.text);
    // Everything except the secret is replaced.
    let stored = store(&operator, path, json!({})).await;
    assert_eq!(
        (stored.status, &stored.body["settings"]),
        (200, &json!({ "apiKey": "***" })),
        "{}",
        stored.text
    );
    gateway(&operator, &payload("w", json!({ "city": "x" }))).await;
    assert_eq!(key_seen(&server), "the first key");
}

#[tokio::test]
async fn what_was_stored_for_one_server_does_not_go_to_another() {
    let (old, new) = (PluginServer::echo().await, PluginServer::echo().await);
    let config = format!("[plugins]\nallow_private = [\"{}\", \"{}\"]", old.address, new.address);
    let at = Setup::new().config(&config).serve().await;
    let operator = at.operator();
    add(&operator, &old.manifest("w", json!({ "settings": schema() }))).await;
    let path = "/v1/plugins/w/settings";
    store(&operator, path, json!({ "apiKey": CANARY })).await;
    let moved =
        json!({ "manifest": new.manifest("w", json!({ "settings": schema() })), "replace": true });
    assert_eq!(operator.post("/v1/plugins", &moved).await.status, 201);
    let reply = gateway(&operator, &payload("w", json!({ "city": "x" }))).await;
    assert_eq!(reply.body["errorType"], "PluginSettingsInvalid", "{}", reply.text);
    assert!(reply.text.contains("another server"), "{}", reply.text);
    assert_eq!(new.asked().len(), 0);
    store(&operator, path, json!({ "apiKey": "***" })).await.assert_problem(422, "invalid_args");
    store(&operator, path, json!({ "apiKey": "typed for the new one" })).await;
    assert_eq!(gateway(&operator, &payload("w", json!({ "city": "x" }))).await.status, 200);
}
