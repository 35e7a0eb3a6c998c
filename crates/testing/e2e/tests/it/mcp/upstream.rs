//! Through `/mcp`, with old and new revisions, clients receive an upstream's changes, logs and tool
//! metadata. Its tools and prompts keep their own names where these are unique.

#![expect(deprecated, reason = "what clients of the older revisions have")]

use rmcp::model::{
    GetPromptRequestParams, LoggingLevel, LoggingMessageNotificationParam, RequestMetaObject,
    ResourceUpdatedNotificationParam, ServerNotification, SetLevelRequestParams,
    SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};
use sa_gateway_kit::mcp::{Client, ERAS, Era, connect, request, value};
use sa_gateway_kit::upstream::until;
use sa_gateway_kit::{Gateway, Setup, soon};
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::sync::mpsc;

use crate::mcp::conformance::{conformance_server, gateway_before};
use crate::upstream::server::stdio;

/// Collects notifications.
#[derive(Clone)]
struct Hears(mpsc::UnboundedSender<String>);

impl ClientHandler for Hears {
    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let _ = self.0.send(format!("log {}", message.data));
    }

    async fn on_resource_updated(
        &self,
        update: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let _ = self.0.send(format!("updated {}", update.uri));
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        let _ = self.0.send("prompts".into());
    }
}

async fn start(era: Era) -> (Child, Gateway, Client<Hears>, mpsc::UnboundedReceiver<String>) {
    let (server, url) = conformance_server().await;
    let gateway = gateway_before(&url).await;
    let (hears, heard) = mpsc::unbounded_channel();
    let client = connect(&gateway, &gateway.operator, "", era, Hears(hears)).await.unwrap();
    (server, gateway, client, heard)
}

async fn until_heard(heard: &mut mpsc::UnboundedReceiver<String>, what: &str) {
    while soon(heard.recv()).await.expect("the client is there") != what {}
}

const WATCHED: &str = "test://watched-resource";

async fn touch(client: &Client<Hears>, uri: &str) {
    client
        .call_tool(request("conformance__test_touch_resource", json!({ "uri": uri })))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_client_with_a_session_watches_a_resource_until_it_has_seen_enough() {
    let (_server, _gateway, client, mut heard) = start(Era::Sessions).await;
    client.subscribe(SubscribeRequestParams::new(WATCHED)).await.unwrap();
    touch(&client, "test://static-text").await;
    touch(&client, WATCHED).await;
    assert_eq!(soon(heard.recv()).await.unwrap(), format!("updated {WATCHED}"));
    client.unsubscribe(UnsubscribeRequestParams::new(WATCHED)).await.unwrap();
    touch(&client, WATCHED).await;
    client.subscribe(SubscribeRequestParams::new("test://static-text")).await.unwrap();
    touch(&client, "test://static-text").await;
    assert_eq!(soon(heard.recv()).await.unwrap(), "updated test://static-text");
}

#[tokio::test]
async fn a_client_without_sessions_listens_to_resources_and_lists() {
    let (_server, _gateway, client, _heard) = start(Era::Stateless).await;
    let mut filter = SubscriptionFilter::new();
    filter.resource_subscriptions = Some(vec![WATCHED.to_owned()]);
    filter.prompts_list_changed = Some(true);
    let mut changes = client.peer().listen(filter).await.unwrap();
    // The first update may be lost, because the gateway's own subscription starts meanwhile.
    let updated = async {
        loop {
            touch(&client, WATCHED).await;
            let next =
                tokio::time::timeout(std::time::Duration::from_millis(200), changes.next()).await;
            if let Ok(Ok(Some(ServerNotification::ResourceUpdatedNotification(update)))) = next {
                return update.params.uri;
            }
        }
    };
    assert_eq!(soon(updated).await, WATCHED);
    client.call_tool(request("conformance__test_trigger_prompt_change", json!({}))).await.unwrap();
    let prompts = async {
        loop {
            if let Ok(Some(ServerNotification::PromptListChangedNotification(_))) =
                changes.next().await
            {
                return;
            }
        }
    };
    soon(prompts).await;
    let prompts = client.list_all_prompts().await.unwrap();
    assert!(prompts.iter().any(|prompt| prompt.name == "conformance__late_prompt"), "{prompts:?}");
}

#[tokio::test]
async fn a_client_with_a_session_hears_of_changed_prompts() {
    let (_server, _gateway, client, mut heard) = start(Era::Sessions).await;
    client.call_tool(request("conformance__test_trigger_prompt_change", json!({}))).await.unwrap();
    until_heard(&mut heard, "prompts").await;
}

#[tokio::test]
async fn what_a_tool_logs_reaches_those_who_want_it() {
    let (_server, _gateway, client, mut heard) = start(Era::Sessions).await;
    client.call_tool(request("conformance__test_tool_with_logging", json!({}))).await.unwrap();
    until_heard(&mut heard, "log \"Tool execution completed\"").await;
    client.set_level(SetLevelRequestParams::new(LoggingLevel::Error)).await.unwrap();
    client.call_tool(request("conformance__test_tool_with_logging", json!({}))).await.unwrap();
    client.subscribe(SubscribeRequestParams::new(WATCHED)).await.unwrap();
    touch(&client, WATCHED).await;
    assert_eq!(
        soon(heard.recv()).await.unwrap(),
        format!("updated {WATCHED}"),
        "and no log before it"
    );

    let (_server, _gateway, client, mut heard) = start(Era::Stateless).await;
    let mut wanted = request("conformance__test_logging_tool", json!({}));
    let mut meta = RequestMetaObject::new();
    meta.set_log_level(LoggingLevel::Debug);
    wanted.meta = Some(meta);
    client.call_tool(wanted).await.unwrap();
    until_heard(&mut heard, "log \"somebody wants to know\"").await;
}

#[tokio::test]
async fn icons_and_metadata_of_a_tool_are_listed() {
    for era in ERAS {
        let (_server, _gateway, client, _heard) = start(era).await;
        let tools = client.list_all_tools().await.unwrap();
        let tool =
            tools.iter().find(|tool| tool.name == "conformance__test_custom_headers").unwrap();
        let tool = serde_json::to_value(tool).unwrap();
        assert_eq!(tool["icons"][0]["src"], "https://example.com/region.png", "{era:?}");
        assert_eq!(tool["_meta"]["example.com/kept"], true, "{era:?}");
    }
}

#[tokio::test]
async fn a_server_s_own_names_work_while_nobody_else_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let config = stdio("one", &[], dir.path(), "");
    let gateway = Setup::new().config(&config).start().await;
    until(&gateway, "one", "ready").await;
    let client = connect(&gateway, &gateway.operator, "", Era::Stateless, ()).await.unwrap();
    let echo = || client.call_tool(request("echo", json!({ "text": "a" })));
    assert_eq!(value(&echo().await.unwrap())["structuredContent"], json!({ "text": "a" }));
    let mut greet = GetPromptRequestParams::new("greet");
    greet.arguments = json!({ "who": "ant" }).as_object().cloned();
    client.get_prompt(greet.clone()).await.unwrap();
    let two = json!({ "name": "two", "command": [crate::upstream::server::SERVER] });
    assert_eq!(gateway.operator().post("/v1/upstream", &two).await.status, 201);
    until(&gateway, "two", "ready").await;
    let refused = value(&echo().await.unwrap());
    assert_eq!(refused["isError"], true, "{refused}");
    let said = refused["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("one__echo") && said.contains("two__echo"), "{said}");
    client.get_prompt(greet).await.unwrap_err();
    let _: Value = gateway.operator().call("one__echo", json!({ "text": "b" })).await.result();
}
