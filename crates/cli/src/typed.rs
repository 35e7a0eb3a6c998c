//! Repeats the options that select the gateway in suggested commands. Without them, a suggested
//! command could use another gateway.

use std::ffi::OsString;
use std::path::Path;

use clap::CommandFactory as _;

use super::output::Failure;
use super::{Cli, Global};
use sa_text::quote;

/// Returns the options of this command that a suggested command also needs. Environment variables
/// are left out, because they also apply to the next command.
pub(super) fn options(global: &Global, words: &[OsString]) -> String {
    let whole = |path: &Path| {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
    };
    let dir = global.flags.0.iter().find(|(key, _)| *key == "data.dir").map(|(_, dir)| dir);
    let names_file = |word: &OsString| word.to_string_lossy().split('=').next() == Some("--config");
    let file = global
        .config
        .as_ref()
        .filter(|_| words.iter().take_while(|word| *word != "--").any(names_file));
    let file = file.map(|file| format!(" --config {}", quote(&whole(file))));
    let dir = dir.map(|dir| format!(" --data-dir {}", quote(&whole(Path::new(dir)))));
    [file, dir].into_iter().flatten().collect()
}

/// Adds the options to every `switchboard` command in a text. A text that already names a data
/// directory is returned unchanged.
pub(super) fn with_options(text: &str, options: &str) -> String {
    const PROGRAM: &str = "switchboard ";
    if options.is_empty() || text.contains("--data-dir") || !text.contains(PROGRAM) {
        return text.to_owned();
    }
    let cli = Cli::command();
    let is_command = |rest: &str| {
        let word = rest.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        cli.get_subcommands().any(|command| command.get_name() == word)
    };
    let mut parts = text.split(PROGRAM);
    let mut told = parts.next().unwrap_or_default().to_owned();
    for rest in parts {
        told.push_str(PROGRAM.trim_end());
        told.push_str(if is_command(rest) { options } else { "" });
        told.extend([" ", rest]);
    }
    told
}

impl Failure {
    /// Adds the options to the commands in the hint.
    pub(super) fn about(mut self, options: &str) -> Self {
        self.hint = self.hint.map(|hint| with_options(&hint, options));
        self
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[track_caller]
    fn check_options(typed: &str, expected: &str) {
        let words: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
        assert_eq!(
            options(&Cli::try_parse_from(&words).unwrap().global, &words),
            expected,
            "{typed}"
        );
    }

    #[test]
    fn what_says_which_gateway_is_meant_is_typed_again() {
        check_options("switchboard calls", "");
        check_options("switchboard --data-dir /x calls", " --data-dir /x");
        check_options(
            "switchboard calls --data-dir=/x --config=/c.toml",
            " --config /c.toml --data-dir /x",
        );
        check_options("switchboard call t --url http://127.0.0.1:1 -- --config=1", "");
    }

    #[test]
    fn commands_in_a_text_are_about_the_same_gateway() {
        let check =
            |text: &str, expected: &str| assert_eq!(with_options(text, " --data-dir /x"), expected);
        check("run: switchboard doctor --deep", "run: switchboard --data-dir /x doctor --deep");
        check(
            "switchboard calls lists them; or: switchboard token list",
            "switchboard --data-dir /x calls lists them; or: switchboard --data-dir /x token list",
        );
        check(
            "a service that is called switchboard there",
            "a service that is called switchboard there",
        );
        check("switchboard up --data-dir /y", "switchboard up --data-dir /y");
        assert_eq!(with_options("switchboard calls", ""), "switchboard calls");
    }
}
