//! `doctor`: look for what is wrong, and say how to mend it.

mod nodes;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use sa_core::clock;
use sa_core::store::StoreErrorKind;
use sa_vault::bounded;
use serde_json::{Value, json};

use self::nodes::{lost_ids, nodes_of, replaced_nodes};
use super::Global;
use super::client::Client;
use super::flags::OfGateway;
use super::lists::text;
use super::output::{self, Failure};
use super::port::Holder;
use super::run::layers;
use super::table::facts;
use super::typed::with_options;
use crate::config::Config;
use crate::config::environment::{instead_of, unknown_variables};
use crate::redact::printable;
use crate::tokens::Tokens;

/// One thing that was looked at.
struct Finding {
    what: String,
    /// What to do; `None` when all is well.
    fix: Option<String>,
    /// Nothing is wrong, and yet it may not be as somebody thinks.
    note: bool,
}

impl Finding {
    fn good(what: impl Into<String>) -> Self {
        Self { what: what.into(), fix: None, note: false }
    }

    fn bad(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: Some(fix.into()), note: false }
    }

    fn note(what: impl Into<String>) -> Self {
        Self { note: true, ..Self::good(what) }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Read the whole store as well, and check every record in it. The gateway must be stopped for it.
    #[arg(long)]
    deep: bool,
    /// Go on with a store that has lost its newest commits, if the rest of it is intact; for want of a backup. The gateway
    /// must be stopped for it.
    #[arg(long)]
    accept_loss: bool,
}

pub(super) async fn run(global: &Global, args: DoctorArgs) -> Result<(), Failure> {
    let mut findings = Vec::new();
    match layers(global, &OfGateway::default()).and_then(|layers| Ok(Config::resolve(&layers)?)) {
        // A line for each mistake in it.
        Err(failure) => findings.extend(
            failure.message.lines().map(|mistake| Finding::bad(mistake, failure.hint.clone().unwrap_or_default())),
        ),
        Ok(config) => {
            findings.push(Finding::good("the configuration is valid"));
            environment(&mut findings);
            files(&config, &mut findings);
            sandboxes(&config, &mut findings).await;
            if args.deep || args.accept_loss {
                // No gateway is expected to answer: it would be in the way.
                store(&config, args.accept_loss, &mut findings).await;
            } else {
                gateway(global, &config, &mut findings).await;
            }
        }
    }
    for finding in &mut findings {
        finding.fix = finding.fix.take().map(|fix| with_options(&fix, &global.options));
    }
    let wrong = findings.iter().filter(|finding| finding.fix.is_some()).count();
    if global.json {
        let list: Vec<Value> = findings
            .iter()
            .map(|finding| json!({ "what": finding.what, "ok": finding.fix.is_none(), "fix": finding.fix }))
            .collect();
        output::json(&json!({ "ok": wrong == 0, "findings": list }).to_string())?;
    } else {
        for finding in &findings {
            match &finding.fix {
                None if finding.note => facts(&[("note", finding.what.clone())])?,
                None => facts(&[("ok  ", finding.what.clone())])?,
                Some(fix) => facts(&[("FIX ", format!("{}\n-> {}", printable(&finding.what), printable(fix)))])?,
            }
        }
    }
    match wrong {
        0 => Ok(()),
        1 => Err(Failure::other("one thing needs attention").told()),
        wrong => Err(Failure::other(format!("{wrong} things need attention")).told()),
    }
}

/// Variables that look like ours and are not.
fn environment(findings: &mut Vec<Finding>) {
    for name in unknown_variables() {
        let fix = format!("unset it, or mend its name: {}", instead_of(&name));
        findings.push(Finding::bad(format!("the variable {name} sets nothing"), fix));
    }
}

/// Whether agents with `sandbox = true` can have one on this machine.
async fn sandboxes(config: &Config, findings: &mut Vec<Finding>) {
    let settings = &config.settings.sessions;
    if !settings.enabled || !settings.agents.values().any(|agent| agent.sandbox) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    findings.push(match crate::sessions::check_sandboxes(config, &program).await {
        Ok(()) => Finding::good("agents can run in a sandbox"),
        Err(why) => {
            let (what, fix) = why.rsplit_once("; ").unwrap_or((&why, "see docs/sessions.md"));
            Finding::bad(what, fix)
        }
    });
}

fn files(config: &Config, findings: &mut Vec<Finding>) {
    let dir = &config.data_dir;
    if !dir.exists() {
        findings.push(Finding::bad(
            format!("the data directory {} does not exist", dir.display()),
            "start the gateway once: switchboard up",
        ));
        return;
    }
    private(dir, 0o700, findings);
    let token = config.operator_token_file();
    if token.exists() {
        private(&token, 0o600, findings);
    } else {
        findings.push(Finding::bad(
            format!("{} is missing", token.display()),
            "restart the gateway: it writes a new operator token",
        ));
    }
    for file in config.tls.iter().flat_map(|tls| [&tls.cert, &tls.key]) {
        if let Err(error) = bounded::open_file(file) {
            findings
                .push(Finding::bad(format!("{}: {error}", file.display()), "mend the path or the file's permissions"));
        }
    }
    if let Ok(space) = rustix::fs::statvfs(dir) {
        let free = space.f_bavail * space.f_frsize / (1 << 20);
        if free < 200 {
            findings.push(Finding::bad(format!("{} has {free} MiB left", dir.display()), "free some disk space"));
        } else {
            findings.push(Finding::good(format!("{} has {free} MiB left", dir.display())));
        }
    }
}

/// Reads everything that is stored. What is damaged is named with its file and place.
async fn store(config: &Config, accept_loss: bool, findings: &mut Vec<Finding>) {
    let file = config.store_file();
    // One that is gone and has left its witness behind was lost, and is no new one.
    if !sa_store::has_been(&file) {
        return findings.push(Finding::note(format!("{} does not exist yet: nothing is stored", file.display())));
    }
    let options = crate::call_index::store_options(file.clone());
    let mut read = read_all(options.clone()).await;
    if let Err(loss) = &read
        && loss.kind == StoreErrorKind::Behind
        && accept_loss
    {
        let lost = loss.message.clone();
        read = read_all(sa_store::OpenOptions { accept_loss, ..options }).await;
        if read.is_ok() {
            let (what, _) = lost.split_once("; ").unwrap_or((&lost, ""));
            findings.push(Finding::note(format!("{what}; the loss is accepted, and the gateway can start")));
        }
    }
    if let Ok((_, unreadable)) = &read {
        findings.extend(unreadable.iter().map(|what| {
            let fix = "start the version of the gateway that wrote it, or make another: switchboard token create NAME";
            Finding::bad(format!("{}: {what}", file.display()), fix)
        }));
    }
    findings.push(match read {
        Ok((sa_store::Verified { streams, entries, buckets, records }, _)) => Finding::good(format!(
            "{} is intact: {entries} entries in {streams} streams, {records} documents in {buckets} buckets",
            file.display()
        )),
        Err(error) if error.kind == StoreErrorKind::InUse => {
            let action = if accept_loss { "doctor --accept-loss" } else { "doctor --deep" };
            Finding::bad(error.message, format!("stop the gateway, then run: {}", config.typed(action)))
        }
        Err(error) if error.kind == StoreErrorKind::Behind => Finding::bad(
            with_options(&error.message, &config.options()),
            format!(
                "put a backup in the place of {}; or, for want of one: {}",
                config.data_dir.display(),
                config.typed("doctor --accept-loss")
            ),
        ),
        Err(error) if error.kind == StoreErrorKind::Damaged => Finding::bad(
            error.message,
            format!("put a backup in the place of {}, or move it away to begin anew", config.data_dir.display()),
        ),
        Err(error) => Finding::bad(error.message, "mend what the system says, then look again"),
    });
}

/// What there is, and what is wrong with tokens that are stored well and cannot be read all the same.
async fn read_all(options: sa_store::OpenOptions) -> Result<(sa_store::Verified, Vec<String>), sa_store::StoreError> {
    let store = sa_store::Store::open(options)?;
    let read = async {
        let verified = store.verify().await?;
        let tokens = Tokens::load(Arc::new(store.clone())).await?;
        Ok((verified, tokens.unreadable().to_vec()))
    };
    let read = read.await;
    store.shutdown().await?;
    read
}

fn private(path: &Path, wanted: u32, findings: &mut Vec<Finding>) {
    match std::fs::metadata(path).map(|meta| meta.permissions().mode() & 0o777) {
        Ok(mode) if mode & 0o077 == 0 => findings.push(Finding::good(format!("{} is private", path.display()))),
        Ok(mode) => findings.push(Finding::bad(
            format!("{} is open to other users (mode {mode:o})", path.display()),
            format!("chmod {wanted:o} {}", path.display()),
        )),
        Err(error) => findings.push(Finding::bad(format!("{}: {error}", path.display()), "mend its permissions")),
    }
}

async fn gateway(global: &Global, config: &Config, findings: &mut Vec<Finding>) {
    let client = match Client::new(global) {
        Ok(client) => client,
        Err(failure) => return findings.push(Finding::bad(failure.message, failure.hint.unwrap_or_default())),
    };
    // Where there is no data directory, that says it all.
    if !client.has_token() && config.data_dir.exists() {
        findings.push(Finding::bad(
            "there is no token to talk to the gateway with",
            "set SWITCHBOARD_TOKEN, or --token-file",
        ));
    }
    match client.status("?renamed=true").await {
        Err(failure) => {
            let holder = super::port::holder(config.listen);
            let (what, holder) = match holder {
                Holder::Listener(holder) => ("something else listens on", holder),
                Holder::Connection(holder) => ("nobody listens, but a connection uses", holder),
                Holder::Unknown => ("something else listens on", "another program".to_owned()),
            };
            let held =
                std::net::TcpListener::bind(config.listen).is_err() && config.listen.port() != 0 && failure.code == 3;
            let told = failure.message.contains(&holder);
            let fix =
                failure.hint.unwrap_or_else(|| "use an operator's token: --token-file or SWITCHBOARD_TOKEN".into());
            findings.push(Finding::bad(failure.message, fix));
            if held && !told {
                findings.push(Finding::bad(
                    format!("{what} {}: {holder}", config.listen),
                    "end it, or choose another address with --listen",
                ));
            }
        }
        Ok((status, _)) => {
            findings.push(Finding::good(format!(
                "the gateway {} answers at {}",
                text(&status["version"]),
                client.place()
            )));
            if status["shutting_down"] == true {
                findings.push(Finding::note(
                    "the gateway is SHUTTING DOWN: it takes no new calls, and ends once those that run have ended",
                ));
            }
            if status["lost_records"] != 0 {
                findings.push(Finding::bad(
                    format!("{} records could not be written", status["lost_records"]),
                    "look at the gateway's log; free disk space",
                ));
            }
            if let (Some(message), Some(hint)) =
                (status["unwritten"]["message"].as_str(), status["unwritten"]["hint"].as_str())
            {
                findings.push(Finding::bad(message, hint));
            }
            if let Some(message) = status["retention_paused"]["message"].as_str() {
                let fix = format!("correct the clock; if it is right: {}", config.typed("retention confirm"));
                findings.push(Finding::bad(message, fix));
            }
            if let Some(message) = status["store_trouble"]["message"].as_str() {
                let at = output::clock(status["store_trouble"]["at_ms"].as_i64().unwrap_or(0));
                let fix = format!(
                    "to find all that is damaged, stop the gateway, then run: {}",
                    config.typed("doctor --deep")
                );
                findings.push(Finding::bad(format!("{message} (last seen at {at})"), fix));
            }
            let (mut others, mut installed) = (0, Vec::new());
            if let Ok((list, _)) = client.get::<Value>("/v1/upstream").await {
                others += upstream_of(&list, findings);
                installed.extend(ids_of("upstream", &list["upstream"], "name"));
            }
            if let Ok((plugins, _)) = client.get::<Value>("/v1/plugins?reach=true").await {
                others += plugins_of(&plugins, &config.settings.plugins.allow_private, findings);
                installed.extend(ids_of("plugin", &plugins["plugins"], "identifier"));
            }
            if let Ok((tokens, _)) = client.get::<Value>("/v1/tokens").await {
                ids_in_use(&installed, &tokens["tokens"], findings);
            }
            if let Ok((audit, _)) = client.get::<Value>("/v1/audit?limit=500").await {
                lost_ids(&audit["events"], findings);
                replaced_nodes(&audit["events"], clock::now_ms(), findings);
            }
            if let Ok((nodes, _)) = client.get::<Value>("/v1/nodes").await {
                nodes_of(&nodes, others > 0, &status["tools"], findings);
            }
            renamed_of(&status["renamed"], findings);
            if let Ok((list, _)) = client.get::<Value>("/v1/tool-changes").await {
                changes_of(&list["changes"], config, findings);
            }
        }
    }
}

/// Says how the upstream servers are, and how many there are.
fn upstream_of(list: &Value, findings: &mut Vec<Finding>) -> usize {
    let servers = list["upstream"].as_array().map(Vec::as_slice).unwrap_or_default();
    for server in servers {
        let name = text(&server["name"]);
        for left in server["left_out"].as_array().into_iter().flatten() {
            let (tool, why) = (printable(text(&left["tool"])), text(&left["why"]));
            findings.push(Finding::bad(
                format!("the upstream \"{name}\" has a tool that is left out, \"{tool}\": {why}"),
                "whoever wrote the server has to say less of the tool, or say it flatter; its other tools can be called",
            ));
        }
        let why = server["last_error"].as_str().map(|why| format!(": {}", printable(why))).unwrap_or_default();
        // It does not help to try again what is not there.
        let missing = why.contains("no such program");
        let unauthorised = why.contains(" answered 401 ") || why.contains(" answered 403 ");
        match text(&server["state"]) {
            "offline" | "failed" if missing && server["source"] == "added" => findings.push(Finding::bad(
                format!("the upstream \"{name}\" does not run{why}"),
                format!("switchboard upstream remove {name}   and add it again with a program that there is"),
            )),
            "offline" | "failed" if missing => findings.push(Finding::bad(
                format!("the upstream \"{name}\" does not run{why}"),
                format!("mend command of [upstream.{name}] in the configuration file, and start the gateway again"),
            )),
            "offline" if unauthorised => findings.push(Finding::bad(
                format!("the upstream \"{name}\" is offline{why}"),
                if server["source"] == "added" {
                    format!(
                        "switchboard upstream remove {name}   and add it again with a token that it takes: --bearer env:VARIABLE"
                    )
                } else {
                    format!("set bearer of [upstream.{name}] in the configuration file, and start the gateway again")
                },
            )),
            "ready" => findings.push(Finding::good(format!("the upstream \"{name}\" is ready"))),
            "idle" => findings.push(Finding::good(format!(
                "the upstream \"{name}\" is idle: it was not tried yet, the first call starts it"
            ))),
            "offline" => findings.push(Finding::bad(
                format!("the upstream \"{name}\" is offline{why}"),
                "the gateway goes on trying; switchboard upstream list shows when it is back",
            )),
            "login_needed" => findings.push(Finding::bad(
                format!("the upstream \"{name}\" needs a login{why}"),
                format!("switchboard upstream login {name}"),
            )),
            "failed" => findings.push(Finding::bad(
                format!("the upstream \"{name}\" failed too often{why}"),
                format!("mend it, then: switchboard upstream restart {name}"),
            )),
            // One that ends again and again is mostly on its way.
            "starting" if !why.is_empty() => findings.push(Finding::bad(
                format!("the upstream \"{name}\" is started again{why}"),
                format!("see what it says: switchboard upstream show {name}"),
            )),
            _ => {}
        }
    }
    servers.len()
}

/// Plugins that wait for somebody or whose servers are away, and what they may reach that others may not; and how many there are.
fn plugins_of(plugins: &Value, for_all: &[String], findings: &mut Vec<Finding>) -> usize {
    let plugins = plugins["plugins"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !for_all.is_empty() {
        let places = for_all.join(", ");
        findings.push(Finding::good(format!("every plugin may reach {places}, by plugins.allow_private")));
    }
    for plugin in plugins {
        let id = text(&plugin["identifier"]);
        let private: Vec<&str> = plugin["allow_private"].as_array().into_iter().flatten().map(text).collect();
        if !private.is_empty() {
            let places = private.join(", ");
            findings.push(Finding::good(format!("the plugin \"{id}\" may reach {places}, though that is not public")));
        }
        for away in plugin["away"].as_array().into_iter().flatten() {
            findings.push(Finding::bad(
                format!("the server of the plugin \"{id}\" is away: {}", text(&away["why"])),
                format!(
                    "start what serves {}; or, if it is gone for good: switchboard plugin disable {id}",
                    text(&away["origin"])
                ),
            ));
        }
        if plugin["held_back"].is_object() {
            findings.push(Finding::bad(
                format!("the plugin \"{id}\" has changed at its source, and goes on as it was accepted"),
                format!("see what has changed: switchboard plugin show {id}; then: switchboard plugin accept {id}, or refuse {id}"),
            ));
        }
        if let Some(error) = plugin["last_error"].as_str() {
            findings.push(Finding::bad(
                format!("the source of the plugin \"{id}\" cannot be used: {error}"),
                format!("once it is mended: switchboard plugin refresh {id}"),
            ));
        }
    }
    plugins.len()
}

/// The ids of what an operator installed, each with its kind.
fn ids_of(kind: &'static str, list: &Value, key: &str) -> Vec<(&'static str, String)> {
    list.as_array().into_iter().flatten().map(|entry| (kind, text(&entry[key]).to_owned())).collect()
}

/// Reports ids that two installed providers have, or that a node's token is for.
fn ids_in_use(installed: &[(&str, String)], tokens: &Value, findings: &mut Vec<Finding>) {
    for (at, (kind, id)) in installed.iter().enumerate() {
        for (other, _) in installed[..at].iter().filter(|(_, other)| other == id) {
            findings.push(Finding::bad(
                format!("the {other} \"{id}\" and the {kind} \"{id}\" have the same id"),
                format!("remove one of them and add it under another name: a pattern such as {id}__* is about both"),
            ));
        }
        let tokens = tokens.as_array().into_iter().flatten();
        for token in tokens.filter(|token| token["revoked_ms"].is_null() && token["node_id"] == **id) {
            let name = text(&token["name"]);
            findings.push(Finding::bad(
                format!("the token \"{name}\" is for the node id \"{id}\", which the {kind} \"{id}\" has"),
                format!("no node can connect as {id}: make a token for another id, and revoke this one"),
            ));
        }
    }
}

/// Tools whose definitions have changed: a line for each provider.
fn changes_of(changes: &Value, config: &Config, findings: &mut Vec<Finding>) {
    let mut providers: BTreeMap<[&str; 2], Vec<&Value>> = BTreeMap::new();
    for change in changes.as_array().into_iter().flatten() {
        let provider = &change["provider"];
        providers.entry([&provider["kind"], &provider["id"]].map(text)).or_default().push(change);
    }
    for ([kind, id], changes) in providers {
        let first = text(&changes[0]["tool"]);
        let tools = match changes.len() - 1 {
            0 => format!("the definition of the tool \"{first}\""),
            more => format!("the definitions of the tool \"{first}\" and {more} more"),
        };
        let held = changes.iter().filter(|change| change["held"] == true).count();
        let hidden = changes.iter().any(|change| change["invisible_characters"] != 0);
        let hidden = if hidden { "; invisible characters were removed from their texts" } else { "" };
        let (show, accept) = (config.typed("tool-changes"), config.typed("tool-changes accept TOOL"));
        let fix = format!("see what has changed: {show}; if it is right: {accept}");
        let what = format!("the {kind} \"{id}\" has changed {tools}{hidden}");
        findings.push(match held {
            0 => Finding::note(format!("{what}; {fix}")),
            _ => Finding::bad(format!("{what}; calls fail until an operator accepts the change ({held} held)"), fix),
        });
    }
}

/// Tools with a suffix, and the providers that hold the plain names: a line for each two providers.
fn renamed_of(renamed: &Value, findings: &mut Vec<Finding>) {
    let mut pairs: BTreeMap<[&str; 4], (&Value, usize)> = BTreeMap::new();
    for tool in renamed.as_array().into_iter().flatten() {
        let (own, holder) = (&tool["provider"], &tool["held_by"]);
        let pair = [&own["kind"], &own["id"], &holder["kind"], &holder["id"]].map(text);
        pairs.entry(pair).or_insert((tool, 0)).1 += 1;
    }
    for ([kind, id, holders_kind, holder], (tool, count)) in pairs {
        let until = if tool["holder_away"] == true { ", which is away, until that is forgotten" } else { "" };
        let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
        findings.push(Finding::note(format!(
            "the {kind} \"{id}\" has a tool under the longer name {}: {} belongs to the {holders_kind} \"{holder}\"{until}{more}; \
             to change that, rename one of the tools",
            text(&tool["name"]),
            text(&tool["wanted"]),
        )));
    }
}
