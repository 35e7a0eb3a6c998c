//! The other ends of what is measured, each in a process of its own, so that they share no runtime with the driver.

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
    /// A node with one tool, which returns its arguments.
    #[command(hide = true)]
    Node { gateway: SocketAddr },
    /// A bare axum server that returns the JSON it is sent.
    #[command(hide = true)]
    Echo,
    /// An MCP server with one tool, which returns its arguments.
    #[command(hide = true)]
    McpEcho,
    /// A model's server that calls the tool and then answers.
    #[command(hide = true)]
    Model,
    /// The same, over standard input and output.
    #[command(hide = true)]
    McpEchoStdio,
    /// A node with so many tools, which are never called.
    #[command(hide = true)]
    Offer { gateway: SocketAddr, tools: usize },
    /// Answers NATS requests with what they hold.
    #[command(hide = true)]
    Responder { server: SocketAddr },
    /// Many nodes that do nothing: as many as each line on standard input says, in all.
    #[command(hide = true)]
    Idle { gateway: SocketAddr },
    /// Many participants that do nothing, each in a room with those who have the other tokens of the file.
    #[command(hide = true)]
    IdleParticipants { gateway: SocketAddr, tokens: PathBuf },
    /// A participant with one method, which returns its arguments.
    #[command(hide = true)]
    Provider { gateway: SocketAddr, token: String, channel: String },
}

impl Helper {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        // What stands for a tool behind one connection has one thread, whether it speaks to a gateway or to NATS. The
        // echo server is compared with the gateway, and has as many threads.
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
                Self::Offer { gateway, tools } => until_driver_ends(node::offer(*gateway, *tools)).await,
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
