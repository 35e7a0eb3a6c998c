//! An MCP server for tests, built with the official library. It runs over stdio, or over Streamable
//! HTTP on a free port.
//!
//! If `SERVER_DIR` is set, the server writes files there for the test: its process id, and the
//! cancelled requests. If the directory contains a file `late`, the server starts with additional
//! tools.

#![expect(deprecated, reason = "sampling has no future, but servers that use it")]

mod task_server;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::request::Parts;
use parking_lot::Mutex;
use rmcp::model::*;
use rmcp::service::{Peer, RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Value, json};
use tokio::sync::broadcast;

#[derive(Clone, Default)]
struct Server {
    /// Whether the tool `late` and the note `late` exist.
    late: Arc<AtomicBool>,
    /// The clients that subscribed to documents, for revisions up to 2025-11-25.
    subscribed: Arc<Mutex<Vec<Subscribed>>>,
    /// The same for revisions from 2026-07-28 on, where each client has a stream with all changes.
    changes: Changes,
}

static LARGE: OnceLock<Value> = OnceLock::new();

type Subscribed = (String, Peer<RoleServer>);

/// The changed document, or `None` for the list of tools.
#[derive(Clone)]
struct Changes(broadcast::Sender<Option<String>>);

impl Default for Changes {
    fn default() -> Self {
        Self(broadcast::Sender::new(16))
    }
}

fn note(name: &str, text: &str) {
    if let Some(dir) = std::env::var_os("SERVER_DIR") {
        let draft = PathBuf::from(&dir).join(format!("{name}.draft"));
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(draft, PathBuf::from(dir).join(name)).unwrap();
    }
}

fn tool(value: Value) -> Tool {
    serde_json::from_value(value).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "it is what a tool returns")]
fn result(value: Value) -> Result<CallToolResponse, ErrorData> {
    Ok(CallToolResponse::Complete(serde_json::from_value(value).unwrap()))
}

fn text(text: impl ToString) -> Result<CallToolResponse, ErrorData> {
    result(json!({ "content": [{ "type": "text", "text": text.to_string() }] }))
}

impl Server {
    fn start() -> Self {
        let server = Self::default();
        let late = std::env::var_os("SERVER_DIR")
            .is_some_and(|dir| PathBuf::from(dir).join("late").exists());
        server.late.store(late, Ordering::SeqCst);
        server
    }

    async fn touch(&self, uri: &str) {
        let _ = self.changes.0.send(Some(uri.to_owned()));
        let subscribed = self.subscribed.lock().clone();
        for (_, peer) in subscribed.iter().filter(|(wanted, _)| wanted == uri) {
            let _ = peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await;
        }
    }

    fn form() -> Value {
        json!({ "mode": "form", "message": "your name?", "requestedSchema":
            { "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] } })
    }

    /// Asks in the way of the newer protocol: with a result that requires an answer.
    fn ask_again(request: &CallToolRequestParams) -> Result<CallToolResponse, ErrorData> {
        if let Some(answers) = &request.input_responses {
            assert_eq!(request.request_state.as_deref(), Some("half-way"));
            return text(&answers["who"]["content"]["name"]);
        }
        let question = json!({ "who": { "method": "elicitation/create", "params": Self::form() } });
        let required = InputRequiredResult::new(
            serde_json::from_value(question).unwrap(),
            Some("half-way".into()),
        );
        Ok(CallToolResponse::InputRequired(required))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_prompts()
            .enable_completions()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("test-server", "1"))
    }

    fn supported_protocol_versions(&self) -> std::borrow::Cow<'static, [ProtocolVersion]> {
        match std::env::var("SERVER_ERA").as_deref() {
            Ok("old") => vec![ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25].into(),
            _ => ProtocolVersion::KNOWN_VERSIONS.into(),
        }
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let any = json!({ "type": "object" });
        if std::env::var_os("SERVER_ENDLESS").is_some() {
            let page = request.and_then(|request| request.cursor?.parse().ok()).unwrap_or(0_usize);
            let name = format!("page-{page}");
            let fat = tool(
                json!({ "name": name, "description": "x".repeat(1 << 20), "inputSchema": any }),
            );
            let next_cursor = Some((page + 1).to_string());
            return Ok(ListToolsResult {
                tools: vec![fat],
                next_cursor,
                ..ListToolsResult::default()
            });
        }
        let mut tools = vec![tool(json!({
            "name": "echo", "title": "Echo", "description": "Says it back.",
            "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] },
            "outputSchema": { "type": "object", "properties": { "text": { "type": "string" } } },
            "annotations": { "readOnlyHint": true },
        }))];
        for name in [
            "media",
            "fail",
            "wait",
            "progress",
            "die",
            "leave_child",
            "change",
            "ask",
            "sample",
            "headers",
        ] {
            tools.push(tool(json!({ "name": name, "description": name, "inputSchema": any })));
        }
        if self.late.load(Ordering::SeqCst) {
            tools.push(tool(json!({ "name": "late", "inputSchema": any })));
        }
        if std::env::var_os("SERVER_UI").is_some() {
            let ui = json!({ "resourceUri": "ui://page", "visibility": ["app"] });
            tools.push(tool(
                json!({ "name": "turn_page", "inputSchema": any, "_meta": { "ui": ui } }),
            ));
        }
        // The list is already outdated when the client receives it.
        if std::env::var_os("SERVER_LATE_CHANGE").is_some()
            && !self.late.swap(true, Ordering::SeqCst)
        {
            let _ = context.peer.notify_tool_list_changed().await;
        }
        Ok(ListToolsResult { tools, ..ListToolsResult::default() })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let args = Value::Object(request.arguments.clone().unwrap_or_default());
        match &*request.name {
            "echo" => result(
                json!({ "content": [{ "type": "text", "text": args["text"] }], "structuredContent": args }),
            ),
            "late" => text("here"),
            "media" if args["items"].is_u64() => {
                let item = |number| json!({ "number": number, "words": ["some", "more", "text"] });
                let items = || (0..args["items"].as_u64().unwrap()).map(item).collect::<Vec<_>>();
                // Built once, because the caller wants to put load on the gateway, not on this
                // server.
                let large = LARGE.get_or_init(
                    || json!({ "content": [], "structuredContent": { "items": items() } }),
                );
                result(large.clone())
            }
            "media" => result(media()),
            "fail" => result(json!({ "isError": true, "content": [
                { "type": "text", "text": "no such thing" }, { "type": "image", "data": "AA==", "mimeType": "image/png" }] })),
            "wait" => {
                note("waiting", "");
                context.ct.cancelled().await;
                note("cancelled", "");
                text("cancelled")
            }
            "progress" => {
                for step in 1..=3_u32 {
                    let token = context.meta.get_progress_token().unwrap();
                    let mut report = ProgressNotificationParam::new(token, f64::from(step));
                    (report.total, report.message) = (Some(3.0), Some(format!("step {step}")));
                    context.peer.notify_progress(report).await.unwrap();
                }
                text("done")
            }
            "die" => std::process::abort(),
            "leave_child" => {
                #[expect(clippy::zombie_processes, reason = "it is to be left behind")]
                let child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
                text(child.id())
            }
            "change" if args["uri"].is_string() => {
                self.touch(args["uri"].as_str().unwrap()).await;
                text("touched")
            }
            "change" => {
                self.late.fetch_not(Ordering::SeqCst);
                let _ = self.changes.0.send(None);
                let _ = context.peer.notify_tool_list_changed().await;
                text("changed")
            }
            "ask"
                if context.protocol_version().is_some_and(|version| !version.has_initialize()) =>
            {
                Self::ask_again(&request)
            }
            "ask" => {
                let question = ElicitRequest::new(serde_json::from_value(Self::form()).unwrap());
                let answer =
                    context.peer.send_request(ServerRequest::ElicitRequest(question)).await;
                let answer =
                    answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                text(&serde_json::to_value(answer).unwrap()["content"]["name"])
            }
            "sample" => {
                let message = json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "hi" } }],
                    "maxTokens": 5 });
                let answer =
                    context.peer.create_message(serde_json::from_value(message).unwrap()).await;
                let answer =
                    answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                text(answer.model)
            }
            "headers" => {
                let parts =
                    context.extensions.get::<Parts>().map(|parts| format!("{:?}", parts.headers));
                text(
                    parts.unwrap_or_default()
                        + &format!("{:?} {:?}", context.meta, std::env::vars().collect::<Vec<_>>()),
                )
            }
            other => Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
        }
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let wanted = subscription.accepted().resource_subscriptions.clone().unwrap_or_default();
        let mut changes = self.changes.0.subscribe();
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                () = subscription.cancelled() => return Ok(()),
            };
            let _ = match change {
                Ok(None) => subscription.sink().notify_tool_list_changed().await,
                Ok(Some(uri)) if wanted.contains(&uri) => {
                    subscription.sink().notify_resource_updated(&uri).await
                }
                _ => Ok(()),
            };
        }
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscribed.lock().push((request.uri, context.peer));
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscribed.lock().retain(|(uri, _)| *uri != request.uri);
        Ok(())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut resources =
            json!([{ "uri": "note://one", "name": "one", "mimeType": "text/plain" }]);
        let mut more =
            |uri: &str| resources.as_array_mut().unwrap().push(json!({ "uri": uri, "name": uri }));
        if self.late.load(Ordering::SeqCst) {
            more("note://late");
        }
        // Announces its page only to clients that can show it.
        let shows = context.client_capabilities().and_then(|can| can.extensions);
        let shows = shows
            .and_then(|shows| shows.get("io.modelcontextprotocol/ui").cloned())
            .unwrap_or_default();
        let kinds = shows.get("mimeTypes").and_then(Value::as_array).cloned().unwrap_or_default();
        if std::env::var_os("SERVER_UI").is_some()
            && kinds.contains(&json!("text/html;profile=mcp-app"))
        {
            more("ui://page");
        }
        Ok(ListResourcesResult {
            resources: serde_json::from_value(resources).unwrap(),
            ..Default::default()
        })
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = json!([{ "uriTemplate": "note://by-name/{name}", "name": "by name" }]);
        Ok(ListResourceTemplatesResult {
            resource_templates: serde_json::from_value(templates).unwrap(),
            ..Default::default()
        })
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri == "note://never" {
            context.ct.cancelled().await;
            note("cancelled", "");
        }
        if !request.uri.starts_with("note://") {
            return Err(ErrorData::resource_not_found("no such note", None));
        }
        let contents = json!({ "contents": [{ "uri": request.uri, "mimeType": "text/plain", "text": "a note" }] });
        Ok(ReadResourceResponse::Complete(serde_json::from_value(contents).unwrap()))
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = json!([{ "name": "greet", "description": "Greets.", "arguments": [{ "name": "who", "required": true }] }]);
        Ok(ListPromptsResult {
            prompts: serde_json::from_value(prompts).unwrap(),
            ..Default::default()
        })
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let who = request.arguments.unwrap_or_default()["who"].clone();
        let prompt = json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": format!("greet {who}") } }] });
        Ok(GetPromptResponse::Complete(serde_json::from_value(prompt).unwrap()))
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let values =
            json!({ "completion": { "values": [format!("{}ice", request.argument.value)] } });
        Ok(serde_json::from_value(values).unwrap())
    }
}

fn media() -> Value {
    json!({
        "content": [
            { "type": "text", "text": "look", "annotations": { "audience": ["user"], "priority": 0.5 } },
            { "type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png" },
            { "type": "audio", "data": "UklGRg==", "mimeType": "audio/wav" },
            { "type": "resource_link", "uri": "note://one", "name": "one" },
            { "type": "resource", "resource": { "uri": "note://two", "mimeType": "text/plain", "text": "two" } },
        ],
        "structuredContent": { "n": [1, 2.5, "three"] },
        "_meta": { "kept": true },
    })
}

#[tokio::main]
async fn main() {
    note("pid", &std::process::id().to_string());
    eprintln!("the test server \u{1b}[31mspeaks\u{1b}[0m");
    match std::env::args().nth(1).as_deref() {
        Some("hang") => std::future::pending().await,
        Some("fail") => std::process::exit(3),
        Some("http") => http().await,
        Some("tasks") => task_server::run(note),
        _ => {
            let service =
                Server::start().serve((tokio::io::stdin(), tokio::io::stdout())).await.unwrap();
            let _ = service.waiting().await;
        }
    }
}

/// Serves HTTP and prints its address on stdout. `POST /forget` drops all sessions.
async fn http() {
    let server = Server::start();
    let sessions = Arc::new(LocalSessionManager::default());
    let config =
        StreamableHttpServerConfig::default().with_sse_keep_alive(Some(Duration::from_secs(1)));
    let service =
        StreamableHttpService::new(move || Ok(server.clone()), Arc::clone(&sessions), config);
    let forget = axum::routing::post(async move || {
        sessions.sessions.write().await.drain().count().to_string()
    });
    let app = axum::Router::new().nest_service("/mcp", service).route("/forget", forget);
    let listener =
        tokio::net::TcpListener::bind(std::env::args().nth(2).as_deref().unwrap_or("127.0.0.1:0"))
            .await
            .unwrap();
    println!("http://{}", listener.local_addr().unwrap());
    axum::serve(listener, app).await.unwrap();
}
