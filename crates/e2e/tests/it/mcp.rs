//! An MCP client sees the token's tools, calls them, hears of progress, and can read what went wrong.

use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use sa_testkit::{Gateway, Hello, Setup, eventually};
use serde_json::json;

type Client = rmcp::service::RunningService<rmcp::RoleClient, ()>;

async fn connect(gateway: &Gateway, token: &str) -> Result<Client, String> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(format!("{}/mcp", gateway.url));
    config.auth_header = Some(token.to_owned());
    let transport = StreamableHttpClientTransport::from_config(config);
    ().serve(transport).await.map_err(|error| error.to_string())
}

fn call(tool: &'static str, args: serde_json::Value) -> CallToolRequestParams {
    let mut request = CallToolRequestParams::new(tool);
    request.arguments = args.as_object().cloned();
    request
}

#[tokio::test]
async fn a_client_lists_and_calls_the_tools_of_a_node() {
    let gateway = Setup::new().start().await;
    let _node = Hello::new("mac").tool("notes.search").tool("Bash").connect(&gateway).await.echo();
    let client = connect(&gateway, &gateway.operator).await.unwrap();
    let names: Vec<_> = client.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name.into_owned()).collect();
    assert_eq!(names, ["mac__Bash", "notes_search"]);
    let result = client.call_tool(call("notes_search", json!({ "query": "x" }))).await.unwrap();
    let result = serde_json::to_value(&result).unwrap();
    assert_eq!(result["structuredContent"], json!({ "query": "x" }), "{result}");
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn what_went_wrong_is_a_result_that_the_model_can_read() {
    let gateway = Setup::new().start().await;
    let client = connect(&gateway, &gateway.operator).await.unwrap();
    let result = client.call_tool(call("nothing", json!({}))).await.unwrap();
    let result = serde_json::to_value(&result).unwrap();
    assert_eq!(result["isError"], true);
    assert!(result["content"][0]["text"].as_str().unwrap().starts_with("not_found: "), "{result}");
}

#[tokio::test]
async fn a_token_decides_who_comes_in_and_what_they_see() {
    let gateway = Setup::new().start().await;
    let _node = Hello::new("mac").tool("notes.read").tool("notes.write").connect(&gateway).await.echo();
    assert!(connect(&gateway, "sb_wrong").await.is_err());
    let (_, token) = gateway.token(json!({ "name": "reader", "role": "agent", "tools": ["notes.read"] })).await;
    let client = connect(&gateway, &token).await.unwrap();
    let names: Vec<_> = client.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name.into_owned()).collect();
    assert_eq!(names, ["notes_read"]);
    let denied = serde_json::to_value(client.call_tool(call("notes_write", json!({}))).await.unwrap()).unwrap();
    assert_eq!(denied["isError"], true);
}

#[tokio::test]
async fn a_client_that_leaves_cancels_what_it_asked_for() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let client = connect(&gateway, &gateway.operator).await.unwrap();
    let asked = tokio::spawn(async move { client.call_tool(call("slow_work", json!({}))).await });
    let request = node.request().await;
    asked.abort();
    node.cancelled(&request).await;
    eventually("the call to be gone", || async { (gateway.running_calls().await == 0).then_some(()) }).await;
}
