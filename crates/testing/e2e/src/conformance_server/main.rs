//! The server that the official conformance suite requires, built with the official Rust library.
//! It serves Streamable HTTP on a free port and prints its address on stdout.
//!
//! Like the library's own conformance server, it asks its client for input in two ways. With older
//! revisions it sends a request during the call, and with newer ones it asks in its answer. It does
//! not convert between the two. It answers `initialize` with the requested revision.

#![expect(
    deprecated,
    reason = "sampling, roots, logging and subscriptions are what some of the suite is about"
)]

mod ask;
mod echo;
mod fixtures;

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};

/// How often each list has changed, or has been announced as changed. The list of tools is always
/// the same.
#[derive(Clone, Default)]
struct Changes {
    tools: u64,
    prompts: u64,
    resource: (u64, String),
}

/// A client of an older revision, and the resource that it watches.
type Watcher = (Peer<RoleServer>, String);

#[derive(Clone)]
struct Server {
    changes: Arc<watch::Sender<Changes>>,
    watchers: Arc<Mutex<Vec<Watcher>>>,
}

fn made<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn content(blocks: Value) -> Result<CallToolResponse, ErrorData> {
    Ok(CallToolResponse::Complete(made(json!({ "resultType": "complete", "content": blocks }))?))
}

fn text(text: &str) -> Result<CallToolResponse, ErrorData> {
    content(json!([{ "type": "text", "text": text }]))
}

impl Server {
    async fn change(&self, peer: &Peer<RoleServer>, change: impl FnOnce(&mut Changes)) {
        let before = self.changes.borrow().clone();
        self.changes.send_modify(change);
        let now = self.changes.borrow().clone();
        if now.tools != before.tools {
            let _ = peer.notify_tool_list_changed().await;
        }
        if now.prompts != before.prompts {
            let _ = peer.notify_prompt_list_changed().await;
        }
        if now.resource != before.resource {
            for (peer, _) in
                self.watchers.lock().await.iter().filter(|(_, uri)| *uri == now.resource.1)
            {
                let _ = peer
                    .notify_resource_updated(ResourceUpdatedNotificationParam::new(
                        &*now.resource.1,
                    ))
                    .await;
            }
        }
    }

    async fn log(context: &RequestContext<RoleServer>, words: &str) {
        let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(words))
            .with_logger("conformance");
        let _ = context.peer.notify_logging_message(message).await;
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_completions()
            .enable_logging()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("conformance-server", "1"))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        made(json!({ "tools": fixtures::tools() }))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tools: Vec<Tool> = serde_json::from_value(fixtures::tools()).ok()?;
        tools.into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let args = Value::Object(request.arguments.clone().unwrap_or_default());
        match &*request.name {
            "test_simple_text" => text("This is a simple text response for testing."),
            "test_image_content" => content(json!([fixtures::image()])),
            "test_audio_content" => content(
                json!([{ "type": "audio", "data": fixtures::SILENCE, "mimeType": "audio/wav" }]),
            ),
            "test_embedded_resource" => {
                content(json!([fixtures::embedded("test://embedded-resource")]))
            }
            "test_multiple_content_types" => content(json!([
                { "type": "text", "text": "Multiple content types test:" },
                fixtures::image(),
                fixtures::embedded("test://mixed-content-resource"),
            ])),
            tool @ ("test_error_handling" | "failing_job") => {
                if tool == "failing_job" {
                    tokio::time::sleep(fixtures::LONG).await;
                }
                Ok(CallToolResponse::Complete(made(json!({
                    "resultType": "complete",
                    "content": [{ "type": "text", "text": "This tool intentionally returns an error for testing" }],
                    "isError": true,
                }))?))
            }
            "test_tool_with_logging" => {
                for words in
                    ["Tool execution started", "Tool processing data", "Tool execution completed"]
                {
                    Self::log(&context, words).await;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                text("logged")
            }
            "test_logging_tool" => {
                if context.meta.log_level().is_some() {
                    Self::log(&context, "somebody wants to know").await;
                }
                text("logged for those who want to know")
            }
            "test_tool_with_progress" => {
                let Some(token) = context.meta.get_progress_token() else {
                    return text("nobody wants to know");
                };
                for progress in [0.0, 50.0, 100.0] {
                    let report =
                        ProgressNotificationParam::new(token.clone(), progress).with_total(100.0);
                    let _ = context.peer.notify_progress(report).await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                text("done")
            }
            "test_trigger_tool_change" => {
                self.change(&context.peer, |changes| changes.tools += 1).await;
                text("changed")
            }
            "test_trigger_prompt_change" => {
                self.change(&context.peer, |changes| changes.prompts += 1).await;
                text("changed")
            }
            "test_touch_resource" => {
                let uri = args["uri"].as_str().unwrap_or_default().to_owned();
                self.change(&context.peer, |changes| {
                    changes.resource = (changes.resource.0 + 1, uri);
                })
                .await;
                text("touched")
            }
            "greet" => text(&format!("Hello, {}!", args["name"].as_str().unwrap_or_default())),
            "slow_compute" => {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs_f64(args["seconds"].as_f64().unwrap_or(1.0))) => text("42"),
                    () = context.ct.cancelled() => text("cancelled"),
                }
            }
            "protocol_error_job" => {
                tokio::time::sleep(fixtures::LONG).await;
                Err(ErrorData::internal_error("it broke", None))
            }
            "test_custom_headers" | "json_schema_2020_12_tool" | "test_reconnection" => {
                text("fine")
            }
            "test_missing_capability" if !ask::can(&context, "sampling") => {
                Err(ErrorData::missing_required_client_capability(made(json!({ "sampling": {} }))?))
            }
            other => ask::call(other, &args, &request, &context).await,
        }
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        made(json!({ "resources": fixtures::resources() }))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        made(
            json!({ "resourceTemplates": [{ "uriTemplate": "test://template/{id}/data", "name": "template",
            "description": "By id.", "mimeType": "application/json" }] }),
        )
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents = fixtures::read(&request.uri).ok_or_else(|| {
            ErrorData::resource_not_found("Resource not found", Some(json!({ "uri": request.uri })))
        })?;
        Ok(ReadResourceResponse::Complete(made(json!({ "contents": [contents] }))?))
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.watchers.lock().await.push((context.peer, request.uri));
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.watchers.lock().await.retain(|(_, uri)| *uri != request.uri);
        Ok(())
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        made(json!({ "prompts": fixtures::prompts(self.changes.borrow().prompts % 2 == 1) }))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name == "test_input_required_result_prompt" {
            return ask::prompt(&request);
        }
        let args = Value::Object(request.arguments.unwrap_or_default());
        let messages = fixtures::messages(&request.name, &args);
        let messages = messages.ok_or_else(|| ErrorData::invalid_params("no such prompt", None))?;
        Ok(GetPromptResponse::Complete(made(json!({ "messages": messages }))?))
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        made(
            json!({ "completion": { "values": [format!("{}ing", request.argument.value)], "hasMore": false } }),
        )
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = requested.clone();
        accepted.resources_list_changed = None;
        Some(accepted)
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let (wants, sink) = (subscription.accepted(), subscription.sink());
        let mut changes = self.changes.subscribe();
        let mut seen = changes.borrow_and_update().clone();
        loop {
            tokio::select! {
                Ok(()) = changes.changed() => {}
                () = subscription.cancelled() => return Ok(()),
            }
            let now = changes.borrow_and_update().clone();
            if now.tools != seen.tools && wants.tools_list_changed == Some(true) {
                let _ = sink.notify_tool_list_changed().await;
            }
            if now.prompts != seen.prompts && wants.prompts_list_changed == Some(true) {
                let _ = sink.notify_prompt_list_changed().await;
            }
            let watched = wants
                .resource_subscriptions
                .as_ref()
                .is_some_and(|uris| uris.contains(&now.resource.1));
            if now.resource != seen.resource && watched {
                let _ = sink.notify_resource_updated(&*now.resource.1).await;
            }
            seen = now;
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = Server {
        changes: Arc::new(watch::Sender::new(Changes::default())),
        watchers: Arc::default(),
    };
    let config =
        StreamableHttpServerConfig::default().with_sse_keep_alive(Some(Duration::from_secs(5)));
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    let repeats = axum::middleware::from_fn(echo::repeat_revision);
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service).layer(repeats)).await?;
    Ok(())
}
