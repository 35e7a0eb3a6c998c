//! The `sessions` command: lists running and past agent sessions.

use reqwest::Method;
use serde_json::{Value, json};

use super::client::{Client, as_typed, segment};
use super::ctrl_c::CtrlC;
use super::lists::{Names, text};
use super::output::{self, Failure, clock, line, when};
use super::session_send::{self, SendArgs};
use super::table::{cut, facts, spared, table, told, whole};
use super::{Global, completion};
use sa_text::printable;
use sa_text::span;

pub(super) const NAMES: Names = Names { path: "/v1/sessions", list: "sessions", key: "session_id" };

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(super) command: Option<SessionsCommand>,
    /// Id of the session to show.
    #[arg(add = completion::names(&NAMES))]
    id: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum SessionsCommand {
    /// Send a message to an agent, in a new or existing session, and follow it until the agent
    /// exits. Ctrl-C ends a session started by this command; an existing session continues.
    Send(SendArgs),
    /// List the events of a session, oldest first.
    Events {
        #[arg(add = completion::names(&NAMES))]
        id: String,
        /// Only events after the one with this id.
        #[arg(long, value_name = "ID", default_value_t = 0)]
        since: u64,
        /// Keep following new events until the session ends.
        #[arg(long, short = 'f')]
        follow: bool,
    },
    /// End a session and stop its agent.
    End {
        #[arg(add = completion::names(&NAMES))]
        id: String,
    },
}

pub(super) async fn run(global: &Global, args: SessionsArgs) -> Result<(), Failure> {
    let client = Client::new(global)?;
    match args.command {
        Some(SessionsCommand::Send(args)) => return session_send::run(global, &client, args).await,
        Some(SessionsCommand::Events { id, since, follow: true }) => {
            return follow_events(global, &client, &id, since).await;
        }
        Some(SessionsCommand::Events { id, since, follow: false }) => {
            return events(global, &client, &id, since).await;
        }
        Some(SessionsCommand::End { id }) => {
            let request = client.request(Method::DELETE, &format!("/v1/sessions/{}", segment(&id)));
            let body = client.send(request).await?.text().await.unwrap_or_default();
            return if global.json { output::json(&body) } else { line(&format!("ended {id}")) };
        }
        None => {}
    }
    if let Some(id) = args.id {
        let (session, raw): (Value, _) =
            client.get(&format!("/v1/sessions/{}", segment(&id))).await?;
        return if global.json { output::json(&raw) } else { show(&session) };
    }
    let (list, raw): (Value, _) = client.get("/v1/sessions").await?;
    if global.json {
        return output::json(&raw);
    }
    let sessions = list["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if sessions.is_empty() {
        return line("No sessions yet. Run `switchboard sessions send hello` to start one.");
    }
    let rows: Vec<Vec<String>> = sessions.iter().map(row).collect();
    let columns = [
        whole("AT (UTC)"),
        cut("STATE"),
        cut("AGENT"),
        spared("CALLER"),
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

/// Prints all stored events.
async fn events(global: &Global, client: &Client, id: &str, mut since: u64) -> Result<(), Failure> {
    let mut all: Vec<Value> = Vec::new();
    let state = loop {
        let body = json!({ "args": { "session_id": id, "since": since } });
        let answer = client
            .send(client.request(Method::POST, "/v1/tools/session_events/call").json(&body))
            .await?;
        let text = answer.text().await.map_err(|error| client.unreachable(&error))?;
        let page: Value = serde_json::from_str(&text).unwrap_or_default();
        let page = &page["result"];
        let events = page["events"].as_array().cloned().unwrap_or_default();
        match page["next"].as_u64().filter(|next| *next > since && !events.is_empty()) {
            Some(next) => since = next,
            None => break page["state"].clone(),
        }
        all.extend(events);
    };
    if global.json {
        let all = json!({ "session_id": id, "state": state, "events": all, "next": since });
        return output::json(&all.to_string());
    }
    if all.is_empty() {
        return line("The session has no events.");
    }
    all.iter().try_for_each(|event| line(&event_line(event)))
}

/// Prints events as they arrive.
async fn follow_events(
    global: &Global,
    client: &Client,
    id: &str,
    since: u64,
) -> Result<(), Failure> {
    let mut events = session_send::follow(client, id, &format!("since={since}&")).await?;
    let mut ctrl_c = CtrlC::new()?;
    loop {
        let event = tokio::select! {
            event = events.next() => event.map_err(|broken| client.unheard(&broken))?,
            () = ctrl_c.pressed() => return Ok(()),
        };
        // The stream ends with the session.
        let Some(event) = event else { return Ok(()) };
        if global.json {
            line(&event.data)?;
        } else {
            line(&event_line(&serde_json::from_str(&event.data).unwrap_or_default()))?;
        }
    }
}

/// Formats an event as one line.
pub(super) fn event_line(event: &Value) -> String {
    let kind = text(&event["type"]);
    let rest = match kind {
        "message" => format!("{}: {}", text(&event["from"]), text(&event["message"])),
        "agent_message" => text(&event["message"]).to_owned(),
        "output" if event["stream"] == "stderr" => format!("stderr: {}", text(&event["text"])),
        "output" => text(&event["text"]).to_owned(),
        "session_started" | "agent_started" => match text(&event["agent"]) {
            "" => "no agent was started; an agent can connect by itself".to_owned(),
            agent => agent.to_owned(),
        },
        "agent_exited" => {
            event["code"].as_i64().map_or("killed".to_owned(), |code| format!("exit code {code}"))
        }
        "session_ended" => text(&event["reason"]).to_owned(),
        "caller_tool_request" => {
            format!(
                "{} {} (request {})",
                text(&event["tool"]),
                event["arguments"],
                text(&event["request_id"])
            )
        }
        _ => {
            let mut rest = event.clone();
            if let Value::Object(members) = &mut rest {
                members.retain(|key, _| {
                    !["type", "session_id", "at_ms", "id"].contains(&key.as_str())
                });
            }
            rest.to_string()
        }
    };
    told(&event["at_ms"].as_i64().map(when).unwrap_or_default(), &kind.replace('_', " "), &rest)
}

/// Prints one session in detail.
pub(super) fn show(session: &Value) -> Result<(), Failure> {
    let tools: Vec<&str> =
        session["caller_tools"].as_array().into_iter().flatten().map(text).collect();
    let time = |key: &str| session[key].as_i64().map(clock).unwrap_or_default();
    let caller = match text(&session["caller"]) {
        "unknown" => "not connected yet",
        other => other,
    };
    line(&format!(
        "session {}  {}",
        printable(text(&session["session_id"])),
        printable(&state(session))
    ))?;
    facts(&[
        ("agent", text(&session["agent"]).to_owned()),
        (
            "caller",
            format!(
                "{} ({}), {caller}",
                text(&session["caller_id"]),
                text(&session["owner"]["name"])
            ),
        ),
        ("tools", tools.join(", ")),
        ("waiting", format!("{} answers of the caller", session["pending"])),
        ("timeout", span(session["timeout_ms"].as_u64().unwrap_or(0))),
        ("parent", text(&session["parent"]).to_owned()),
        ("socket", text(&session["socket"]).to_owned()),
        ("started", time("created_ms")),
        ("ended", time("ended_ms")),
    ])?;
    if let Some(hint) = session["hint"].as_str() {
        output::note("note", &as_typed(hint));
    } else if session["state"] == "idle" && session["agent"].is_null() {
        output::note(
            "note",
            "the session has no agent; name one in a message (agent=NAME), or let one connect to its socket",
        );
    }
    let id = printable(text(&session["session_id"]));
    line(&format!("\nTo list its events:\n  switchboard sessions events {id}"))
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
