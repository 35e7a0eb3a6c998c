//! Real nodes, built with the SDK.

use std::sync::Arc;
use std::time::Duration;

use sa_node_sdk::{
    NodeClient, NodeClientBuilder, NodeSdkError, NodeTool, ReconnectBackoff, ToolContext,
    ToolError, ToolRegistry, ToolResult,
};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Server, eventually, soon};

/// A node that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct SdkNode {
    handle: JoinHandle<Result<(), NodeSdkError>>,
    shutdown: CancellationToken,
}

impl SdkNode {
    /// Starts a node with this id and the tool `ID.echo`, which returns its arguments. The node is
    /// connected when this function returns.
    pub async fn echo(gateway: &Server, id: &str) -> Self {
        let registry = registry(&format!("{id}.echo"), |_, args| async { Ok(args) });
        Self::start(gateway, id, registry, |builder| builder).await
    }

    /// Starts a node with these tools. The node is connected when this function returns.
    pub async fn start(
        gateway: &Server,
        id: &str,
        registry: ToolRegistry,
        more: impl FnOnce(NodeClientBuilder) -> NodeClientBuilder,
    ) -> Self {
        let builder = NodeClient::builder()
            .gateway_ws_url(gateway.nodes_url())
            .node_id(id)
            .reconnect_backoff(ReconnectBackoff {
                initial_delay: Duration::from_millis(5),
                max_delay: Duration::from_millis(50),
                ..ReconnectBackoff::default()
            });
        let shutdown = CancellationToken::new();
        let handle = more(builder).build().unwrap().spawn(registry, shutdown.clone());
        let operator = gateway.operator();
        eventually("the node online", || async {
            let nodes = operator.get("/v1/nodes").await.body;
            let mut nodes = nodes["nodes"].as_array()?.iter();
            nodes.any(|node| node["id"] == id && node["online"] == true).then_some(())
        })
        .await;
        Self { handle, shutdown }
    }

    pub async fn stop(mut self) {
        self.shutdown.cancel();
        let _ = soon(&mut self.handle).await;
    }
}

impl Drop for SdkNode {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.handle.abort();
    }
}

/// A tool made from a closure.
#[derive(Debug)]
pub struct Tool<F>(pub F);

#[async_trait::async_trait]
impl<F, R> NodeTool for Tool<F>
where
    F: Fn(ToolContext, Value) -> R + Send + Sync + 'static,
    R: Future<Output = ToolResult> + Send + 'static,
{
    async fn call(&self, ctx: ToolContext, args: Value) -> ToolResult {
        (self.0)(ctx, args).await
    }
}

/// Returns a registry with one tool.
pub fn registry<F, R>(name: &str, tool: F) -> ToolRegistry
where
    F: Fn(ToolContext, Value) -> R + Send + Sync + 'static,
    R: Future<Output = ToolResult> + Send + 'static,
{
    let mut registry = ToolRegistry::new();
    registry.register(name, Tool(tool)).derive_capabilities_from_tools();
    registry
}

/// A tool that waits until the test releases it, and reports when it starts and when it is
/// cancelled.
#[derive(Debug)]
pub struct Gate {
    pub started: mpsc::UnboundedReceiver<String>,
    pub cancelled: mpsc::UnboundedReceiver<String>,
    pub go: Arc<Semaphore>,
}

pub fn gate(name: &str) -> (ToolRegistry, Gate) {
    let go = Arc::new(Semaphore::new(0));
    let (say_started, started) = mpsc::unbounded_channel();
    let (say_cancelled, cancelled) = mpsc::unbounded_channel();
    let tool_go = Arc::clone(&go);
    let registry = registry(name, move |ctx: ToolContext, _| {
        let (go, started, cancelled) =
            (Arc::clone(&tool_go), say_started.clone(), say_cancelled.clone());
        async move {
            let _ = started.send(ctx.request_id.clone());
            tokio::select! {
                permit = go.acquire() => {
                    permit.unwrap().forget();
                    Ok(json!("let go"))
                }
                () = ctx.cancel.cancelled() => {
                    let _ = cancelled.send(ctx.request_id.clone());
                    Err(ToolError::Cancelled("stopped".into()))
                }
            }
        }
    });
    (registry, Gate { started, cancelled, go })
}
