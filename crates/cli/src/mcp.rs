//! The `mcp` command: a stdio MCP server in front of the running gateway.

use std::io::IsTerminal as _;
use std::os::fd::AsFd;

use reqwest::StatusCode;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use sa_mcp::BridgeError;

use super::Global;
use super::client::{Client, problem, segment};
use super::output::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct McpArgs {
    /// Also list the tools of this session.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Also list the tools of this channel.
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// List find_tools and call_tool instead of all tools.
    #[arg(long)]
    search: bool,
}

/// Runs the bridge. Only protocol messages go to stdout; everything else goes to stderr.
pub(super) async fn run(global: &Global, args: McpArgs) -> Result<(), Failure> {
    let client = Client::new(global)?;
    // Check the gateway first. An MCP client cannot distinguish an unreachable gateway from a slow
    // one.
    client.get_text("/v1/tools?limit=1").await?;
    let choices = [
        args.session.map(|id| format!("session={}", segment(&id))),
        args.channel.map(|name| format!("channel={}", segment(&name))),
        args.search.then(|| "search=1".to_owned()),
    ];
    let query: Vec<String> = choices.into_iter().flatten().collect();
    let url = format!("{}/mcp?{}", client.base(), query.join("&"));
    let url = url.trim_end_matches('?').to_owned();
    let (http, token) = client.into_parts();
    let missing = async || missing(&http, &url, &token).await;
    if let Some(failure) = missing().await {
        // On a terminal, the user sees the message on stderr, so no MCP error is sent.
        if !std::io::stdin().is_terminal() {
            sa_mcp::refuse(tokio::io::stdin(), tokio::io::stdout(), &failure.message).await;
        }
        leave(&failure);
    }
    let stop = super::stop::on_signals()?;
    let unread = unread(std::io::stdout())?;
    let gone = async move {
        tokio::select! { () = stop.cancelled() => {}, () = unread => {} }
    };
    let missing = async || missing().await.map(|failure| failure.message);
    let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
    match sa_mcp::bridge(stdin, stdout, http.clone(), url.clone(), token.clone(), gone, missing)
        .await
    {
        // A blocking read from stdin cannot be cancelled and would prevent a normal exit.
        Ok(()) => std::process::exit(0),
        Err(BridgeError::Broken(why)) => {
            leave(&Failure::new(3, why).hint("check the gateway's log, then run the command again"))
        }
        Err(BridgeError::Unreachable(why)) => leave(&Failure::of_kind("not_found", why)),
    }
}

/// Returns the gateway's failure if the session or channel does not exist. The request is an MCP
/// ping, because the MCP endpoint decides this.
async fn missing(http: &reqwest::Client, url: &str, token: &str) -> Option<Failure> {
    let ping = serde_json::json!({ "jsonrpc": "2.0", "id": 0, "method": "ping" });
    let request = http
        .post(url)
        .bearer_auth(token)
        .header("accept", "application/json, text/event-stream")
        .json(&ping);
    let response =
        request.send().await.ok().filter(|response| response.status() == StatusCode::NOT_FOUND)?;
    Some(problem(StatusCode::NOT_FOUND, &response.text().await.ok()?))
}

/// Exits with a failure. Does not wait for a blocked read from stdin.
fn leave(failure: &Failure) -> ! {
    let _ = failure.report(false);
    std::process::exit(failure.code.into())
}

/// Resolves when the reader of this stream has closed it. No write is needed to detect that. Never
/// resolves for a file.
fn unread(stream: impl AsFd + Send + 'static) -> Result<impl Future<Output = ()>, Failure> {
    let (tell, told) = tokio::sync::oneshot::channel();
    // A thread is needed because the runtime cannot poll a regular file. The thread ends with the
    // program.
    let watch = move || {
        // No events are requested: `poll` always reports a closed peer.
        while let Err(Errno::INTR) = poll(&mut [PollFd::new(&stream, PollFlags::empty())], None) {}
        let _ = tell.send(());
    };
    let started = std::thread::Builder::new().name("stdout".into()).spawn(watch);
    started.map_err(|error| Failure::other(format!("cannot start: {error}")))?;
    Ok(async move {
        let _ = told.await;
    })
}
