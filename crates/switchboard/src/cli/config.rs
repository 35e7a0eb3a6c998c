//! `config`: what counts, and why.

use serde_json::json;

use super::Global;
use super::output::{self, Failure, line};
use super::run::layers;
use super::table::{cut, facts, table, whole, wrapped};
use crate::config::Config;
use crate::config::layers::{Layers, Source, variable_name};
use crate::config::settings::KEYS;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every key with its value and where that came from.
    Show,
    /// Say what a key means, its value, and where that came from; without a key, what all of them mean.
    Explain { key: Option<String> },
    /// Check the configuration without starting anything.
    Check,
}

pub(super) fn run(global: &Global, command: &ConfigCommand) -> Result<(), Failure> {
    let layers = layers(global, &[])?;
    match command {
        ConfigCommand::Check => {
            Config::resolve(&layers)?.check_files(&layers)?;
            if global.json { output::json(r#"{"ok":true}"#) } else { line("the configuration is fine") }
        }
        ConfigCommand::Show if global.json => {
            let keys: Vec<_> = KEYS.iter().map(|(key, meaning)| entry(&layers, key, meaning)).collect();
            output::json(&json!({ "keys": keys }).to_string())
        }
        ConfigCommand::Show => {
            let rows: Vec<Vec<String>> = KEYS
                .iter()
                .map(|(key, _)| vec![(*key).to_owned(), layers.value(key).unwrap_or_default(), source(&layers, key)])
                .collect();
            table(&[whole("KEY"), wrapped("VALUE"), cut("FROM")], &rows)
        }
        ConfigCommand::Explain { key: None } => {
            let rows: Vec<Vec<String>> =
                KEYS.iter().map(|(key, meaning)| vec![(*key).to_owned(), (*meaning).to_owned()]).collect();
            table(&[whole("KEY"), wrapped("MEANING")], &rows)
        }
        ConfigCommand::Explain { key: Some(key) } => {
            let (key, meaning) = KEYS.iter().find(|(known, _)| known == key).ok_or_else(|| {
                Failure::usage(format!("there is no key \"{key}\"")).hint("switchboard config explain lists them")
            })?;
            if global.json {
                return output::json(&entry(&layers, key, meaning).to_string());
            }
            line(&format!("{key} = {}", layers.value(key).unwrap_or_default()))?;
            facts(&[
                ("meaning", (*meaning).to_owned()),
                ("from", source(&layers, key)),
                ("variable", variable_name(key)),
            ])
        }
    }
}

fn entry(layers: &Layers, key: &str, meaning: &str) -> serde_json::Value {
    json!({
        "key": key,
        "value": layers.value(key),
        "from": source(layers, key),
        "meaning": meaning,
        "variable": variable_name(key),
    })
}

fn source(layers: &Layers, key: &str) -> String {
    match layers.source(key) {
        Source::Default => "default".into(),
        Source::File { path, line } => format!("{}:{line}", path.display()),
        Source::Environment(name) => format!("${name}"),
        Source::Flag(flag) => flag,
    }
}
