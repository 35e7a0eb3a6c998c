//! The `config` command: shows effective values and their sources.

use std::path::PathBuf;

use sa_text::closest;
use serde_json::json;

use super::Global;
use super::client::Client;
use super::flags::OfGateway;
use super::output::{self, Failure, line};
use super::run::{layers, layers_despite_mistakes};
use super::table::{cut, facts, table, whole, wrapped};
use sa_gateway::config::environment::{unknown_variable, unknown_variables, variable_name};
use sa_gateway::config::flags::flag_name;
use sa_gateway::config::keys::{KEYS, KnownKey, NAMED_KEYS, find};
use sa_gateway::config::layers::{Layers, Source};
use sa_gateway::config::{Config, Mistake, default_data_dir};
use sa_text::printable;

/// The timeout for asking the gateway which file it has read.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

const ONLY_IN_FILE: &str = "none; it can only be set in the configuration file";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show all keys with their values and sources.
    Show(OfGateway),
    /// Explain a key: its meaning, value and source. Without a key, list the meaning of all keys.
    Explain {
        key: Option<String>,
        #[command(flatten)]
        flags: OfGateway,
    },
    /// Check the configuration without starting anything.
    Check(OfGateway),
}

pub(super) async fn run(global: &Global, command: &ConfigCommand) -> Result<(), Failure> {
    let (layers, mistakes) = match command {
        // `explain` also works with an invalid configuration, because the user may be fixing
        // another key.
        ConfigCommand::Explain { flags, .. } => layers_despite_mistakes(global, flags),
        ConfigCommand::Show(flags) | ConfigCommand::Check(flags) => match layers(global, flags) {
            Ok(layers) => (layers, Vec::new()),
            Err(failure) => {
                tell_own(global);
                return Err(failure);
            }
        },
    };
    if !matches!(command, ConfigCommand::Explain { key: None, .. }) {
        tell_own(global);
        tell_others(global).await;
    }
    match command {
        ConfigCommand::Check(_) => check(global, &layers),
        ConfigCommand::Show(_) if global.json => {
            let keys = KEYS.iter().map(|known| entry(&layers, known));
            let keys: Vec<_> = keys.chain(named_entries(&layers)).collect();
            output::json(&json!({ "file": layers.file(), "keys": keys }).to_string())
        }
        ConfigCommand::Show(_) => {
            let plain = KEYS.iter().filter(|known| !known.is_table).map(|known| &known.key);
            let plain =
                plain.map(|key| vec![key.clone(), shown(&layers, key), source(&layers, key)]);
            let named = layers.named().into_iter().map(|(key, value)| {
                let source = source(&layers, &key);
                vec![key, value.to_string(), source]
            });
            table(
                &[whole("KEY"), wrapped("VALUE"), cut("FROM")],
                &plain.chain(named).collect::<Vec<_>>(),
            )
        }
        ConfigCommand::Explain { key: None, .. } if global.json => {
            let keys = KEYS.iter().map(|known| entry(&layers, known));
            let named = NAMED_KEYS.iter().map(named_entry);
            output::json(&json!({ "keys": keys.chain(named).collect::<Vec<_>>() }).to_string())
        }
        ConfigCommand::Explain { key: None, .. } => meanings(all_keys()),
        ConfigCommand::Explain { key: Some(key), .. } => {
            // Print the answer first. Mistakes in other keys follow.
            let of_key = |mistake: &Mistake| {
                mistake.key == *key || mistake.key.starts_with(&format!("{key}."))
            };
            let (own, others): (Vec<Mistake>, _) = mistakes.into_iter().partition(of_key);
            explain(global, &layers, &own, key)?;
            tell_of(global, &others, !own.is_empty());
            Ok(())
        }
    }
}

/// Reports mistakes in other keys in one line.
fn tell_of(global: &Global, mistakes: &[Mistake], other: bool) {
    match mistakes {
        [] => {}
        [mistake] => output::note("mistake", &mistake.to_string()),
        mistakes => {
            let (count, other) = (mistakes.len(), if other { "other " } else { "" });
            let file = global
                .config
                .as_ref()
                .map(|file| format!(" --config {}", file.display()))
                .unwrap_or_default();
            let told = format!(
                "the configuration has {count} {other}mistakes; run `switchboard{file} config check` to list them"
            );
            output::note("note", &told);
        }
    }
}

fn check(global: &Global, layers: &Layers) -> Result<(), Failure> {
    Config::resolve(layers)?.check_files(layers)?;
    let unknown = unknown_variables();
    if global.json {
        let warnings: Vec<String> = unknown.iter().map(|name| unknown_variable(name)).collect();
        let warned = json!({ "ok": true, "warnings": warnings }).to_string();
        return output::json(if warnings.is_empty() { r#"{"ok":true}"# } else { &warned });
    }
    for name in &unknown {
        output::note("warning", &unknown_variable(name));
    }
    line(if unknown.is_empty() {
        "the configuration is valid"
    } else {
        "the rest of the configuration is valid"
    })
}

fn explain(
    global: &Global,
    layers: &Layers,
    mistakes: &[Mistake],
    key: &str,
) -> Result<(), Failure> {
    let wrong = mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    if let Some(known) = NAMED_KEYS.iter().find(|known| is_named(&known.key, key)) {
        let written =
            layers.named().into_iter().find(|(written, _)| written == key).map(|(_, value)| value);
        if global.json {
            let mut entry = named_entry(known);
            if let Some(value) = &written {
                entry["key"] = json!(key);
                entry["value"] = as_json(value);
                entry["from"] = json!(source(layers, key));
            }
            return output::json(&with_wrong(entry, &wrong).to_string());
        }
        let from = written.as_ref().map(|_| source(layers, key)).unwrap_or_default();
        let (shown, value) = written.map_or_else(
            || (&*known.key, known.default.to_owned()),
            |value| (key, value.to_string()),
        );
        line(&format!(
            "{shown}{}",
            if value.is_empty() { String::new() } else { format!(" = {value}") }
        ))?;
        let variable = ONLY_IN_FILE.to_owned();
        return facts(&[
            ("meaning", known.meaning.to_owned()),
            ("from", from),
            ("wrong", wrong),
            ("variable", variable),
        ]);
    }
    if let Some(known) = find(key).filter(|known| !known.is_table) {
        if global.json {
            return output::json(&with_wrong(entry(layers, known), &wrong).to_string());
        }
        line(&format!("{key} = {}", shown(layers, key)))?;
        let variable = variable_name(key).unwrap_or_else(|| ONLY_IN_FILE.to_owned());
        let (from, flag) = (source(layers, key), flag_name(key).unwrap_or_default());
        return facts(&[
            ("meaning", known.meaning.to_owned()),
            ("from", from),
            ("wrong", wrong),
            ("variable", variable),
            ("flag", flag),
        ]);
    }
    // The key is a section or a named table. Show all keys in it.
    let below: Vec<_> = all_keys().filter(|(known, _)| is_below(known, key)).collect();
    if below.is_empty() {
        let message = format!("there is no key \"{}\"", printable(key));
        return Err(Failure::usage(message).hint(match meant(key) {
            Some(meant) => format!("run `switchboard config explain {}`", printable(&meant)),
            None => "run `switchboard config explain` to list the keys".to_owned(),
        }));
    }
    if global.json {
        let written = layers
            .named()
            .into_iter()
            .filter(|(written, _)| written.starts_with(&format!("{key}.")));
        let written: Vec<_> =
            written.map(|(key, value)| json!({ "key": key, "value": as_json(&value) })).collect();
        let keys: Vec<_> =
            below.iter().map(|(key, meaning)| json!({ "key": key, "meaning": meaning })).collect();
        let section = json!({ "keys": keys, "written": written });
        return output::json(&with_wrong(section, &wrong).to_string());
    }
    meanings(below.into_iter())?;
    if !wrong.is_empty() {
        line("")?;
        facts(&[("wrong", wrong)])?;
    }
    let written =
        layers.named().into_iter().filter(|(written, _)| written.starts_with(&format!("{key}.")));
    let rows: Vec<Vec<String>> = written
        .map(|(key, value)| {
            let source = source(layers, &key);
            vec![key, value.to_string(), source]
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    line("")?;
    table(&[whole("WRITTEN"), wrapped("VALUE"), cut("FROM")], &rows)
}

fn with_wrong(mut explained: serde_json::Value, wrong: &str) -> serde_json::Value {
    if !wrong.is_empty() {
        explained["wrong"] = json!(wrong);
    }
    explained
}

/// Returns a suggestion for an unknown key or section.
fn meant(key: &str) -> Option<String> {
    let parts: Vec<&str> = key.split('.').collect();
    // For a named table, the suggestion keeps the name as typed.
    let as_written = |known: &str| -> String {
        let before = known.split('.').position(|part| part == "NAME");
        let name = before.and_then(|at| parts.get(at)).copied().unwrap_or("NAME");
        known.replace("NAME", name)
    };
    let keys = all_keys().map(|(known, _)| as_written(known));
    let sections = all_keys().filter_map(|(known, _)| Some(known.split_once('.')?.0.to_owned()));
    let known: Vec<String> = keys.chain(sections).collect();
    closest(key, known.iter().map(String::as_str)).map(str::to_owned)
}

fn all_keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    KEYS.iter().chain(NAMED_KEYS.iter()).map(|known| (known.key.as_str(), known.meaning))
}

fn meanings(keys: impl Iterator<Item = (&'static str, &'static str)>) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> =
        keys.map(|(key, meaning)| vec![key.to_owned(), meaning.to_owned()]).collect();
    table(&[whole("KEY"), wrapped("MEANING")], &rows)
}

/// Returns the absolute path of the given configuration file. The file is not read.
fn own_file(global: &Global) -> Option<String> {
    let whole = |file: &PathBuf| {
        std::path::absolute(file).unwrap_or_else(|_| file.clone()).display().to_string()
    };
    global.config.as_ref().map(whole)
}

/// Prints the path of the configuration file that the output refers to.
fn tell_own(global: &Global) {
    if !global.json {
        let none = || "none; set one with --config FILE or SWITCHBOARD_CONFIG".to_owned();
        output::note("file", &own_file(global).unwrap_or_else(none));
    }
}

/// Reports if the running gateway has read another configuration file.
async fn tell_others(global: &Global) {
    let Ok(client) = Client::new(global) else { return };
    let asked = tokio::time::timeout(TIMEOUT, client.get::<serde_json::Value>("/v1/status")).await;
    let Ok(Ok((status, _))) = asked else { return };
    let theirs = status["config_file"].as_str();
    if theirs == own_file(global).as_deref() {
        return;
    }
    let url = client.place();
    match theirs {
        Some(theirs) => {
            let told =
                format!("the gateway at {url} uses {theirs}; add --config {theirs} to see it");
            output::note("note", &told);
        }
        None => output::note("note", &format!("the gateway at {url} uses no configuration file")),
    }
}

/// Returns the effective value of a key for display. The content of named tables is shown key by
/// key instead.
fn shown(layers: &Layers, key: &str) -> String {
    let named =
        find(key).is_some_and(|known| known.is_table) && layers.source(key) != Source::Default;
    if named {
        "{ … }".to_owned()
    } else {
        effective(layers, key).map(|value| value.to_string()).unwrap_or_default()
    }
}

/// Returns the effective value of a key. An empty data directory means the default directory.
fn effective(layers: &Layers, key: &str) -> Option<toml::Value> {
    layers.value(key).map(|value| match &value {
        toml::Value::String(empty) if key == "data.dir" && empty.is_empty() => {
            default_data_dir().display().to_string().into()
        }
        _ => value,
    })
}

/// Converts a value to JSON. A value that cannot be converted becomes null.
fn as_json(value: &toml::Value) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Returns the keys of the named tables in the file, each with its meaning.
fn named_entries(layers: &Layers) -> impl Iterator<Item = serde_json::Value> {
    layers.named().into_iter().map(|(key, value)| {
        let known = NAMED_KEYS.iter().find(|known| is_named(&known.key, &key));
        let meaning = known.map(|known| known.meaning);
        json!({ "key": key, "value": as_json(&value), "from": source(layers, &key), "meaning": meaning })
    })
}

/// Reports whether a key belongs to a section or to one of its named tables.
fn is_below(known: &str, section: &str) -> bool {
    let table = known.split_once("NAME.").map(|(before, _)| before);
    let named = |before| section.strip_prefix(before).is_some_and(|name| !name.is_empty());
    known.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
        || table.is_some_and(named)
}

fn entry(layers: &Layers, known: &KnownKey) -> serde_json::Value {
    let KnownKey { key, meaning, .. } = known;
    let (written, effective) = (layers.value(key), effective(layers, key));
    let mut entry = json!({
        "key": key,
        "value": written.as_ref().map(as_json),
        "from": source(layers, key),
        "meaning": meaning,
        "variable": variable_name(key),
    });
    if let Some(flag) = flag_name(key) {
        entry["flag"] = json!(flag);
    }
    if effective != written {
        entry["effective"] = json!(effective.as_ref().map(as_json));
    }
    entry
}

/// Returns the default of a key in a named table. It is null if there is no default or if it
/// depends on another key.
fn named_entry(known: &KnownKey) -> serde_json::Value {
    let KnownKey { key, default, meaning, .. } = known;
    let value = format!("x = {default}")
        .parse::<toml::Table>()
        .ok()
        .and_then(|mut table| table.remove("x"));
    json!({ "key": key, "value": value.as_ref().map(as_json), "meaning": meaning })
}

/// Reports whether `key` matches the known key for any table name.
fn is_named(known: &str, key: &str) -> bool {
    let Some((before, after)) = known.split_once("NAME.") else { return false };
    let name =
        key.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)?.strip_suffix('.'));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_or_section_is_known() {
        assert_eq!(meant("limits.pendng_total").as_deref(), Some("limits.pending_total"));
        assert_eq!(meant("upstream.files.comand").as_deref(), Some("upstream.files.command"));
        assert_eq!(meant("sesions").as_deref(), Some("sessions"));
        assert_eq!(meant("colour"), None);
    }
}
