//! Through `/mcp`, an upstream's resources, prompts and completions are available beside its tools,
//! and tool results arrive unchanged.

use rmcp::ServiceExt as _;
use rmcp::model::{
    ArgumentInfo, CallToolRequestParams, CompleteRequestParams, GetPromptRequestParams,
};
use rmcp::model::{ReadResourceRequestParams, Reference};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use sa_testkit::upstream::{noted, until};
use sa_testkit::{Gateway, Setup};
use serde_json::{Value, json};

use crate::serve::Serve as _;
use crate::server::{server_program, stdio};

async fn client(gateway: &Gateway, token: &str) -> RunningService<RoleClient, ()> {
    let config = StreamableHttpClientTransportConfig::with_uri(format!("{}/mcp", gateway.url))
        .auth_header(token);
    ().serve(StreamableHttpClientTransport::from_config(config)).await.unwrap()
}

/// Starts a gateway with the same server twice.
async fn start() -> Gateway {
    let dir = tempfile::tempdir().unwrap();
    let config = [stdio("one", &[], dir.path(), ""), stdio("two", &[], dir.path(), "")].concat();
    let gateway = Setup::new().config(&config).serve().await;
    until(&gateway, "one", "ready").await;
    until(&gateway, "two", "ready").await;
    gateway
}

fn json(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

#[tokio::test]
async fn resources_are_listed_read_and_told_apart() {
    let gateway = start().await;
    let client = client(&gateway, &gateway.operator).await;
    let listed: Vec<String> =
        client.list_all_resources().await.unwrap().into_iter().map(|item| item.uri).collect();
    assert_eq!(listed, ["note://one", "two+note://one"]);
    let templates = json(client.list_all_resource_templates().await.unwrap());
    assert_eq!(templates[0]["uriTemplate"], "note://by-name/{name}");
    for uri in ["note://one", "two+note://one", "note://by-name/x", "one+note://by-name/x"] {
        let read = json(client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap());
        assert_eq!(read["contents"][0]["text"], "a note", "{uri}: {read}");
        let own = uri.rsplit('+').next().unwrap();
        assert_eq!(read["contents"][0]["uri"], own, "what a server says is passed on as it is");
    }
    assert!(client.read_resource(ReadResourceRequestParams::new("other://x")).await.is_err());
}

#[tokio::test]
async fn prompts_are_listed_filled_in_and_completed() {
    let gateway = start().await;
    let client = client(&gateway, &gateway.operator).await;
    let prompts = json(client.list_all_prompts().await.unwrap());
    assert_eq!(
        (&prompts[0]["name"], &prompts[1]["name"]),
        (&json!("one__greet"), &json!("two__greet"))
    );
    assert_eq!(prompts[0]["arguments"][0]["name"], "who");
    let mut request = GetPromptRequestParams::new("two__greet");
    request.arguments = json!({ "who": "Ada" }).as_object().cloned();
    let prompt = json(client.get_prompt(request).await.unwrap());
    assert_eq!(prompt["messages"][0]["content"]["text"], "greet \"Ada\"");
    assert!(client.get_prompt(GetPromptRequestParams::new("none__greet")).await.is_err());
    for reference in
        [Reference::for_prompt("one__greet"), Reference::for_resource("note://by-name/{name}")]
    {
        let request = CompleteRequestParams::new(reference, ArgumentInfo::new("who", "al"));
        let completed = json(client.complete(request).await.unwrap());
        assert_eq!(completed["completion"]["values"], json!(["alice"]));
    }
}

#[tokio::test]
async fn a_token_sees_only_what_it_may_use() {
    let gateway = start().await;
    let (_, token) =
        gateway.token(json!({ "name": "reader", "role": "agent", "tools": ["two__*"] })).await;
    let client = client(&gateway, &token).await;
    let listed: Vec<String> =
        client.list_all_resources().await.unwrap().into_iter().map(|item| item.uri).collect();
    assert_eq!(listed, ["note://one"], "the one of the second server, which is the only one here");
    assert!(client.read_resource(ReadResourceRequestParams::new("one+note://one")).await.is_err());
    let prompts = json(client.list_all_prompts().await.unwrap());
    assert_eq!(prompts.as_array().unwrap().len(), 1);
    assert!(client.get_prompt(GetPromptRequestParams::new("one__greet")).await.is_err());
}

#[tokio::test]
async fn what_a_tool_gives_back_arrives_as_it_was_sent() {
    let gateway = start().await;
    let direct = rmcp::transport::async_rw::AsyncRwTransport::new_client;
    let mut child = tokio::process::Command::new(server_program())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let alone =
        ().serve(direct(child.stdout.take().unwrap(), child.stdin.take().unwrap())).await.unwrap();
    let behind = client(&gateway, &gateway.operator).await;
    for tool in ["media", "fail"] {
        let alone = json(alone.call_tool(CallToolRequestParams::new(tool)).await.unwrap());
        let behind =
            behind.call_tool(CallToolRequestParams::new(format!("one__{tool}"))).await.unwrap();
        assert_eq!(alone, json(behind));
    }
    let tools = json(alone.list_all_tools().await.unwrap());
    let behind = json(behind.list_all_tools().await.unwrap());
    for tool in tools.as_array().unwrap() {
        let name = format!("one__{}", tool["name"].as_str().unwrap());
        let found = behind.as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap();
        for key in ["title", "description", "inputSchema", "outputSchema", "annotations"] {
            assert_eq!(found[key], tool[key], "{name}");
        }
    }
    let rest = gateway.operator().call("one__media", json!({})).await.body;
    assert_eq!(
        (&rest["blocks"][2]["type"], &rest["result"]["n"][2]),
        (&json!("audio"), &json!("three")),
        "{rest}"
    );
}

#[tokio::test]
async fn a_document_that_does_not_come_has_the_deadline_of_a_call() {
    let dir = tempfile::tempdir().unwrap();
    let gateway =
        Setup::new().config(&stdio("one", &[], dir.path(), "timeout_ms = 300")).serve().await;
    until(&gateway, "one", "ready").await;
    let client = client(&gateway, &gateway.operator).await;
    let read = client.read_resource(ReadResourceRequestParams::new("note://never"));
    let error = sa_testkit::soon(read).await.unwrap_err().to_string();
    assert!(error.contains("did not answer resources/read within 300 ms"), "{error}");
    noted(dir.path(), "cancelled").await;
}
