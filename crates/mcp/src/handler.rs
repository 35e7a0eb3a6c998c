//! MCP requests become calls.

use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, GetPromptRequestParams,
    GetPromptResponse, Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use sa_core::call::{CallRequest, TraceContext};
use sa_core::directory::ToolView;
use sa_core::{Overrun, Principal, RawJson, Router, Update, UpdateSink, View};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::convert;
use crate::passthrough::Passthrough;

/// Tools on one page of a list.
const PAGE: usize = 200;
/// Progress reports that may wait for a client. Those beyond are left out: only the latest matters.
const QUEUE: usize = 64;
/// How long an outcome waits for the reports before it to be sent.
const FLUSH: Duration = Duration::from_millis(250);

#[derive(Debug, Clone)]
pub struct McpHandler {
    router: Arc<Router>,
    version: &'static str,
}

impl McpHandler {
    pub fn new(router: Arc<Router>, version: &'static str) -> Self {
        Self { router, version }
    }
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().enable_completions().build())
            .with_server_info(Implementation::new("switchboard", self.version))
            .with_instructions(
                "Tools of many providers behind one gateway. Their names say which provider they belong to.",
            )
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let view = view(&context)?;
        let policy = self.router.policy();
        let allowed = |tool: &ToolView| policy.authorise(&view.principal, &[&tool.name, &tool.tool.name]).is_ok();
        let cursor = request.and_then(|request| request.cursor);
        let page = self.router.directory().list(&view, cursor.as_deref(), PAGE, allowed);
        let tools = page.tools.iter().map(convert::tool).collect();
        Ok(ListToolsResult { tools, next_cursor: page.next, ..ListToolsResult::default() })
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Passthrough::new(&self.router, view(&context)?).resources(request).await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Passthrough::new(&self.router, view(&context)?).templates(request).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Passthrough::new(&self.router, view(&context)?).read(request, &context).await
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Passthrough::new(&self.router, view(&context)?).prompts(request).await
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Passthrough::new(&self.router, view(&context)?).prompt(request, &context).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Passthrough::new(&self.router, view(&context)?).complete(request, &context).await
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let trace = context.extensions.get::<Parts>().and_then(|parts| parts.headers.get("traceparent"));
        let trace = TraceContext::continue_from(trace.and_then(|value| value.to_str().ok()));
        let args = serde_json::Value::Object(request.arguments.unwrap_or_default());
        let request = CallRequest {
            tool: request.name.into_owned(),
            args: RawJson::parse(&args.to_string())
                .map_err(|error| ErrorData::invalid_params(format!("arguments: {error}"), None))?,
            view: view(&context)?,
            surface: "mcp",
            session_key: None,
            timeout: None,
            idempotency_key: None,
            trace,
        };
        let token = context.meta.get_progress_token();
        let (updates, news) = mpsc::channel(QUEUE);
        let sink = token.as_ref().map(|_| Arc::new(Sink(updates)) as Arc<dyn UpdateSink>);
        let outcome = self.router.start(request, sink).outcome();
        let ended = CancellationToken::new();
        let mut reports = std::pin::pin!(forward(news, token, &context, &ended));
        // A client that does not read holds up its reports, and neither the call's deadline nor a cancel.
        let finished = tokio::select! {
            finished = outcome => finished,
            never = async { (&mut reports).await; std::future::pending().await } => never,
            // Dropping the call tells the provider.
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
        };
        ended.cancel();
        let _ = tokio::time::timeout(FLUSH, reports).await;
        Ok(convert::result(&finished.outcome).into())
    }
}

/// Sends reports of progress as they come. Ends once the call has ended and all that was queued is sent.
async fn forward(
    mut news: mpsc::Receiver<Report>,
    token: Option<ProgressToken>,
    context: &RequestContext<RoleServer>,
    ended: &CancellationToken,
) {
    while let Some(token) = &token {
        let report = tokio::select! {
            biased;
            report = news.recv() => report,
            () = ended.cancelled() => None,
        };
        let Some((progress, total, message)) = report else { break };
        let mut report = ProgressNotificationParam::new(token.clone(), progress);
        (report.total, report.message) = (total, message);
        let _ = context.peer.notify_progress(report).await;
    }
    ended.cancelled().await;
}

/// Who asks, as the front door found out.
#[derive(Debug, Clone)]
pub struct Caller {
    principal: Arc<Principal>,
    revoked: CancellationToken,
}

impl Caller {
    pub fn new(principal: Arc<Principal>, revoked: CancellationToken) -> Self {
        Self { principal, revoked }
    }
}

fn view(context: &RequestContext<RoleServer>) -> Result<View, ErrorData> {
    let caller = context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Caller>());
    let caller = caller.ok_or_else(|| ErrorData::internal_error("the request has no caller", None))?;
    // The token may have been revoked while the body was on its way.
    if caller.revoked.is_cancelled() {
        return Err(ErrorData::invalid_request("the token was revoked", None));
    }
    Ok(View::of(Arc::clone(&caller.principal)))
}

type Report = (f64, Option<f64>, Option<String>);

struct Sink(mpsc::Sender<Report>);

impl UpdateSink for Sink {
    fn send(&self, update: Update) -> Result<(), Overrun> {
        // MCP has no chunks of a result; the whole of it comes at the end.
        if let Update::Progress { progress, total, message } = update {
            let _ = self.0.try_send((progress, total, message));
        }
        Ok(())
    }
}
