//! Clients that watch an upstream's documents and lists still receive changes after a kill and
//! restart of the server. This holds for old and new revisions on both sides, over stdio and HTTP.

#![expect(deprecated, reason = "what clients of the older revisions have")]

use std::path::Path;

use rmcp::model::{
    ResourceUpdatedNotificationParam, ServerNotification, SubscribeRequestParams,
    SubscriptionFilter,
};
use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};
use sa_testkit::mcp::{Client, ERAS, Era, connect, names};
use sa_testkit::upstream::{HttpServer, kill, noted, until};
use sa_testkit::{Gateway, Setup, eventually, soon};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::serve::Serve as _;
use crate::server::server_program;

const WATCHED: &str = "note://one";

/// A server behind a gateway, with the means to restart it.
struct Behind {
    gateway: Gateway,
    dir: TempDir,
    era: &'static str,
    http: Option<HttpServer>,
}

impl Behind {
    async fn start(way: &str, era: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let notes = json!(dir.path());
        let (http, config) = if way == "http" {
            let server = HttpServer::start_with(
                &server_program(),
                "127.0.0.1:0",
                era,
                &[("SERVER_DIR", dir.path())],
            )
            .await;
            let config = server.config("");
            (Some(server), config)
        } else {
            let env = format!("env = {{ SERVER_DIR = {notes}, SERVER_ERA = \"{era}\" }}");
            (None, format!("[upstream.web]\ncommand = {}\n{env}\n", json!([server_program()])))
        };
        let gateway =
            Setup::new().config("[sessions]\nenabled = false").config(&config).serve().await;
        until(&gateway, "web", "ready").await;
        Self { gateway, dir, era, http }
    }

    /// Restarts the server. Over stdio, the gateway restarts it by itself.
    async fn restart(&mut self) {
        let pid = noted(self.dir.path(), "pid").await;
        std::fs::remove_file(self.dir.path().join("pid")).unwrap();
        if let Some(server) = &mut self.http {
            server.kill().await;
            let more: [(&str, &Path); 1] = [("SERVER_DIR", self.dir.path())];
            *server =
                HttpServer::start_with(&server_program(), &server.address(), self.era, &more).await;
        } else {
            kill(&pid);
        }
        assert_ne!(noted(self.dir.path(), "pid").await, pid);
    }

    async fn touch(&self) {
        self.gateway.operator().call("web__change", json!({ "uri": WATCHED })).await.result();
    }

    /// Connects a client that collects notifications.
    async fn listen(&self, era: Era) -> (Client<Hears>, mpsc::UnboundedReceiver<String>) {
        let (hears, received) = mpsc::unbounded_channel();
        let client = connect(&self.gateway, &self.gateway.operator, "", era, Hears(hears.clone()))
            .await
            .unwrap();
        if era == Era::Sessions {
            client.subscribe(SubscribeRequestParams::new(WATCHED)).await.unwrap();
            return (client, received);
        }
        let mut filter = SubscriptionFilter::new();
        filter.resource_subscriptions = Some(vec![WATCHED.to_owned()]);
        (filter.tools_list_changed, filter.resources_list_changed) = (Some(true), Some(true));
        let mut changes = client.peer().listen(filter).await.unwrap();
        tokio::spawn(async move {
            while let Ok(Some(change)) = changes.next().await {
                let text = match change {
                    ServerNotification::ResourceUpdatedNotification(update) => {
                        format!("updated {}", update.params.uri)
                    }
                    ServerNotification::ToolListChangedNotification(_) => "tools".into(),
                    ServerNotification::ResourceListChangedNotification(_) => "resources".into(),
                    _ => continue,
                };
                let _ = hears.send(text);
            }
        });
        (client, received)
    }
}

#[derive(Clone)]
struct Hears(mpsc::UnboundedSender<String>);

impl ClientHandler for Hears {
    async fn on_resource_updated(
        &self,
        update: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let _ = self.0.send(format!("updated {}", update.uri));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        let _ = self.0.send("tools".into());
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        let _ = self.0.send("resources".into());
    }
}

async fn until_received(received: &mut mpsc::UnboundedReceiver<String>, what: &str) {
    while soon(received.recv()).await.expect("the client is there") != what {}
}

/// Changes the document until a notification arrives, because the gateway may have just begun to
/// listen.
async fn until_watched(behind: &Behind, received: &mut mpsc::UnboundedReceiver<String>) {
    eventually("the first change", || async {
        behind.touch().await;
        tokio::task::yield_now().await;
        (!received.is_empty()).then_some(())
    })
    .await;
    until_received(received, &format!("updated {WATCHED}")).await;
}

async fn check(way: &str, era: &'static str) {
    for client_era in ERAS {
        let mut behind = Behind::start(way, era).await;
        let (client, mut received) = behind.listen(client_era).await;
        until_watched(&behind, &mut received).await;
        std::fs::write(behind.dir.path().join("late"), "").unwrap();
        while received.try_recv().is_ok() {}
        // There are no calls, so the gateway itself must detect the new server process.
        behind.restart().await;
        let mut missing =
            vec![format!("updated {WATCHED}"), "tools".to_owned(), "resources".to_owned()];
        while !missing.is_empty() {
            let text = soon(received.recv())
                .await
                .unwrap_or_else(|| panic!("{way} {era} {client_era:?}: {missing:?}"));
            missing.retain(|what| *what != text);
        }
        eventually("what the new one has", || async {
            let tools = names(&client).await.contains(&"web__late".to_owned());
            let resources = client.list_all_resources().await.unwrap();
            (tools && resources.iter().any(|resource| resource.uri == "note://late")).then_some(())
        })
        .await;
        // Later changes arrive as well.
        while received.try_recv().is_ok() {}
        behind.touch().await;
        until_received(&mut received, &format!("updated {WATCHED}")).await;
    }
}

#[tokio::test]
async fn a_program_of_the_older_era() {
    check("stdio", "old").await;
}

#[tokio::test]
async fn a_program_of_the_newer_era() {
    check("stdio", "new").await;
}

#[tokio::test]
async fn a_url_of_the_older_era() {
    check("http", "old").await;
}

#[tokio::test]
async fn a_url_of_the_newer_era() {
    check("http", "new").await;
}
