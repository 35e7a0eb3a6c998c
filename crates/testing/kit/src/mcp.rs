//! MCP clients of old and new revisions, and a provider with closures as tools.

#![expect(deprecated, reason = "what clients of the older revisions have")]

mod ask;
pub mod raw;
pub mod tasks;

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use rmcp::model::*;
use rmcp::service::{RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt as _, ErrorData, RoleClient};
use sa_core::directory::{Attach, Registration};
use sa_core::{
    Call, Catalog, Grant, Outcome, Provider, ProviderId, RawJson, Router, Scope, Tool, Updates,
};
use serde_json::{Value, json};

use crate::Server;

pub use self::ask::Ask;

/// A connected client.
pub type Client<H> = RunningService<RoleClient, H>;

/// The revisions with sessions, and those without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    Sessions,
    Stateless,
}

pub const ERAS: [Era; 2] = [Era::Sessions, Era::Stateless];

/// Connects with `?query`, which may be empty.
pub async fn connect<H: ClientHandler>(
    gateway: &Server,
    token: &str,
    query: &str,
    era: Era,
    handler: H,
) -> Result<Client<H>, String> {
    let mut config =
        StreamableHttpClientTransportConfig::with_uri(format!("{}/mcp{query}", gateway.url));
    config.auth_header = Some(token.to_owned());
    let lifecycle = match era {
        Era::Sessions => ClientLifecycleMode::Initialize,
        Era::Stateless => ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
    };
    let transport = StreamableHttpClientTransport::from_config(config);
    handler.serve_with_lifecycle(transport, lifecycle).await.map_err(|error| error.to_string())
}

pub fn request(tool: impl Into<Cow<'static, str>>, args: Value) -> CallToolRequestParams {
    let mut request = CallToolRequestParams::new(tool);
    request.arguments = args.as_object().cloned();
    request
}

pub fn value(result: &CallToolResult) -> Value {
    serde_json::to_value(result).unwrap()
}

pub async fn names<H: ClientHandler>(client: &Client<H>) -> Vec<String> {
    client.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name.into_owned()).collect()
}

type Work = dyn Fn(Arc<Call>, Updates) -> BoxFuture<'static, Outcome> + Send + Sync;

/// A provider inside the gateway, for behaviour that no node can have.
struct Inside(Box<Work>);

impl Provider for Inside {
    fn call(&self, call: Arc<Call>, updates: Updates) -> BoxFuture<'static, Outcome> {
        (self.0)(call, updates)
    }
}

/// Attaches tools to a router until the registration is dropped.
pub fn attach(
    router: &Router,
    id: &str,
    scope: Scope,
    tools: Vec<Tool>,
    work: impl Fn(Arc<Call>, Updates) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
) -> Registration {
    let attach = Attach { scope, ..provider(id, tools, Box::new(work)) };
    router.directory().attach(attach).unwrap()
}

fn provider(id: &str, tools: Vec<Tool>, work: Box<Work>) -> Attach {
    Attach {
        id: ProviderId::new("test", id),
        scope: Scope::Everyone,
        grant: Grant::installed(id),
        provider: Arc::new(Inside(work)),
        catalog: Catalog { tools, ..Catalog::default() },
        max_running: 100,
        about: RawJson::empty_object(),
        may_take_over: false,
    }
}

/// A client that answers every kind of question.
#[derive(Debug, Clone, Copy)]
pub struct Knows;

impl ClientHandler for Knows {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder()
            .enable_roots()
            .enable_sampling()
            .enable_elicitation()
            .build();
        ClientConfig::new(capabilities, Implementation::new("knows", "0"))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "name": "Ada" })))
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Ok(CreateMessageResult::new(SamplingMessage::assistant_text("Hello"), "small".into()))
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new("file:///here")]))
    }
}
