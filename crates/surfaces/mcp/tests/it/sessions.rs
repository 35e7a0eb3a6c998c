//! Rule: an idle session has a bounded size.

use serde_json::json;

use crate::surface::Surface;

#[tokio::test]
async fn a_large_initialize_request_is_refused() {
    let surface = Surface::new();
    let size = |bytes: usize| {
        let (name, experimental) = ("x".repeat(bytes), json!({ "k": "x".repeat(bytes) }));
        let [named, capable] =
            [(name, json!({})), ("t".into(), experimental)].map(|(name, experimental)| {
                json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": { "experimental": { "x": experimental } },
                "clientInfo": { "name": name, "version": "0" },
            } })
            });
        [named, capable]
    };
    for message in size(15_000) {
        assert_eq!(surface.send("POST", &[], &message).await.status(), 200);
    }
    for message in size(17_000) {
        let response = surface.send("POST", &[], &message).await;
        assert_eq!(response.status(), 413);
        assert!(response.headers().get("mcp-session-id").is_none());
    }
    assert_eq!(surface.sessions(), 2);
}
