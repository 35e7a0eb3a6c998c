//! Upstream MCP servers, and logins at them.

mod scripted;

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use axum::Router;
use reqwest::header::HeaderMap;
use rmcp::ServerHandler;
use rmcp::model::*;
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::{Authority, Reply, Server, eventually, soon};

pub use self::scripted::{Says, WAYS, Way};

/// Returns a configuration with one stdio server, which writes its files to `dir`.
pub fn stdio(program: &str, name: &str, args: &[&str], dir: &Path, more: &str) -> String {
    let command: Vec<&str> = [program].iter().chain(args).copied().collect();
    format!(
        "[upstream.{name}]\ncommand = {}\nenv = {{ SERVER_DIR = \"{}\" }}\n{more}\n",
        json!(command),
        dir.display()
    )
}

/// Returns a server as the list shows it.
pub async fn upstream(gateway: &Server, name: &str) -> Value {
    let list = gateway.operator().get("/v1/upstream").await.body;
    let servers = list["upstream"].as_array().unwrap_or_else(|| panic!("{list}"));
    servers.iter().find(|server| server["name"] == name).cloned().unwrap_or_default()
}

/// Waits until a server is in this state.
pub async fn until(gateway: &Server, name: &str, state: &str) -> Value {
    eventually(&format!("{name} to be {state}"), || async {
        Some(upstream(gateway, name).await).filter(|server| server["state"] == state)
    })
    .await
}

/// Returns the content of a file that a server writes, once it is there.
pub async fn noted(dir: &Path, name: &str) -> String {
    eventually(name, || async { std::fs::read_to_string(dir.join(name)).ok() }).await
}

/// Kills a process, like `kill -9`.
pub fn kill(pid: &str) {
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// A server on its own port.
#[derive(Debug)]
pub struct HttpServer {
    child: Child,
    pub url: String,
}

impl HttpServer {
    /// Starts a server at this address, with the revisions of this era.
    pub async fn start(program: &str, address: &str, era: &str) -> Self {
        Self::start_with(program, address, era, &[]).await
    }

    /// Starts a server with additional environment variables.
    pub async fn start_with(
        program: &str,
        address: &str,
        era: &str,
        more: &[(&str, &Path)],
    ) -> Self {
        let mut command = Command::new(program);
        command.envs(more.iter().copied());
        command
            .args(["http", address])
            .env("SERVER_ERA", era)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = soon(lines.next_line()).await.unwrap().expect("it did not start");
        Self { child, url }
    }

    /// Returns the configuration of this server, as `web`.
    pub fn config(&self, more: &str) -> String {
        format!("[upstream.web]\nurl = \"{}/mcp\"\n{more}\n", self.url)
    }

    /// Returns the server's address, for a server that replaces it.
    pub fn address(&self) -> String {
        self.url.strip_prefix("http://").unwrap().to_owned()
    }

    pub async fn kill(&mut self) {
        soon(self.child.kill()).await.unwrap();
    }
}

/// A server with one tool.
#[derive(Debug, Clone)]
pub struct Guarded;

impl ServerHandler for Guarded {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, rmcp::ErrorData> {
        let schema = json!({ "type": "object" }).as_object().cloned().unwrap();
        Ok(ListToolsResult {
            tools: vec![Tool::new("hello", "says hello", schema)],
            ..Default::default()
        })
    }

    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, rmcp::ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text("hello")]).into())
    }
}

/// Starts a server with one tool, which requires tokens of its authority.
pub async fn authority() -> Authority {
    let service = StreamableHttpService::new(
        || Ok(Guarded),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    Authority::start(Router::new().fallback_service(service)).await
}

/// Returns the configuration of that server, as `hosted`.
pub fn config(authority: &Authority) -> String {
    let oauth = "oauth = { grant = \"authorization_code\" }";
    format!(
        "[log]\nfilter = \"debug,rmcp=debug\"\n[upstream.hosted]\nurl = \"{}\"\n{oauth}\n",
        authority.resource()
    )
}

/// Opens an address like a browser, and returns the page's status, headers and text.
pub async fn open(address: &str) -> (u16, HeaderMap, String) {
    let response = reqwest::get(address).await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, response.text().await.unwrap())
}

/// Begins a login over REST, and returns the URL to which the browser is redirected.
pub async fn agreed(gateway: &Server, authority: &Authority) -> (Value, String) {
    let begun = gateway.operator().post("/v1/upstream/hosted/login", &json!({})).await;
    assert_eq!(begun.status, 200, "{}", begun.text);
    let back = authority.agree(begun.body["url"].as_str().unwrap()).await;
    (begun.body, back)
}

/// Logs in at the server `hosted`.
pub async fn log_in(gateway: &Server, authority: &Authority) {
    let (_, back) = agreed(gateway, authority).await;
    let (status, _, page) = open(&back).await;
    assert_eq!(status, 200, "{page}");
    until(gateway, "hosted", "ready").await;
}

/// Calls the tool of the server `hosted`.
pub async fn hello(gateway: &Server) -> Reply {
    gateway.operator().call("hosted__hello", json!({})).await
}

/// Checks the answer of that tool.
#[track_caller]
pub fn assert_greeted(reply: &Reply) {
    assert_eq!(reply.body["blocks"][0]["text"], "hello", "{}", reply.text);
}
