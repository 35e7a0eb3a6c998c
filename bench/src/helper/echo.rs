//! A minimal HTTP server in the same framework.

use axum::http::StatusCode;
use axum::routing::post;
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use bytes::Bytes;
use serde_json::Value;

pub(super) async fn run() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("ready {}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let app = Router::new()
        .route("/echo", post(|Json(body): Json<Value>| async { Json(body) }))
        .route("/plugin", post(plugin))
        .route("/plugin/{id}", post(plugin));
    axum::serve(listener, app).await?;
    Ok(())
}

/// Acts as a plugin server. It accepts JSON without a content type, because the JavaScript plugin
/// gateway sends none.
async fn plugin(body: Bytes) -> Result<Json<Value>, StatusCode> {
    serde_json::from_slice(&body).map(Json).map_err(|_| StatusCode::BAD_REQUEST)
}
