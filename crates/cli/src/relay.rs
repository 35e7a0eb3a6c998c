//! The `relay` command: serves a session's caller tools to an agent that uses MCP on stdio.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use sa_core::outcome::without_commands;
use sa_core::{CallError, RawJson, Schema, naming};
use sa_lines::Lines;
use sa_relay::client::{Client, Config, LentTool};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::output::Failure;

/// The timeout for the tool list. After it, the agent is served without tools.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for reconnecting a lost connection.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const RECONNECT_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(crate) struct RelayArgs {
    /// Socket of the session, as shown by switchboard sessions ID.
    #[arg(env = "SWITCHBOARD_RELAY_SOCKET")]
    socket: Option<PathBuf>,
}

pub(super) async fn run(args: RelayArgs) -> Result<(), Failure> {
    let socket = args.socket.ok_or_else(|| {
        Failure::usage("the socket of a session is missing, and SWITCHBOARD_RELAY_SOCKET is not set")
            .hint("run `switchboard relay SOCKET`; run `switchboard sessions ID` to see the socket of a session")
    })?;
    let client = connect(&socket).await?;
    let mut config = client.config();
    let _ = tokio::time::timeout(CONFIG_TIMEOUT, config.wait_for(Option::is_some)).await;
    let relay = Relay {
        connection: watch::Sender::new(Some(client)).into(),
        tools: watch::Sender::new(Vec::new()).into(),
    };
    relay.take(&config.borrow().clone().unwrap_or_default());
    let serving = relay.clone().serve(Lines::of_client(tokio::io::stdin(), tokio::io::stdout()));
    let service = tokio::select! {
        served = serving => served.map_err(|error| Failure::other(format!("the agent does not use MCP: {error}")))?,
        failure = relay.follow(&socket, None) => return Err(failure),
    };
    let peer = service.peer().clone();
    tokio::select! {
        // The agent closed its end and is done.
        ended = service.waiting() => ended.map(drop).map_err(|error| Failure::other(error.to_string())),
        failure = relay.follow(&socket, Some(&peer)) => Err(failure),
    }
}

async fn connect(socket: &Path) -> Result<Arc<Client>, Failure> {
    Client::connect(socket).await.map_err(|error| {
        Failure::of_kind("offline", format!("cannot connect to the session's socket {}: {error}", socket.display()))
            .hint("run `switchboard sessions` to list the sessions, and `switchboard sessions ID` to see the socket of an open session")
    })
}

#[derive(Clone)]
struct Relay {
    connection: Arc<watch::Sender<Option<Arc<Client>>>>,
    tools: Arc<watch::Sender<Vec<Lent>>>,
}

/// A caller's tool as exposed to the agent.
#[derive(Clone)]
struct Lent {
    tool: Tool,
    own_name: String,
    schema: Option<Schema>,
}

impl Relay {
    fn take(&self, config: &Config) {
        let mut tools: Vec<Lent> =
            config.tools.iter().map(|tool| Lent::new(&config.caller_id, tool)).collect();
        tools.sort_by(|a, b| a.tool.name.cmp(&b.tool.name));
        self.tools.send_replace(tools);
    }

    /// Follows changes of the caller's tools, and reconnects after a lost connection. Returns when
    /// the session ends.
    async fn follow(&self, socket: &Path, agent: Option<&rmcp::Peer<RoleServer>>) -> Failure {
        loop {
            let client = self.connection.borrow().clone();
            if let Some(client) = client {
                let (mut config, closed) = (client.config(), client.closed());
                config.mark_changed();
                loop {
                    tokio::select! {
                        () = closed.cancelled() => break,
                        changed = config.changed() => if changed.is_err() { break },
                    }
                    let Some(told) = config.borrow_and_update().clone() else { continue };
                    let before: Vec<Tool> =
                        self.tools.borrow().iter().map(|lent| lent.tool.clone()).collect();
                    self.take(&told);
                    let same = self.tools.borrow().iter().map(|lent| &lent.tool).eq(before.iter());
                    if let Some(agent) = agent.filter(|_| !same) {
                        let _ = agent.notify_tool_list_changed().await;
                    }
                }
            }
            self.connection.send_replace(None);
            match reconnect(socket).await {
                Ok(client) => drop(self.connection.send_replace(Some(client))),
                Err(failure) => return failure,
            }
        }
    }

    async fn forward(&self, method: &str, params: Value) -> CallToolResult {
        let client = self.connection.borrow().clone();
        let Some(client) = client else {
            return failed("offline: the connection to the gateway is lost");
        };
        match client.request(method, params).await {
            Ok(result) => succeeded(result.get()),
            Err(error) => {
                let kind =
                    error.data.as_ref().and_then(|data| data["kind"].as_str()).unwrap_or("failed");
                let hint = error.data.as_ref().and_then(|data| data["hint"].as_str());
                let hint = hint
                    .and_then(without_commands)
                    .map(|hint| format!("; {hint}"))
                    .unwrap_or_default();
                failed(&format!("{kind}: {}{hint}", error.message))
            }
        }
    }
}

async fn reconnect(socket: &Path) -> Result<Arc<Client>, Failure> {
    let until = Instant::now() + RECONNECT_TIMEOUT;
    loop {
        if !socket.exists() {
            return Err(Failure::of_kind(
                "offline",
                "the session has ended: its socket does not exist",
            ));
        }
        match connect(socket).await {
            Err(failure) if Instant::now() > until => return Err(failure),
            Err(_) => tokio::time::sleep(RECONNECT_EVERY).await,
            Ok(client) => return Ok(client),
        }
    }
}

impl Lent {
    fn new(caller: &str, lent: &LentTool) -> Self {
        let wish = format!("{caller}_{}", lent.name);
        let name = match &*lent.exposed_name {
            "" => naming::expose(&wish, &wish),
            exposed => exposed.to_owned(),
        };
        let mut input: JsonObject =
            lent.input_schema.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        input.entry("type").or_insert_with(|| "object".into());
        let mut tool =
            Tool::new(name, lent.description.clone().unwrap_or_default(), Arc::new(input));
        tool.title.clone_from(&lent.title);
        tool.annotations =
            lent.annotations.as_ref().and_then(|value| serde_json::from_value(value.clone()).ok());
        let schema = lent.input_schema.as_ref().map(|schema| Schema::new(RawJson::of(schema)));
        Self { tool, own_name: lent.name.clone(), schema }
    }
}

impl ServerHandler for Relay {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build(),
        )
        .with_server_info(Implementation::new("switchboard-relay", sa_gateway::VERSION))
        .with_instructions(
            "Tools of the caller that you work for in this session. They run on the caller's side.",
        )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let lent = self.tools.borrow().iter().map(|lent| lent.tool.clone()).collect::<Vec<_>>();
        Ok(ListToolsResult {
            tools: lent.into_iter().chain(own_tools()).collect(),
            ..ListToolsResult::default()
        })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let args = Value::Object(request.arguments.unwrap_or_default());
        let lent = self.tools.borrow().iter().find(|lent| lent.tool.name == request.name).cloned();
        let (method, params) = match lent {
            Some(lent) => {
                if let Some(Err(error)) =
                    lent.schema.map(|schema| schema.validate(&RawJson::of(&args)))
                {
                    let error = CallError::from(error);
                    return Ok(failed(&format!("{}: {}", error.kind, error.message)).into());
                }
                ("caller_tool", json!({ "tool": lent.own_name, "arguments": args }))
            }
            None if request.name == "session_message" => ("session_message", args),
            None if request.name == "session_events" => ("session_events", args),
            None => {
                return Err(ErrorData::invalid_params(
                    format!("there is no tool \"{}\"", request.name),
                    None,
                ));
            }
        };
        tokio::select! {
            result = self.forward(method, params) => Ok(result.into()),
            // Dropping the request cancels it at the gateway.
            () = context.ct.cancelled() => Err(ErrorData::internal_error("cancelled", None)),
        }
    }
}

/// Returns the session tools that the agent has in addition to the caller's tools.
fn own_tools() -> [Tool; 2] {
    let tool = |name: &'static str, about: &'static str, schema: Value| {
        Tool::new(name, about, Arc::new(schema.as_object().cloned().unwrap_or_default()))
    };
    [
        tool(
            "session_events",
            "List the events of your session, oldest first. They include the messages for you.",
            json!({ "type": "object", "properties": {
                "session_id": { "type": "string", "description": "Id of another session; your own session by default" },
                "since": { "type": "integer", "description": "Only list events after the one with this id" },
                "wait_ms": { "type": "integer", "description": "How long to wait for an event" } } }),
        ),
        tool(
            "session_message",
            "Start a session with another agent, or send a message to a session. With the id of your own session, the message is for the caller that you work for.",
            json!({ "type": "object", "properties": {
                "message": { "type": "string" },
                "session_id": { "type": "string", "description": "Id of the session; leave it out to start a new one" },
                "agent": { "type": "string" } }, "required": ["message"] }),
        ),
    ]
}

fn succeeded(json: &str) -> CallToolResult {
    let content = RawJson::parse(json).unwrap_or_else(|_| RawJson::null());
    sa_mcp::result(&Ok(sa_http::blocks::output(content, Vec::new())))
}

fn failed(message: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message)])
}
