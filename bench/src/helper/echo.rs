//! The least that an HTTP server in the same framework can do.

use axum::routing::post;
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use serde_json::Value;

pub(super) async fn run() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("ready {}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let app = Router::new()
        .route("/echo", post(|Json(body): Json<Value>| async { Json(body) }))
        .route("/echo/{id}", post(|Json(body): Json<Value>| async { Json(body) }));
    axum::serve(listener, app).await?;
    Ok(())
}
