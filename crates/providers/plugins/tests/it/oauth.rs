//! Tokens of OAuth2 clients are fetched once for each plugin and settings owner, reused until they
//! expire, and fetched again when refused. A client's secret is sent only to the token server for
//! which it was stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use reqwest::Method;
use sa_testkit::plugins::gateway;
use sa_testkit::{Agent, Gateway, PluginAnswer, PluginServer, Reply, Setup};
use serde_json::{Value, json};

use crate::gateway::Serve as _;

fn document(token_url: &str) -> Value {
    json!({ "openapi": "3.1.0", "info": { "title": "Pets" }, "servers": [{ "url": "/v1" }],
        "components": { "securitySchemes": { "client": { "type": "oauth2", "flows": { "clientCredentials": { "tokenUrl": token_url, "scopes": {} } } } } },
        "paths": { "/pets": { "get": { "operationId": "listPets", "security": [{ "client": [] }] } } } })
}

/// Starts a server that issues numbered tokens with this lifetime. `is_good` decides which ones it
/// accepts.
async fn server(
    expires_in: u64,
    is_good: impl Fn(usize) -> bool + Send + Sync + 'static,
) -> PluginServer {
    let given = Arc::new(AtomicUsize::new(0));
    PluginServer::start(move |request| match request.path.as_str() {
        "/openapi.json" => PluginAnswer::json(&document("/token")),
        "/token" => {
            let number = given.fetch_add(1, Ordering::SeqCst) + 1;
            PluginAnswer::json(
                &json!({ "access_token": format!("token-{number}"), "token_type": "bearer", "expires_in": expires_in }),
            )
        }
        path if path.starts_with("/manifest/") => {
            let id = path.rsplit('/').next().unwrap();
            PluginAnswer::json(&json!({ "identifier": id, "meta": {}, "openapi": "/openapi.json" }))
        }
        _ => {
            let token = request.headers.get("authorization").map_or("", |value| value.to_str().unwrap());
            let number = token.rsplit('-').next().unwrap().parse().unwrap_or(0);
            if is_good(number) {
                PluginAnswer::json(&json!({ "number": number }))
            } else {
                PluginAnswer::text(401, "text/plain", "this token was withdrawn")
            }
        }
    })
    .await
}

async fn behind(server: &PluginServer, plugins: &[&str]) -> Gateway {
    let at = Setup::new().config(&server.allowed()).serve().await;
    for id in plugins {
        let url = server.url(&format!("/manifest/{id}"));
        let added = at.operator().post("/v1/plugins", &json!({ "url": url })).await;
        assert_eq!(added.status, 201, "{}", added.text);
    }
    at
}

async fn store(agent: &Agent, id: &str, query: &str) {
    let settings =
        json!({ "settings": { "client_clientId": "me", "client_clientSecret": "my secret" } });
    let path = format!("/v1/plugins/{id}/settings{query}");
    let stored = Reply::of(agent.request(Method::PUT, &path).json(&settings)).await;
    assert_eq!(stored.status, 200, "{}", stored.text);
}

async fn call(agent: &Agent, id: &str) -> Reply {
    gateway(agent, &json!({ "identifier": id, "apiName": "listPets", "arguments": "{}" })).await
}

fn fetched(server: &PluginServer) -> usize {
    server.asked().iter().filter(|request| request.path == "/token").count()
}

#[tokio::test]
async fn each_plugin_and_owner_has_a_token_of_its_own() {
    let server = server(3_600, |_| true).await;
    let at = behind(&server, &["one", "two"]).await;
    let (ann, ben, cid) =
        (at.new_agent("ann").await, at.new_agent("ben").await, at.new_agent("cid").await);
    store(&at.operator(), "one", "?shared=true").await;
    store(&at.operator(), "two", "?shared=true").await;
    store(&ann, "one", "").await;
    let number = async |agent: &Agent, id: &str| call(agent, id).await.body["number"].clone();
    for _ in 0..2 {
        assert_eq!(number(&ann, "one").await, 1);
        assert_eq!(number(&ben, "one").await, 2, "the same client, and yet not hers");
        assert_eq!(number(&cid, "one").await, 2, "what is shared is one token");
        assert_eq!(number(&ann, "two").await, 3);
    }
    assert_eq!(fetched(&server), 3);
}

#[tokio::test]
async fn calls_that_come_at_once_fetch_one() {
    let server = server(3_600, |_| true).await;
    let at = behind(&server, &["one"]).await;
    let operator = at.operator();
    store(&operator, "one", "").await;
    let replies = join_all((0..30).map(|_| call(&operator, "one"))).await;
    assert!(replies.iter().all(|reply| reply.body["number"] == 1));
    assert_eq!(fetched(&server), 1);
}

#[tokio::test]
async fn one_that_is_over_is_not_used_again() {
    let server = server(0, |_| true).await;
    let at = behind(&server, &["one"]).await;
    let operator = at.operator();
    store(&operator, "one", "").await;
    for number in 1..4 {
        assert_eq!(call(&operator, "one").await.body["number"], number);
    }
}

#[tokio::test]
async fn a_refused_token_is_renewed_once() {
    let once = server(3_600, |number| number != 1).await;
    let at = behind(&once, &["one"]).await;
    let operator = at.operator();
    store(&operator, "one", "").await;
    for _ in 0..2 {
        assert_eq!(call(&operator, "one").await.body["number"], 2);
    }
    assert_eq!(fetched(&once), 2);

    let never = server(3_600, |_| false).await;
    let at = behind(&never, &["one"]).await;
    let operator = at.operator();
    store(&operator, "one", "").await;
    let refused = call(&operator, "one").await;
    assert_eq!(
        (refused.status, &refused.body["errorType"]),
        (401, &json!(401)),
        "{}",
        refused.text
    );
    assert_eq!(refused.body["body"], "this token was withdrawn");
    let asked = never.asked().iter().filter(|request| request.path == "/v1/pets").count();
    assert_eq!((fetched(&never), asked), (2, 2), "and no more than that");
}

#[tokio::test]
async fn the_secret_does_not_follow_a_redirect() {
    let thief = PluginServer::start(|_| {
        PluginAnswer::json(&json!({ "access_token": "x", "token_type": "bearer" }))
    })
    .await;
    let to = thief.url("/token");
    let server = PluginServer::start(move |request| match request.path.as_str() {
        "/openapi.json" => PluginAnswer::json(&document("/token")),
        "/token" => PluginAnswer::redirect(307, &to),
        _ => PluginAnswer::json(&json!("here")),
    })
    .await;
    // Both servers are allowed, but the secret for one must not be sent to the other.
    let config =
        format!("[plugins]\nallow_private = [\"{}\", \"{}\"]", server.address, thief.address);
    let at = Setup::new().config(&config).serve().await;
    let operator = at.operator();
    operator.post("/v1/plugins", &json!({ "url": server.url("/openapi.json") })).await;
    store(&operator, "pets", "").await;
    let refused = call(&operator, "pets").await;
    assert_eq!(
        (refused.status, &refused.body["errorType"]),
        (502, &json!("PluginGatewayError")),
        "{}",
        refused.text
    );
    assert!(refused.text.contains("cannot get a token for the plugin"), "{}", refused.text);
    assert_eq!(thief.asked().len(), 0);
}
