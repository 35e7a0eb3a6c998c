//! The `node` command: offers this machine's shell and files through a gateway.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sa_node::host::{self, Role};
use sa_node::{Machine, Options, Sandbox, StartError};
use sa_node_sdk::{NodeClientBuilder, NodeSdkError, ReconnectBackoff, ToolRegistry};
use sa_text::mask::address;
use sa_vault::bounded;

use super::client::distrusted;
use super::flags::OfGateway;
use super::output::{Failure, err_lines};
use super::reach::is_loopback;
use super::table::{facts_in, width_of};
use super::{Global, run::layers};
use sa_gateway::config::Config;
use sa_gateway::telemetry;
use sa_nodes::http::CONNECT_WITH;
use sa_text::quote;

/// The maximum message size of one call: an image of 10 MB as base64, plus overhead. The gateway
/// may set a lower limit.
const MAX_FRAME: usize = 16 << 20;

/// The maximum reconnect delay for a gateway on the same machine.
const MAX_DELAY_BESIDE: Duration = Duration::from_secs(10);

/// The maximum length of a node id. It leaves space for the tool name within the 64 characters that
/// all clients accept.
const MAX_ID: usize = 48;

#[derive(Debug, clap::Args)]
pub(crate) struct NodeArgs {
    /// Address or node socket of the gateway. Defaults to --url, or else to the gateway of the data
    /// directory.
    #[arg(long, value_name = "URL", env = "SA_GATEWAY_WS_URL")]
    gateway: Option<String>,
    /// Node id, used as a prefix of the tool names, such as laptop__Bash. Defaults to the host
    /// name.
    #[arg(long, value_name = "ID", env = "SA_NODE_ID", value_parser = node_id)]
    id: Option<String>,
    /// Display name. Defaults to the id.
    #[arg(long, value_name = "NAME", env = "SA_NODE_NAME")]
    name: Option<String>,
    /// Tag to group nodes by; can be repeated.
    #[arg(long, value_name = "WORD", env = "SA_NODE_TAGS", value_delimiter = ',')]
    tag: Vec<String>,
    /// Whether calls that do not name a node may run here.
    #[arg(long, value_enum, default_value_t = HostRole::Execution)]
    role: HostRole,
    /// Base directory of relative paths, and working directory of commands.
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,
    /// Restrict the file tools to this directory; can be repeated. With --sandbox, defaults to the
    /// workspace.
    #[arg(long, value_name = "DIR")]
    allow_root: Vec<PathBuf>,
    /// Disable all writes.
    #[arg(long)]
    read_only: bool,
    /// Run commands in a sandbox. They can read system files and the workspace, write to the
    /// workspace and to a private directory, see only harmless variables, and have no root
    /// privileges. The file tools are restricted to the workspace, or to each --allow-root.
    #[arg(long)]
    sandbox: bool,
    /// Block all network access of commands.
    #[arg(long, requires = "sandbox")]
    no_network: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum HostRole {
    /// Allowed. Bare names, such as Bash, go to the first node with this role.
    Execution,
    /// Not allowed. Only calls that name this node run here.
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
    let _logs = telemetry::init_logs(&config.settings.log)
        .map_err(|error| Failure::usage(error.to_string()))?;
    sa_node::hide_memory()
        .map_err(|error| Failure::other(format!("cannot protect the token: {error}")))?;
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
    // The data directory of a local gateway contains its tokens and its store.
    let data_dir = Some(config.data_dir.clone()).filter(|dir| dir.exists());
    options.hidden = [token_file, global.config.clone(), data_dir].into_iter().flatten().collect();
    let machine = Machine::new(options).map_err(|error| {
        let failure = Failure::usage(error.to_string());
        match error {
            StartError::Secret { .. } => failure.hint("use another directory with --workspace DIR"),
            StartError::Sandbox { .. } => {
                failure.hint("see docs/machine.md for the requirements of the sandbox")
            }
            StartError::Directory { path, error, .. }
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                let path = path.display().to_string();
                failure.hint(format!(
                    "run `mkdir -p {}`, or use a directory that exists",
                    quote(&path)
                ))
            }
            StartError::Directory { .. } => {
                failure.hint("use a directory that this user can access")
            }
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
        .version(sa_gateway::VERSION)
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
            err_lines(&format!("no gateway answers at {place}; waiting for it.\nStart it with `switchboard up`, or set another address with --gateway."));
        }
        if let Some(rest) = gateway.strip_prefix("wss://") {
            // A node keeps reconnecting, which cannot fix a certificate error.
            distrusted(&format!("https://{rest}"), &trusted).await?;
        }
        let ran = client.run(tools, stop).await;
        machine.shut_down().await;
        match ran {
            // The node was stopped on request.
            Ok(()) | Err(NodeSdkError::Shutdown) => Ok(()),
            Err(NodeSdkError::Unauthorized { status, reason }) => {
                // Removes the hint for node authors, because this command already follows it.
                let reason = reason.split(CONNECT_WITH).next().unwrap_or_default().trim_end_matches([' ', ';', '(']);
                Err(Failure::new(4, format!("the gateway refused this node ({status}): {reason}")).hint(
                    "set a token for this id with --token-file FILE or SA_NODE_TOKEN;\n\
                     run `switchboard token create NAME --role node` to create one",
                ))
            }
            Err(NodeSdkError::Refused { code: sa_protocol::close::ID_HELD, reason }) => {
                Err(Failure::of_kind("conflict", format!("the gateway refused this node: {reason}"))
                    .hint("use another id with --id NAME; or set the token of this id with --token-file FILE or SA_NODE_TOKEN"))
            }
            Err(error) => Err(Failure::other(error.to_string())),
        }
    })
}

/// Lists the access that this machine now grants, so that the user does not offer more than
/// intended.
fn introduction(args: &NodeArgs, tools: &[String]) -> [(&'static str, String); 3] {
    let root = rustix::process::geteuid().is_root();
    let user = if root {
        "root".into()
    } else {
        std::env::var("USER").unwrap_or_else(|_| "this user".into())
    };
    // A sandbox also confines the file tools, unless they have their own directories.
    let confined = if args.sandbox && args.allow_root.is_empty() {
        std::slice::from_ref(&args.workspace)
    } else {
        &args.allow_root[..]
    };
    let roots: Vec<_> = confined.iter().map(|root| root.display().to_string()).collect();
    let commands = match (tools.iter().any(|tool| tool == "Bash"), args.sandbox, args.no_network) {
        (false, ..) => "none; add --sandbox to allow commands that cannot write".to_owned(),
        (_, false, _) => format!("with all rights of {user}; add --sandbox to restrict them"),
        (_, true, false) => "in a sandbox, with network access".to_owned(),
        (_, true, true) => "in a sandbox, without network access".to_owned(),
    };
    let files = if roots.is_empty() {
        format!("all that {user} can access")
    } else {
        format!("in {}", roots.join(", "))
    };
    let held = match (roots.is_empty(), args.read_only) {
        (true, false) => {
            "; restrict them with --allow-root DIR or --sandbox, disable writes with --read-only"
        }
        (false, false) => "; disable writes with --read-only",
        (_, true) => ", read-only",
    };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let workspace = real(&args.workspace);
    let outside =
        !confined.is_empty() && !confined.iter().any(|root| workspace.starts_with(real(root)));
    let unreachable =
        if outside { "; the file tools cannot access it, see --allow-root" } else { "" };
    [
        ("workspace", format!("{}{unreachable}", workspace.display())),
        ("commands", commands),
        ("files", format!("{files}{held}")),
    ]
}

/// Returns the node socket URL for a gateway address.
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

/// Returns the reconnect backoff. A local gateway is retried often, because that is cheap and a
/// restart should reconnect quickly.
fn backoff(gateway: &str) -> ReconnectBackoff {
    let mut backoff = ReconnectBackoff::default();
    if url::Url::parse(gateway).is_ok_and(|url| is_loopback(&url)) {
        backoff.max_delay = MAX_DELAY_BESIDE;
    }
    backoff
}

/// Reports whether any server listens at the gateway's address. Whether it is a gateway is only
/// known once the node connects.
async fn answers(gateway: &str) -> bool {
    let Some((host, port)) = url::Url::parse(gateway).ok().and_then(|url| {
        Some((url.host_str()?.trim_matches(['[', ']']).to_owned(), url.port_or_known_default()?))
    }) else {
        return false;
    };
    let timeout = Duration::from_secs(2);
    matches!(
        tokio::time::timeout(timeout, tokio::net::TcpStream::connect((host, port))).await,
        Ok(Ok(_))
    )
}

/// Parses a node id that can be a prefix of tool names. The gateway would have to change any other
/// id, and the result would be hard to guess.
fn node_id(id: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    if (1..=MAX_ID).contains(&id.len()) && id.chars().all(fits) {
        return Ok(id.to_owned());
    }
    Err(format!(
        "must be 1 to {MAX_ID} letters, digits, - and _, such as laptop-2, because tool names contain it"
    ))
}

fn read_token(file: &Path) -> Result<String, Failure> {
    let token = bounded::text(file, bounded::TOKEN).map_err(|error| {
        Failure::usage(format!("cannot read the token in {}: {error}", file.display()))
            .hint("run `switchboard token create NAME --role node` to create one")
    })?;
    match token.trim() {
        "" => Err(Failure::usage(format!("there is no token in {}", file.display()))),
        token => Ok(token.to_owned()),
    }
}

/// Returns the host name in a form that is valid in tool names.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let first = name.split('.').next().unwrap_or_default();
    let plain: String =
        first.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
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
            assert_eq!(
                backoff(gateway),
                ReconnectBackoff { max_delay: longest, ..usual.clone() },
                "{gateway}"
            );
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
