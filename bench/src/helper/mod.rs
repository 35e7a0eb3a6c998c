//! The peers of the measured program, each in a separate process, so that they share no runtime
//! with the driver.

mod echo;
mod idle;
mod mcp_echo;
mod model;
mod node;
mod provider;
mod responder;

use std::net::SocketAddr;
use std::path::PathBuf;

/// The subject on which the NATS responder listens.
pub(crate) const SUBJECT: &str = "bench.echo";
/// The node's tool.
pub(crate) const TOOL: &str = "echo";

#[derive(Debug, Clone, clap::Subcommand)]
#[command(hide = true)]
pub(crate) enum Helper {
    /// Run a node with one tool that returns its arguments.
    #[command(hide = true)]
    Node { gateway: SocketAddr },
    /// Run a bare axum server that returns the JSON of each request.
    #[command(hide = true)]
    Echo,
    /// Run an MCP server with one tool that returns its arguments.
    #[command(hide = true)]
    McpEcho,
    /// Run a model server that calls the tool and then answers.
    #[command(hide = true)]
    Model,
    /// Run the MCP server over standard input and output.
    #[command(hide = true)]
    McpEchoStdio,
    /// Run a node with this number of tools, which are never called.
    #[command(hide = true)]
    Offer { gateway: SocketAddr, tools: usize },
    /// Run a NATS responder that returns each request's payload.
    #[command(hide = true)]
    Responder { server: SocketAddr },
    /// Run many idle nodes. Each line on standard input sets their total number.
    #[command(hide = true)]
    Idle { gateway: SocketAddr },
    /// Run many idle participants. Those with the tokens of the file share a channel.
    #[command(hide = true)]
    IdleParticipants { gateway: SocketAddr, tokens: PathBuf },
    /// Run a participant with one method that returns its arguments.
    #[command(hide = true)]
    Provider { gateway: SocketAddr, token: String, channel: String },
}

impl Helper {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        // A tool behind one connection has one thread, both for a gateway and for NATS. The echo
        // server is compared with the gateway, so it has as many threads as the gateway.
        let mut runtime = match self {
            Self::Echo | Self::McpEcho | Self::Model => tokio::runtime::Builder::new_multi_thread(),
            _ => tokio::runtime::Builder::new_current_thread(),
        };
        runtime.enable_all().build()?.block_on(async {
            match self {
                Self::Node { gateway } => until_driver_ends(node::run(*gateway)).await,
                Self::Model => until_driver_ends(model::run()).await,
                Self::McpEcho => until_driver_ends(mcp_echo::run()).await,
                Self::McpEchoStdio => mcp_echo::stdio().await,
                Self::Offer { gateway, tools } => {
                    until_driver_ends(node::offer(*gateway, *tools)).await
                }
                Self::Echo => until_driver_ends(echo::run()).await,
                Self::Responder { server } => until_driver_ends(responder::run(*server)).await,
                Self::Idle { gateway } => idle::run(*gateway, &idle::Who::Nodes).await,
                Self::IdleParticipants { gateway, tokens } => {
                    let tokens = std::fs::read_to_string(tokens)?.lines().map(Into::into).collect();
                    idle::run(*gateway, &idle::Who::Participants { tokens }).await
                }
                Self::Provider { gateway, token, channel } => {
                    until_driver_ends(provider::run(*gateway, token, channel)).await
                }
            }
        })
    }
}

async fn until_driver_ends(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let gone = async {
        let mut lines = idle::stdin_lines();
        while lines.recv().await.is_some() {}
    };
    tokio::select! {
        result = work => result,
        () = gone => std::process::exit(0),
    }
}
