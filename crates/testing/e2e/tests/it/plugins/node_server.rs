//! A typical plugin server in Node.js works unchanged: it receives settings, and its errors are
//! returned.

use std::process::Stdio;

use reqwest::Method;
use sa_gateway_kit::plugins::add;
use sa_gateway_kit::{Reply, Setup, soon};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

#[tokio::test]
async fn a_server_in_node_js_is_called_as_its_author_expects() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/plugins/server.mjs");
    let mut node = Command::new("node");
    node.arg(program).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut node = node.spawn().expect("Node.js is needed");
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
    let address = format!("127.0.0.1:{}", soon(lines.next_line()).await.unwrap().unwrap());

    let at =
        Setup::new().config(&format!("[plugins]\nallow_private = [\"{address}\"]")).start().await;
    let operator = at.operator();
    let manifest = json!({
        "identifier": "node-plugin",
        "meta": { "title": "Node" },
        "api": [{ "name": "search", "description": "Searches.", "url": format!("http://{address}/api/search"),
            "parameters": { "type": "object", "properties": { "query": { "type": "string" } } } }],
        "settings": { "type": "object", "properties": {
            "apiKey": { "type": "string", "format": "password" }, "name": { "type": "string" } } },
    });
    add(&operator, &manifest).await;
    let ask = async |query: &str, settings: Option<Value>| {
        let payload = json!({ "identifier": "node-plugin", "apiName": "search", "arguments": json!({ "query": query }).to_string() });
        let mut request = operator.request(Method::POST, "/api/gateway").json(&payload);
        if let Some(settings) = settings {
            request = request.header("x-sperax-plugin-settings", settings.to_string().as_bytes());
        }
        Reply::of(request).await
    };
    let refused = ask("x", None).await;
    let told =
        json!({ "body": { "message": "API key required" }, "errorType": "PluginSettingsInvalid" });
    assert_eq!((refused.status, &refused.body), (400, &told), "{}", refused.text);
    let settings = json!({ "apiKey": "k-1234", "name": "Zoë 🦀" });
    let answered = ask("weather", Some(settings.clone())).await;
    assert_eq!(
        answered.body,
        json!({ "success": true, "data": { "query": "weather", "name": "Zoë 🦀" } })
    );
    let markdown = ask("markdown", Some(settings.clone())).await;
    assert_eq!(markdown.text, "## Zoë 🦀\n");
    assert_eq!(markdown.headers["content-type"], "text/plain;charset=UTF-8");

    // The same call as a tool, with the stored settings.
    let failed = operator.call("node-plugin__search", json!({ "query": "x" })).await;
    failed.assert_problem(502, "failed");
    assert!(failed.detail().contains("API key required"), "{}", failed.text);
    let stored = Reply::of(
        operator
            .request(Method::PUT, "/v1/plugins/node-plugin/settings")
            .json(&json!({ "settings": settings })),
    )
    .await;
    assert_eq!(stored.status, 200, "{}", stored.text);
    assert_eq!(
        operator.call("node-plugin__search", json!({ "query": "x" })).await.result()["data"]["name"],
        "Zoë 🦀"
    );
}
