//! Rule: each request belongs to one route, whether the route is direct or axum's.

use axum::Extension;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::get;
use http_body_util::BodyExt as _;
use sa_core::{Principal, Role};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::ChannelGrant;

fn table() -> RouteTable {
    let call = |DirectRequest { identity, segment, request }: DirectRequest| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body);
        Ok(format!("{} calls {segment} with {body}", identity.principal.name).into_response())
    };
    let any = |request: DirectRequest| async move {
        Ok(format!("any {}", request.request.method()).into_response())
    };
    let other = |identity: Option<Extension<Identity>>, _: Extension<Ends>| async move {
        identity.map_or_else(|| "nobody".to_owned(), |identity| identity.principal.name.to_string())
    };
    let others = Router::new()
        .route("/other", get(other))
        .fallback(|| async { (StatusCode::NOT_FOUND, "none").into_response() });
    let direct = [
        DirectRoute::new(Method::POST, "/v1/tools/{name}/call", call),
        DirectRoute::any("/any", any),
    ];
    RouteTable::new(direct, others.method_not_allowed_fallback(method_not_allowed))
}

fn identity() -> Identity {
    Identity {
        principal: Arc::new(Principal::new("id", "ann", Role::Agent)),
        revoked: CancellationToken::new(),
        expires_ms: None,
        node_id: None,
        channels: Arc::new(ChannelGrant::default()),
    }
}

async fn answer(identity: Option<Identity>, method: Method, path: &str) -> Response {
    let address = "127.0.0.1:1".parse().unwrap();
    let ends = Ends { local: address, remote: address, tls: false };
    let request = Request::builder().method(method).uri(path).body(Body::from("{}")).unwrap();
    table().answer(Client { identity, ends, slot: None }, request).await
}

#[track_caller]
fn check(method: Method, path: &str, expected: Result<&str, u16>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let response = runtime.block_on(answer(Some(identity()), method, path));
    let status = response.status().as_u16();
    let body = runtime.block_on(response.into_body().collect()).unwrap().to_bytes();
    let text = std::str::from_utf8(&body).unwrap();
    let found = if status == 200 { Ok(text) } else { Err(status) };
    assert_eq!(found, expected, "{path}");
}

#[test]
fn a_path_belongs_to_the_route_with_its_pattern() {
    check(Method::POST, "/v1/tools/a.b/call", Ok("ann calls a.b with {}"));
    check(Method::POST, "/v1/tools/a/call?x=/call", Ok("ann calls a with {}"));
    check(Method::POST, "/v1/tools/a%20b%2Fc/call", Ok("ann calls a b/c with {}"));
    check(Method::POST, "/v1/tools/a%ff/call", Err(400));
    // As in axum's router, a segment may be empty.
    check(Method::POST, "/v1/tools//call", Ok("ann calls  with {}"));
    for path in ["/v1/tools/a/b/call", "/v1/tools/call", "/v1/tools/a/call/"] {
        check(Method::POST, path, Err(404));
    }
    check(Method::POST, "/v1/tools/invoke", Err(404));
    check(Method::DELETE, "/any", Ok("any DELETE"));
    check(Method::GET, "/other", Ok("ann"));
}

#[tokio::test]
async fn a_wrong_method_is_refused_in_the_same_way_by_every_route() {
    for (path, allowed) in [("/v1/tools/a/call", "POST"), ("/other", "GET,HEAD")] {
        let response = answer(Some(identity()), Method::PUT, path).await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        assert_eq!(response.headers()[header::ALLOW], allowed);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    }
}

#[tokio::test]
async fn a_direct_route_requires_an_identity() {
    let response = answer(None, Method::POST, "/v1/tools/a/call").await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let response = answer(None, Method::GET, "/other").await;
    assert_eq!(response.status(), StatusCode::OK);
}
