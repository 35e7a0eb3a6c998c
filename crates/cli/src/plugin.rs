//! The `plugin` command: manages HTTP servers with a manifest. The gateway offers their functions
//! as tools.

use std::path::Path;

use clap::ValueHint;
use reqwest::Method;
use sa_vault::bounded;
use serde_json::{Value, json};

use super::client::{Client, segment};
use super::lists::{Names, text};
use super::output::{self, Failure, clock, line};
use super::table::{cut, facts, filled, name, spared, table, whole, wrapped};
use super::tool;
use super::{Global, completion};

const NAMES: Names = Names { path: "/v1/plugins", list: "plugins", key: "identifier" };

#[derive(Debug, clap::Subcommand)]
pub(crate) enum PluginCommand {
    /// Add a plugin, or every plugin of an index.
    Add {
        /// URL or file of a manifest or an index.
        #[arg(value_hint = ValueHint::FilePath)]
        source: String,
        /// Replace an existing plugin with the same identifier.
        #[arg(long)]
        replace: bool,
        /// Allow only this plugin to reach this non-public server; can be repeated.
        #[arg(long, value_name = "HOST:PORT")]
        allow_private: Vec<String>,
    },
    /// List all plugins and their state.
    #[command(visible_alias = "ls")]
    List,
    /// Show a plugin: its functions, its servers, and changes at its source.
    Show {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// Remove a plugin and its settings, or an index by its URL.
    #[command(visible_alias = "rm")]
    Remove {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// Enable a disabled plugin.
    Enable {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// Disable a plugin without removing it.
    Disable {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// Check a manifest and print its problems line by line. Parts with errors would be left out,
    /// and the exit code is then 6.
    Check {
        /// URL or file of a manifest.
        #[arg(value_hint = ValueHint::FilePath)]
        source: String,
        /// Same as for add.
        #[arg(long, value_name = "HOST:PORT")]
        allow_private: Vec<String>,
    },
    /// Check a plugin's source for changes now. A change is held back until it is accepted.
    Refresh {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// Accept the held-back change.
    Accept {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// Refuse the held-back change.
    Refuse {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// Show, replace or delete settings. Secrets are never shown.
    Settings(SettingsArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SettingsArgs {
    #[arg(add = completion::names(&NAMES))]
    id: String,
    /// Replace all settings with the JSON object in this file; - reads stdin. A secret that is
    /// omitted or "***" stays unchanged. (The command line is not used because other users can read
    /// it.)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    from: Option<String>,
    /// Delete the settings.
    #[arg(long, conflicts_with = "from")]
    clear: bool,
    /// Use the shared settings, which apply to every user without own settings.
    #[arg(long)]
    shared: bool,
}

impl PluginCommand {
    /// Returns the id of the installed plugin that the command refers to, if any.
    fn id(&self) -> Option<&str> {
        match self {
            Self::Add { .. } | Self::List | Self::Check { .. } => None,
            Self::Show { id }
            | Self::Remove { id }
            | Self::Enable { id }
            | Self::Disable { id }
            | Self::Refresh { id }
            | Self::Accept { id }
            | Self::Refuse { id }
            | Self::Settings(SettingsArgs { id, .. }) => Some(id),
        }
    }
}

pub(super) async fn run(global: &Global, command: PluginCommand) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let id = command.id().map(str::to_owned);
    match (perform(global, &client, command).await.map_err(Failure::of_content), id) {
        (Err(failure), Some(id)) => Err(failure.or_meant_in(&id, &client, &NAMES).await),
        (done, _) => done,
    }
}

async fn perform(global: &Global, client: &Client, command: PluginCommand) -> Result<(), Failure> {
    let at = |id: &str, action: &str| format!("/v1/plugins/{}{action}", segment(id));
    let post = |id: &str, action: &str| client.request(Method::POST, &at(id, action));
    let (request, done) = match command {
        PluginCommand::List => return list(global, client).await,
        PluginCommand::Show { id } => return show(global, client, &id).await,
        PluginCommand::Check { source, allow_private } => {
            return check(global, client, &source, &allow_private).await;
        }
        PluginCommand::Settings(args) => return settings(global, client, args).await,
        PluginCommand::Add { source, replace, allow_private } => {
            let terms = json!({ "replace": replace, "allow_private": allow_private });
            return add(global, client, &source, terms).await;
        }
        PluginCommand::Refresh { id } => {
            let raw = client.send(post(&id, "/refresh")).await?.text().await.unwrap_or_default();
            return if global.json { output::json(&raw) } else { changes(&raw, &id) };
        }
        PluginCommand::Remove { id } => {
            (client.request(Method::DELETE, &at(&id, "")), format!("removed {id}"))
        }
        PluginCommand::Enable { id } => (post(&id, "/enable"), format!("enabled {id}")),
        PluginCommand::Disable { id } => (post(&id, "/disable"), format!("disabled {id}")),
        PluginCommand::Accept { id } => {
            // Accept exactly the change that was shown, not a later one.
            let (plugin, _): (Value, _) = client.get(&at(&id, "")).await?;
            if !global.json {
                differences(&plugin["held_back"]["changes"])?;
            }
            let seen = json!({ "hash": plugin["held_back"]["hash"] });
            (post(&id, "/accept").json(&seen), format!("accepted the change of {id}"))
        }
        PluginCommand::Refuse { id } => {
            (post(&id, "/refuse"), format!("refused the change of {id}"))
        }
    };
    let raw = client.send(request).await?.text().await.unwrap_or_default();
    match (global.json, raw.is_empty()) {
        (false, _) => line(&done),
        (true, false) => output::json(&raw),
        // The API returns no body for this request.
        (true, true) => Ok(()),
    }
}

/// Returns the request body for a URL or a file.
fn body_for(source: &str) -> Result<Value, Failure> {
    if source.starts_with("http://") || source.starts_with("https://") {
        return Ok(json!({ "url": source }));
    }
    let text = bounded::text(Path::new(source), bounded::BODY).map_err(|error| {
        Failure::usage(format!("cannot read {source}: {error}"))
            .hint("use a file, or a URL that begins with http:// or https://")
    })?;
    Ok(json!({ "text": text }))
}

async fn add(global: &Global, client: &Client, source: &str, terms: Value) -> Result<(), Failure> {
    let mut body = body_for(source)?;
    for key in ["replace", "allow_private"] {
        body[key] = terms[key].clone();
    }
    let raw = client
        .send(client.request(Method::POST, "/v1/plugins").json(&body))
        .await?
        .text()
        .await
        .unwrap_or_default();
    if global.json {
        return output::json(&raw);
    }
    let added: Value = serde_json::from_str(&raw).unwrap_or_default();
    for plugin in added["plugins"].as_array().into_iter().flatten() {
        let tools: Vec<&str> = plugin["api"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|api| api["tool"].as_str())
            .collect();
        let tools = if tools.is_empty() { "no tools".to_owned() } else { tools.join(", ") };
        line(&format!("added {}: {}", text(&plugin["identifier"]), sa_text::printable(&tools)))?;
    }
    problems(source, &added["problems"])?;
    for failed in added["failed"].as_array().into_iter().flatten() {
        line(&format!("not added: {}: {}", text(&failed["identifier"]), text(&failed["error"])))?;
    }
    if added["index"].is_string() {
        line("the index is searched when a host names a plugin that was not added")?;
    }
    Ok(())
}

async fn list(global: &Global, client: &Client) -> Result<(), Failure> {
    let (list, raw): (Value, _) = client.get("/v1/plugins").await?;
    if global.json {
        return output::json(&raw);
    }
    let plugins = list["plugins"].as_array().map(Vec::as_slice).unwrap_or_default();
    if plugins.is_empty() {
        return line("No plugins yet. Run `switchboard plugin add URL` to add one.");
    }
    let rows: Vec<Vec<String>> = plugins.iter().map(row).collect();
    let columns = [
        name("ID"),
        cut("TITLE"),
        spared("TYPE"),
        whole("STATE"),
        spared("TOOLS"),
        cut("PRIVATE"),
        cut("SOURCE"),
        cut("LAST ERROR"),
    ];
    filled(&columns, &rows)
}

fn row(plugin: &Value) -> Vec<String> {
    let state = match (&plugin["enabled"], &plugin["held_back"]) {
        (Value::Bool(false), _) => "disabled",
        (_, Value::Object(_)) => "changed",
        _ => "enabled",
    };
    let tools = plugin["api"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|api| api["tool"].is_string())
        .count();
    let part = |value: &Value| text(value).to_owned();
    vec![
        part(&plugin["identifier"]),
        part(&plugin["meta"]["title"]),
        part(&plugin["type"]),
        state.to_owned(),
        tools.to_string(),
        private(plugin),
        part(&plugin["source"]),
        part(&plugin["last_error"]),
    ]
}

/// Returns the private addresses that the plugin may reach.
fn private(plugin: &Value) -> String {
    let entries = plugin["allow_private"].as_array().into_iter().flatten().map(text);
    entries.collect::<Vec<_>>().join(" ")
}

async fn show(global: &Global, client: &Client, id: &str) -> Result<(), Failure> {
    let (plugin, raw): (Value, _) = client.get(&format!("/v1/plugins/{}", segment(id))).await?;
    if global.json {
        return output::json(&raw);
    }
    let printed = |text: &str| sa_text::printable(text).into_owned();
    line(&format!("{} ({})", printed(text(&plugin["identifier"])), text(&plugin["type"])))?;
    let list = |key: &str| plugin[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let servers: Vec<&str> = list("origins").iter().map(text).collect();
    let reach = if plugin["allow_private"].is_array() {
        format!("{}   (it may access these, although they are not public)", private(&plugin))
    } else {
        String::new()
    };
    let functions = list("api").iter().map(|api| {
        let tool = api["tool"].as_str().unwrap_or("no tool");
        format!("{} ({tool})", text(&api["name"]))
    });
    facts(&[
        ("title", text(&plugin["meta"]["title"]).to_owned()),
        ("about", text(&plugin["meta"]["description"]).to_owned()),
        ("source", text(&plugin["source"]).to_owned()),
        ("page", text(&plugin["ui"]["url"]).to_owned()),
        ("error", text(&plugin["last_error"]).to_owned()),
        ("servers", servers.join("\n")),
        ("private", reach),
        ("functions", functions.collect::<Vec<_>>().join("\n")),
        ("settings", settings_of(&plugin, id)),
    ])?;
    changes(&raw, id)
}

/// Returns the names of the settings, and the command that shows more.
fn settings_of(plugin: &Value, id: &str) -> String {
    let names: Vec<String> =
        tool::members(&plugin["settings"]).into_iter().map(|row| row[0].clone()).collect();
    match (names.is_empty(), plugin["settings"].is_object()) {
        (false, _) => format!("{}   (run `switchboard plugin settings {id}`)", names.join(", ")),
        (_, true) => format!("run `switchboard plugin settings {id}`"),
        _ => String::new(),
    }
}

/// Prints the held-back change as a diff.
fn changes(raw: &str, id: &str) -> Result<(), Failure> {
    let plugin: Value = serde_json::from_str(raw).unwrap_or_default();
    let held = &plugin["held_back"];
    if held.is_null() {
        return line("no change is held back");
    }
    line(&format!("held back since {}:", clock(held["at_ms"].as_i64().unwrap_or(0))))?;
    differences(&held["changes"])?;
    line(&format!(
        "run `switchboard plugin accept {id}` to accept it, or `switchboard plugin refuse {id}` to refuse it"
    ))
}

/// Prints each difference with its old and new value.
pub(super) fn differences(changes: &Value) -> Result<(), Failure> {
    for change in changes.as_array().into_iter().flatten() {
        let part =
            |key: &str| change[key].as_str().map(|text| sa_text::printable(text).into_owned());
        line(&format!("  {}", part("path").unwrap_or_default()))?;
        for (sign, key) in [('-', "was"), ('+', "now")] {
            if let Some(value) = part(key) {
                line(&format!("    {sign} {value}"))?;
            }
        }
    }
    Ok(())
}

async fn check(
    global: &Global,
    client: &Client,
    source: &str,
    allow_private: &[String],
) -> Result<(), Failure> {
    let mut body = body_for(source)?;
    body["allow_private"] = json!(allow_private);
    let request = client.request(Method::POST, "/v1/plugins/check").json(&body);
    let raw = client.send(request).await?.text().await.unwrap_or_default();
    let checked: Value = serde_json::from_str(&raw).unwrap_or_default();
    if global.json {
        output::json(&raw)?;
    } else {
        problems(source, &checked["problems"])?;
    }
    let wrong = checked["problems"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|problem| problem["severity"] == "error");
    let wrong = match (checked["usable"] == json!(true), wrong.count()) {
        (true, 0) if global.json => return Ok(()),
        (true, 0) => return line("it can be added"),
        (true, 1) => "it can be added, without the invalid part".to_owned(),
        (true, wrong) => format!("it can be added, without the {wrong} invalid parts"),
        (false, _) => "the manifest cannot be used".to_owned(),
    };
    Err(Failure::new(6, wrong).told())
}

/// Prints the problems of a manifest, one per line.
fn problems(source: &str, problems: &Value) -> Result<(), Failure> {
    for problem in problems.as_array().into_iter().flatten() {
        let message = sa_text::printable(text(&problem["message"]));
        // An index contains several manifests.
        let plugin = problem["identifier"].as_str().map(|id| format!("{id}: ")).unwrap_or_default();
        line(&format!(
            "{source}:{}: {}: {plugin}{message}",
            problem["line"],
            text(&problem["severity"])
        ))?;
    }
    Ok(())
}

async fn settings(global: &Global, client: &Client, args: SettingsArgs) -> Result<(), Failure> {
    let shared = if args.shared { "?shared=true" } else { "" };
    let path = format!("/v1/plugins/{}/settings{shared}", segment(&args.id));
    let request = match (&args.from, args.clear) {
        (_, true) => {
            client.send(client.request(Method::DELETE, &path)).await?;
            return if global.json {
                Ok(())
            } else {
                line(&format!("deleted the settings of {}", args.id))
            };
        }
        (Some(from), _) => {
            client.request(Method::PUT, &path).json(&json!({ "settings": read(from)? }))
        }
        (None, _) => client.request(Method::GET, &path),
    };
    let raw = client.send(request).await?.text().await.unwrap_or_default();
    if global.json {
        return output::json(&raw);
    }
    let shown: Value = serde_json::from_str(&raw).unwrap_or_default();
    match &shown["settings"] {
        Value::Null => {
            line("no settings are stored")?;
            can_be_set(&shown["schema"], &args)?;
        }
        settings => line(&output::pretty(&settings.to_string()))?,
    }
    match shown["problem"].as_str() {
        Some(problem) => line(&format!("a call would be refused: {}", sa_text::printable(problem))),
        None => Ok(()),
    }
}

/// Prints the available settings, for a plugin without stored settings.
fn can_be_set(schema: &Value, args: &SettingsArgs) -> Result<(), Failure> {
    let rows = tool::members(schema);
    if rows.is_empty() {
        let none = if schema.is_object() {
            "the plugin does not declare its settings"
        } else {
            "the plugin has no settings"
        };
        return line(none);
    }
    line("")?;
    table(&[whole("SETTING"), wrapped("TYPE"), wrapped("DEFAULT"), wrapped("DESCRIPTION")], &rows)?;
    let shared = if args.shared { " --shared" } else { "" };
    line(&format!(
        "\nRun `switchboard plugin settings {}{shared} --from FILE` to set them (a JSON object; - reads stdin).",
        args.id
    ))
}

fn read(from: &str) -> Result<Value, Failure> {
    let read = if from == "-" {
        bounded::text_of(std::io::stdin(), bounded::BODY)
    } else {
        bounded::text(Path::new(from), bounded::BODY)
    };
    let text = read.map_err(|error| Failure::usage(format!("cannot read {from}: {error}")))?;
    // The parser's message could quote secrets from the file.
    let value: Value = serde_json::from_str(&text)
        .map_err(|_| Failure::usage(format!("{from} is not valid JSON")))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(Failure::usage(format!("{from} must contain a JSON object")))
    }
}
