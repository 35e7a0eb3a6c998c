//! The `doctor` command: finds problems and suggests fixes.

mod audit;
mod ids;
mod tools;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use sa_core::clock;
use sa_core::store::StoreErrorKind;
use sa_http::doctor::{Finding, Seen};
use sa_vault::bounded;
use serde_json::{Value, json};

use self::ids::ids_in_use;
use self::tools::{INVISIBLE, changes_of, invisible_texts, renamed_of};
use super::Global;
use super::client::Client;
use super::flags::OfGateway;
use super::lists::text;
use super::output::{self, Failure};
use super::port::Holder;
use super::run::layers;
use super::table::facts;
use super::typed::with_options;
use sa_gateway::config::Config;
use sa_gateway::config::environment::{instead_of, unknown_variables};
use sa_gateway::tokens::Tokens;
use sa_text::printable;

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Also read the whole store and check every record. The gateway must be stopped.
    #[arg(long)]
    deep: bool,
    /// Accept the loss of the newest commits if the rest of the store is intact. Use it only
    /// without a backup. The gateway must be stopped.
    #[arg(long)]
    accept_loss: bool,
}

pub(super) async fn run(global: &Global, args: DoctorArgs) -> Result<(), Failure> {
    let mut findings = Vec::new();
    match layers(global, &OfGateway::default()).and_then(|layers| Ok(Config::resolve(&layers)?)) {
        // One finding for each mistake in the configuration.
        Err(failure) => findings.extend(
            failure
                .message
                .lines()
                .map(|mistake| Finding::bad(mistake, failure.hint.clone().unwrap_or_default())),
        ),
        Ok(config) => {
            findings.push(Finding::good("the configuration is valid"));
            environment(&mut findings);
            files(&config, &mut findings);
            let (sessions, secrets) = (&config.settings.sessions, config.secret_files());
            findings.extend(sessions.sandbox_finding(&config.data_dir, &secrets).await);
            if args.deep || args.accept_loss {
                // The gateway is not contacted, because it must be stopped for these checks.
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
                Some(fix) => facts(&[(
                    "FIX ",
                    format!("{}\n-> {}", printable(&finding.what), printable(fix)),
                )])?,
            }
        }
    }
    match wrong {
        0 => Ok(()),
        1 => Err(Failure::other("one thing needs attention").told()),
        wrong => Err(Failure::other(format!("{wrong} things need attention")).told()),
    }
}

/// Reports environment variables with the gateway's prefix that set nothing.
fn environment(findings: &mut Vec<Finding>) {
    for name in unknown_variables() {
        let fix = format!("unset it, or correct its name: {}", instead_of(&name));
        findings.push(Finding::bad(format!("the variable {name} is not a setting"), fix));
    }
}

fn files(config: &Config, findings: &mut Vec<Finding>) {
    let dir = &config.data_dir;
    if !dir.exists() {
        findings.push(Finding::bad(
            format!("the data directory {} does not exist", dir.display()),
            "run `switchboard up` to start the gateway once",
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
            "restart the gateway to create a new operator token",
        ));
    }
    for file in config.tls.iter().flat_map(|tls| [&tls.cert, &tls.key]) {
        if let Err(error) = bounded::open_file(file) {
            findings.push(Finding::bad(
                format!("{}: {error}", file.display()),
                "fix the path or the file's permissions",
            ));
        }
    }
    if let Ok(space) = rustix::fs::statvfs(dir) {
        let free = space.f_bavail * space.f_frsize / (1 << 20);
        if free < 200 {
            findings.push(Finding::bad(
                format!("{} has {free} MiB left", dir.display()),
                "free some disk space",
            ));
        } else {
            findings.push(Finding::good(format!("{} has {free} MiB left", dir.display())));
        }
    }
}

/// Reads the whole store. Damage is reported with the file and position.
async fn store(config: &Config, accept_loss: bool, findings: &mut Vec<Finding>) {
    let file = config.store_file();
    // If the store file is missing but its witness file exists, the store was lost.
    if !sa_store::has_been(&file) {
        return findings.push(Finding::note(format!(
            "{} does not exist yet: nothing is stored",
            file.display()
        )));
    }
    let options = sa_gateway::journal::store_options(file.clone());
    let mut read = read_all(options.clone()).await;
    if let Err(loss) = &read
        && loss.kind == StoreErrorKind::Behind
        && accept_loss
    {
        let lost = loss.message.clone();
        read = read_all(sa_store::OpenOptions { accept_loss, ..options }).await;
        if read.is_ok() {
            let (what, _) = lost.split_once("; ").unwrap_or((&lost, ""));
            findings.push(Finding::note(format!(
                "{what}; the loss is accepted, and the gateway can start"
            )));
        }
    }
    if let Ok((_, unreadable)) = &read {
        findings.extend(unreadable.iter().map(|what| {
            let fix = "use the gateway version that wrote it, or run `switchboard token create NAME` to create another token";
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
            Finding::bad(error.message, format!("stop the gateway, then run `{}`", config.typed(action)))
        }
        Err(error) if error.kind == StoreErrorKind::Behind => Finding::bad(
            with_options(&error.message, &config.options()),
            format!(
                "replace {} with a backup; if there is none, run `{}`",
                config.data_dir.display(),
                config.typed("doctor --accept-loss")
            ),
        ),
        Err(error) if error.kind == StoreErrorKind::Damaged => Finding::bad(
            error.message,
            format!("replace {} with a backup, or move it away to start without data", config.data_dir.display()),
        ),
        Err(error) => Finding::bad(error.message, "fix the reported error, then check again"),
    });
}

/// Verifies the store, and returns tokens that are stored intact but cannot be parsed.
async fn read_all(
    options: sa_store::OpenOptions,
) -> Result<(sa_store::Verified, Vec<String>), sa_store::StoreError> {
    let store = sa_store::Store::open(options)?;
    let read = async {
        let verified = store.verify().await?;
        let tokens = Tokens::load(Arc::new(store.clone()), || None).await?;
        Ok((verified, tokens.unreadable().to_vec()))
    };
    let read = read.await;
    store.shutdown().await?;
    read
}

fn private(path: &Path, wanted: u32, findings: &mut Vec<Finding>) {
    match std::fs::metadata(path).map(|meta| meta.permissions().mode() & 0o777) {
        Ok(mode) if mode & 0o077 == 0 => {
            findings.push(Finding::good(format!("{} is private", path.display())));
        }
        Ok(mode) => findings.push(Finding::bad(
            format!("{} is open to other users (mode {mode:o})", path.display()),
            format!("run `chmod {wanted:o} {}`", path.display()),
        )),
        Err(error) => findings
            .push(Finding::bad(format!("{}: {error}", path.display()), "fix its permissions")),
    }
}

async fn gateway(global: &Global, config: &Config, findings: &mut Vec<Finding>) {
    let client = match Client::new(global) {
        Ok(client) => client,
        Err(failure) => {
            return findings.push(Finding::bad(failure.message, failure.hint.unwrap_or_default()));
        }
    };
    match client.status("?renamed=true").await {
        Err(failure) => {
            let holder = super::port::holder(config.listen);
            let (what, holder) = match holder {
                Holder::Listener(holder) => ("another process listens on", holder),
                Holder::Connection(holder) => {
                    ("no process listens on, but a connection uses", holder)
                }
                Holder::Unknown => ("another process listens on", "another program".to_owned()),
            };
            let held = std::net::TcpListener::bind(config.listen).is_err()
                && config.listen.port() != 0
                && failure.code == 3;
            let told = failure.message.contains(&holder);
            let fix = failure.hint.unwrap_or_else(|| {
                "use an operator's token: --token-file or SWITCHBOARD_TOKEN".into()
            });
            findings.push(Finding::bad(failure.message, fix));
            if held && !told {
                findings.push(Finding::bad(
                    format!("{what} {}: {holder}", config.listen),
                    "stop it, or choose another address with --listen",
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
                    "the gateway is SHUTTING DOWN: it accepts no new calls, and exits when the running calls have ended",
                ));
            }
            if status["lost_records"] != 0 {
                findings.push(Finding::bad(
                    format!("{} records could not be written", status["lost_records"]),
                    "check the gateway's log; free some disk space",
                ));
            }
            if let (Some(message), Some(hint)) =
                (status["unwritten"]["message"].as_str(), status["unwritten"]["hint"].as_str())
            {
                findings.push(Finding::bad(message, hint));
            }
            if let Some(message) = status["retention_paused"]["message"].as_str() {
                let fix = format!(
                    "correct the clock; if it is already correct, run `{}`",
                    config.typed("retention confirm")
                );
                findings.push(Finding::bad(message, fix));
            }
            if let Some(message) = status["store_trouble"]["message"].as_str() {
                let at = output::clock(status["store_trouble"]["at_ms"].as_i64().unwrap_or(0));
                let fix = format!(
                    "to find all damage, stop the gateway, then run `{}`",
                    config.typed("doctor --deep")
                );
                findings.push(Finding::bad(format!("{message} (last seen at {at})"), fix));
            }
            providers(&client, &status, config, findings).await;
        }
    }
}

/// Runs the checks of all crates. Installed providers come first.
async fn providers(client: &Client, status: &Value, config: &Config, findings: &mut Vec<Finding>) {
    let doctors = config.settings.doctors();
    let now_ms = clock::now_ms();
    let (mut ids, mut count) = (Vec::new(), 0);
    let seen = Seen { answer: None, events: &[], now_ms, tools: &status["tools"], installed: 0 };
    for (doctor, installed) in doctors.iter().filter_map(|it| Some((it, it.installed()?))) {
        let Ok((answer, _)) = client.get::<Value>(doctor.route()).await else { continue };
        doctor.check(&Seen { answer: Some(&answer), ..seen }, findings);
        let entries = installed.of(&answer);
        count += entries.len();
        ids.extend(entries.iter().map(|it| (installed.kind, text(&it[installed.id]).to_owned())));
    }
    if let Ok((tokens, _)) = client.get::<Value>("/v1/tokens").await {
        ids_in_use(&ids, &tokens["tokens"], findings);
    }
    let page = async |cursor: Option<u64>| {
        let cursor = cursor.map_or_else(String::new, |cursor| format!("&cursor={cursor}"));
        Some(client.get(&format!("/v1/audit?limit=500{cursor}")).await.ok()?.0)
    };
    let kinds: Vec<&str> =
        doctors.iter().flat_map(|doctor| doctor.events()).copied().chain([INVISIBLE]).collect();
    let audit = audit::recent(now_ms, &kinds, page).await;
    if audit.is_partial {
        findings.push(Finding::note(
            "the audit log has very many events of the last day; only the newest were checked",
        ));
    }
    for doctor in doctors.iter().filter(|doctor| doctor.installed().is_none()) {
        let answer = client.get::<Value>(doctor.route()).await.ok().map(|(answer, _)| answer);
        let (answer, events) = (answer.as_ref(), &audit.events);
        doctor.check(&Seen { answer, events, installed: count, ..seen }, findings);
    }
    renamed_of(&status["renamed"], findings);
    if let Ok((list, _)) = client.get::<Value>("/v1/tool-changes").await {
        changes_of(&list["changes"], config, findings);
        invisible_texts(&audit.events, &list["changes"], findings);
    }
}
