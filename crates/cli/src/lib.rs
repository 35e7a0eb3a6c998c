//! The command line. Each command has its own file; this one has the parser, the exit codes and the
//! dispatch.

mod call;
mod calls;
mod channel;
mod chat;
mod client;
mod completion;
mod config;
mod console;
mod ctrl_c;
mod demo;
mod doctor;
mod examples;
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
use sa_text::printable;
use sa_text::quote;

const EXIT_CODES: &str = "Exit codes:
    0 success
    1 the call or the command failed
    2 invalid usage or configuration
    3 the gateway cannot be reached
    4 not allowed
    5 not found
    6 invalid arguments
    7 timeout
    8 offline or overloaded (try again)
    9 conflict with the current state
   10 the connection was lost during the request, which may have had an effect
  130 cancelled";

const COMPLETIONS: &str = "To enable completions in every new shell, add the line to the file:
    bash  ~/.bashrc                   source <(switchboard completions bash)
    zsh   ~/.zshrc                    source <(switchboard completions zsh)
    fish  ~/.config/fish/config.fish  switchboard completions fish | source";

/// The maximum width of help text. Longer lines are harder to read, even on a wide terminal.
const WIDEST: usize = 80;

/// A gateway between AI agents and the tools they call.
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
    /// Print the API's response as JSON; for a failure, the problem document.
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
    /// Configuration file (TOML).
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        value_name = "FILE",
        env = "SWITCHBOARD_CONFIG"
    )]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: flags::Everywhere,
    #[command(flatten)]
    reach: Reach,
    /// The options to repeat in suggested commands so that they use the same gateway.
    #[arg(skip)]
    options: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the gateway with a demo node, and print the next steps.
    Up(run::UpArgs),
    /// Start the gateway.
    Serve(run::ServeArgs),
    /// Show the state of the running gateway.
    Status(status::StatusArgs),
    /// Create a one-time sign-in link for the web console.
    Console,
    /// List the tools.
    Tools(lists::ToolsArgs),
    /// Show changed tool definitions, and accept changes.
    ToolChanges(tool_changes::ToolChangesArgs),
    /// Call a tool.
    Call(call::CallArgs),
    /// Chat with a model that uses the gateway's tools.
    Chat(chat::ChatArgs),
    /// List the nodes that are connected or were connected recently.
    Nodes(skills::NodesArgs),
    /// Offer this machine's shell and files through a gateway.
    Node(node::NodeArgs),
    /// Run an MCP server on stdin and stdout, for clients that only start programs. Needs a running
    /// gateway.
    Mcp(mcp::McpArgs),
    /// Show which hosts meet a set of requirements, and what the others lack.
    Eligibility(skills::EligibilityArgs),
    /// List the skills and the hosts that can run them.
    Skills,
    /// List the agent sessions; with an id, show one session.
    Sessions(sessions::SessionsArgs),
    /// Serve the tools of a session's caller to its agent, as an MCP server on stdin and stdout.
    Relay(relay::RelayArgs),
    /// Manage access tokens.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Manage upstream MCP servers. The gateway offers their tools.
    #[command(subcommand)]
    Upstream(upstream::UpstreamCommand),
    /// Manage plugins: HTTP servers with a manifest. The gateway offers their functions as tools.
    #[command(subcommand)]
    Plugin(plugin::PluginCommand),
    /// Use channels: list participants, read and send messages, and call methods.
    #[command(subcommand)]
    Channel(channel::ChannelCommand),
    /// List past calls; with an id, show one call.
    Calls(calls::CallsArgs),
    /// Follow calls and events as they happen.
    Tail,
    /// Show the audit log: connections, created and revoked tokens, and changes.
    Audit(lists::AuditArgs),
    /// Show how long records are kept, and whether the deletion of old records is paused.
    Retention(retention::RetentionArgs),
    /// Diagnose problems and suggest fixes.
    Doctor(doctor::DoctorArgs),
    /// Show and check the configuration: values and their sources.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print a shell completion script for commands and for the names that exist in the gateway.
    #[command(after_help = COMPLETIONS)]
    Completions {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the OpenAPI description of the HTTP API.
    #[command(hide = true)]
    Openapi,
}

/// Runs the command line. Failures are printed before this function returns.
pub fn main() -> ExitCode {
    // The gateway and the node also start this program as the supervisor of their programs.
    if let Some(code) = sa_process::run_if_asked() {
        return code;
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
    // Commands that use stdout for a protocol must not print JSON problems to it.
    let json = cli.global.json && !matches!(cli.command, Command::Mcp(_) | Command::Relay(_));
    let options = typed::options(&cli.global, &words);
    cli.global.options.clone_from(&options);
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.about(&options).report(json),
    }
}

/// Reports a parse error, or prints the requested help.
fn misunderstood(error: &clap::Error, words: &[OsString]) -> ExitCode {
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    if let Some(failure) = meant_for_the_tool(error, words) {
        return failure.report(json);
    }
    if error.use_stderr() && json {
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let what = text.split("\n\n").next().unwrap_or_default().trim();
        Failure::usage(what).hint("add --help to see the usage").print_problem();
    }
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Detects a tool argument that was typed as an option of `call`. A word that is similar to an
/// existing option is treated as a typo of that option instead.
fn meant_for_the_tool(error: &clap::Error, words: &[OsString]) -> Option<Failure> {
    let called = words.iter().position(|word| word == "call")?;
    let unknown = error.kind() == ErrorKind::UnknownArgument
        && error.get(ContextKind::SuggestedArg).is_none();
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg).filter(|_| unknown)
    else {
        return None;
    };
    let name = option.strip_prefix("--")?;
    let rest: Vec<_> = words[called + 1..].iter().map(|word| word.to_string_lossy()).collect();
    let at = rest.iter().position(|word| word.split('=').next() == Some(option))?;
    let value = match rest[at].split_once('=') {
        Some((_, value)) => value,
        None => {
            rest.get(at + 1).filter(|next| !next.starts_with("--")).map_or("VALUE", |next| next)
        }
    };
    let argument = printable(&format!("{name}={}", quote(value))).into_owned();
    Some(
        Failure::usage(format!("call has no option {}", printable(option)))
            .hint(format!("pass an argument of the tool as KEY=VALUE: {argument}")),
    )
}

/// Returns all commands with their arguments.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Separates the two meanings of `--json`. Followed by a JSON object or `-`, it gives the arguments
/// of `call`. Otherwise it selects JSON output.
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
        Command::Status(args) => block_on(status::run(global, &args)),
        Command::Console => block_on(console::run(global)),
        Command::Tools(args) => block_on(lists::tools(global, args)),
        Command::ToolChanges(args) => block_on(tool_changes::run(global, args)),
        Command::Nodes(args) => match args.command {
            None => block_on(lists::nodes(global, args.tag.as_deref())),
            Some(_) if args.tag.is_some() => {
                Err(Failure::usage("--tag can only be used with the list of nodes"))
            }
            Some(skills::NodesCommand::Probe { id, bins }) => {
                block_on(skills::probe(global, &id, &bins))
            }
        },
        Command::Eligibility(args) => block_on(skills::eligibility(global, args)),
        Command::Skills => block_on(skills::skills(global)),
        Command::Node(args) => node::run(global, args),
        Command::Mcp(args) => block_on(mcp::run(global, args)),
        Command::Sessions(args) => block_on(sessions::run(global, args)),
        Command::Relay(args) => block_on(relay::run(args)),
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
        Command::Openapi => output::print(&format!("{}\n", sa_gateway::http::openapi_document())),
    }
}

/// Runs a command on a single-threaded runtime, which is enough for API requests.
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
        check_typed(
            &["sb", "call", "t", "--json", "{}"],
            &["sb", "call", "t", "--args-json", "{}"],
        );
        check_typed(
            &["sb", "call", "t", "--json", "{}", "--json"],
            &["sb", "call", "t", "--args-json", "{}", "--json"],
        );
    }

    /// Checks that no command redefines a global option. Clap would always use the global meaning.
    fn check_shadows(command: &clap::Command, above: &[(String, Option<char>, clap::Id)]) {
        let known = |arg: &clap::Arg| {
            (arg.get_long().unwrap_or_default().to_owned(), arg.get_short(), arg.get_id().clone())
        };
        for arg in command.get_arguments() {
            let (long, short, id) = known(arg);
            let shadowed = above.iter().any(|(global, brief, name)| {
                (!long.is_empty() && *global == long)
                    || (short.is_some() && *brief == short)
                    || *name == id
            });
            assert!(!shadowed, "{}: \"{id}\" is a global option as well", command.get_name());
        }
        let globals = command.get_arguments().filter(|arg| arg.is_global_set()).map(known);
        let above: Vec<_> = above.iter().cloned().chain(globals).collect();
        command.get_subcommands().for_each(|command| check_shadows(command, &above));
    }

    #[test]
    fn no_command_has_an_option_of_the_same_name_as_a_global_one() {
        // The command is not built, because clap would then copy the global options to every
        // command.
        check_shadows(&Cli::command(), &[]);
    }

    #[track_caller]
    fn check_meant(typed: &str, expected: Option<&str>) {
        let words: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
        let error = Cli::try_parse_from(&words).unwrap_err();
        let hint = meant_for_the_tool(&error, &words).map(|failure| failure.hint.unwrap());
        let expected = expected
            .map(|argument| format!("pass an argument of the tool as KEY=VALUE: {argument}"));
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
        assert!(
            page.contains(&format!("\n## `{name}`\n")),
            "docs/cli.md lacks {name}; run: cargo xtask docs"
        );
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        shown.for_each(|command| {
            check_documented(page, command, &format!("{name} {}", command.get_name()));
        });
    }

    #[test]
    fn every_command_is_documented() {
        check_documented(include_str!("../../../docs/cli.md"), &Cli::command(), "switchboard");
    }

    fn check_width(command: &mut clap::Command) {
        for help in [command.render_help(), command.render_long_help()] {
            let help = help.to_string();
            let wide: Vec<&str> =
                help.lines().filter(|line| line.chars().count() > WIDEST).collect();
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
