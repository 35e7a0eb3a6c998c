//! `serve` and `up`: a gateway in this process.

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
use super::flags::OfGateway;
use super::output::Failure;
use super::running;
use super::stop::{self, Stop};
use super::typed::with_options;
use crate::assemble::{Gateway, assemble, write_private};
use crate::config::environment::{unknown_variable, unknown_variables};
use crate::config::layers::Layers;
use crate::config::{Config, Mistake};
use crate::examples::Examples;
use crate::redact::printable;
use crate::{demo, serve, sign_in, telemetry};

/// How long upstream servers may take to be there before a person is told how they are.
const UPSTREAM_PATIENCE: Duration = Duration::from_millis(1_500);

/// How long the demo's node may take to connect until it is not waited for.
const DEMO_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    flags: OfGateway,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    serve: ServeArgs,
    /// Folder with the project's example plugins, to have them in the demo; needs Node.js.
    #[arg(long, value_name = "DIR")]
    examples: Option<PathBuf>,
}

/// What a gateway that is only tried out has beside its own.
pub(super) struct Demo {
    examples: Option<PathBuf>,
}

pub(super) fn up(global: &Global, args: UpArgs) -> Result<(), Failure> {
    serve(global, &args.serve, Some(Demo { examples: args.examples }))
}

/// The configuration with what was typed on top of it.
pub(crate) fn layers(global: &Global, more: &OfGateway) -> Result<Layers, Failure> {
    Ok(Layers::read(global.config.as_deref(), std::env::vars_os(), &flags(global, more))?)
}

/// The same for somebody who asks about the configuration: what can be read of it, and everything that is wrong with it.
pub(super) fn layers_despite_mistakes(global: &Global, more: &OfGateway) -> (Layers, Vec<Mistake>) {
    let flags = flags(global, more);
    let (layers, unreadable) = Layers::read_despite_mistakes(global.config.as_deref(), std::env::vars_os(), &flags);
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
    let logs = telemetry::init_logs(&config.settings.log).map_err(|error| Failure::usage(error.to_string()))?;
    let held = demo.is_some().then(|| logs.hold());
    for name in unknown_variables() {
        warn!("{}", unknown_variable(&name));
    }
    raise_descriptor_limit();
    if let Ok(program) = std::env::current_exe() {
        sa_upstream::reaper::install(program);
    }
    let workers = workers(config.settings.server.workers);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::other(format!("cannot start: {error}")))?;
    runtime.block_on(run(config, demo, held, global.json))
}

/// One for each processor unless it is said. Fewer take less of them for each call, and share what takes long.
fn workers(wanted: usize) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    if wanted > 0 { wanted } else { processors() }
}

/// Every connection is a descriptor, and the usual limit of 1,024 is far below what the gateway can serve.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

async fn run(config: Config, demo: Option<Demo>, held: Option<telemetry::HeldLogs>, json: bool) -> Result<(), Failure> {
    let stop = Stop::on_signals()?;
    let listen = config.listen;
    let listener = match TcpListener::bind(listen).await {
        Ok(listener) => listener,
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => return Err(running::in_the_way(&config).await),
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
            Some(StoreErrorKind::Behind) => {
                failure.hint(format!("restore a backup; or, for want of one: {}", here.typed("doctor --accept-loss")))
            }
            Some(StoreErrorKind::Damaged) => {
                failure.hint(format!("to find all that is damaged: {}", here.typed("doctor --deep")))
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
        // Other commands then need --url; the gateway itself does without.
        warn!(file = %endpoint.display(), %error, "cannot leave the gateway's address for other commands");
    }
    let open = config.node_tokens.is_empty() && !gateway.tokens.any_for_nodes();
    // Who is let in without a token comes from a loopback address, and so to one, or to all that there are.
    let local = address.ip().is_loopback() || address.ip().is_unspecified();
    match (open, local) {
        (true, true) => warn!(
            "no node token is set: any process on this machine can connect as a node; set SA_NODE_TOKEN to change that"
        ),
        (true, false) => warn!(
            "no node token is set: no node can connect to {address}; set SA_NODE_TOKEN, or make one with: switchboard \
             token create NAME --role node"
        ),
        (false, _) => {}
    }
    let serving = tokio::spawn(serve::serve(Arc::clone(&gateway), listener, stop.gently.clone()));
    tokio::spawn(stop::tell(Arc::clone(&gateway), stop.clone()));
    crate::http::mark_started();
    if demo.is_some() {
        let token = demo_token(&gateway).await?;
        demo::spawn(&gateway, address, &token).map_err(|error| Failure::other(error.to_string()))?;
        // Whoever reads that the gateway listens may call one of the demo's tools at once.
        let _ = tokio::time::timeout(DEMO_PATIENCE, any_node(&gateway)).await;
    }
    // Scripts wait for this line. Everything else that is said goes to stderr.
    if json {
        drop(held);
        announce(&format!("{}\n", started(config, &url, demo.is_some().then(|| gateway.sign_in.issue()))));
    } else if demo.is_some() {
        announce(&format!("listening on {url}\n"));
        gateway.upstreams.reached(UPSTREAM_PATIENCE).await;
        let more = [("plugins", plugins), ("upstream", upstream_servers(&gateway, &program(config)))];
        let text = next_steps(config, &url, &sign_in::path(&gateway.sign_in.issue()), &more);
        // What went wrong so far stands above it.
        drop(held);
        announce(&text);
    } else {
        announce(&format!("listening on {url}\n"));
    }
    if demo.is_none() && std::io::stderr().is_terminal() {
        // For a person alone: a log that is kept is no place for what signs somebody in.
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
        // Whoever waited for running calls did not get them.
        stop::exit_now();
    }
    Ok(())
}

/// Says on stdout what a person or a script waits for. A gateway that nobody listens to runs all the same.
fn announce(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        warn!(%error, "cannot say on stdout that the gateway listens");
    }
}

/// Waits until a node is connected.
async fn any_node(gateway: &Gateway) {
    let directory = gateway.router.directory();
    let mut changes = directory.subscribe();
    while directory.online(sa_nodes::KIND) == 0 && changes.changed().await.is_ok() {}
}

/// What `--json` says of a gateway that has started: where it is, and with `up` what signs somebody in to its console.
fn started(config: &Config, url: &str, sign_in: Option<String>) -> serde_json::Value {
    let mut started = serde_json::json!({
        "version": crate::VERSION,
        "url": url,
        "data_dir": config.data_dir,
        "token_file": config.operator_token_file(),
    });
    if let Some(code) = sign_in {
        started["console"] = format!("{url}{}", sign_in::path(&code)).into();
    }
    started
}

/// The demo node's own token: nodes without a token cannot take its id or its names.
async fn demo_token(gateway: &Gateway) -> Result<String, Failure> {
    let file = gateway.config.data_dir.join("demo-node.token");
    if let Ok(token) = bounded::text_of_file(&file, bounded::TOKEN)
        && gateway.tokens.authenticate(token.trim()).is_ok()
    {
        return Ok(token.trim().to_owned());
    }
    let token = gateway.tokens.create_for_demo().await.map_err(|error| Failure::other(error.to_string()))?;
    write_private(&file, &token).map_err(|error| Failure::other(format!("{}: {error}", file.display())))?;
    Ok(token)
}

/// What a command about this gateway begins with.
fn program(config: &Config) -> String {
    called() + &config.options()
}

/// How to type this program's name here: as it is on the path, or as the file it is.
fn called() -> String {
    let this = std::env::current_exe().unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("switchboard")).find(|file| file.is_file());
    let here = std::env::current_dir().unwrap_or_default();
    match (on_path, this.strip_prefix(here)) {
        (Some(file), _) if file.canonicalize().is_ok_and(|file| file == this) => "switchboard".to_owned(),
        (_, Ok(below)) => format!("./{}", below.display()),
        _ => this.display().to_string(),
    }
}

/// The upstream servers, and which of them cannot be used.
fn upstream_servers(gateway: &Gateway, program: &str) -> String {
    use sa_upstream::State;
    let servers = gateway.upstreams.list().into_iter().filter(|server| server.health.state != State::Disabled);
    let words = servers.map(|server| match server.health.state {
        State::Ready | State::Idle => format!("{} is ready", server.name),
        State::Starting => format!("{} starts", server.name),
        State::LoginNeeded => format!("{0} needs a login ({program} upstream login {0})", server.name),
        State::Offline | State::Failed | State::Disabled => format!("{} cannot be used", server.name),
    });
    let words: Vec<String> = words.collect();
    let bad = words.iter().any(|words| words.ends_with("cannot be used"));
    let why = if bad { format!("; to see why: {program} upstream list") } else { String::new() };
    format!("{}{why}", words.join(", "))
}

fn next_steps(config: &Config, url: &str, console: &str, more: &[(&str, String)]) -> String {
    let (program, called) = (program(config), called());
    let mut path = String::new();
    if called != "switchboard" {
        path = format!("\n\nswitchboard is not on your PATH: where docs and hints say it, type\n  {called}");
        let file =
            std::env::current_exe().ok().filter(|file| file.file_name().is_some_and(|name| name == "switchboard"));
        if let Some(folder) = file.as_ref().and_then(|file| file.parent()) {
            let folder = folder.display();
            path =
                format!("\n\nTo type switchboard alone, as docs and hints have it:\n  export PATH=\"{folder}:$PATH\"");
        }
    }
    let file = config.operator_token_file();
    let file = file.display();
    let more = more.iter().filter(|(_, words)| !words.is_empty());
    let more: Vec<String> = more.map(|(label, words)| format!("\n  {label:<9}  {words}")).collect();
    let more = more.concat();
    let trust = config.tls.as_ref().map_or_else(String::new, |tls| {
        format!(
            "\nWhere the certificate is not trusted already, name it, or its authority's: --ca to switchboard,\n\
             --cacert to curl, NODE_EXTRA_CA_CERTS to agents. It is {}\n",
            tls.cert.display()
        )
    });
    format!(
        r#"
Switchboard {version} is up, with a demo node connected.

  console    {url}{console}
             (works once, for 10 minutes; for another: {program} console)
  token      {file}
  tools      {program} tools
  call one   {program} call demo_countdown from=3
  watch      {program} tail{more}{path}

With curl:
  curl -s {url}/v1/tools/demo_echo/call \
    -H "Authorization: Bearer $(cat {file})" \
    -H "Content-Type: application/json" -d '{{"args":{{"text":"hello"}}}}'

For agents, over MCP. First make a token for them:
  export AGENT_TOKEN=$({program} token create my-agent)

  Claude Code  claude mcp add --transport http switchboard {url}/mcp --header "Authorization: Bearer $AGENT_TOKEN"
  Codex        codex mcp add switchboard --url {url}/mcp --bearer-token-env-var AGENT_TOKEN
  VS Code      code --add-mcp '{{"name":"switchboard","type":"http","url":"{url}/mcp","headers":{{"Authorization":"Bearer '$AGENT_TOKEN'"}}}}'
  Cursor       in ~/.cursor/mcp.json:
               {{"mcpServers":{{"switchboard":{{"url":"{url}/mcp","headers":{{"Authorization":"Bearer ${{env:AGENT_TOKEN}}"}}}}}}}}
{trust}
Ctrl-C stops it.
"#,
        version = crate::VERSION,
    )
}
