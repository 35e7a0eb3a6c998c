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
    run(cargo().args(["build", "--quiet", "--package", "switchboard"]))?;
    let openapi = ask(&["openapi"])?;
    let mut cli = "# The command line\n\nMade by `cargo xtask docs`; do not edit.\n".to_owned();
    describe(&mut cli, &[])?;
    let keys: serde_json::Value = serde_json::from_str(&ask(&["config", "explain", "--json"])?)?;
    let mut config = "# Configuration keys\n\nMade by `cargo xtask docs`; do not edit. How the layers work: [configuration.md](configuration.md). \
        A key without a variable can only be in the file; NAME is yours to choose.\n\n\
        | key | default | meaning | variable |\n|---|---|---|---|\n"
        .to_owned();
    for key in keys["keys"].as_array().into_iter().flatten() {
        let text = |name: &str| key[name].as_str().unwrap_or_default().replace('|', "\\|");
        // What has no default, or can only be in the file, has an empty cell.
        let code = |name: &str| Some(text(name)).filter(|text| !text.is_empty()).map(|text| format!("`{text}`"));
        let (value, variable) = (code("value").unwrap_or_default(), code("variable").unwrap_or_default());
        writeln!(config, "| `{}` | {value} | {} | {variable} |", text("key"), text("meaning"))?;
    }
    Ok([("docs/openapi.json", openapi), ("docs/cli.md", cli), ("docs/config-keys.md", config)])
}

/// Appends a command's help, and that of every command below it, in the order in which the help lists them.
fn describe(page: &mut String, command: &[&str]) -> Result<()> {
    let help = ask(&[command, &["--help"]].concat())?;
    write!(page, "\n## `switchboard{}`\n\n```text\n{}\n```\n", prefixed(command), help.trim_end())?;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Names are indented by two, what is said of them by more.
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()));
    names.filter(|name| *name != "help").try_for_each(|name| describe(page, &[command, &[name]].concat()))
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
