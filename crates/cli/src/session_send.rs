//! `sessions send`: a message for an agent, and what it does about it.

use reqwest::Method;
use serde_json::{Value, json};

use super::client::{Client, as_typed, segment};
use super::ctrl_c::CtrlC;
use super::lists::text;
use super::output::{self, Failure, line};
use super::sessions::event_line;
use super::{Global, completion, sessions};
use crate::redact::printable;

#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    /// What the agent is to do.
    message: String,
    /// The session to go on with. Without it, a new one is started.
    #[arg(long, value_name = "ID", add = completion::names(&sessions::NAMES))]
    session: Option<String>,
    /// The configured agent that is to work; unless told, sessions.default_agent or the only one.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Send the message, and do not stay for what happens.
    #[arg(long)]
    no_wait: bool,
}

/// How a turn ended.
enum Turn {
    /// The agent has done what it could, with this exit code.
    Exited(Option<i64>),
    SessionEnded(String),
}

/// Sends the message and shows what happens, until the agent has ended. One that stays for the next message is watched
/// until somebody has seen enough.
pub(super) async fn run(global: &Global, client: &Client, args: SendArgs) -> Result<(), Failure> {
    // Whoever goes on with a session listens first, so as to miss nothing of what the message causes.
    let before = match &args.session {
        Some(id) if !args.no_wait => Some(follow(client, id, "").await?),
        _ => None,
    };
    let mut body = json!({ "message": args.message });
    for (key, value) in [("session_id", &args.session), ("agent", &args.agent)] {
        if let Some(value) = value {
            body[key] = json!(value);
        }
    }
    let sent = client.send(client.request(Method::POST, "/v1/sessions").json(&body)).await?;
    let raw = sent.text().await.map_err(|error| client.lost(&error))?;
    let session: Value = client.read(&raw)?;
    let id = text(&session["session_id"]).to_owned();
    if global.json {
        line(&raw)?;
    } else {
        output::note("session", &printable(&id));
    }
    if let Some(hint) = session["hint"].as_str() {
        output::note("note", &as_typed(hint));
        return Ok(());
    }
    if args.no_wait {
        return Ok(());
    }
    let events = match before {
        Some(events) => events,
        None => follow(client, &id, "since=0&").await?,
    };
    let mut ctrl_c = CtrlC::new()?;
    let turn = tokio::select! {
        turn = watch(global, client, events, &args.message) => turn?,
        () = ctrl_c.pressed() => return Err(interrupted(client, &id, args.session.is_none()).await),
    };
    let printed = printable(&id);
    match turn {
        Turn::Exited(Some(0)) => {
            if !global.json {
                output::note("note", &format!("go on with: switchboard sessions send --session {printed} MESSAGE"));
            }
            Ok(())
        }
        Turn::Exited(Some(code)) => Err(Failure::other(format!("the agent ended with the exit code {code}"))),
        Turn::Exited(None) => Err(Failure::other("the agent was killed")),
        Turn::SessionEnded(reason) => Err(Failure::other(format!("the session has ended: {}", printable(&reason)))),
    }
}

/// What happens in a session. Only looked at: this command lends the agent no tools.
pub(super) async fn follow(client: &Client, id: &str, since: &str) -> Result<sa_sse::Events, Failure> {
    let path = format!("/v1/sessions/{}/events?{since}watch=true", segment(id));
    client.events(client.send(client.request(Method::GET, &path)).await?)
}

/// Shows events until the turn that a message began is over.
async fn watch(global: &Global, client: &Client, mut events: sa_sse::Events, message: &str) -> Result<Turn, Failure> {
    // An agent that ends before it was told has ended a turn before this one.
    let mut told = false;
    loop {
        let event = events.next().await.map_err(|broken| client.unheard(&broken))?;
        let Some(event) = event else {
            return Err(Failure::new(3, "the gateway ended the stream of events").hint(
                "the agent may still be at work; see switchboard sessions, and go on with: switchboard sessions events ID -f",
            ));
        };
        let value: Value = serde_json::from_str(&event.data).unwrap_or_default();
        line(&if global.json { event.data } else { event_line(&value) })?;
        match text(&value["type"]) {
            "message" => told |= value["message"] == message,
            "agent_exited" if told => return Ok(Turn::Exited(value["code"].as_i64())),
            "session_ended" => return Ok(Turn::SessionEnded(text(&value["reason"]).to_owned())),
            _ => {}
        }
    }
}

/// Somebody has pressed Ctrl-C. What this command began it ends, as a call is cancelled; a session that was there before it
/// stays, with whatever its agent does.
async fn interrupted(client: &Client, id: &str, own: bool) -> Failure {
    let printed = printable(id);
    if own {
        let _ = client.send(client.request(Method::DELETE, &format!("/v1/sessions/{}", segment(id)))).await;
        return Failure::new(130, format!("cancelled: the session {printed} was ended"));
    }
    Failure::new(130, "not watched any more: the session and its agent go on").hint(format!(
        "switchboard sessions events {printed} -f   to watch; switchboard sessions end {printed}   to end it"
    ))
}
