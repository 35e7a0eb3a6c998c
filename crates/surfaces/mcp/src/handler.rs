//! Converts MCP requests into calls.

use std::sync::Arc;

use axum::http::request::Parts;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, ClientCapabilities,
    CompleteRequestParams, CompleteResult, CustomRequest, CustomResult, GetPromptRequestParams,
    GetPromptResponse, GetTaskParams, GetTaskResult, Implementation, InitializeRequestParams,
    InitializeResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, SetLevelRequestParams,
    SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use sa_core::call::CallRequest;
use sa_core::directory::{Route, ToolView};
use sa_core::{LogLevel, Principal, QuestionMode, RawJson};
use sa_limits::offload;
use sa_limits::received::Held;
use serde_json::Value;

use crate::body;
use crate::call::{self, CallStep, Client, Running};
use crate::caller::Caller;
use crate::client::{self, ClientState};
use crate::convert;
use crate::notifications::{self, Listener};
use crate::passthrough::Passthrough;
use crate::questions::{self, CallIdentity, Resumed};
use crate::search;
use crate::sessions::Session;
use crate::shared::Shared;
use crate::trace::trace;
use crate::unreadable;

/// The maximum number of tools on one page of a list.
const PAGE: usize = 200;
/// The size after which a page ends, in bytes.
const MAX_PAGE_BYTES: usize = 1 << 20;
/// The time in milliseconds for which a client may cache a list. Clients that need faster updates
/// subscribe.
const FRESH_MS: u64 = 1_000;
/// The tools during which the principal receives notices about its sessions.
const TOOLS_WITH_NOTICES: [&str; 2] = ["session_message", "session"];

/// The surface for one client: for one request, or for a session.
#[derive(Debug, Clone)]
pub struct McpHandler {
    shared: Arc<Shared>,
    client: Arc<ClientState>,
    /// The principal of the client, if it is known from the beginning.
    principal: Option<Arc<Principal>>,
}

impl McpHandler {
    pub(crate) fn new(shared: Arc<Shared>, principal: Option<Arc<Principal>>) -> Self {
        Self { shared, client: Arc::default(), principal }
    }

    /// Starts a call, or continues one that waits for its client's answers. `written` is the raw
    /// text of its arguments, if available.
    async fn call(
        &self,
        caller: &Caller,
        request: CallToolRequestParams,
        written: Option<String>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let shared = &self.shared;
        let arguments = request.arguments.unwrap_or_default();
        let args = written.unwrap_or_else(|| Value::Object(arguments.clone()).to_string());
        let args = RawJson::parse(&args)
            .map_err(|error| ErrorData::invalid_params(format!("arguments: {error}"), None))?;
        let tool = request.name.into_owned();
        let identity =
            CallIdentity { principal: Arc::clone(&caller.principal.id), tool, arguments };
        let mut answers = request.input_responses.unwrap_or_default();
        let client = context.client_capabilities();
        let knows_tasks = client.as_ref().is_some_and(ClientCapabilities::supports_tasks);
        let (mut running, mut count) = match request.request_state {
            Some(state) => {
                match shared.suspended.resume(&state, &identity, std::mem::take(&mut answers))? {
                    Resumed::Answered(running, count) => (running, count),
                    Resumed::Incomplete(missing) => return Ok(missing.into()),
                }
            }
            None => (self.start(caller, &identity.tool, args, context, client), 0),
        };
        let is_new_era = is_new_era(context);
        // Older clients have a stream for the events of their sessions.
        let level = context
            .meta
            .log_level()
            .filter(|_| is_new_era && TOOLS_WITH_NOTICES.contains(&identity.tool.as_str()));
        let mut listener = level.map(|level| {
            Listener::new(&shared.notices, Arc::clone(&caller.principal), call::level(level))
        });
        let question_mode = question_mode(context);
        let may_become_task = is_new_era && knows_tasks && shared.tasks.has_capacity();
        // A client without support for tasks waits for the answer without a limit.
        let mut timeout = std::pin::pin!(async {
            if may_become_task {
                tokio::time::sleep(shared.task_after).await;
            } else {
                std::future::pending::<()>().await;
            }
        });
        loop {
            let next_step = tokio::select! {
                biased;
                next_step = running.next_step(context, question_mode, &mut listener) => next_step,
                () = &mut timeout => {
                    let task = shared.tasks.adopt(&caller.principal, &identity.tool, running, count).await;
                    return Ok(match task {
                        Ok(task) => task.into(),
                        Err(error) => convert::failure(&error).into(),
                    });
                }
            };
            match next_step {
                CallStep::Ended(finished) => {
                    body::weigh(context, finished.weight(), finished.held());
                    return finished
                        .render(move |finished| running.answer(finished, is_new_era))
                        .await;
                }
                CallStep::Asks(pending) => {
                    let mut pending = questions::name(pending, &mut count);
                    questions::answer(&mut pending, &mut answers);
                    if pending.is_empty() {
                        continue;
                    }
                    return Ok(shared.suspended.suspend(identity, count, running, pending));
                }
                // Dropping the call cancels it at the provider.
                CallStep::Cancelled => return Err(ErrorData::internal_error("cancelled", None)),
            }
        }
    }

    fn start(
        &self,
        caller: &Caller,
        tool: &str,
        args: RawJson,
        context: &RequestContext<RoleServer>,
        client: Option<ClientCapabilities>,
    ) -> Running {
        let traceparent = context.meta.0.get("traceparent").and_then(Value::as_str);
        let headers = context.extensions.get::<Parts>().map(|parts| &parts.headers);
        let request = CallRequest {
            tool: tool.to_owned(),
            args,
            view: caller.view(),
            surface: "mcp",
            session_key: None,
            timeout: None,
            idle_timeout: None,
            idempotency_key: None,
            trace: trace(traceparent, headers),
        };
        let log = if is_new_era(context) {
            // Clients that set no level want no log messages.
            context.meta.log_level().map(call::level)
        } else {
            Some(self.client.level().unwrap_or(LogLevel::Debug))
        };
        let wants_progress = context.meta.get_progress_token().is_some();
        let searches = self.shared.searches(caller);
        let client = Client {
            wants_progress,
            log,
            question_mode: question_mode(context),
            capabilities: client,
            searches,
        };
        Running::start(&self.shared, request, client)
    }

    fn documents(&self, caller: &Caller) -> Passthrough<'_> {
        Passthrough::new(&self.shared.router, caller.view())
    }
}

fn is_new_era(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

fn question_mode(context: &RequestContext<RoleServer>) -> QuestionMode {
    if is_new_era(context) { QuestionMode::Response } else { QuestionMode::Request }
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_logging()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_tasks()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("switchboard", self.shared.version))
            .with_instructions(
                "Tools of many providers behind one gateway. The name of a tool shows its provider.",
            )
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        if let Some(session) = context.extensions.get::<Arc<Session>>() {
            let (session, peer) = (Arc::clone(session), context.peer.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = session.outbox.deliver(peer) => {}
                    () = session.ended.cancelled() => {}
                }
            });
        }
        self.negotiate_initialize(&request)
    }

    /// Sets the level for the log messages of tools. Requests for the client's own tools are sent
    /// at every level.
    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.client.set_level(call::level(request.level));
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let watch = self
            .documents(Caller::of(&context)?)
            .watch(&request.uri, QuestionMode::Request)
            .await?;
        self.client.watch(request.uri, watch, context.peer)
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Caller::of(&context)?;
        self.client.unwatch(&request.uri);
        Ok(())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = Caller::of(&context)?;
        let shared = &self.shared;
        // The list depends on the token of the principal, so it must not be cached for others.
        let list = ListToolsResult {
            ttl_ms: Some(FRESH_MS),
            cache_scope: Some(CacheScope::Private),
            ..ListToolsResult::default()
        };
        if shared.searches(caller) {
            return Ok(ListToolsResult { tools: search::tools(), ..list });
        }
        let policy = shared.router.policy();
        let allowed = |tool: &ToolView| policy.allows(&caller.principal, tool);
        let cursor = request.and_then(|request| request.cursor);
        let directory = shared.router.directory();
        let revision = *directory.subscribe().borrow();
        let page =
            directory.list(&caller.view(), cursor.as_deref(), PAGE, allowed).within(MAX_PAGE_BYTES);
        body::weigh(&context, page.weight(), Held::default());
        let tools =
            offload::run_queued(page.weight(), || shared.tools.page(revision, &page.tools)).await;
        Ok(ListToolsResult { tools, next_cursor: page.next, ..list })
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.documents(Caller::of(&context)?).resources(request).await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.documents(Caller::of(&context)?).templates(request).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.documents(Caller::of(&context)?).read(request, &context).await
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.documents(Caller::of(&context)?).prompts(request).await
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.documents(Caller::of(&context)?).prompt(request, &context).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.documents(Caller::of(&context)?).complete(request, &context).await
    }

    async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = Caller::of(&context)?;
        let mut written = body::arguments(&context);
        if self.shared.searches(caller) {
            match &*request.name {
                search::FIND => {
                    let found = self
                        .shared
                        .search
                        .find(&self.shared.router, caller, request.arguments.as_ref())
                        .await;
                    return Ok(found.unwrap_or_else(|error| convert::failure(&error)).into());
                }
                search::CALL => match search::unwrap(request.arguments.take()) {
                    Ok((name, arguments)) => {
                        (request.name, request.arguments) = (name.into(), arguments);
                        written = written.and_then(|outer| body::wrapped(&outer));
                    }
                    Err(error) => return Ok(convert::failure(&error).into()),
                },
                _ => {}
            }
        }
        self.call(caller, request, written, &context).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let caller = Caller::of(&context)?;
        Ok(GetTaskResult::new(self.shared.tasks.get(&request.task_id, &caller.principal).await?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let caller = Caller::of(&context)?;
        self.shared.tasks.update(&request.task_id, &caller.principal, request.input_responses).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let caller = Caller::of(&context)?;
        self.shared.tasks.cancel(&request.task_id, &caller.principal).await
    }

    /// Rejects a custom request. Requests with params that rmcp cannot read also arrive here, as if
    /// their method were unknown.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(unreadable::custom(&request))
    }

    /// Returns the tool for the headers that repeat arguments. A tool's schema may require such
    /// headers, and they are checked before the call.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let Route { tool, id, scope, .. } =
            self.shared.wants_headers(name, self.principal.as_deref()?)?;
        Some(convert::tool(&ToolView {
            name: name.into(),
            leading: Vec::new(),
            tool,
            provider: id,
            scope,
            online: true,
        }))
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::default();
        accepted.tools_list_changed = requested.tools_list_changed;
        accepted.prompts_list_changed = requested.prompts_list_changed;
        accepted.resources_list_changed = requested.resources_list_changed;
        let most = |uris: &Vec<String>| uris.len() <= client::MAX_WATCHED;
        accepted.resource_subscriptions = requested.resource_subscriptions.clone().filter(most);
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let caller = Caller::of(context.request_context())?;
        let documents = self.documents(caller);
        tokio::select! {
            () = notifications::follow(&context, &self.shared, caller.view(), &documents) => {}
            () = context.cancelled() => {}
            () = self.shared.closing.cancelled() => {}
        }
        Ok(())
    }
}
