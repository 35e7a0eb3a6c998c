//! What people type. One file a command; this one has the words, the exit codes, and the way out.

mod call;
mod calls;
mod channel;
mod chat;
mod client;
mod completion;
mod config;
mod console;
mod ctrl_c;
mod doctor;
mod flags;
mod lists;
mod mcp;
mod node;
mod output;
mod plugin;
mod port;
mod reach;
mod relay;
mod result;
mod retention;
mod run;
mod running;
mod sample;
mod session_send;
mod sessions;
mod shown;
mod skills;
mod status;
mod stop;
mod table;
mod tail;
mod time;
mod token;
mod tool;
mod tool_changes;
mod typed;
mod upstream;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};

use self::output::Failure;
use self::reach::Reach;
use crate::redact::printable;
use crate::wording::quoted;

const EXIT_CODES: &str = "Exit codes:
    0 done
    1 the call or the command failed
    2 wrong usage or configuration
    3 the gateway cannot be reached
    4 not allowed
    5 not found
    6 invalid arguments
    7 timeout
    8 offline or overloaded (try again)
    9 in conflict with what is there
   10 the connection was lost in the middle, and it may have had an effect
  130 cancelled";

const COMPLETIONS: &str = "What to write where, to have it in every shell:
    bash  ~/.bashrc                   source <(switchboard completions bash)
    zsh   ~/.zshrc                    source <(switchboard completions zsh)
    fish  ~/.config/fish/config.fish  switchboard completions fish | source";

/// How wide help may be, on a terminal that has more room: longer lines are harder to read.
const WIDEST: usize = 80;

/// One gateway between AI agents and the tools they call.
#[derive(Debug, Parser)]
#[command(name = "switchboard", version, after_help = EXIT_CODES, propagate_version = true, max_term_width = WIDEST)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Global {
    /// Print what the gateway's API returns, as JSON; for a failure, its problem.
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
    /// Configuration file (TOML).
    #[arg(long, global = true, help_heading = "Global options", value_name = "FILE", env = "SWITCHBOARD_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: flags::Everywhere,
    #[command(flatten)]
    reach: Reach,
    /// What the next command needs to be about the same gateway.
    #[arg(skip)]
    options: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the gateway with a demo node, and say what to do next.
    Up(run::UpArgs),
    /// Start the gateway.
    Serve(run::ServeArgs),
    /// What the running gateway is doing.
    Status,
    /// A link that signs you in to the web console, once.
    Console,
    /// The tools that can be called.
    Tools(lists::ToolsArgs),
    /// Show the tools whose definitions have changed, and accept changes.
    ToolChanges(tool_changes::ToolChangesArgs),
    /// Call a tool.
    Call(call::CallArgs),
    /// Talk to a model that uses the gateway's tools.
    Chat(chat::ChatArgs),
    /// The nodes that are connected, or were a while ago.
    Nodes(skills::NodesArgs),
    /// Offer this machine's shell and files through a gateway.
    Node(node::NodeArgs),
    /// Speak MCP on stdin and stdout, for clients that only start programs; needs a running gateway.
    Mcp(mcp::McpArgs),
    /// Which hosts have what is required, and what the others lack.
    Eligibility(skills::EligibilityArgs),
    /// The skills, and the hosts they can be followed on.
    Skills,
    /// The sessions in which agents work for their callers; with an id, one session.
    Sessions(sessions::SessionsArgs),
    /// For an agent in a session: its caller's tools as an MCP server on stdin and stdout.
    Relay(relay::RelayArgs),
    /// Tokens: who may use the gateway.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Upstream MCP servers, whose tools are offered here.
    #[command(subcommand)]
    Upstream(upstream::UpstreamCommand),
    /// Plugins: HTTP servers with a manifest, whose functions are tools here.
    #[command(subcommand)]
    Plugin(plugin::PluginCommand),
    /// Channels: who is there, what they say, what they can do.
    #[command(subcommand)]
    Channel(channel::ChannelCommand),
    /// The history of calls; with an id, one call.
    Calls(calls::CallsArgs),
    /// Watch calls and events as they happen.
    Tail,
    /// What operators may have to answer for: who connected, which tokens were made and revoked, what was changed.
    Audit(lists::AuditArgs),
    /// Show for how long records are kept, and whether deleting old ones is paused.
    Retention(retention::RetentionArgs),
    /// Look for what is wrong, and say how to mend it.
    Doctor(doctor::DoctorArgs),
    /// The configuration: what counts, and where each value came from.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print a script that makes your shell complete commands, and the names of what the gateway has.
    #[command(after_help = COMPLETIONS)]
    Completions {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the OpenAPI description of the HTTP API.
    #[command(hide = true)]
    Openapi,
    /// Run an agent's command until it or the gateway ends.
    #[command(hide = true)]
    AgentKeeper {
        /// In a sandbox with this policy, as JSON.
        #[arg(long)]
        sandbox: Option<String>,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// Runs the command line. Failures have been printed when this returns.
pub fn main() -> ExitCode {
    // Commands of a node are kept by this program, too.
    if let Some(code) = sa_node::keeper::run_if_asked() {
        return code;
    }
    // And it ends what a killed gateway has left running.
    if std::env::args_os().nth(1).is_some_and(|word| word == sa_upstream::reaper::WORD) {
        sa_upstream::reaper::run();
        return ExitCode::SUCCESS;
    }
    if let Some(code) = completion::run_if_asked() {
        return code;
    }
    let words = typed(std::env::args_os());
    let mut cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => return misunderstood(&error, &words),
    };
    let variable = std::env::var_os("SWITCHBOARD_URL");
    cli.global.reach = cli.global.reach.without_empty_variable(variable.as_deref());
    // What speaks a protocol on stdout has no room there for anything else.
    let json = cli.global.json && !matches!(cli.command, Command::Mcp(_) | Command::Relay(_));
    let options = typed::options(&cli.global, &words);
    cli.global.options.clone_from(&options);
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.about(&options).report(json),
    }
}

/// The words make no command, or ask for help.
fn misunderstood(error: &clap::Error, words: &[OsString]) -> ExitCode {
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    if let Some(failure) = meant_for_the_tool(error, words) {
        return failure.report(json);
    }
    if error.use_stderr() && json {
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let what = text.split("\n\n").next().unwrap_or_default().trim();
        Failure::usage(what).hint("add --help to see what it takes").print_problem();
    }
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// An argument of a tool that was typed as an option of `call`. What is nearly an option is taken for that.
fn meant_for_the_tool(error: &clap::Error, words: &[OsString]) -> Option<Failure> {
    let called = words.iter().position(|word| word == "call")?;
    let unknown = error.kind() == ErrorKind::UnknownArgument && error.get(ContextKind::SuggestedArg).is_none();
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg).filter(|_| unknown) else {
        return None;
    };
    let name = option.strip_prefix("--")?;
    let rest: Vec<_> = words[called + 1..].iter().map(|word| word.to_string_lossy()).collect();
    let at = rest.iter().position(|word| word.split('=').next() == Some(option))?;
    let value = match rest[at].split_once('=') {
        Some((_, value)) => value,
        None => rest.get(at + 1).filter(|next| !next.starts_with("--")).map_or("VALUE", |next| next),
    };
    let argument = printable(&format!("{name}={}", quoted(value))).into_owned();
    Some(
        Failure::usage(format!("call has no option {}", printable(option)))
            .hint(format!("an argument of the tool is KEY=VALUE: {argument}")),
    )
}

/// Every command with what it takes.
pub fn command() -> clap::Command {
    Cli::command()
}

/// `call TOOL --json '{"a":1}'` gives the arguments as JSON, and `--json` alone asks for JSON: two things that people type
/// with the same word. What follows it tells them apart.
fn typed(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    for at in 1..words.len().saturating_sub(1) {
        let json = words[at + 1].to_string_lossy();
        if words[at] == "--json" && (json.starts_with('{') || json == "-") {
            words[at] = "--args-json".into();
        }
    }
    words
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    let global = &cli.global;
    match cli.command {
        Command::Up(args) => run::up(global, args),
        Command::Serve(args) => run::serve(global, &args, None),
        Command::Config(command) => block_on(config::run(global, &command)),
        Command::Doctor(args) => block_on(doctor::run(global, args)),
        Command::Status => block_on(status::run(global)),
        Command::Console => block_on(console::run(global)),
        Command::Tools(args) => block_on(lists::tools(global, args)),
        Command::ToolChanges(args) => block_on(tool_changes::run(global, args)),
        Command::Nodes(args) => match args.command {
            None => block_on(lists::nodes(global, args.tag.as_deref())),
            Some(_) if args.tag.is_some() => Err(Failure::usage("--tag is for the list of nodes")),
            Some(skills::NodesCommand::Probe { id, bins }) => block_on(skills::probe(global, &id, &bins)),
        },
        Command::Eligibility(args) => block_on(skills::eligibility(global, args)),
        Command::Skills => block_on(skills::skills(global)),
        Command::Node(args) => node::run(global, args),
        Command::Mcp(args) => block_on(mcp::run(global, args)),
        Command::Sessions(args) => block_on(sessions::run(global, args)),
        Command::Relay(args) => block_on(relay::run(args)),
        Command::AgentKeeper { sandbox, command } => {
            let policy = sandbox.map(|policy| serde_json::from_str(&policy)).transpose();
            let policy = policy.map_err(|error| Failure::usage(format!("the policy is not valid: {error}")))?;
            std::process::exit(sa_relay::keeper::keep(&command, policy))
        }
        Command::Audit(args) => block_on(lists::audit(global, args)),
        Command::Retention(args) => block_on(retention::run(global, args)),
        Command::Call(args) => block_on(call::run(global, args)),
        Command::Chat(args) => block_on(chat::run(global, args)),
        Command::Token(command) => block_on(token::run(global, command)),
        Command::Upstream(command) => block_on(upstream::run(global, command)),
        Command::Plugin(command) => block_on(plugin::run(global, command)),
        Command::Channel(command) => block_on(channel::run(global, command)),
        Command::Calls(args) => block_on(calls::run(global, args)),
        Command::Tail => block_on(tail::run(global)),
        Command::Completions { shell } => output::print(&completion::script(shell)),
        Command::Openapi => output::print(&format!("{}\n", crate::http::openapi_document())),
    }
}

/// Commands that talk to a gateway need one thread.
fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::other(format!("cannot start: {error}")))?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_typed(words: &[&str], expected: &[&str]) {
        assert_eq!(typed(words.iter().map(OsString::from)), expected);
    }

    #[test]
    fn json_alone_is_about_the_output_and_with_an_object_about_the_arguments() {
        check_typed(&["sb", "call", "t", "--json"], &["sb", "call", "t", "--json"]);
        check_typed(&["sb", "--json", "call", "t"], &["sb", "--json", "call", "t"]);
        check_typed(&["sb", "call", "t", "--json", "{}"], &["sb", "call", "t", "--args-json", "{}"]);
        check_typed(
            &["sb", "call", "t", "--json", "{}", "--json"],
            &["sb", "call", "t", "--args-json", "{}", "--json"],
        );
    }

    /// A word that means one thing everywhere must mean it here, too: the command's own meaning would never be heard.
    fn check_shadows(command: &clap::Command, above: &[(String, Option<char>, clap::Id)]) {
        let known =
            |arg: &clap::Arg| (arg.get_long().unwrap_or_default().to_owned(), arg.get_short(), arg.get_id().clone());
        for arg in command.get_arguments() {
            let (long, short, id) = known(arg);
            let shadowed = above.iter().any(|(global, brief, name)| {
                (!long.is_empty() && *global == long) || (short.is_some() && *brief == short) || *name == id
            });
            assert!(!shadowed, "{}: \"{id}\" is a global option as well", command.get_name());
        }
        let globals = command.get_arguments().filter(|arg| arg.is_global_set()).map(known);
        let above: Vec<_> = above.iter().cloned().chain(globals).collect();
        command.get_subcommands().for_each(|command| check_shadows(command, &above));
    }

    #[test]
    fn no_command_has_an_option_of_the_same_name_as_a_global_one() {
        // Not built: clap itself gives the global ones to every command then.
        check_shadows(&Cli::command(), &[]);
    }

    #[track_caller]
    fn check_meant(typed: &str, expected: Option<&str>) {
        let words: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
        let error = Cli::try_parse_from(&words).unwrap_err();
        let hint = meant_for_the_tool(&error, &words).map(|failure| failure.hint.unwrap());
        let expected = expected.map(|argument| format!("an argument of the tool is KEY=VALUE: {argument}"));
        assert_eq!(hint, expected, "{typed}");
    }

    #[test]
    fn an_argument_of_a_tool_that_is_typed_as_an_option_is_told_as_one() {
        check_meant("switchboard call demo_countdown --from 3", Some("from=3"));
        check_meant("switchboard call demo_countdown --from=3 x=1", Some("from=3"));
        check_meant("switchboard call demo_countdown --from", Some("from=VALUE"));
        check_meant("switchboard channel call room greet --name $ann", Some("name='$ann'"));
        check_meant("switchboard call demo_countdown --timeuot 3", None);
        check_meant("switchboard tools --from 3", None);
    }

    fn check_documented(page: &str, command: &clap::Command, name: &str) {
        assert!(page.contains(&format!("\n## `{name}`\n")), "docs/cli.md lacks {name}; run: cargo xtask docs");
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        shown.for_each(|command| check_documented(page, command, &format!("{name} {}", command.get_name())));
    }

    #[test]
    fn every_command_is_documented() {
        check_documented(include_str!("../../../../docs/cli.md"), &Cli::command(), "switchboard");
    }

    fn check_width(command: &mut clap::Command) {
        for help in [command.render_help(), command.render_long_help()] {
            let help = help.to_string();
            let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > WIDEST).collect();
            assert!(wide.is_empty(), "{}: {wide:#?}", command.get_name());
        }
        command.get_subcommands_mut().for_each(check_width);
    }

    #[test]
    fn help_fits_an_ordinary_terminal() {
        let mut command = Cli::command();
        command.build();
        check_width(&mut command);
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
