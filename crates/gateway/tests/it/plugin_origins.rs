//! Web pages of listed origins may use the plugin gateway, and no other route.

use reqwest::Method;
use sa_gateway_kit::plugins::{add, payload};
use sa_gateway_kit::{PluginServer, Reply, Setup};
use serde_json::json;

#[tokio::test]
async fn pages_of_listed_origins_may_use_the_plugin_gateway_and_nothing_else() {
    let server = PluginServer::echo().await;
    let config = format!("{}allowed_origins = [\"https://host.example\"]\n", server.allowed());
    let gateway = Setup::new().config(&config).start().await;
    let operator = gateway.operator();
    add(&operator, &server.manifest("w", json!({}))).await;
    let ask = async |method: Method, path: &str, origin: &str| {
        let body = payload("w", json!({ "city": "x" }));
        Reply::of(operator.request(method, path).header("origin", origin).json(&body)).await
    };
    let preflight = ask(Method::OPTIONS, "/api/gateway", "https://host.example").await;
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.headers["access-control-allow-origin"], "https://host.example");
    let allowed = preflight.headers["access-control-allow-headers"].to_str().unwrap();
    assert!(
        allowed.contains("speraxos-plugin-settings") && allowed.contains("authorization"),
        "{allowed}"
    );
    let answered = ask(Method::POST, "/api/gateway", "https://host.example").await;
    assert_eq!(
        (answered.status, &answered.headers["access-control-allow-origin"]),
        (200, &"https://host.example".parse().unwrap())
    );
    assert_eq!(ask(Method::POST, "/api/gateway", "https://evil.example").await.status, 403);
    assert_eq!(ask(Method::GET, "/v1/tools", "https://host.example").await.status, 403);
}
