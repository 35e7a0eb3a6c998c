//! The `serve` and `up` commands: run a gateway in this process.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sa_store::StoreErrorKind;
use sa_vault::bounded;
use tokio::net::TcpListener;
use tracing::{info, warn};

use super::Global;
use super::demo;
use super::examples::Examples;
use super::flags::OfGateway;
use super::output::Failure;
use super::running;
use super::stop::{self, Stop};
use super::typed::with_options;
use sa_gateway::assemble::{Gateway, assemble, write_private};
use sa_gateway::config::environment::{unknown_variable, unknown_variables};
use sa_gateway::config::layers::Layers;
use sa_gateway::config::{Config, Mistake};
use sa_gateway::{serve, sign_in, telemetry};
use sa_text::printable;

/// The timeout for upstream servers to start before their state is printed.
const UPSTREAM_TIMEOUT: Duration = Duration::from_millis(1_500);

/// The timeout for the demo node to connect.
const DEMO_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    flags: OfGateway,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    serve: ServeArgs,
    /// Directory with the project's example plugins, which the demo then offers. Needs Node.js.
    #[arg(long, value_name = "DIR")]
    examples: Option<PathBuf>,
}

/// Settings of a demo gateway.
pub(super) struct Demo {
    examples: Option<PathBuf>,
}

pub(super) fn up(global: &Global, args: UpArgs) -> Result<(), Failure> {
    serve(global, &args.serve, Some(Demo { examples: args.examples }))
}

/// Reads the configuration, including environment variables and flags.
pub(crate) fn layers(global: &Global, more: &OfGateway) -> Result<Layers, Failure> {
    Ok(Layers::read(global.config.as_deref(), std::env::vars_os(), &flags(global, more))?)
}

/// Reads the configuration even if it has mistakes. Returns the readable part and all mistakes.
pub(super) fn layers_despite_mistakes(global: &Global, more: &OfGateway) -> (Layers, Vec<Mistake>) {
    let flags = flags(global, more);
    let (layers, unreadable) =
        Layers::read_despite_mistakes(global.config.as_deref(), std::env::vars_os(), &flags);
    let mistakes = layers.all_mistakes(unreadable);
    (layers, mistakes)
}

fn flags(global: &Global, more: &OfGateway) -> Vec<(&'static str, OsString)> {
    global.flags.0.iter().chain(&more.0).cloned().collect()
}

pub(super) fn serve(global: &Global, args: &ServeArgs, demo: Option<Demo>) -> Result<(), Failure> {
    let layers = layers(global, &args.flags)?;
    let config = Config::resolve(&layers)?;
    config.check_files(&layers)?;
    let logs = telemetry::init_logs(&config.settings.log)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let held = demo.is_some().then(|| logs.hold());
    for name in unknown_variables() {
        warn!("{}", unknown_variable(&name));
    }
    raise_descriptor_limit();
    let workers = workers(config.settings.server.workers);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::other(format!("cannot start: {error}")))?;
    runtime.block_on(run(config, demo, held, global.json))
}

/// Returns the number of worker threads, by default one for each processor. Fewer workers use less
/// CPU time for each call, but share the long tasks.
fn workers(wanted: usize) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    if wanted > 0 { wanted } else { processors() }
}

/// Raises the limit of open files. Each connection needs a descriptor, and the usual limit of 1,024
/// is far below the gateway's capacity.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

async fn run(
    config: Config,
    demo: Option<Demo>,
    held: Option<telemetry::HeldLogs>,
    json: bool,
) -> Result<(), Failure> {
    let stop = Stop::on_signals()?;
    let listen = config.listen;
    let listener = match TcpListener::bind(listen).await {
        Ok(listener) => listener,
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            return Err(running::in_the_way(&config).await);
        }
        Err(error) => {
            return Err(Failure::other(format!("cannot listen on {listen}: {error}"))
                .hint("choose another address with --listen, such as 127.0.0.1:0"));
        }
    };
    let mut examples = match demo.as_ref().and_then(|demo| demo.examples.as_ref()) {
        Some(folder) => Some(Examples::start(folder).await),
        None => None,
    };
    let here = config.clone();
    let gateway = assemble(config).await.map_err(|error| {
        let failure = Failure::other(with_options(&format!("{error:#}"), &here.options()));
        match error.downcast_ref::<sa_store::StoreError>().map(|error| error.kind) {
            Some(StoreErrorKind::Behind) => failure.hint(format!(
                "restore a backup; if there is none, run `{}`",
                here.typed("doctor --accept-loss")
            )),
            Some(StoreErrorKind::Damaged) => {
                failure.hint(format!("run `{}` to find all damage", here.typed("doctor --deep")))
            }
            Some(StoreErrorKind::InUse) => running::on_data_of(&here).unwrap_or(failure),
            _ => failure,
        }
    })?;
    let plugins = match &mut examples {
        Some(Ok(examples)) => examples.add_to(&gateway.plugins).await.join(", "),
        Some(Err(why)) => format!("left out: {}", printable(why)),
        None => String::new(),
    };
    let address = listener.local_addr().map_err(|error| Failure::other(error.to_string()))?;
    let config = &gateway.config;
    let tls = config.tls.is_some();
    let url = format!("{}://{address}", if tls { "https" } else { "http" });
    let endpoint = config.endpoint_file();
    if let Err(error) = write_private(&endpoint, &url) {
        // The gateway runs without this file, but other commands then need --url.
        warn!(file = %endpoint.display(), %error, "cannot write the gateway's address for other commands");
    }
    let open = gateway.node_access.admits_anyone();
    // Clients without a token are only accepted from loopback addresses. They can connect if the
    // gateway listens on a loopback or unspecified address.
    let local = address.ip().is_loopback() || address.ip().is_unspecified();
    match (open, local) {
        (true, true) => warn!(
            "no node token is set: any process on this machine can connect as a node; set SA_NODE_TOKEN to prevent this"
        ),
        (true, false) => warn!(
            "no node token is set: no node can connect to {address}; set SA_NODE_TOKEN, or run \
             `switchboard token create NAME --role node` to create one"
        ),
        (false, _) => {}
    }
    let serving = tokio::spawn(serve::serve(Arc::clone(&gateway), listener, stop.gently.clone()));
    tokio::spawn(stop::tell(Arc::clone(&gateway), stop.clone()));
    sa_gateway::http::mark_started();
    if demo.is_some() {
        let token = demo_token(&gateway).await?;
        demo::spawn(&gateway, address, &token)
            .map_err(|error| Failure::other(error.to_string()))?;
        // Wait for the demo node, so that its tools can be called as soon as the start is
        // announced.
        let _ = tokio::time::timeout(DEMO_TIMEOUT, any_node(&gateway)).await;
    }
    // Scripts wait for this line. All other output goes to stderr.
    if json {
        drop(held);
        announce(&format!(
            "{}\n",
            started(config, &url, demo.is_some().then(|| gateway.sign_in.issue()))
        ));
    } else if demo.is_some() {
        announce(&format!("listening on {url}\n"));
        gateway.upstreams.reached(UPSTREAM_TIMEOUT).await;
        let more =
            [("plugins", plugins), ("upstream", upstream_servers(&gateway, &program(config)))];
        let text = next_steps(config, &url, &sign_in::path(&gateway.sign_in.issue()), &more);
        // The held logs contain earlier problems and are printed first.
        drop(held);
        announce(&text);
    } else {
        announce(&format!("listening on {url}\n"));
    }
    if demo.is_none() && std::io::stderr().is_terminal() {
        // Only printed on a terminal: a stored log must not contain a sign-in link.
        let path = sign_in::path(&gateway.sign_in.issue());
        telemetry::say(&format!("console  {url}{path}  (works once, for 10 minutes)"));
    }
    let served = serving.await.map_err(|error| Failure::other(error.to_string()))?;
    let _ = std::fs::remove_file(&endpoint);
    if let Some(Ok(examples)) = &examples {
        examples.remove_from(&gateway.plugins).await;
    }
    gateway.store.shutdown().await.map_err(|error| Failure::other(error.to_string()))?;
    served.map_err(|error| Failure::other(format!("{error:#}")))?;
    info!("stopped");
    if stop.now.is_cancelled() {
        // The second signal cut off running calls, so the exit code is not zero.
        stop::exit_now();
    }
    Ok(())
}

/// Writes to stdout that the gateway has started. A closed stdout does not stop the gateway.
fn announce(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        warn!(%error, "cannot write the gateway's address to stdout");
    }
}

/// Waits until a node is connected.
async fn any_node(gateway: &Gateway) {
    let directory = gateway.router.directory();
    let mut changes = directory.subscribe();
    while directory.online(sa_nodes::KIND) == 0 && changes.changed().await.is_ok() {}
}

/// Returns the start message for `--json`: the addresses of the gateway, and with `up` a sign-in
/// link for the console.
fn started(config: &Config, url: &str, sign_in: Option<String>) -> serde_json::Value {
    let mut started = serde_json::json!({
        "version": sa_gateway::VERSION,
        "url": url,
        "data_dir": config.data_dir,
        "token_file": config.operator_token_file(),
    });
    if let Some(code) = sign_in {
        started["console"] = format!("{url}{}", sign_in::path(&code)).into();
    }
    started
}

/// Returns the token of the demo node. With it, nodes without a token cannot take its id or its
/// tool names.
async fn demo_token(gateway: &Gateway) -> Result<String, Failure> {
    let file = gateway.config.data_dir.join("demo-node.token");
    if let Ok(token) = bounded::text_of_file(&file, bounded::TOKEN)
        && gateway.http.auth.authenticate(token.trim()).is_ok()
    {
        return Ok(token.trim().to_owned());
    }
    let token = gateway
        .tokens
        .create_for_demo()
        .await
        .map_err(|error| Failure::other(error.to_string()))?;
    write_private(&file, &token)
        .map_err(|error| Failure::other(format!("{}: {error}", file.display())))?;
    Ok(token)
}

/// Returns the program name and options for a command that uses this gateway.
fn program(config: &Config) -> String {
    called() + &config.options()
}

/// Returns how to invoke this program from the current directory: by name if it is in PATH,
/// otherwise by path.
fn called() -> String {
    let this = std::env::current_exe().unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path =
        std::env::split_paths(&path).map(|dir| dir.join("switchboard")).find(|file| file.is_file());
    let here = std::env::current_dir().unwrap_or_default();
    match (on_path, this.strip_prefix(here)) {
        (Some(file), _) if file.canonicalize().is_ok_and(|file| file == this) => {
            "switchboard".to_owned()
        }
        (_, Ok(below)) => format!("./{}", below.display()),
        _ => this.display().to_string(),
    }
}

/// Describes the upstream servers and their states.
fn upstream_servers(gateway: &Gateway, program: &str) -> String {
    use sa_upstream::State;
    let servers = gateway
        .upstreams
        .list()
        .into_iter()
        .filter(|server| server.health.state != State::Disabled);
    let words = servers.map(|server| match server.health.state {
        State::Ready => format!("{} is ready", server.name),
        State::Idle => format!("{} is idle (the first call starts it)", server.name),
        State::Starting => format!("{} is starting", server.name),
        State::LoginNeeded => {
            format!("{0} needs a login ({program} upstream login {0})", server.name)
        }
        State::Offline | State::Failed | State::Disabled => {
            format!("{} is unavailable", server.name)
        }
    });
    let words: Vec<String> = words.collect();
    let bad = words.iter().any(|words| words.ends_with("is unavailable"));
    let why =
        if bad { format!("; run `{program} upstream list` to see why") } else { String::new() };
    format!("{}{why}", words.join(", "))
}

fn next_steps(config: &Config, url: &str, console: &str, more: &[(&str, String)]) -> String {
    let (program, called) = (program(config), called());
    let mut path = String::new();
    if called != "switchboard" {
        path = format!(
            "\n\nswitchboard is not in your PATH. Instead of switchboard, type\n  {called}"
        );
        let file = std::env::current_exe()
            .ok()
            .filter(|file| file.file_name().is_some_and(|name| name == "switchboard"));
        if let Some(folder) = file.as_ref().and_then(|file| file.parent()) {
            let folder = folder.display();
            path = format!(
                "\n\nTo run it as switchboard, add it to your PATH:\n  export PATH=\"{folder}:$PATH\""
            );
        }
    }
    let file = config.operator_token_file();
    let file = file.display();
    let more = more.iter().filter(|(_, words)| !words.is_empty());
    let more: Vec<String> = more.map(|(label, words)| format!("\n  {label:<9}  {words}")).collect();
    let more = more.concat();
    let trust = config.tls.as_ref().map_or_else(String::new, |tls| {
        format!(
            "\nIf the certificate is not trusted, pass it (or its authority's) with --ca to switchboard, with\n\
             --cacert to curl, and with NODE_EXTRA_CA_CERTS to agents. It is {}\n",
            tls.cert.display()
        )
    });
    format!(
        r#"
Switchboard {version} is up, with a demo node connected.

  console    {url}{console}
             (works once, for 10 minutes; for a new link: {program} console)
  token      {file}
  tools      {program} tools
  call one   {program} call demo_countdown from=3
  watch      {program} tail{more}{path}

With curl:
  curl -s {url}/v1/tools/demo_echo/call \
    -H "Authorization: Bearer $(cat {file})" \
    -H "Content-Type: application/json" -d '{{"args":{{"text":"hello"}}}}'

For agents, over MCP. First create a token for them:
  export AGENT_TOKEN=$({program} token create my-agent)

  Claude Code  claude mcp add --transport http switchboard {url}/mcp --header "Authorization: Bearer $AGENT_TOKEN"
  Codex        codex mcp add switchboard --url {url}/mcp --bearer-token-env-var AGENT_TOKEN
  VS Code      code --add-mcp '{{"name":"switchboard","type":"http","url":"{url}/mcp","headers":{{"Authorization":"Bearer '$AGENT_TOKEN'"}}}}'
  Cursor       in ~/.cursor/mcp.json:
               {{"mcpServers":{{"switchboard":{{"url":"{url}/mcp","headers":{{"Authorization":"Bearer ${{env:AGENT_TOKEN}}"}}}}}}}}
{trust}
Press Ctrl-C to stop.
"#,
        version = sa_gateway::VERSION,
    )
}
