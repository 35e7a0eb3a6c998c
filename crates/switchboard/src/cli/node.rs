//! `node`: this machine's shell and files, offered through a gateway.

use std::path::PathBuf;

use sa_node::host::{self, Role};
use sa_node::{Machine, Options};
use sa_node_sdk::{MAX_TOOL_RESPONSE_BYTES, NodeClientBuilder, ToolRegistry};

use super::output::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct NodeArgs {
    /// The gateway's node socket.
    #[arg(long, value_name = "URL", env = "SA_GATEWAY_WS_URL", default_value = "ws://127.0.0.1:3210/v1/nodes/ws")]
    gateway: String,
    /// What the machine is called in the names of its tools, such as laptop__Bash.
    #[arg(long, value_name = "ID", env = "SA_NODE_ID")]
    id: String,
    /// A name for people; the id when absent.
    #[arg(long, value_name = "NAME", env = "SA_NODE_NAME")]
    name: Option<String>,
    /// A word to group machines by; may be given more than once.
    #[arg(long, value_name = "WORD", env = "SA_NODE_TAGS", value_delimiter = ',')]
    tag: Vec<String>,
    /// Whether tools that nobody named a machine for may run here.
    #[arg(long, value_enum, default_value_t = HostRole::Execution)]
    role: HostRole,
    /// Where relative paths begin, and where commands run.
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
    /// Let the file tools touch nothing outside this directory; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_root: Vec<PathBuf>,
    /// Write nothing.
    #[arg(long)]
    read_only: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum HostRole {
    /// They may: bare names, such as Bash, go to the first of these.
    Execution,
    /// They may not: only what names this machine goes here.
    Specialized,
}

impl From<HostRole> for Role {
    fn from(role: HostRole) -> Self {
        match role {
            HostRole::Execution => Self::Execution,
            HostRole::Specialized => Self::Specialized,
        }
    }
}

pub(super) fn run(args: NodeArgs) -> Result<(), Failure> {
    let mut options = Options::new(args.workspace);
    options.allow_roots = args.allow_root;
    options.read_only = args.read_only;
    let machine = Machine::new(options).map_err(|error| Failure::usage(error.to_string()))?;
    let mut tools = ToolRegistry::new();
    machine.register(&mut tools);
    tools.derive_capabilities_from_tools();
    let client = NodeClientBuilder::new()
        .node_id(&args.id)
        .name(args.name.as_ref().unwrap_or(&args.id))
        .tags(args.tag)
        .node_type("machine")
        .host(host::describe(args.role.into()))
        .bin_probe(host::has_program)
        .events(machine.events())
        .version(crate::VERSION)
        .gateway_ws_url(&args.gateway)
        // Images and files are larger than what most tools take and give.
        .max_request_bytes(MAX_TOOL_RESPONSE_BYTES)
        .max_response_bytes(MAX_TOOL_RESPONSE_BYTES)
        .token(std::env::var("SA_NODE_TOKEN").unwrap_or_default())
        .build()
        .map_err(|error| Failure::usage(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::other(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let stop = super::run::stop_on_signals()?;
        client.run(tools, stop).await.map_err(|error| Failure::other(error.to_string()))
    })
}
