//! Rule: the table has every described route, and the auth middleware answers none by itself.

use axum::http::{Method, Request, StatusCode};
use sa_core::{Principal, Role};
use sa_http::{ChannelGrant, Client, Identity};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::gateway_for_tests::start;
use crate::serve;

/// The status of a request that no route answers.
const NONE: StatusCode = StatusCode::IM_A_TEAPOT;

async fn none() -> StatusCode {
    NONE
}

/// Returns the operations of the OpenAPI document. Each path has a value in its variable segments.
fn operations() -> Vec<(Method, String)> {
    let document: serde_json::Value = serde_json::from_str(&openapi::document()).unwrap();
    let paths = document["paths"].as_object().unwrap().iter();
    let operations = paths.flat_map(|(path, methods)| {
        let segments = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
        let path = segments.collect::<Vec<_>>().join("/");
        let methods = methods.as_object().unwrap().keys();
        methods.map(move |method| (method.to_uppercase().parse().unwrap(), path.clone()))
    });
    operations.collect()
}

fn operator() -> Identity {
    Identity {
        principal: Arc::new(Principal::new("id", "op", Role::Operator)),
        revoked: CancellationToken::new(),
        expires_ms: None,
        node_id: None,
        channels: Arc::new(ChannelGrant::default()),
    }
}

#[tokio::test]
async fn every_described_route_is_in_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = start(dir.path()).await;
    let others = others(&gateway).fallback(none).method_not_allowed_fallback(none);
    let table = table(&gateway, others);
    let address = "127.0.0.1:1".parse().unwrap();
    let answer = async |method: Method, path: &str| {
        let ends = Ends { local: address, remote: address, tls: false };
        let client = Client { identity: Some(operator()), ends, slot: None };
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        table.answer(client, request).await.status()
    };
    assert!(operations().len() > 50, "{:?}", operations());
    for (method, path) in operations() {
        let status = answer(method.clone(), &path).await;
        assert!(status != NONE && status != StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
    }
    assert_eq!(answer(Method::GET, "/v1/none").await, NONE);
    assert_eq!(answer(Method::DELETE, "/v1/tools").await, NONE);
    gateway.shut_down().await;
    gateway.store.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_middleware_answers_no_route_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = start(dir.path()).await;
    let token = std::fs::read_to_string(gateway.config.operator_token_file()).unwrap();
    let service = HttpService::with_table(
        Arc::clone(&gateway),
        RouteTable::new([], Router::new().fallback(none)),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let serve = serve::serve_behind(service, Arc::clone(&gateway), listener, stop.clone());
    let serve = tokio::spawn(serve);
    let client = reqwest::Client::new();
    for (method, path) in operations() {
        let request = client.request(method.clone(), format!("{url}{path}"));
        let response = request.bearer_auth(token.trim()).send().await.unwrap();
        assert_eq!(response.status(), NONE, "{method} {path}");
    }
    stop.cancel();
    serve.await.unwrap().unwrap();
    gateway.store.shutdown().await.unwrap();
}
