//! MCP clients of old and new revisions, and a provider with closures as tools.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use rmcp::model::{CallToolRequestParams, CallToolResult, ProtocolVersion};
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt as _, RoleClient};
use sa_core::directory::{Attach, Registration};
use sa_core::{Call, Catalog, Grant, Outcome, Provider, ProviderId, RawJson, Scope, Tool, Updates};
use sa_testkit::Gateway;
use serde_json::Value;

pub(crate) type Client<H> = RunningService<RoleClient, H>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Sessions,
    Stateless,
}

pub(crate) const ERAS: [Era; 2] = [Era::Sessions, Era::Stateless];

/// Connects with `?query`, which may be empty.
pub(crate) async fn connect<H: ClientHandler>(
    gateway: &Gateway,
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

pub(crate) fn request(tool: impl Into<Cow<'static, str>>, args: Value) -> CallToolRequestParams {
    let mut request = CallToolRequestParams::new(tool);
    request.arguments = args.as_object().cloned();
    request
}

pub(crate) fn value(result: &CallToolResult) -> Value {
    serde_json::to_value(result).unwrap()
}

pub(crate) async fn names<H: ClientHandler>(client: &Client<H>) -> Vec<String> {
    client.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name.into_owned()).collect()
}

type Work = dyn Fn(Arc<Call>, Updates) -> BoxFuture<'static, Outcome> + Send + Sync;

/// A provider inside the gateway, for behaviour that no node can have.
pub(crate) struct Inside(Box<Work>);

impl Provider for Inside {
    fn call(&self, call: Arc<Call>, updates: Updates) -> BoxFuture<'static, Outcome> {
        (self.0)(call, updates)
    }
}

/// Attaches tools to a gateway in this process until the registration is dropped.
pub(crate) fn attach(
    gateway: &Gateway,
    id: &str,
    scope: Scope,
    tools: Vec<Tool>,
    work: impl Fn(Arc<Call>, Updates) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
) -> Registration {
    let attach = Attach { scope, ..provider(id, tools, Box::new(work)) };
    gateway.inner().router.directory().attach(attach).unwrap()
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
