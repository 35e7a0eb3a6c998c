//! `plugin`: HTTP servers with a manifest, whose functions are tools here.

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
        /// The URL or the file of a manifest or an index.
        #[arg(value_hint = ValueHint::FilePath)]
        source: String,
        /// Accept it in place of the plugin that has its identifier already.
        #[arg(long)]
        replace: bool,
        /// Let it, and no other plugin, reach this server though its address is not public; may be repeated.
        #[arg(long, value_name = "HOST:PORT")]
        allow_private: Vec<String>,
    },
    /// All plugins, and how they are.
    #[command(visible_alias = "ls")]
    List,
    /// One plugin: its functions, its servers, and what has changed at its source.
    Show {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// Remove a plugin with everything that was set for it, or, by its URL, an index.
    #[command(visible_alias = "rm")]
    Remove {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// Offer a plugin's functions again.
    Enable {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// Keep a plugin, and offer nothing of it.
    Disable {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// What is wrong with a manifest, line by line. What an error names would be left out, and the exit code is 6.
    Check {
        /// The URL or the file of a manifest.
        #[arg(value_hint = ValueHint::FilePath)]
        source: String,
        /// As with add.
        #[arg(long, value_name = "HOST:PORT")]
        allow_private: Vec<String>,
    },
    /// Look at a plugin's source now. A change there is held back.
    Refresh {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// Accept the change that is held back.
    Accept {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// Refuse the change that is held back.
    Refuse {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
    /// Show, store or delete settings. Secrets are never shown.
    Settings(SettingsArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SettingsArgs {
    #[arg(add = completion::names(&NAMES))]
    id: String,
    /// Store the JSON object in this file in place of all that is stored; - is stdin. A secret that is left out, or "***",
    /// stays as it is. (Not on the command line, which others on the machine can read.)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    from: Option<String>,
    /// Delete them.
    #[arg(long, conflicts_with = "from")]
    clear: bool,
    /// Those for everyone who has none of their own.
    #[arg(long)]
    shared: bool,
}

impl PluginCommand {
    /// The plugin that it is about, if it is about one that is here.
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
        PluginCommand::Check { source, allow_private } => return check(global, client, &source, &allow_private).await,
        PluginCommand::Settings(args) => return settings(global, client, args).await,
        PluginCommand::Add { source, replace, allow_private } => {
            let terms = json!({ "replace": replace, "allow_private": allow_private });
            return add(global, client, &source, terms).await;
        }
        PluginCommand::Refresh { id } => {
            let raw = client.send(post(&id, "/refresh")).await?.text().await.unwrap_or_default();
            return if global.json { output::json(&raw) } else { changes(&raw, &id) };
        }
        PluginCommand::Remove { id } => (client.request(Method::DELETE, &at(&id, "")), format!("removed {id}")),
        PluginCommand::Enable { id } => (post(&id, "/enable"), format!("enabled {id}")),
        PluginCommand::Disable { id } => (post(&id, "/disable"), format!("disabled {id}")),
        PluginCommand::Accept { id } => {
            // What is accepted is what is shown here, and nothing that comes in between.
            let (plugin, _): (Value, _) = client.get(&at(&id, "")).await?;
            if !global.json {
                differences(&plugin["held_back"]["changes"])?;
            }
            let seen = json!({ "hash": plugin["held_back"]["hash"] });
            (post(&id, "/accept").json(&seen), format!("accepted what has changed of {id}"))
        }
        PluginCommand::Refuse { id } => (post(&id, "/refuse"), format!("refused what has changed of {id}")),
    };
    let raw = client.send(request).await?.text().await.unwrap_or_default();
    match (global.json, raw.is_empty()) {
        (false, _) => line(&done),
        (true, false) => output::json(&raw),
        // Where the API answers with nothing, there is nothing to print.
        (true, true) => Ok(()),
    }
}

/// What to send for a URL or a file.
fn body_for(source: &str) -> Result<Value, Failure> {
    if source.starts_with("http://") || source.starts_with("https://") {
        return Ok(json!({ "url": source }));
    }
    let text = bounded::text(Path::new(source), bounded::BODY).map_err(|error| {
        Failure::usage(format!("cannot read {source}: {error}"))
            .hint("name a file, or a URL that begins with http:// or https://")
    })?;
    Ok(json!({ "text": text }))
}

async fn add(global: &Global, client: &Client, source: &str, terms: Value) -> Result<(), Failure> {
    let mut body = body_for(source)?;
    for key in ["replace", "allow_private"] {
        body[key] = terms[key].clone();
    }
    let raw =
        client.send(client.request(Method::POST, "/v1/plugins").json(&body)).await?.text().await.unwrap_or_default();
    if global.json {
        return output::json(&raw);
    }
    let added: Value = serde_json::from_str(&raw).unwrap_or_default();
    for plugin in added["plugins"].as_array().into_iter().flatten() {
        let tools: Vec<&str> =
            plugin["api"].as_array().into_iter().flatten().filter_map(|api| api["tool"].as_str()).collect();
        let tools = if tools.is_empty() { "no tools".to_owned() } else { tools.join(", ") };
        line(&format!("added {}: {}", text(&plugin["identifier"]), crate::redact::printable(&tools)))?;
    }
    problems(source, &added["problems"])?;
    for failed in added["failed"].as_array().into_iter().flatten() {
        line(&format!("not added: {}: {}", text(&failed["identifier"]), text(&failed["error"])))?;
    }
    if added["index"].is_string() {
        line("the index is looked into when a host names a plugin that was not added")?;
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
        return line("No plugins yet. Add one: switchboard plugin add URL");
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
    let tools = plugin["api"].as_array().into_iter().flatten().filter(|api| api["tool"].is_string()).count();
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

/// What it may reach though it is not public.
fn private(plugin: &Value) -> String {
    let entries = plugin["allow_private"].as_array().into_iter().flatten().map(text);
    entries.collect::<Vec<_>>().join(" ")
}

async fn show(global: &Global, client: &Client, id: &str) -> Result<(), Failure> {
    let (plugin, raw): (Value, _) = client.get(&format!("/v1/plugins/{}", segment(id))).await?;
    if global.json {
        return output::json(&raw);
    }
    let printed = |text: &str| crate::redact::printable(text).into_owned();
    line(&format!("{} ({})", printed(text(&plugin["identifier"])), text(&plugin["type"])))?;
    let list = |key: &str| plugin[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let servers: Vec<&str> = list("origins").iter().map(text).collect();
    let reach = if plugin["allow_private"].is_array() {
        format!("{}   (it may reach these, though they are not public)", private(&plugin))
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

/// The names of what can be set, and the command that says more.
fn settings_of(plugin: &Value, id: &str) -> String {
    let names: Vec<String> = tool::members(&plugin["settings"]).into_iter().map(|row| row[0].clone()).collect();
    match (names.is_empty(), plugin["settings"].is_object()) {
        (false, _) => format!("{}   (see: switchboard plugin settings {id})", names.join(", ")),
        (_, true) => format!("see: switchboard plugin settings {id}"),
        _ => String::new(),
    }
}

/// What is held back, as a difference.
fn changes(raw: &str, id: &str) -> Result<(), Failure> {
    let plugin: Value = serde_json::from_str(raw).unwrap_or_default();
    let held = &plugin["held_back"];
    if held.is_null() {
        return line("nothing is held back");
    }
    line(&format!("held back since {}:", clock(held["at_ms"].as_i64().unwrap_or(0))))?;
    differences(&held["changes"])?;
    line(&format!("take it with: switchboard plugin accept {id}   or leave it with: switchboard plugin refuse {id}"))
}

/// Prints each place that differs, with its old and its new value.
pub(super) fn differences(changes: &Value) -> Result<(), Failure> {
    for change in changes.as_array().into_iter().flatten() {
        let part = |key: &str| change[key].as_str().map(|text| crate::redact::printable(text).into_owned());
        line(&format!("  {}", part("path").unwrap_or_default()))?;
        for (sign, key) in [('-', "was"), ('+', "now")] {
            if let Some(value) = part(key) {
                line(&format!("    {sign} {value}"))?;
            }
        }
    }
    Ok(())
}

async fn check(global: &Global, client: &Client, source: &str, allow_private: &[String]) -> Result<(), Failure> {
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
    let wrong = checked["problems"].as_array().into_iter().flatten().filter(|problem| problem["severity"] == "error");
    let wrong = match (checked["usable"] == json!(true), wrong.count()) {
        (true, 0) if global.json => return Ok(()),
        (true, 0) => return line("it can be added"),
        (true, 1) => "it can be added, without the part that is wrong".to_owned(),
        (true, wrong) => format!("it can be added, without the {wrong} parts that are wrong"),
        (false, _) => "the manifest cannot be used".to_owned(),
    };
    Err(Failure::new(6, wrong).told())
}

/// What is wrong with a manifest, a line each. What an error names is left out.
fn problems(source: &str, problems: &Value) -> Result<(), Failure> {
    for problem in problems.as_array().into_iter().flatten() {
        let message = crate::redact::printable(text(&problem["message"]));
        // Of an index, several were read.
        let plugin = problem["identifier"].as_str().map(|id| format!("{id}: ")).unwrap_or_default();
        line(&format!("{source}:{}: {}: {plugin}{message}", problem["line"], text(&problem["severity"])))?;
    }
    Ok(())
}

async fn settings(global: &Global, client: &Client, args: SettingsArgs) -> Result<(), Failure> {
    let shared = if args.shared { "?shared=true" } else { "" };
    let path = format!("/v1/plugins/{}/settings{shared}", segment(&args.id));
    let request = match (&args.from, args.clear) {
        (_, true) => {
            client.send(client.request(Method::DELETE, &path)).await?;
            return if global.json { Ok(()) } else { line(&format!("deleted the settings of {}", args.id)) };
        }
        (Some(from), _) => client.request(Method::PUT, &path).json(&json!({ "settings": read(from)? })),
        (None, _) => client.request(Method::GET, &path),
    };
    let raw = client.send(request).await?.text().await.unwrap_or_default();
    if global.json {
        return output::json(&raw);
    }
    let shown: Value = serde_json::from_str(&raw).unwrap_or_default();
    match &shown["settings"] {
        Value::Null => {
            line("nothing is stored")?;
            can_be_set(&shown["schema"], &args)?;
        }
        settings => line(&output::pretty(&settings.to_string()))?,
    }
    match shown["problem"].as_str() {
        Some(problem) => line(&format!("a call would be refused: {}", crate::redact::printable(problem))),
        None => Ok(()),
    }
}

/// What a plugin's schema has, for somebody who has set nothing yet.
fn can_be_set(schema: &Value, args: &SettingsArgs) -> Result<(), Failure> {
    let rows = tool::members(schema);
    if rows.is_empty() {
        let none =
            if schema.is_object() { "the plugin does not say what can be set" } else { "the plugin has no settings" };
        return line(none);
    }
    line("")?;
    table(&[whole("SETTING"), wrapped("TYPE"), wrapped("DEFAULT"), wrapped("DESCRIPTION")], &rows)?;
    let shared = if args.shared { " --shared" } else { "" };
    line(&format!(
        "\nSet them: switchboard plugin settings {}{shared} --from FILE   (a JSON object; - is stdin)",
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
    // The parser's words would quote what is there.
    let value: Value = serde_json::from_str(&text).map_err(|_| Failure::usage(format!("{from} is not JSON")))?;
    if value.is_object() { Ok(value) } else { Err(Failure::usage(format!("{from} must hold a JSON object"))) }
}
