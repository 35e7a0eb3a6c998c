//! The `retention` command: shows how long records are kept, and confirms the clock.

use reqwest::Method;
use serde_json::Value;

use super::Global;
use super::client::Client;
use super::lists::text;
use super::output::{Failure, clock, json, line};
use super::table::{facts, prose};
use sa_text::printable;
use sa_text::span;

#[derive(Debug, clap::Args)]
pub(crate) struct RetentionArgs {
    #[command(subcommand)]
    command: Option<RetentionCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum RetentionCommand {
    /// Confirm that the gateway's clock is correct, so that the deletion of old records resumes.
    Confirm,
}

pub(super) async fn run(global: &Global, args: RetentionArgs) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let (method, path) = match args.command {
        None => (Method::GET, "/v1/retention"),
        Some(RetentionCommand::Confirm) => (Method::POST, "/v1/retention/confirm"),
    };
    let confirming = method == Method::POST;
    let response = client.send(client.request(method, path)).await?;
    let raw = response.text().await.map_err(|error| client.unreachable(&error))?;
    if global.json {
        return json(&raw);
    }
    let retention: Value = client.read(&raw)?;
    let now = clock(retention["now_ms"].as_i64().unwrap_or(0));
    if confirming {
        return line(&format!(
            "Confirmed: the time is {now}. Old records are deleted by age again."
        ));
    }
    let keep = |kind: &str| format!("{} days", retention["keep_days"][kind]);
    facts(&[
        ("calls", keep("calls")),
        ("audit events", keep("audit_events")),
        ("messages", keep("messages")),
        ("deleted", deleted(&retention["deleted"])),
        ("clock", now),
    ])?;
    let paused = &retention["paused"];
    if paused.is_object() {
        let left = span(paused["resumes_in_s"].as_u64().unwrap_or(0) * 1_000);
        let (message, hint) =
            (printable(text(&paused["message"])), printable(text(&paused["hint"])));
        prose(&format!(
            "  PAUSED: {message}. The pause ends in {left} if the clock stays steady."
        ))?;
        prose(&format!("  {hint}"))?;
    }
    Ok(())
}

/// Formats the deleted records, such as `12 call (age), 3 message (count)`.
fn deleted(list: &Value) -> String {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        return "nothing since the gateway started".to_owned();
    }
    let told =
        |one: &Value| format!("{} {} ({})", one["count"], text(&one["kind"]), text(&one["reason"]));
    list.iter().map(told).collect::<Vec<_>>().join(", ")
}
