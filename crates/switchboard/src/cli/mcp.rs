//! `mcp`: a stdio MCP server in front of the running gateway.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::Global;
use super::client::{Client, segment};
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
    let stop = super::run::stop_on_signals()?;
    let unread = unread(std::io::stdout())?;
    let gone = async move {
        tokio::select! { () = stop.cancelled() => {}, () = unread => {} }
    };
    let ended = sa_mcp::bridge(tokio::io::stdin(), tokio::io::stdout(), http, url, token, gone).await;
    match ended {
        // Reading from a terminal or a pipe cannot be given up, and would hold the program back.
        Ok(()) => std::process::exit(0),
        Err(error) => Err(Failure::new(3, error).hint("see what the gateway says, and start this again")),
    }
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
