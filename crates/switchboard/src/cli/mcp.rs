//! `mcp`: a stdio MCP server in front of the running gateway.

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
    let ended = sa_mcp::bridge(tokio::io::stdin(), tokio::io::stdout(), http, url, token).await;
    match ended {
        // Reading from a terminal or a pipe cannot be given up, and would hold the program back.
        Ok(()) => std::process::exit(0),
        Err(error) => Err(Failure::new(3, error).hint("see what the gateway says, and start this again")),
    }
}
