//! `mcp`: a stdio MCP server in front of the running gateway.

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
    /// Show the tools of this session, too.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Show the tools of this channel, too.
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// List find_tools and call_tool instead of all tools.
    #[arg(long)]
    search: bool,
}

/// Nothing but the protocol goes to stdout: what there is to say is for stderr.
pub(super) async fn run(global: &Global, args: McpArgs) -> Result<(), Failure> {
    let client = Client::new(global)?;
    // A client that started us cannot tell a gateway that is not there from one that is slow; we can.
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
        // Somebody who types nothing but commands sees what stderr says.
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
    match sa_mcp::bridge(stdin, stdout, http.clone(), url.clone(), token.clone(), gone, missing).await {
        // Reading from a terminal or a pipe cannot be given up, and would hold the program back.
        Ok(()) => std::process::exit(0),
        Err(BridgeError::Broken(why)) => {
            leave(&Failure::new(3, why).hint("see what the gateway says, and start this again"))
        }
        Err(BridgeError::NotThere(why)) => leave(&Failure::of_kind("not_found", why)),
    }
}

/// What the gateway says of a session or a channel that is not there. Asked in the way of a message, because it is the
/// gateway's answer to messages that counts.
async fn missing(http: &reqwest::Client, url: &str, token: &str) -> Option<Failure> {
    let ping = serde_json::json!({ "jsonrpc": "2.0", "id": 0, "method": "ping" });
    let request = http.post(url).bearer_auth(token).header("accept", "application/json, text/event-stream").json(&ping);
    let response = request.send().await.ok().filter(|response| response.status() == StatusCode::NOT_FOUND)?;
    Some(problem(StatusCode::NOT_FOUND, &response.text().await.ok()?))
}

/// Ends the program with a failure, though stdin may still be waited for.
fn leave(failure: &Failure) -> ! {
    let _ = failure.report(false);
    std::process::exit(failure.code.into())
}

/// Resolves when nobody is left to read what is written here, which no write is needed to find out. Never for a file.
fn unread(stream: impl AsFd + Send + 'static) -> Result<impl Future<Output = ()>, Failure> {
    let (tell, told) = tokio::sync::oneshot::channel();
    // A thread, because a file cannot be waited for by the runtime; it ends with the program.
    let watch = move || {
        // No event is asked for: that the other end is closed is reported always.
        while let Err(Errno::INTR) = poll(&mut [PollFd::new(&stream, PollFlags::empty())], None) {}
        let _ = tell.send(());
    };
    let started = std::thread::Builder::new().name("stdout".into()).spawn(watch);
    started.map_err(|error| Failure::other(format!("cannot start: {error}")))?;
    Ok(async move {
        let _ = told.await;
    })
}
