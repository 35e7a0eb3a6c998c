//! `node`: this machine's shell and files, offered through a gateway.

use std::path::PathBuf;

use sa_node::{Machine, Options, Sandbox};
use sa_node_sdk::{NodeClientBuilder, NodeSdkError, ToolRegistry};

use super::output::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct NodeArgs {
    /// The gateway's node socket.
    #[arg(long, value_name = "URL", env = "SA_GATEWAY_WS_URL", default_value = "ws://127.0.0.1:3210/v1/nodes/ws")]
    gateway: String,
    /// What the machine is called in the names of its tools, such as laptop__Bash.
    #[arg(long, value_name = "ID", env = "SA_NODE_ID")]
    id: String,
    /// Where relative paths begin, and where commands run.
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
    /// Let the file tools touch nothing outside this directory; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_root: Vec<PathBuf>,
    /// Write nothing.
    #[arg(long)]
    read_only: bool,
    /// Hold commands back: they read the system's files and the workspace, write to the workspace and to a directory of
    /// their own, see no other variables than harmless ones, and have no powers of root.
    #[arg(long)]
    sandbox: bool,
    /// Give commands no network at all.
    #[arg(long, requires = "sandbox")]
    no_network: bool,
}

pub(super) fn run(args: NodeArgs) -> Result<(), Failure> {
    let mut options = Options::new(args.workspace);
    options.allow_roots = args.allow_root;
    options.read_only = args.read_only;
    options.sandbox = args.sandbox.then_some(Sandbox { network: !args.no_network });
    sa_node::hide_memory().map_err(|error| Failure::other(format!("cannot protect the token: {error}")))?;
    let machine = Machine::new(options).map_err(|error| Failure::usage(error.to_string()))?;
    let mut tools = ToolRegistry::new();
    machine.register(&mut tools);
    let client = NodeClientBuilder::new()
        .node_id(&args.id)
        .node_type("machine")
        .version(crate::VERSION)
        .gateway_ws_url(&args.gateway)
        .token(std::env::var("SA_NODE_TOKEN").unwrap_or_default())
        .build()
        .map_err(|error| Failure::usage(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::other(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let stop = super::run::stop_on_signals()?;
        let ran = client.run(tools, stop).await;
        machine.shut_down().await;
        match ran {
            // As it was asked to.
            Ok(()) | Err(NodeSdkError::Shutdown) => Ok(()),
            Err(error) => Err(Failure::other(error.to_string())),
        }
    })
}
