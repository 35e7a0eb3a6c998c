//! The `channel` command: lists participants, messages and methods of channels.

use reqwest::Method;
use sa_protocol::channel::handle_key;
use serde_json::{Value, json};

use super::call::{self, CallArgs};
use super::client::{Client, segment};
use super::ctrl_c::CtrlC;
use super::lists::{Names, text};
use super::output::{self, Failure, line, when};
use super::table::{prose, table, whole, wrapped};
use super::{Global, completion};
use sa_text::{excerpt, printable, span};

pub(super) const NAMES: Names = Names { path: "/v1/channels", list: "channels", key: "name" };

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ChannelCommand {
    /// List the channels that you may read.
    #[command(visible_alias = "ls")]
    List,
    /// List the participants of a channel and their methods.
    Roster {
        #[arg(add = completion::names(&NAMES))]
        channel: String,
    },
    /// Show the latest messages of a channel, and follow new ones.
    Tail {
        #[arg(add = completion::names(&NAMES))]
        channel: String,
        /// Number of past messages to show first.
        #[arg(long, short = 'n', default_value_t = 10)]
        last: usize,
        /// Exit after the past messages instead of waiting for new ones.
        #[arg(long)]
        no_follow: bool,
    },
    /// Send a message to a channel.
    Send {
        #[arg(add = completion::names(&NAMES))]
        channel: String,
        /// Text of the message; with --type, the payload as JSON.
        text: String,
        /// Type of the message; the payload is then given as JSON.
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Do not store the message.
        #[arg(long)]
        ephemeral: bool,
    },
    /// Delete an empty channel with all its messages.
    #[command(visible_alias = "rm")]
    Remove {
        #[arg(add = completion::names(&NAMES))]
        channel: String,
    },
    /// Call a method of a participant, such as `greet`, or `worker.greet` if several participants
    /// have it. The part before the dot is the participant's id or handle (`@Worker`).
    Call {
        #[arg(add = completion::names(&NAMES))]
        channel: String,
        #[command(flatten)]
        call: Box<CallArgs>,
    },
}

pub(super) async fn run(global: &Global, command: ChannelCommand) -> Result<(), Failure> {
    match command {
        ChannelCommand::List => list(global).await,
        ChannelCommand::Roster { channel } => roster(global, &channel).await,
        ChannelCommand::Tail { channel, last, no_follow } => {
            tail(global, &channel, last, !no_follow).await
        }
        ChannelCommand::Send { channel, text, kind, ephemeral } => {
            send(global, &channel, &text, kind.as_deref(), !ephemeral).await
        }
        ChannelCommand::Remove { channel } => {
            let client = Client::new(global)?;
            client
                .send(
                    client.request(Method::DELETE, &format!("/v1/channels/{}", segment(&channel))),
                )
                .await?;
            if global.json { Ok(()) } else { line(&format!("deleted {channel}")) }
        }
        ChannelCommand::Call { channel, mut call } => {
            call.tool = tool_of(&Client::new(global)?, &channel, call.tool).await?;
            call::run_in(global, *call, Some(&channel)).await
        }
    }
}

/// Returns the tool for a method name as the roster shows it. Any other name is already a tool name
/// and is returned unchanged.
async fn tool_of(client: &Client, channel: &str, method: String) -> Result<String, Failure> {
    pick(&everybody(client, channel, |_| Ok(())).await?, method)
}

/// Selects the participant's method that the name refers to. Ids take precedence over handles,
/// because only ids are assigned by the gateway.
fn pick(participants: &[Value], method: String) -> Result<String, Failure> {
    let (mut found, mut named, mut by_handle) = (Vec::new(), Vec::new(), Vec::new());
    for participant in participants {
        let (id, handle) = (text(&participant["id"]), text(&participant["metadata"]["handle"]));
        for name in
            array(&participant["metadata"]["methods"]).iter().map(|method| text(&method["name"]))
        {
            let tool = format!("pubsub_{id}_{name}");
            if tool == method {
                return Ok(method);
            }
            let full = format!("{id}.{name}");
            if name == method || full == method {
                found.push(tool);
                named.push(full);
            } else if is_of_handle(&method, handle, name) {
                by_handle.push((tool, full));
            }
        }
    }
    if found.is_empty() {
        (found, named) = by_handle.into_iter().unzip();
    }
    match found.len() {
        0 => Ok(method),
        1 => Ok(found.remove(0)),
        several => Err(Failure::new(
            9,
            format!("{several} participants have a method \"{}\"", printable(&method)),
        )
        .hint(format!("call one of {}", printable(&named.join(", "))))),
    }
}

/// Reports whether the typed name, such as `@Worker.greet`, refers to this method by handle.
/// Handles are compared as in channels: without case and without a leading @.
fn is_of_handle(typed: &str, handle: &str, name: &str) -> bool {
    let typed = typed.strip_suffix(name).and_then(|before| before.strip_suffix('.'));
    !handle.is_empty() && typed.is_some_and(|typed| handle_key(typed) == handle_key(handle))
}

/// Returns all participants of a channel. Passes the raw JSON of each page to `page`.
async fn everybody(
    client: &Client,
    channel: &str,
    page: impl Fn(&str) -> Result<(), Failure>,
) -> Result<Vec<Value>, Failure> {
    let (mut participants, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/channels/{}{cursor}", segment(channel));
        let (roster, raw): (Value, _) = client.get(&path).await?;
        page(&raw)?;
        participants.extend(array(&roster["participants"]).iter().cloned());
        match roster["next_cursor"].as_str() {
            Some(next) => cursor = format!("?cursor={}", segment(next)),
            None => return Ok(participants),
        }
    }
}

async fn list(global: &Global) -> Result<(), Failure> {
    let (list, raw): (Value, _) = Client::new(global)?.get("/v1/channels").await?;
    if global.json {
        return output::json(&raw);
    }
    if array(&list["channels"]).is_empty() {
        return prose("No channels yet. Run `switchboard channel send NAME hello` to create one.");
    }
    let rows: Vec<Vec<String>> = array(&list["channels"])
        .iter()
        .map(|channel| {
            let number = |key: &str| channel[key].as_u64().unwrap_or(0);
            let messages = (number("last_id") + 1).saturating_sub(number("first_id"));
            vec![
                text(&channel["name"]).to_owned(),
                number("participants").to_string(),
                messages.to_string(),
            ]
        })
        .collect();
    table(&[whole("CHANNEL"), whole("PARTICIPANTS"), whole("MESSAGES")], &rows)
}

async fn roster(global: &Global, channel: &str) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let page = |raw: &str| if global.json { output::json(raw) } else { Ok(()) };
    let participants = everybody(&client, channel, page).await?;
    if global.json {
        return Ok(());
    }
    if participants.is_empty() {
        return line(&format!("{} has no participants.", printable(channel)));
    }
    let now = sa_core::clock::now_ms();
    let rows: Vec<Vec<String>> = participants
        .iter()
        .map(|participant| {
            let metadata = &participant["metadata"];
            let methods: Vec<&str> =
                array(&metadata["methods"]).iter().map(|method| text(&method["name"])).collect();
            let here = now.saturating_sub(participant["joined_ms"].as_i64().unwrap_or(now)).max(0);
            vec![
                text(&participant["id"]).to_owned(),
                text(&metadata["handle"]).to_owned(),
                text(&metadata["type"]).to_owned(),
                span(here.cast_unsigned()),
                methods.join(", "),
            ]
        })
        .collect();
    let columns = [
        whole("PARTICIPANT"),
        whole("HANDLE"),
        whole("TYPE"),
        whole("ONLINE FOR"),
        wrapped("METHODS"),
    ];
    table(&columns, &rows)
}

async fn tail(global: &Global, channel: &str, last: usize, follow: bool) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let path = format!("/v1/channels/{}", segment(channel));
    let mut seen = 0;
    if last > 0 {
        let page = format!("{path}/messages?limit={}", last.min(500));
        let history: Value = match client.get(&page).await {
            Ok((history, _)) => history,
            // The channel does not exist until its first message is sent.
            Err(failure) if failure.code == 5 && follow => Value::Null,
            Err(failure) => return Err(failure),
        };
        for message in array(&history["messages"]) {
            show(global, message)?;
            seen = message["id"].as_u64().unwrap_or(seen);
        }
    }
    if !follow {
        return Ok(());
    }
    let mut request = client.request(Method::GET, &format!("{path}/events"));
    if seen > 0 {
        request = request.header("last-event-id", seen);
    }
    let mut events = client.events(client.send(request).await?)?;
    let mut ctrl_c = CtrlC::new()?;
    if !global.json {
        eprintln!("following {channel}; press Ctrl-C to stop");
    }
    loop {
        let event = tokio::select! {
            event = events.next() => event.map_err(|broken| client.unheard(&broken))?,
            () = ctrl_c.pressed() => return Ok(()),
        };
        let Some(event) = event else {
            return Err(Failure::new(3, "the gateway has closed the event stream")
                .hint("the gateway may be restarting; run the command again"));
        };
        show(global, &serde_json::from_str(&event.data).unwrap_or_default())?;
    }
}

async fn send(
    global: &Global,
    channel: &str,
    text: &str,
    kind: Option<&str>,
    persist: bool,
) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let payload = match kind {
        None => json!({ "id": uuid::Uuid::new_v4().to_string(), "content": text }),
        Some(_) => serde_json::from_str(text).map_err(|error| {
            Failure::usage(format!("the payload is not valid JSON: {error}"))
                .hint("quote a string, as in '\"hello\"'")
        })?,
    };
    let body = json!({ "type": kind.unwrap_or("message"), "payload": payload, "persist": persist });
    let request = client
        .request(Method::POST, &format!("/v1/channels/{}/messages", segment(channel)))
        .json(&body);
    let raw = client.send(request).await?.text().await.unwrap_or_default();
    if global.json {
        return output::json(&raw);
    }
    let answer: Value = serde_json::from_str(&raw).unwrap_or_default();
    match answer["id"].as_u64() {
        Some(id) => line(&format!("sent as {id}")),
        None => line("sent"),
    }
}

fn show(global: &Global, message: &Value) -> Result<(), Failure> {
    if global.json { line(&message.to_string()) } else { line(&printable(&describe(message))) }
}

/// Formats a message as one line, for example `2026-01-01 12:00:01.000Z  ann: hello`.
fn describe(message: &Value) -> String {
    let payload = &message["payload"];
    let (who, id) = (text(&message["senderId"]), |key: &str| shortened(text(&payload[key])));
    let said = match text(&message["type"]) {
        "presence" => match text(&payload["action"]) {
            "join" => format!("* {who} joined"),
            "leave" => format!("* {who} left ({})", text(&payload["leaveReason"])),
            _ => format!("* {who} updated"),
        },
        "message" => format!("{who}: {}", content(&payload["content"])),
        "update-message" => format!("{who}: … {}", content(&payload["content"])),
        "error" => format!("{who}: error: {}", text(&payload["error"])),
        "method-call" => format!(
            "{who} -> {}.{}({})",
            text(&payload["providerId"]),
            text(&payload["methodName"]),
            shortened(&payload["args"].to_string())
        ),
        "method-result" if payload["isError"] == true => {
            format!("{who} <- error: {}", content(&payload["content"]))
        }
        "method-result" if payload["content"].is_null() && payload["progress"].is_number() => {
            format!("{who} <- {}%", payload["progress"])
        }
        "method-result" => format!("{who} <- {}", content(&payload["content"])),
        "method-cancel" => format!("{who} cancels {}", id("callId")),
        other => format!("{who} [{other}] {}", shortened(&payload.to_string())),
    };
    let attachments = array(&message["attachmentMeta"]).len();
    let attached =
        if attachments > 0 { format!("  (+{attachments} attached)") } else { String::new() };
    format!("{}  {said}{attached}", when(message["ts"].as_i64().unwrap_or(0)))
}

fn content(content: &Value) -> String {
    match content {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => shortened(&other.to_string()),
    }
}

fn shortened(text: &str) -> String {
    const WIDEST: usize = 160;
    excerpt(WIDEST, text).into_owned()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: &str, payload: Value, expected: &str) {
        let shown =
            describe(&json!({ "type": kind, "payload": payload, "senderId": "ann", "ts": 0 }));
        assert_eq!(shown.split_once("  ").unwrap().1, expected);
    }

    #[test]
    fn a_method_is_found_by_id_and_by_handle() {
        let somebody = |id: &str, handle: &str, method: &str| json!({ "id": id, "metadata": { "handle": handle, "methods": [{ "name": method }] } });
        let everybody = [
            somebody("p1", "@Worker", "greet"),
            somebody("p2", "Érik", "greet"),
            somebody("worker", "", "greet"),
            somebody("p4", "p1", "files.read"),
        ];
        let check = |method: &str, expected: &str| {
            assert_eq!(pick(&everybody, method.to_owned()).unwrap(), expected, "{method}");
        };
        check("p1.greet", "pubsub_p1_greet");
        check("@worker.greet", "pubsub_p1_greet");
        check("WORKER.greet", "pubsub_p1_greet");
        check("érik.greet", "pubsub_p2_greet");
        check("worker.greet", "pubsub_worker_greet");
        check("@p1.files.read", "pubsub_p4_files.read");
        check("nobody.greet", "nobody.greet");
        assert_eq!(pick(&everybody, "greet".to_owned()).unwrap_err().code, 9);
    }

    #[test]
    fn every_message_is_one_line_for_people() {
        check("presence", json!({ "action": "join" }), "* ann joined");
        check(
            "presence",
            json!({ "action": "leave", "leaveReason": "graceful" }),
            "* ann left (graceful)",
        );
        check("message", json!({ "id": "1", "content": "hello" }), "ann: hello");
        let call = json!({ "providerId": "bob", "methodName": "search", "args": { "q": 1 } });
        check("method-call", call, "ann -> bob.search({\"q\":1})");
        check(
            "method-result",
            json!({ "content": { "error": "x" }, "isError": true }),
            "ann <- error: {\"error\":\"x\"}",
        );
        check("custom", json!([1]), "ann [custom] [1]");
    }
}
