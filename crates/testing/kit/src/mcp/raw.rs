//! MCP as plain HTTP requests, for revisions with sessions.

use reqwest::RequestBuilder;

use crate::Server;

/// The first message of a client.
pub const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}"#;

/// Returns a request with this message.
pub fn post(gateway: &Server, token: &str, body: &str) -> RequestBuilder {
    reqwest::Client::new()
        .post(format!("{}/mcp", gateway.url))
        .bearer_auth(token)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body.to_owned())
}

/// Opens a session with a raw request and returns its id.
pub async fn open(gateway: &Server, token: &str) -> String {
    let response = post(gateway, token, INITIALIZE).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let id = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    assert!(response.text().await.unwrap().contains("switchboard"));
    id
}

/// Returns a request for the stream of a session.
pub fn stream(gateway: &Server, token: &str, session: &str) -> RequestBuilder {
    reqwest::Client::new()
        .get(format!("{}/mcp", gateway.url))
        .bearer_auth(token)
        .header("accept", "text/event-stream")
        .header("mcp-session-id", session)
}
