//! A monitoring token reads the gateway's metrics and nothing else.

use sa_gateway_kit::{Hello, Participant, Setup};
use serde_json::json;

#[tokio::test]
async fn a_monitors_token_reads_the_metrics_alone() {
    let gateway = Setup::new().start().await;
    let _node = Hello::new("n").tool("a.b").connect(&gateway).await.echo();
    let (_, token) = gateway.token(json!({ "name": "prometheus", "role": "monitor" })).await;
    let monitor = gateway.agent(&token);
    assert!(monitor.get_text("/metrics").await.contains("switchboard_"), "the numbers");
    for path in [
        "/v1/tools",
        "/v1/tokens",
        "/v1/status",
        "/v1/calls",
        "/v1/audit",
        "/v1/events",
        "/v1/sessions",
        "/v1/models",
    ] {
        monitor.get(path).await.assert_problem(403, "not_allowed");
    }
    monitor.call("a.b", json!({})).await.assert_problem(403, "not_allowed");
    monitor
        .post("/v1/tokens", &json!({ "name": "x", "role": "operator" }))
        .await
        .assert_problem(403, "not_allowed");
    monitor
        .post("/mcp", &json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }))
        .await
        .assert_problem(403, "not_allowed");
    // It cannot join channels either, where the name identifies the sender.
    let path = format!("/v1/channels/ws?token={token}&channel=room");
    assert_eq!(Participant::connect(&gateway, &path).await.closed().await.0, 4001);
    for role in ["agent", "participant", "node", "user", "caller"] {
        let (_, token) = gateway.token(json!({ "name": format!("a-{role}"), "role": role })).await;
        assert_eq!(gateway.agent(&token).get("/metrics").await.status, 403, "{role}");
    }
    gateway.stop().await;
}
