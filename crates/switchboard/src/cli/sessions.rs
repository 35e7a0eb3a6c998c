//! `sessions`: agents at work, and those that were.

use serde_json::Value;

use super::Global;
use super::client::{Client, segment};
use super::lists::text;
use super::output::{Failure, clock, json, line, span, when};
use super::table::{cut, facts, spared, table, whole};
use crate::redact::printable;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(super) command: Option<SessionsCommand>,
    /// Show this session.
    id: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum SessionsCommand {
    /// End a session: its agent stops.
    End { id: String },
}

pub(super) async fn run(global: &Global, args: SessionsArgs) -> Result<(), Failure> {
    let client = Client::new(global)?;
    if let Some(SessionsCommand::End { id }) = args.command {
        let request = client.request(reqwest::Method::DELETE, &format!("/v1/sessions/{}", segment(&id)));
        let body = client.send(request).await?.text().await.unwrap_or_default();
        return if global.json { json(&body) } else { line(&format!("ended {id}")) };
    }
    if let Some(id) = args.id {
        let (session, raw): (Value, _) = client.get(&format!("/v1/sessions/{}", segment(&id))).await?;
        return if global.json { json(&raw) } else { show(&session) };
    }
    let (list, raw): (Value, _) = client.get("/v1/sessions").await?;
    if global.json {
        return json(&raw);
    }
    let sessions = list["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if sessions.is_empty() {
        return line("No sessions yet. Start one: switchboard call session_message message=hello");
    }
    let rows: Vec<Vec<String>> = sessions.iter().map(row).collect();
    let columns = [
        whole("AT (UTC)"),
        cut("STATE"),
        spared("AGENT"),
        cut("CALLER"),
        spared("TOOLS"),
        spared("WAITING"),
        whole("ID"),
    ];
    table(&columns, &rows)
}

fn state(session: &Value) -> String {
    match text(&session["reason"]) {
        "" => text(&session["state"]).to_owned(),
        reason => format!("{}: {reason}", text(&session["state"])),
    }
}

/// One session, for somebody who wonders what it waits for.
fn show(session: &Value) -> Result<(), Failure> {
    let tools: Vec<&str> = session["caller_tools"].as_array().into_iter().flatten().map(text).collect();
    let time = |key: &str| session[key].as_i64().map(clock).unwrap_or_default();
    let caller = match text(&session["caller"]) {
        "unknown" => "not seen to listen yet",
        other => other,
    };
    line(&format!("session {}  {}", printable(text(&session["session_id"])), printable(&state(session))))?;
    facts(&[
        ("agent", text(&session["agent"]).to_owned()),
        ("caller", format!("{} ({}), {caller}", text(&session["caller_id"]), text(&session["owner"]["name"]))),
        ("lends", tools.join(", ")),
        ("waiting", format!("{} of the caller's answers", session["pending"])),
        ("patience", span(session["timeout_ms"].as_u64().unwrap_or(0))),
        ("parent", text(&session["parent"]).to_owned()),
        ("socket", text(&session["socket"]).to_owned()),
        ("started", time("created_ms")),
        ("ended", time("ended_ms")),
    ])?;
    let id = printable(text(&session["session_id"]));
    line(&format!("\nWhat happened in it:\n  switchboard call session_events session_id={id}"))
}

fn row(session: &Value) -> Vec<String> {
    vec![
        when(session["created_ms"].as_i64().unwrap_or(0)),
        state(session),
        text(&session["agent"]).to_owned(),
        format!("{} ({})", text(&session["caller_id"]), text(&session["owner"]["name"])),
        session["caller_tools"].as_array().map_or(0, Vec::len).to_string(),
        session["pending"].to_string(),
        text(&session["session_id"]).to_owned(),
    ]
}
