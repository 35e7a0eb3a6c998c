//! `config`: what counts, and why.

use serde_json::json;

use super::Global;
use super::output::{self, Failure, line};
use super::run::layers;
use super::table::{cut, facts, table, whole, wrapped};
use crate::config::Config;
use crate::config::layers::{Layers, Source, unknown_variable, unknown_variables, variable_name};
use crate::config::named::NAMED_KEYS;
use crate::config::settings::KEYS;

const ONLY_IN_FILE: &str = "none, it is set in the configuration file only";

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
            let unknown = unknown_variables();
            if global.json {
                let warnings: Vec<String> = unknown.iter().map(|name| unknown_variable(name)).collect();
                let warned = json!({ "ok": true, "warnings": warnings }).to_string();
                return output::json(if warnings.is_empty() { r#"{"ok":true}"# } else { &warned });
            }
            for name in &unknown {
                eprintln!("warning: {}", unknown_variable(name));
            }
            line(if unknown.is_empty() { "the configuration is fine" } else { "the rest of the configuration is fine" })
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
        ConfigCommand::Explain { key: None } if global.json => {
            let keys = KEYS.iter().map(|(key, meaning)| entry(&layers, key, meaning));
            let named = NAMED_KEYS.iter().map(|(key, default, meaning)| named_entry(key, default, meaning));
            output::json(&json!({ "keys": keys.chain(named).collect::<Vec<_>>() }).to_string())
        }
        ConfigCommand::Explain { key: None } => {
            let named = NAMED_KEYS.iter().map(|(key, _, meaning)| (key, meaning));
            let all = KEYS.iter().map(|(key, meaning)| (key, meaning)).chain(named);
            let rows: Vec<Vec<String>> =
                all.map(|(key, meaning)| vec![(*key).to_owned(), (*meaning).to_owned()]).collect();
            table(&[whole("KEY"), wrapped("MEANING")], &rows)
        }
        ConfigCommand::Explain { key: Some(key) } => {
            if let Some((key, default, meaning)) = NAMED_KEYS.iter().find(|(known, _, _)| is_named(known, key)) {
                if global.json {
                    return output::json(&named_entry(key, default, meaning).to_string());
                }
                line(&format!("{key}{}", if default.is_empty() { String::new() } else { format!(" = {default}") }))?;
                return facts(&[("meaning", (*meaning).to_owned()), ("variable", ONLY_IN_FILE.to_owned())]);
            }
            let (key, meaning) = KEYS.iter().find(|(known, _)| known == key).ok_or_else(|| {
                Failure::usage(format!("there is no key \"{key}\"")).hint("switchboard config explain lists them")
            })?;
            if global.json {
                return output::json(&entry(&layers, key, meaning).to_string());
            }
            line(&format!("{key} = {}", layers.value(key).unwrap_or_default()))?;
            let variable = variable_name(key).unwrap_or_else(|| ONLY_IN_FILE.to_owned());
            facts(&[("meaning", (*meaning).to_owned()), ("from", source(&layers, key)), ("variable", variable)])
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

fn named_entry(key: &str, default: &str, meaning: &str) -> serde_json::Value {
    json!({ "key": key, "value": default, "meaning": meaning })
}

/// Whether a key is this one of a table with a name, whatever the name.
fn is_named(known: &str, key: &str) -> bool {
    let Some((before, after)) = known.split_once("NAME.") else { return false };
    let name = key.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)?.strip_suffix('.'));
    name.is_some_and(|name| !name.is_empty())
}

fn source(layers: &Layers, key: &str) -> String {
    match layers.source(key) {
        Source::Default => "default".into(),
        Source::File { path, line } => format!("{}:{line}", path.display()),
        Source::Environment(name) => format!("${name}"),
        Source::Flag(flag) => flag,
    }
}
