//! `node`: this machine's shell and files, offered through a gateway.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sa_core::mask::address;
use sa_node::host::{self, Role};
use sa_node::{Machine, Options, Sandbox, StartError};
use sa_node_sdk::{NodeClientBuilder, NodeSdkError, ReconnectBackoff, ToolRegistry};
use sa_vault::bounded;

use super::client::distrusted;
use super::flags::OfGateway;
use super::output::{Failure, err_lines};
use super::reach::is_loopback;
use super::table::{facts_in, width_of};
use super::{Global, run::layers};
use crate::config::Config;
use crate::http::CONNECT_WITH;
use crate::telemetry;
use crate::wording::quoted;

/// What one call may bring or give: an image of 10 MB as base64, and what is around it. The gateway has the last word.
const MAX_FRAME: usize = 16 << 20;

/// The longest wait before a gateway on the same machine is tried again.
const MAX_DELAY_BESIDE: Duration = Duration::from_secs(10);

/// Leaves room for a tool's own name in the 64 characters that all clients accept.
const MAX_ID: usize = 48;

#[derive(Debug, clap::Args)]
pub(crate) struct NodeArgs {
    /// The gateway: its address, or its node socket. Else that of --url, else the one that runs on the data directory.
    #[arg(long, value_name = "URL", env = "SA_GATEWAY_WS_URL")]
    gateway: Option<String>,
    /// What the machine is called in the names of its tools, such as laptop__Bash; its host name when absent.
    #[arg(long, value_name = "ID", env = "SA_NODE_ID", value_parser = node_id)]
    id: Option<String>,
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
    /// Let the file tools touch nothing outside this directory; may be given more than once. With --sandbox it is the
    /// workspace when absent.
    #[arg(long, value_name = "DIR")]
    allow_root: Vec<PathBuf>,
    /// Write nothing.
    #[arg(long)]
    read_only: bool,
    /// Hold commands back: they read the system's files and the workspace, write to the workspace and to a directory of
    /// their own, see no other variables than harmless ones, and have no powers of root. The file tools keep to the
    /// workspace, or to each --allow-root.
    #[arg(long)]
    sandbox: bool,
    /// Give commands no network at all.
    #[arg(long, requires = "sandbox")]
    no_network: bool,
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

pub(super) fn run(global: &Global, args: NodeArgs) -> Result<(), Failure> {
    let layers = layers(global, &OfGateway::default())?;
    let config = Config::resolve(&layers)?;
    let _logs = telemetry::init_logs(&config.settings.log).map_err(|error| Failure::usage(error.to_string()))?;
    sa_node::hide_memory().map_err(|error| Failure::other(format!("cannot protect the token: {error}")))?;
    let id = args.id.clone().unwrap_or_else(host_name);
    let token_file = global.reach.token_file.clone();
    let token = match &token_file {
        Some(file) => read_token(file)?,
        None => layers.variable("SA_NODE_TOKEN").unwrap_or_default(),
    };
    let given = args.gateway.clone().or_else(|| global.reach.url.clone());
    let running = || bounded::text_of_file(&config.endpoint_file(), bounded::TOKEN).ok();
    let chosen = given.is_some();
    let gateway = given.or_else(running).unwrap_or_else(|| format!("http://{}", config.listen));
    let gateway = node_socket(gateway.trim());

    let trusted = global.reach.trusted()?;
    let mut options = Options::new(&args.workspace);
    options.allow_roots.clone_from(&args.allow_root);
    options.read_only = args.read_only;
    options.sandbox = args.sandbox.then_some(Sandbox { network: !args.no_network });
    // A gateway on the same machine has its tokens and its store there.
    let data_dir = Some(config.data_dir.clone()).filter(|dir| dir.exists());
    options.hidden = [token_file, global.config.clone(), data_dir].into_iter().flatten().collect();
    let machine = Machine::new(options).map_err(|error| {
        let failure = Failure::usage(error.to_string());
        match error {
            StartError::Secret { .. } => failure.hint("--workspace DIR names another one"),
            StartError::Sandbox { .. } => failure.hint("docs/machine.md says what the sandbox needs"),
            StartError::Directory { path, error, .. } if error.kind() == std::io::ErrorKind::NotFound => {
                let path = path.display().to_string();
                failure.hint(format!("mkdir -p {}   (or name a folder that is there)", quoted(&path)))
            }
            StartError::Directory { .. } => failure.hint("name a folder that this user may enter"),
            _ => failure,
        }
    })?;
    let mut tools = ToolRegistry::new();
    machine.register(&mut tools);
    err_lines(&format!("{id} offers {} to {}", tools.tool_names().join(", "), address(&gateway)));
    let mut err = std::io::stderr();
    let _ = write!(err, "{}", facts_in(&introduction(&args, &tools.tool_names()), width_of(&err)));
    tools.derive_capabilities_from_tools();
    let client = NodeClientBuilder::new()
        .ca_pem(&trusted.pem)
        .node_id(&id)
        .name(args.name.as_ref().unwrap_or(&id))
        .tags(args.tag)
        .node_type("machine")
        .host(host::describe(args.role.into()))
        .bin_probe(host::has_program)
        .events(machine.events())
        .version(crate::VERSION)
        .gateway_ws_url(&gateway)
        .reconnect_backoff(backoff(&gateway))
        .max_request_bytes(MAX_FRAME)
        .max_response_bytes(MAX_FRAME)
        .token(token)
        .build()
        .map_err(|error| Failure::usage(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::other(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let stop = super::stop::on_signals()?;
        if !chosen && !answers(&gateway).await {
            let place = address(&gateway);
            err_lines(&format!("no gateway answers at {place}; waiting for one.\nStart it with: switchboard up   (or name another with --gateway)"));
        }
        if let Some(rest) = gateway.strip_prefix("wss://") {
            // A node goes on trying, which helps against all but this.
            distrusted(&format!("https://{rest}"), &trusted).await?;
        }
        let ran = client.run(tools, stop).await;
        machine.shut_down().await;
        match ran {
            // As it was asked to.
            Ok(()) | Err(NodeSdkError::Shutdown) => Ok(()),
            Err(NodeSdkError::Unauthorized { status, reason }) => {
                // What it tells authors of nodes is done here already.
                let reason = reason.split(CONNECT_WITH).next().unwrap_or_default().trim_end_matches([' ', ';', '(']);
                Err(Failure::new(4, format!("the gateway refused this node ({status}): {reason}")).hint(
                    "name a token for this id with --token-file FILE or SA_NODE_TOKEN\n\
                     to make one: switchboard token create NAME --role node",
                ))
            }
            Err(NodeSdkError::Refused { code: sa_protocol::close::ID_HELD, reason }) => {
                Err(Failure::of_kind("conflict", format!("the gateway refused this node: {reason}"))
                    .hint("--id NAME gives it another id; --token-file FILE or SA_NODE_TOKEN names the id's own token"))
            }
            Err(error) => Err(Failure::other(error.to_string())),
        }
    })
}

/// What this machine now lets others do, so that nobody offers more than they meant to.
fn introduction(args: &NodeArgs, tools: &[String]) -> [(&'static str, String); 3] {
    let root = rustix::process::geteuid().is_root();
    let user = if root { "root".into() } else { std::env::var("USER").unwrap_or_else(|_| "this user".into()) };
    // A sandbox holds for the file tools, too, unless they were given places of their own.
    let confined = if args.sandbox && args.allow_root.is_empty() {
        std::slice::from_ref(&args.workspace)
    } else {
        &args.allow_root[..]
    };
    let roots: Vec<_> = confined.iter().map(|root| root.display().to_string()).collect();
    let commands = match (tools.iter().any(|tool| tool == "Bash"), args.sandbox, args.no_network) {
        (false, ..) => "none; --sandbox would let them run where they can write nothing".to_owned(),
        (_, false, _) => format!("with all that {user} may do; --sandbox holds them back"),
        (_, true, false) => "in a sandbox, with the network".to_owned(),
        (_, true, true) => "in a sandbox, without a network".to_owned(),
    };
    let files =
        if roots.is_empty() { format!("all that {user} may touch") } else { format!("in {}", roots.join(", ")) };
    let held = match (roots.is_empty(), args.read_only) {
        (true, false) => "; --allow-root DIR or --sandbox confines them, --read-only writes none",
        (false, false) => "; --read-only writes none",
        (_, true) => ", to read",
    };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let workspace = real(&args.workspace);
    let outside = !confined.is_empty() && !confined.iter().any(|root| workspace.starts_with(real(root)));
    let unreachable = if outside { "; the file tools may not touch it, see --allow-root" } else { "" };
    [
        ("workspace", format!("{}{unreachable}", workspace.display())),
        ("commands", commands),
        ("files", format!("{files}{held}")),
    ]
}

/// The node socket of a gateway, whose address people know by its port.
fn node_socket(gateway: &str) -> String {
    let (scheme, rest) = match gateway.split_once("://") {
        Some(("http", rest)) => ("ws", rest),
        Some(("https", rest)) => ("wss", rest),
        Some((scheme, rest)) => (scheme, rest),
        None => ("ws", gateway),
    };
    let path = if rest.trim_end_matches('/').contains(['/', '?']) { "" } else { "/v1/nodes/ws" };
    format!("{scheme}://{}{path}", if path.is_empty() { rest } else { rest.trim_end_matches('/') })
}

/// A gateway on the same machine is asked often, for that costs nobody anything, and whoever starts it again waits for the
/// node beside it.
fn backoff(gateway: &str) -> ReconnectBackoff {
    let mut backoff = ReconnectBackoff::default();
    if url::Url::parse(gateway).is_ok_and(|url| is_loopback(&url)) {
        backoff.max_delay = MAX_DELAY_BESIDE;
    }
    backoff
}

/// Whether anything listens at a gateway's address. What it is shows when the node connects.
async fn answers(gateway: &str) -> bool {
    let Some((host, port)) = url::Url::parse(gateway)
        .ok()
        .and_then(|url| Some((url.host_str()?.trim_matches(['[', ']']).to_owned(), url.port_or_known_default()?)))
    else {
        return false;
    };
    let patience = Duration::from_secs(2);
    matches!(tokio::time::timeout(patience, tokio::net::TcpStream::connect((host, port))).await, Ok(Ok(_)))
}

/// An id that the names of tools can begin with. Others would be changed, and nobody could guess into what.
fn node_id(id: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    if (1..=MAX_ID).contains(&id.len()) && id.chars().all(fits) {
        return Ok(id.to_owned());
    }
    Err(format!("tools are named after it: 1 to {MAX_ID} letters, digits, - and _, such as laptop-2"))
}

fn read_token(file: &Path) -> Result<String, Failure> {
    let token = bounded::text(file, bounded::TOKEN).map_err(|error| {
        Failure::usage(format!("cannot read the token in {}: {error}", file.display()))
            .hint("make one with: switchboard token create NAME --role node")
    })?;
    match token.trim() {
        "" => Err(Failure::usage(format!("there is no token in {}", file.display()))),
        token => Ok(token.to_owned()),
    }
}

/// What the machine is called, as far as tools can have it in their names.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let first = name.split('.').next().unwrap_or_default();
    let plain: String = first.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    if plain.is_empty() { "machine".into() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_can_stand_in_the_names_of_tools() {
        for good in ["laptop", "mac-01.local", "a:b", "x_1"] {
            assert_eq!(node_id(good).as_deref(), Ok(good));
        }
        for bad in ["", "bad id", "a/b", "größe", "a\u{1b}", &"a".repeat(49)] {
            assert!(node_id(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_gateway_on_the_same_machine_is_tried_more_often() {
        let usual = ReconnectBackoff::default();
        for (gateway, longest) in [
            ("ws://localhost:3210/v1/nodes/ws", MAX_DELAY_BESIDE),
            ("ws://127.0.0.1:1/x", MAX_DELAY_BESIDE),
            ("wss://[::1]/x", MAX_DELAY_BESIDE),
            ("wss://gw.example.com/v1/nodes/ws", usual.max_delay),
            ("ws://10.0.0.1/x", usual.max_delay),
        ] {
            assert_eq!(backoff(gateway), ReconnectBackoff { max_delay: longest, ..usual.clone() }, "{gateway}");
        }
    }

    #[track_caller]
    fn check_socket(gateway: &str, expected: &str) {
        assert_eq!(node_socket(gateway), expected);
    }

    #[test]
    fn a_gateway_is_found_by_any_of_its_addresses() {
        check_socket("ws://127.0.0.1:3210/v1/nodes/ws", "ws://127.0.0.1:3210/v1/nodes/ws");
        check_socket("http://127.0.0.1:3210", "ws://127.0.0.1:3210/v1/nodes/ws");
        check_socket("https://gw.example.com/", "wss://gw.example.com/v1/nodes/ws");
        check_socket("localhost:3210", "ws://localhost:3210/v1/nodes/ws");
        check_socket("wss://gw.example.com/behind/a/proxy", "wss://gw.example.com/behind/a/proxy");
        check_socket("ws://h:1?token=x", "ws://h:1?token=x");
    }
}
