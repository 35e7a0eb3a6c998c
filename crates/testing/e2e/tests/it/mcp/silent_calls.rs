//! A large result of a call that stays silent for seconds reaches the official clients with their
//! default limits: 5 s without data, and 1 MiB in one stream event.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Response, header};
use sa_core::{Output, RawJson, Scope, Tool};
use sa_gateway_kit::mcp::attach;
use sa_gateway_kit::{Gateway, Setup};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::mcp::peers::{clients_of, run};

/// Starts a proxy that reports when the response to a call of a tool begins.
async fn proxy(gateway: &Gateway, begins: Arc<Notify>) -> String {
    let (http, url) = (reqwest::Client::new(), format!("{}/mcp", gateway.url));
    let forward = async move |method: Method, mut headers: HeaderMap, body: Bytes| {
        for name in [header::HOST, header::CONTENT_LENGTH, header::CONNECTION] {
            headers.remove(name);
        }
        let is_call = body.windows(12).any(|word| word == b"\"tools/call\"");
        let response = http.request(method, url).headers(headers).body(body).send().await.unwrap();
        if is_call {
            begins.notify_one();
        }
        let mut forwarded = Response::builder().status(response.status());
        for name in ["content-type", "mcp-session-id"] {
            if let Some(value) = response.headers().get(name) {
                forwarded = forwarded.header(name, value);
            }
        }
        forwarded.body(Body::from_stream(response.bytes_stream())).unwrap()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async { axum::serve(listener, Router::new().fallback(forward)).await });
    format!("http://127.0.0.1:{port}/mcp")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_result_of_a_silent_call_reaches_clients_with_sessions() {
    let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
    let large = json!({ "text": "x".repeat(3 << 19) });
    let output = Output::json(RawJson::of(&large));
    let begins = Arc::new(Notify::new());
    let url = proxy(&gateway, Arc::clone(&begins)).await;
    let _slow = attach(
        &gateway.inner().router,
        "slow",
        Scope::Everyone,
        vec![Tool::named("slow")],
        move |_, _| {
            let (output, begins) = (output.clone(), Arc::clone(&begins));
            Box::pin(async move {
                begins.notified().await;
                Ok(output)
            })
        },
    );
    let mut clients = clients_of(&url, &gateway.operator);
    // In the newer era a response begins with its result.
    clients.retain(|(name, _)| ["Python 2, older era", "Python 1", "TypeScript 1"].contains(name));
    assert_eq!(clients.len(), 3);
    for (name, mut client) in clients {
        let said = run(&gateway, client.arg(json!([["slow", {}]]).to_string())).await;
        assert!(said["results"][0]["structured"] == large, "{name}: {said:.300}");
    }
}
