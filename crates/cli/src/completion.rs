//! Shell completion: completes commands, options, and names that exist in the gateway.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches as _};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use serde_json::Value;

use super::calls::listed_name;
use super::client::Client;
use super::lists::{Names, Place, all_tools, text};
use super::output::Failure;
use super::table::shortened;
use super::{Cli, Global};
use sa_text::printable;
use sa_text::quote;

/// The variable that the completion scripts set to request completion instead of running a command.
const VARIABLE: &str = "SWITCHBOARD_COMPLETE";

/// The timeout of a request to the gateway, because the user waits for the completion.
const TIMEOUT: Duration = Duration::from_millis(800);

/// The maximum length of a description next to a name, in shells that show it.
const ABOUT: usize = 60;

/// Returns the completion script for a shell.
pub(super) fn script(shell: Shell) -> String {
    let (shells, mut script) = (Shells::builtins(), Vec::new());
    if let Some(shell) = shells.completer(&shell.to_string()) {
        // Writing to memory cannot fail.
        let _ = shell.write_registration(
            VARIABLE,
            "switchboard",
            "switchboard",
            &program(),
            &mut script,
        );
    }
    String::from_utf8_lossy(&script).into_owned()
}

/// Returns the program that the script starts: the absolute path of the program that was typed. If
/// the path would need quoting, the script finds `switchboard` in PATH.
fn program() -> String {
    let typed = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let there = if typed.components().count() > 1 { std::path::absolute(typed).ok() } else { None };
    let there = there.and_then(|path| path.into_os_string().into_string().ok());
    there.filter(|path| *path == quote(path)).unwrap_or_else(|| "switchboard".to_owned())
}

/// Completes a line if the program was started for completion. Errors are not printed because they
/// would appear within the line that the user is typing.
pub(super) fn run_if_asked() -> Option<ExitCode> {
    let folder = std::env::current_dir().ok();
    match CompleteEnv::with_factory(command)
        .var(VARIABLE)
        .try_complete(std::env::args_os(), folder.as_deref())
    {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::SUCCESS),
        Err(_) => Some(ExitCode::FAILURE),
    }
}

/// Returns all commands with their arguments. Options are offered only after a dash or if no other
/// candidates exist, because they would hide the names.
fn command() -> Command {
    fn without_options(command: Command) -> Command {
        let command =
            command.mut_args(|arg| if arg.is_positional() { arg } else { arg.hide(true) });
        command.mut_subcommands(without_options)
    }
    let mut command = Cli::command();
    command.build();
    let words = words();
    let at = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|at| at.parse().ok());
    let current = words.get(at.unwrap_or(words.len().saturating_sub(1)));
    let dash = current.is_some_and(|word| word.as_encoded_bytes().starts_with(b"-"));
    if dash { command } else { without_options(command) }
}

/// Returns the words of the line as typed so far.
fn words() -> Vec<OsString> {
    std::env::args_os().skip_while(|word| word != "--").skip(1).collect()
}

/// Completes the tools that can be called with the session or channel in the line.
pub(super) fn tools() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        ask(async |client, line| {
            let typed =
                |name: &str| line.try_get_one::<String>(name).ok().flatten().map(String::as_str);
            let place = Place { session: typed("session"), channel: typed("channel") };
            let tools = all_tools(client, place).await?;
            Ok(tools
                .iter()
                .filter_map(|tool| candidate(text(&tool["name"]), text(&tool["description"])))
                .collect())
        })
    })
}

/// Completes the names in one of the gateway's lists.
pub(super) fn names(names: &'static Names) -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        ask(async |client, _| {
            let known = names.known(client).await?;
            Ok(known.iter().filter_map(|entry| candidate(text(&entry[names.key]), "")).collect())
        })
    })
}

/// Completes the ids of the latest calls. `among` is a query string that filters them.
pub(super) fn calls(among: &'static str) -> ArgValueCandidates {
    ArgValueCandidates::new(move || {
        ask(async |client, _| {
            let (list, _): (Value, _) = client.get(&format!("/v1/calls?limit=50{among}")).await?;
            let calls = list["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
            Ok(calls
                .iter()
                .filter_map(|call| candidate(text(&call["id"]), listed_name(call)))
                .collect())
        })
    })
}

/// Returns a candidate if the shell takes the name literally. A provider could name a tool
/// `x;reboot`, and a completed line is likely to be run.
fn candidate(name: &str, about: &str) -> Option<CompletionCandidate> {
    let about = about.lines().next().filter(|about| !about.is_empty());
    let about = about.map(|about| shortened(&printable(about), ABOUT).into());
    (name == quote(name) && !name.starts_with('-'))
        .then(|| CompletionCandidate::new(name).help(about))
}

/// Queries the gateway that the line refers to. Returns no candidates on error or timeout.
fn ask<F>(question: F) -> Vec<CompletionCandidate>
where
    F: AsyncFnOnce(&Client, &ArgMatches) -> Result<Vec<CompletionCandidate>, Failure>,
{
    let answer = || {
        let (global, line) = typed(joined(words()))?;
        let client = Client::new(&global).ok()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let answer = runtime.block_on(async {
            tokio::time::timeout(TIMEOUT, question(&client, &line)).await.ok()?.ok()
        });
        // DNS resolution cannot be cancelled, so the shutdown does not wait for it.
        runtime.shutdown_background();
        answer
    };
    answer().unwrap_or_default()
}

/// Parses the line into the global options and the arguments of the last command. The line may be
/// incomplete or invalid.
fn typed(words: Vec<OsString>) -> Option<(Global, ArgMatches)> {
    let mut matches = Cli::command().ignore_errors(true).try_get_matches_from(words).ok()?;
    let mut global = Global::from_arg_matches(&matches).ok()?;
    let variable = std::env::var_os("SWITCHBOARD_URL");
    global.reach = global.reach.without_empty_variable(variable.as_deref());
    while let Some((_, below)) = matches.remove_subcommand() {
        matches = below;
    }
    Some((global, matches))
}

/// Joins words that Bash splits: URLs at colons, and options at the `=` before their value.
fn joined(words: Vec<OsString>) -> Vec<OsString> {
    let mut whole: Vec<OsString> = Vec::with_capacity(words.len());
    let mut open = false;
    for word in words {
        let parts =
            !word.is_empty() && word.as_encoded_bytes().iter().all(|byte| b":=".contains(byte));
        match whole.last_mut().filter(|_| parts || open) {
            Some(last) => last.push(word),
            None => whole.push(word),
        }
        open = parts;
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_joined(words: &[&str], expected: &[&str]) {
        assert_eq!(joined(words.iter().map(OsString::from).collect()), expected);
    }

    #[test]
    fn what_bash_takes_apart_is_put_together() {
        check_joined(&["sb", "call", ""], &["sb", "call", ""]);
        let apart = ["sb", "--url", "=", "http", ":", "//127.0.0.1", ":", "3210", "call", ""];
        check_joined(&apart, &["sb", "--url=http://127.0.0.1:3210", "call", ""]);
        check_joined(&[":", "x"], &[":x"]);
    }

    #[test]
    fn a_line_says_which_gateway_it_is_about_before_it_is_whole() {
        for line in [
            "sb --url http://a call",
            "sb call --url http://a",
            "sb call x --url http://a --nonsense",
            "sb --url=http://a nonsense",
        ] {
            let (global, _) = typed(line.split(' ').map(OsString::from).collect()).unwrap();
            assert_eq!(global.reach.url.as_deref(), Some("http://a"), "{line}");
        }
    }

    #[test]
    fn a_name_that_a_shell_would_obey_is_not_offered() {
        for name in ["x;reboot", "$(reboot)", "a b", "`x`", "-rf", "*", "~", ""] {
            assert!(candidate(name, "").is_none(), "{name}");
        }
        let offered = candidate("a.b_c-1", "What it does\u{1b}[2J\nand more").unwrap();
        assert_eq!(offered.get_help().unwrap().to_string(), "What it does\\u{1b}[2J");
    }
}
