//! Documentation that is made from the code: written by `cargo xtask docs`, checked to be current by `cargo xtask ci`.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{cargo, root, run, target};

/// The commands of the command line, in the order of the page.
const COMMANDS: [&[&str]; 45] = [
    &[],
    &["up"],
    &["serve"],
    &["status"],
    &["console"],
    &["tools"],
    &["call"],
    &["chat"],
    &["nodes"],
    &["nodes", "probe"],
    &["node"],
    &["eligibility"],
    &["skills"],
    &["sessions"],
    &["sessions", "end"],
    &["relay"],
    &["token"],
    &["token", "create"],
    &["token", "list"],
    &["token", "revoke"],
    &["upstream"],
    &["upstream", "add"],
    &["upstream", "list"],
    &["upstream", "remove"],
    &["upstream", "restart"],
    &["plugin"],
    &["plugin", "add"],
    &["plugin", "list"],
    &["plugin", "show"],
    &["plugin", "remove"],
    &["plugin", "enable"],
    &["plugin", "disable"],
    &["plugin", "check"],
    &["plugin", "refresh"],
    &["plugin", "accept"],
    &["plugin", "refuse"],
    &["plugin", "settings"],
    &["calls"],
    &["tail"],
    &["audit"],
    &["doctor"],
    &["config"],
    &["config", "explain"],
    &["config", "show"],
    &["completions"],
];

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
    run(cargo().args(["build", "--quiet", "--package", "switchboard"]))?;
    let openapi = ask(&["openapi"])?;
    let mut cli = "# The command line\n\nMade by `cargo xtask docs`; do not edit.\n".to_owned();
    for command in COMMANDS {
        let help = ask(&[command, &["--help"]].concat())?;
        write!(cli, "\n## `switchboard{}`\n\n```text\n{}\n```\n", prefixed(command), help.trim_end())?;
    }
    let keys: serde_json::Value = serde_json::from_str(&ask(&["config", "show", "--json"])?)?;
    let mut config = "# Configuration keys\n\nMade by `cargo xtask docs`; do not edit. How the layers work: [configuration.md](configuration.md).\n\n\
        | key | default | meaning | variable |\n|---|---|---|---|\n"
        .to_owned();
    for key in keys["keys"].as_array().into_iter().flatten() {
        let text = |name: &str| key[name].as_str().unwrap_or_default().replace('|', "\\|");
        writeln!(config, "| `{}` | `{}` | {} | `{}` |", text("key"), text("value"), text("meaning"), text("variable"))?;
    }
    Ok([("docs/openapi.json", openapi), ("docs/cli.md", cli), ("docs/config-keys.md", config)])
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
