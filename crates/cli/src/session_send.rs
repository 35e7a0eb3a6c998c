//! The `sessions send` command: sends a message to an agent and follows its work.

use reqwest::Method;
use serde_json::{Value, json};

use super::client::{Client, as_typed, segment};
use super::ctrl_c::CtrlC;
use super::lists::text;
use super::output::{self, Failure, line};
use super::sessions::event_line;
use super::{Global, completion, sessions};
use sa_text::printable;

#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    /// Message for the agent.
    message: String,
    /// Existing session to continue. By default, a new session is started.
    #[arg(long, value_name = "ID", add = completion::names(&sessions::NAMES))]
    session: Option<String>,
    /// Configured agent to use. Defaults to sessions.default_agent, or to the only agent.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Return after sending, without following the events.
    #[arg(long)]
    no_wait: bool,
}

/// The end of a turn.
enum Turn {
    /// The agent exited with this exit code.
    Exited(Option<i64>),
    SessionEnded(String),
}

/// Sends the message and prints events until the agent exits. An agent that keeps running for
/// further messages is followed until the user interrupts.
pub(super) async fn run(global: &Global, client: &Client, args: SendArgs) -> Result<(), Failure> {
    // Subscribe before sending to an existing session, so that no event is missed.
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
                output::note(
                    "note",
                    &format!(
                        "run `switchboard sessions send --session {printed} MESSAGE` to continue"
                    ),
                );
            }
            Ok(())
        }
        Turn::Exited(Some(code)) => {
            Err(Failure::other(format!("the agent exited with code {code}")))
        }
        Turn::Exited(None) => Err(Failure::other("the agent was killed")),
        Turn::SessionEnded(reason) => {
            Err(Failure::other(format!("the session has ended: {}", printable(&reason))))
        }
    }
}

/// Subscribes to the events of a session. The subscription only watches and provides no tools to
/// the agent.
pub(super) async fn follow(
    client: &Client,
    id: &str,
    since: &str,
) -> Result<sa_sse::Events, Failure> {
    let path = format!("/v1/sessions/{}/events?{since}watch=true", segment(id));
    client.events(client.send(client.request(Method::GET, &path)).await?)
}

/// Prints events until the turn started by the message ends.
async fn watch(
    global: &Global,
    client: &Client,
    mut events: sa_sse::Events,
    message: &str,
) -> Result<Turn, Failure> {
    // An exit before the message arrives belongs to an earlier turn.
    let mut told = false;
    loop {
        let event = events.next().await.map_err(|broken| client.unheard(&broken))?;
        let Some(event) = event else {
            return Err(Failure::new(3, "the gateway has closed the event stream").hint(
                "the agent may still be running; run `switchboard sessions` to check, and `switchboard sessions events ID -f` to follow it",
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

/// Handles Ctrl-C. A session that this command started is ended. An existing session continues,
/// with its agent.
async fn interrupted(client: &Client, id: &str, own: bool) -> Failure {
    let printed = printable(id);
    if own {
        let _ = client
            .send(client.request(Method::DELETE, &format!("/v1/sessions/{}", segment(id))))
            .await;
        return Failure::new(130, format!("cancelled: the session {printed} was ended"));
    }
    Failure::new(130, "stopped following: the session and its agent continue").hint(format!(
        "run `switchboard sessions events {printed} -f` to follow it, or `switchboard sessions end {printed}` to end it"
    ))
}
