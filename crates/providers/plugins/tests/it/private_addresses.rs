//! A private address is reachable only for the plugin for which an operator has allowed it. Other
//! plugins cannot reach it by manifest, function, OpenAPI document, token server or redirect.

use reqwest::Method;
use sa_testkit::plugins::{gateway, payload};
use sa_testkit::{Agent, PluginAnswer, PluginServer, Reply, Setup};
use serde_json::{Value, json};

use crate::gateway::Serve as _;

async fn add_with(agent: &Agent, what: Value, allowed: &[&str]) -> Reply {
    let mut body = what;
    body["allow_private"] = json!(allowed);
    agent.post("/v1/plugins", &body).await
}

#[track_caller]
fn check_refused(reply: &Reply) {
    assert_eq!(
        (reply.status, &reply.body["errorType"]),
        (502, &json!("PluginGatewayError")),
        "{}",
        reply.text
    );
    assert!(reply.text.contains("--allow-private"), "what to do about it: {}", reply.text);
}

#[tokio::test]
async fn one_plugin_is_allowed_and_another_is_not() {
    let inside = PluginServer::echo().await;
    let to = inside.url("/around");
    let turning = PluginServer::start(move |_| PluginAnswer::redirect(307, &to)).await;
    let at = Setup::new().serve().await;
    let operator = at.operator();
    let manifest =
        |server: &PluginServer, id: &str| json!({ "manifest": server.manifest(id, json!({})) });
    for (server, id, allowed) in [
        (&inside, "a", vec![inside.address.as_str()]),
        (&inside, "b", vec![]),
        (&inside, "c", vec![turning.address.as_str()]),
        (&turning, "d", vec![turning.address.as_str(), inside.address.as_str()]),
        (&turning, "e", vec![turning.address.as_str()]),
    ] {
        let added = add_with(&operator, manifest(server, id), &allowed).await;
        assert_eq!(added.status, 201, "{}", added.text);
        let expected = if allowed.is_empty() { Value::Null } else { json!(allowed) };
        assert_eq!(added.body["plugins"][0]["allow_private"], expected);
    }
    let call = async |id: &str| gateway(&operator, &payload(id, json!({ "city": "x" }))).await;
    // Repeated, because an allowed plugin leaves pooled connections behind.
    for _ in 0..2 {
        assert_eq!(call("a").await.body["path"], "/run");
        check_refused(&call("b").await);
        check_refused(&call("c").await);
        assert_eq!(call("d").await.body["path"], "/around");
        check_refused(&call("e").await);
    }
    assert_eq!((inside.asked().len(), turning.asked().len()), (4, 4));
    // A tool call behaves the same.
    operator.call("a__run", json!({ "city": "x" })).await.result();
    operator.call("b__run", json!({ "city": "x" })).await.assert_problem(502, "failed");
    assert!(
        !at.new_agent("a").await.get_text("/v1/plugins").await.contains(&inside.address),
        "for operators"
    );
    let wrong = add_with(&operator, manifest(&inside, "f"), &["127.0.0.1"]).await;
    wrong.assert_problem(400, "bad_request");
    assert!(wrong.detail().contains("host and a port"), "{}", wrong.text);
    // Adding the plugin again replaces its allowed addresses.
    let mut again = manifest(&inside, "a");
    again["replace"] = json!(true);
    assert_eq!(operator.post("/v1/plugins", &again).await.status, 201);
    check_refused(&call("a").await);
}

#[tokio::test]
async fn documents_and_tokens_are_reached_by_the_same_rule() {
    let tokens = PluginServer::start(|_| {
        PluginAnswer::json(&json!({ "access_token": "t", "token_type": "Bearer" }))
    })
    .await;
    let (token_url, api_url) = (tokens.url("/token"), tokens.url("/api"));
    let server = PluginServer::start(move |request| match request.path.as_str() {
        "/openapi.json" => PluginAnswer::json(&json!({ "openapi": "3.1.0", "info": { "title": "Pets" }, "servers": [{ "url": "/v1" }],
            "components": { "securitySchemes": { "client": { "type": "oauth2", "flows": { "clientCredentials": { "tokenUrl": token_url, "scopes": {} } } } } },
            "paths": { "/pets": { "get": { "operationId": "listPets", "security": [{ "client": [] }] } },
                "/else": { "get": { "operationId": "elsewhere", "servers": [{ "url": api_url }] } } } })),
        "/manifest.json" => PluginAnswer::json(&json!({ "identifier": "pets", "meta": {}, "openapi": "/openapi.json" })),
        "/index.json" => PluginAnswer::json(&json!({ "schemaVersion": 1, "plugins": [{ "identifier": "pets", "manifest": "/manifest.json" }] })),
        _ => PluginAnswer::json(&json!("here")),
    })
    .await;
    let at = Setup::new().serve().await;
    let operator = at.operator();
    let source = || json!({ "url": server.url("/manifest.json") });
    let refused = operator.post("/v1/plugins", &source()).await;
    refused.assert_problem(502, "failed");
    assert!(refused.text.contains("--allow-private"), "{}", refused.text);
    operator.post("/v1/plugins/check", &source()).await.assert_problem(502, "failed");
    assert_eq!(server.asked().len(), 0);
    let added = add_with(&operator, source(), &[&server.address]).await;
    assert_eq!(added.status, 201, "{}", added.text);
    let settings =
        json!({ "settings": { "client_clientId": "me", "client_clientSecret": "canary-secret" } });
    let stored =
        Reply::of(operator.request(Method::PUT, "/v1/plugins/pets/settings").json(&settings)).await;
    assert_eq!(stored.status, 200, "{}", stored.text);
    let call = async |name: &str| {
        gateway(&operator, &json!({ "identifier": "pets", "apiName": name, "arguments": "{}" }))
            .await
    };
    for name in ["listPets", "elsewhere"] {
        check_refused(&call(name).await);
    }
    assert_eq!(tokens.asked().len(), 0, "neither for a token nor for its answer");
    // The allowed addresses are stored with the plugin and apply when its source is fetched again.
    assert_eq!(operator.post("/v1/plugins/pets/refresh", &json!({})).await.status, 200);

    let mut both = source();
    both["replace"] = json!(true);
    assert_eq!(add_with(&operator, both, &[&server.address, &tokens.address]).await.status, 201);
    for name in ["listPets", "elsewhere"] {
        assert_eq!(call(name).await.status, 200);
    }
    // For an index, they apply to its plugins, including those that appear later.
    operator.delete("/v1/plugins/pets").await;
    let index = json!({ "url": server.url("/index.json") });
    operator.post("/v1/plugins", &index).await.assert_problem(502, "failed");
    let added = add_with(&operator, index, &[&server.address, &tokens.address]).await;
    assert_eq!(added.body["plugins"][0]["identifier"], "pets", "{}", added.text);
    operator.delete("/v1/plugins/pets").await;
    let settings =
        json!({ "client_clientId": "me", "client_clientSecret": "canary-secret" }).to_string();
    let request =
        operator.request(Method::POST, "/api/gateway").header("x-lobe-plugin-settings", settings);
    let found = Reply::of(
        request.json(&json!({ "identifier": "pets", "apiName": "elsewhere", "arguments": "{}" })),
    )
    .await;
    assert_eq!(found.status, 200, "{}", found.text);
}
