//! While an upstream server is offline, its resources and prompts stay listed like its tools, and
//! are marked. A request for one fails at once and reports since when the server is offline.

#![expect(deprecated, reason = "what clients of the older revisions have")]

use rmcp::model::{
    GetPromptRequestParams, ReadResourceRequestParams, ResourceUpdatedNotificationParam,
    SubscribeRequestParams,
};
use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};
use sa_testkit::mcp::{Client, ERAS, Era, connect, request, value};
use sa_testkit::upstream::{HttpServer, until, upstream};
use sa_testkit::{Gateway, Setup, eventually, soon};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::serve::Serve as _;
use crate::server::{server_program, stdio};

/// The key that is `false` when the item's server is offline.
const ONLINE: &str = "switchboard/online";

fn json(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

/// Returns all items of the server `web`, with their metadata.
async fn listed<H: ClientHandler>(client: &Client<H>) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (items, key) in [
        (json(client.list_all_resources().await.unwrap()), "uri"),
        (json(client.list_all_resource_templates().await.unwrap()), "uriTemplate"),
        (json(client.list_all_prompts().await.unwrap()), "name"),
        (json(client.list_all_tools().await.unwrap()), "name"),
    ] {
        for item in items.as_array().unwrap() {
            all.push((item[key].as_str().unwrap().to_owned(), item["_meta"][ONLINE].clone()));
        }
    }
    all
}

async fn offline(gateway: &Gateway) {
    eventually("web to be away", || async {
        (upstream(gateway, "web").await["state"] != "ready").then_some(())
    })
    .await;
}

fn greet() -> GetPromptRequestParams {
    let mut greet = GetPromptRequestParams::new("web__greet");
    greet.arguments = json!({ "who": "ant" }).as_object().cloned();
    greet
}

#[tokio::test]
async fn what_it_listed_stays_and_says_since_when_it_is_away() {
    let mut server = HttpServer::start(&server_program(), "127.0.0.1:0", "old").await;
    let config = format!(
        "[sessions]\nenabled = false\n[limits]\nreconnect_wait_ms = 0\n{}",
        server.config("")
    );
    let gateway = Setup::new().config(&config).serve().await;
    until(&gateway, "web", "ready").await;
    let mut clients = Vec::new();
    for era in ERAS {
        clients.push(connect(&gateway, &gateway.operator, "", era, ()).await.unwrap());
    }
    let before = listed(&clients[0]).await;
    assert!(before.iter().all(|(_, online)| online.is_null()), "{before:?}");
    server.kill().await;
    offline(&gateway).await;
    for client in &clients {
        let away: Vec<_> = before.iter().map(|(name, _)| (name.clone(), json!(false))).collect();
        assert_eq!(listed(client).await, away);
        let read = ReadResourceRequestParams::new("note://one");
        for error in [
            client.read_resource(read).await.unwrap_err(),
            client.get_prompt(greet()).await.unwrap_err(),
        ] {
            let error = error.to_string();
            assert!(error.contains("\"web\" disconnected") && error.contains(" s ago"), "{error}");
        }
        let call =
            value(&client.call_tool(request("web__echo", json!({ "text": "a" }))).await.unwrap());
        assert!(call["content"][0]["text"].as_str().unwrap().contains("disconnected"), "{call}");
    }
    let _again = HttpServer::start(&server_program(), &server.address(), "old").await;
    until(&gateway, "web", "ready").await;
    for client in &clients {
        assert_eq!(listed(client).await, before);
        client.read_resource(ReadResourceRequestParams::new("note://one")).await.unwrap();
        client.get_prompt(greet()).await.unwrap();
    }
}

#[tokio::test]
async fn one_that_is_away_stands_in_nobody_s_way() {
    let mut server = HttpServer::start(&server_program(), "127.0.0.1:0", "new").await;
    let dir = tempfile::tempdir().unwrap();
    let config = format!("{}{}", server.config(""), stdio("zoo", &[], dir.path(), ""));
    let gateway = Setup::new().config(&config).serve().await;
    until(&gateway, "web", "ready").await;
    until(&gateway, "zoo", "ready").await;
    let client = connect(&gateway, &gateway.operator, "", Era::Stateless, ()).await.unwrap();
    server.kill().await;
    offline(&gateway).await;
    // By their templates, both servers could have it.
    let read =
        client.read_resource(ReadResourceRequestParams::new("note://by-name/x")).await.unwrap();
    assert_eq!(json(read)["contents"][0]["text"], "a note");
    let unknown = client
        .read_resource(ReadResourceRequestParams::new("other://x"))
        .await
        .unwrap_err()
        .to_string();
    assert!(!unknown.contains("disconnected"), "{unknown}");
}

#[derive(Clone)]
struct Hears(mpsc::UnboundedSender<String>);

impl ClientHandler for Hears {
    async fn on_resource_updated(
        &self,
        update: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let _ = self.0.send(update.uri);
    }
}

#[tokio::test]
async fn what_is_subscribed_to_meanwhile_is_watched_from_its_return() {
    let mut server = HttpServer::start(&server_program(), "127.0.0.1:0", "old").await;
    let gateway = Setup::new().config(&server.config("")).serve().await;
    until(&gateway, "web", "ready").await;
    server.kill().await;
    offline(&gateway).await;
    let (hears, mut received) = mpsc::unbounded_channel();
    let client =
        connect(&gateway, &gateway.operator, "", Era::Sessions, Hears(hears)).await.unwrap();
    client.subscribe(SubscribeRequestParams::new("note://one")).await.unwrap();
    client.subscribe(SubscribeRequestParams::new("note://never-listed")).await.unwrap_err();
    let _again = HttpServer::start(&server_program(), &server.address(), "old").await;
    assert_eq!(soon(received.recv()).await.unwrap(), "note://one");
    gateway.operator().call("web__change", json!({ "uri": "note://one" })).await.result();
    assert_eq!(soon(received.recv()).await.unwrap(), "note://one");
}
