//! For a server that requires tokens of an authority, the gateway fetches one with its own account,
//! and a new one when it expires.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use sa_testkit::Setup;
use sa_testkit::upstream::{Guarded, until};
use serde_json::json;

use crate::serve::Serve as _;

const SECRET: &str = "the-account-s-secret";

/// The number of the only valid token.
#[derive(Clone, Default)]
struct Authority(Arc<AtomicUsize>);

async fn guard(State(authority): State<Authority>, request: Request, next: Next) -> Response {
    let good = format!("Bearer granted-{}", authority.0.load(Ordering::SeqCst));
    if request.headers().get("authorization").is_some_and(|token| *token == *good) {
        return next.run(request).await;
    }
    (axum::http::StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")]).into_response()
}

async fn grant(
    State(authority): State<Authority>,
    headers: axum::http::HeaderMap,
    form: String,
) -> Response {
    let basic = headers.get("authorization").is_some();
    if !form.contains("grant_type=client_credentials") || !(basic || form.contains(SECRET)) {
        return axum::http::StatusCode::BAD_REQUEST.into_response();
    }
    let number = authority.0.fetch_add(1, Ordering::SeqCst) + 1;
    let token = json!({ "access_token": format!("granted-{number}"), "token_type": "Bearer", "expires_in": 3600 });
    Json(token).into_response()
}

#[tokio::test]
async fn a_token_is_fetched_with_the_gateway_s_own_account_and_renewed() {
    let authority = Authority::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let service = StreamableHttpService::new(
        || Ok(Guarded),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let resource = json!({ "resource": format!("{url}/mcp"), "authorization_servers": [url] });
    let metadata = json!({
        "issuer": url, "token_endpoint": format!("{url}/token"), "authorization_endpoint": format!("{url}/authorize"),
        "response_types_supported": ["code"], "grant_types_supported": ["client_credentials"],
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
    });
    let app = Router::new()
        .nest_service("/mcp", service)
        .layer(from_fn_with_state(authority.clone(), guard))
        .route(
            "/.well-known/oauth-protected-resource",
            get({
                let it = resource.clone();
                async || Json(it)
            }),
        )
        .route("/.well-known/oauth-protected-resource/mcp", get(async || Json(resource)))
        .route("/.well-known/oauth-authorization-server", get(async || Json(metadata)))
        .route("/token", post(grant))
        .with_state(authority.clone());
    tokio::spawn(axum::serve(listener, app).into_future());

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    std::fs::write(&file, SECRET).unwrap();
    let oauth =
        format!("{{ client_id = \"gateway\", client_secret = \"file:{}\" }}", file.display());
    let gateway = Setup::new()
        .config(&format!(
            "[upstream.guarded]\nurl = \"{url}/mcp\"\nisolate = false\noauth = {oauth}\n"
        ))
        .serve()
        .await;
    until(&gateway, "guarded", "ready").await;
    let agent = gateway.operator();
    let reply = agent.call("guarded__hello", json!({})).await;
    assert_eq!(reply.body["blocks"][0]["text"], "hello", "{}", reply.body);
    // The token becomes invalid without notice.
    authority.0.fetch_add(1, Ordering::SeqCst);
    let reply = agent.call("guarded__hello", json!({})).await;
    assert_eq!(reply.body["blocks"][0]["text"], "hello", "{}", reply.body);
    assert!(authority.0.load(Ordering::SeqCst) >= 3);
}
