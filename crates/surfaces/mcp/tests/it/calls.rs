//! An MCP client sees the token's tools, calls them, receives progress, and gets readable errors.

use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use sa_testkit::{Gateway, Hello, RawHttp, Setup, eventually};
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
    let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
    let _node = Hello::new("mac").tool("notes.search").tool("Bash").connect(&gateway).await.echo();
    let client = connect(&gateway, &gateway.operator).await.unwrap();
    let names: Vec<_> = client
        .list_all_tools()
        .await
        .unwrap()
        .into_iter()
        .map(|tool| tool.name.into_owned())
        .collect();
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
    let _node =
        Hello::new("mac").tool("notes.read").tool("notes.write").connect(&gateway).await.echo();
    assert!(connect(&gateway, "sb_wrong").await.is_err());
    let (_, token) =
        gateway.token(json!({ "name": "reader", "role": "agent", "tools": ["notes.read"] })).await;
    let client = connect(&gateway, &token).await.unwrap();
    let names: Vec<_> = client
        .list_all_tools()
        .await
        .unwrap()
        .into_iter()
        .map(|tool| tool.name.into_owned())
        .collect();
    assert_eq!(names, ["notes_read"]);
    let denied =
        serde_json::to_value(client.call_tool(call("notes_write", json!({}))).await.unwrap())
            .unwrap();
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
    eventually("the call to be gone", || async {
        (gateway.running_calls().await == 0).then_some(())
    })
    .await;
}

/// Sends a raw request, so that its answer can be left unread.
async fn ask(gateway: &Gateway, body: &str, length: usize) -> RawHttp {
    let mut raw = RawHttp::connect(gateway).await;
    raw.write(&format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}",
        gateway.address(),
        gateway.operator,
    ))
    .await;
    raw
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_no_deadline() {
    let gateway = Setup::new().config("[limits]\nmax_call_ms = 1_500").start().await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "slow_work", "arguments": {}, "_meta": { "progressToken": "t" } } });
    let body = body.to_string();
    let _unread = ask(&gateway, &body, body.len()).await;
    let request = node.request().await;
    for step in 0..800_u32 {
        let frame = json!({ "type": "tool_progress", "request_id": request.id, "progress": step,
            "message": "x".repeat(60_000) });
        node.send(frame).await;
    }
    assert_eq!(node.cancelled(&request).await, "deadline");
    eventually("the call to be gone", || async {
        (gateway.running_calls().await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn bodies_have_the_bounds_that_all_bodies_have() {
    let gateway = Setup::new().config("[limits]\nmax_body_bytes = 1_000").start().await;
    let answer = ask(&gateway, &" ".repeat(2_000), 2_000).await.read_to_end().await;
    assert!(
        answer.starts_with("HTTP/1.1 413") && answer.contains("application/problem+json"),
        "{answer}"
    );
}

#[tokio::test]
async fn one_request_carries_one_message() {
    let gateway = Setup::new().start().await;
    let body = r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"},{"jsonrpc":"2.0","id":2,"method":"tools/list"}]"#;
    let answer = ask(&gateway, body, body.len()).await.read_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
}

#[tokio::test]
async fn a_call_is_cancelled_by_closing_its_request() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("mac").tool("slow.work").connect(&gateway).await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "slow_work", "arguments": {}, "_meta": { "progressToken": "t" } } });
    let body = body.to_string();
    let open = ask(&gateway, &body, body.len()).await;
    let request = node.request().await;
    node.progress(&request.id, 1.0).await;
    // A cancel notification in a separate request has no effect.
    let word = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    ask(&gateway, word, word.len()).await.read_to_end().await;
    node.settle().await;
    assert_eq!(gateway.running_calls().await, 1);
    drop(open);
    node.cancelled(&request).await;
}
