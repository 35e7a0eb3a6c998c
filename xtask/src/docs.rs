//! Documentation that is made from the code: written by `cargo xtask docs`, checked to be current by `cargo xtask ci`.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{cargo, root, run, target};

pub(crate) fn write() -> Result<()> {
    for (path, text) in generate()? {
        fs::write(root().join(path), text).with_context(|| format!("cannot write {path}"))?;
    }
    Ok(())
}

pub(crate) fn check() -> Result<()> {
    for (path, text) in generate()? {
        if fs::read_to_string(root().join(path)).unwrap_or_default() != text {
            bail!("{path} is not current; run: cargo xtask docs");
        }
    }
    Ok(())
}

fn generate() -> Result<[(&'static str, String); 3]> {
    // As the tests want it: a package by itself would have other features, and all it depends on be built once more.
    run(cargo().args(["build", "--workspace", "--bins", "--examples"]))?;
    let openapi = ask(&["openapi"])?;
    let mut cli = "# The command line\n\nMade by `cargo xtask docs`; do not edit. Every command takes `--help`, `--version` and the \
        global options, which stand under `switchboard` alone.\n\n\
        With `--json` a command prints one JSON document on stdout: what the gateway's API returns, or for a failure its problem \
        (`kind`, `detail`, `hint`, `retryable`), also where no gateway was asked. Words for people go to stderr. `tail` prints a \
        document for each event, `up` and `serve` one once they listen; `mcp` and `relay` speak their protocol on stdout, and nothing else.\n"
        .to_owned();
    describe(&mut cli, &[])?;
    let keys: serde_json::Value = serde_json::from_str(&ask(&["config", "explain", "--json"])?)?;
    let mut config = "# Configuration keys\n\nMade by `cargo xtask docs`; do not edit. How the layers work: [configuration.md](configuration.md). \
        A key without a variable can only be in the file; NAME is yours to choose.\n\n\
        | key | default | meaning | variable, flag |\n|---|---|---|---|\n"
        .to_owned();
    for key in keys["keys"].as_array().into_iter().flatten() {
        let text = |name: &str| key[name].as_str().unwrap_or_default().replace('|', "\\|");
        // What has no default, or can only be in the file, has an empty cell.
        let code = |name: &str| Some(text(name)).filter(|text| !text.is_empty()).map(|text| format!("`{text}`"));
        // What defaults there are is written in the same way in JSON and in TOML, but for the space behind a comma.
        let value = Some(&key["value"]).filter(|value| !value.is_null());
        let value =
            value.map(|value| format!("`{}`", value.to_string().replace("\",\"", "\", \"").replace('|', "\\|")));
        let value = value.unwrap_or_default();
        let set_by = [code("variable"), code("flag")].into_iter().flatten().collect::<Vec<_>>().join(", ");
        writeln!(config, "| `{}` | {value} | {} | {set_by} |", text("key"), text("meaning"))?;
    }
    Ok([("docs/openapi.json", openapi), ("docs/cli.md", cli), ("docs/config-keys.md", config)])
}

/// Appends a command's help, and that of every command below it, in the order in which the help lists them.
fn describe(page: &mut String, command: &[&str]) -> Result<()> {
    let help = ask(&[command, &["--help"]].concat())?;
    let shown = if command.is_empty() { help.clone() } else { without_common(&help) };
    write!(page, "\n## `switchboard{}`\n\n```text\n{}\n```\n", prefixed(command), shown.trim_end())?;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Names are indented by two, what is said of them by more.
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()));
    names.filter(|name| *name != "help").try_for_each(|name| describe(page, &[command, &[name]].concat()))
}

/// A command's help without what every command takes: said once, it is found sooner than said sixty times.
fn without_common(help: &str) -> String {
    let mut sections: Vec<(&str, Vec<&str>)> = vec![("", Vec::new())];
    for line in help.lines() {
        let is_head = !line.starts_with(' ') && line.ends_with(':');
        match sections.last_mut() {
            Some((_, lines)) if !is_head => lines.push(line),
            _ => sections.push((line, Vec::new())),
        }
    }
    let mut page = String::new();
    for (head, lines) in sections.into_iter().filter(|(head, _)| *head != "Global options:") {
        let lines = if head == "Options:" { own_options(&lines) } else { lines };
        if head.is_empty() || lines.iter().any(|line| !line.trim().is_empty()) {
            let head = if head.is_empty() { String::new() } else { format!("{head}\n") };
            page.push_str(&format!("{head}{}\n\n", lines.join("\n").trim_end()));
        }
    }
    page
}

/// Without `--help` and `--version`, and what is said of them.
fn own_options<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let mut own = Vec::new();
    let mut common = false;
    for line in lines {
        // What is said of an option, where it stands below it, is indented further than any option.
        if !line.trim().is_empty() && !line.starts_with("        ") {
            common = line.starts_with("  -h, --help") || line.starts_with("  -V, --version");
        }
        if !common {
            own.push(*line);
        }
    }
    own
}

fn prefixed(command: &[&str]) -> String {
    command.iter().fold(String::new(), |text, word| format!("{text} {word}"))
}

fn ask(args: &[&str]) -> Result<String> {
    let output =
        Command::new(target().join("debug/switchboard")).args(args).env_clear().env("COLUMNS", "100").output()?;
    anyhow::ensure!(output.status.success(), "switchboard {} failed", args.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_command_takes_is_left_out() {
        let help = "What it does\n\nUsage: switchboard x [OPTIONS] <ID>\n\nArguments:\n  <ID>\n\nOptions:\n  -h, --help     Print help\n  \
            -V, --version  Print version\n\nGlobal options:\n      --json  As JSON\n";
        let own = "What it does\n\nUsage: switchboard x [OPTIONS] <ID>\n\nArguments:\n  <ID>\n\n";
        assert_eq!(without_common(help), own);
        let help = "What it does\n\nUsage: switchboard x\n\nOptions:\n      --limit <N>\n          How many\n\n  -h, --help\n          \
            Print help\n\nGlobal options:\n      --json\n          As JSON\n\n      --config <FILE>\n          A file\n";
        let own = "What it does\n\nUsage: switchboard x\n\nOptions:\n      --limit <N>\n          How many\n\n";
        assert_eq!(without_common(help), own);
    }
}
