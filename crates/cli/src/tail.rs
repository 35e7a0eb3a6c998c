//! The `tail` command: follows calls and events.

use std::collections::HashMap;

use reqwest::Method;
use serde_json::Value;

use super::Global;
use super::calls::outcome;
use super::client::Client;
use super::ctrl_c::CtrlC;
use super::lists::{audited, text};
use super::output::{Failure, duration, line, when};
use super::table::{BEGINNING, terminal_width, told};
use sa_text::excerpt;

pub(super) async fn run(global: &Global) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let response = client.send(client.request(Method::GET, "/v1/events?watch=true")).await?;
    let mut events = client.events(response)?;
    let mut ctrl_c = CtrlC::new()?;
    if !global.json {
        eprintln!("watching {}; press Ctrl-C to stop", client.place());
    }
    let mut ids = Beginnings { whole: terminal_width().is_none(), ..Beginnings::default() };
    loop {
        let event = tokio::select! {
            event = events.next() => event.map_err(|broken| client.unheard(&broken))?,
            () = ctrl_c.pressed() => return Ok(()),
        };
        let Some(event) = event else {
            return Err(Failure::new(3, "the gateway has closed the event stream")
                .hint("the gateway may be restarting; run the command again"));
        };
        if global.json {
            line(&format!("{{\"event\":{},\"data\":{}}}", Value::from(event.name), event.data))?;
            continue;
        }
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        if let Some((at, what, rest)) = describe(&event.name, &data, &mut ids) {
            line(&told(&at, &what, &rest))?;
        }
    }
}

/// Unique id prefixes of the running calls. They connect the lines of one call and can be passed to
/// `calls`.
#[derive(Default)]
struct Beginnings {
    /// Set if stdout is not a terminal; ids are then shown in full.
    whole: bool,
    running: HashMap<String, String>,
}

impl Beginnings {
    /// Returns the displayed id of a started call. The first characters of an id are a timestamp.
    fn start(&mut self, id: &str) -> String {
        /// The maximum number of running calls that are tracked. Calls without an end event are
        /// dropped with all others.
        const MOST: usize = 10_000;
        if self.running.len() >= MOST {
            self.running.clear();
        }
        let begin = |length: usize| id.get(..length).unwrap_or(id).to_owned();
        let least = if self.whole { id.len() } else { BEGINNING.min(id.len()) };
        let differs = |shown: &String| !self.running.values().any(|other| other == shown);
        // A prefix must not end with a dash.
        let lengths = (least..=id.len()).filter(|length| !begin(*length).ends_with('-'));
        let shown = lengths.map(begin).find(differs).unwrap_or_else(|| id.to_owned());
        self.running.insert(id.to_owned(), shown.clone());
        shown
    }

    /// Returns the displayed id of a finished call and forgets it.
    fn end(&mut self, id: &str) -> String {
        let shown = self.running.remove(id);
        shown.unwrap_or_else(|| {
            let shown = self.start(id);
            self.running.remove(id);
            shown
        })
    }
}

/// Returns the time, kind and details of an event.
fn describe(name: &str, data: &Value, ids: &mut Beginnings) -> Option<(String, String, String)> {
    let at = when(data["at_ms"].as_i64().unwrap_or(0));
    let (who, id) = (text(&data["principal"]["name"]), text(&data["id"]));
    Some(match name {
        "call_started" => (
            at,
            "started".to_owned(),
            format!("{}  {}  by {who}", ids.start(id), text(&data["tool"])),
        ),
        "call_ended" => {
            let ended = data["at_ms"].as_i64().unwrap_or(0)
                + data["duration_us"].as_i64().unwrap_or(0) / 1_000;
            let took = duration(data["duration_us"].as_u64().unwrap_or(0));
            let message = data["error"]["message"]
                .as_str()
                .map(|message| format!(": {message}"))
                .unwrap_or_default();
            // The tool name as called, because the listed name is not known when the call starts.
            let rest =
                format!("{}  {}  {took}  by {who}{message}", ids.end(id), text(&data["tool"]));
            (when(ended), outcome(data).to_owned(), rest)
        }
        "audit" => (at, text(&data["what"]).to_owned(), audited(data)),
        "node_event" => (at, text(&data["event"]).replace(['.', '_'], " "), node_event(data)),
        "missed" => (String::new(), "missed".to_owned(), format!("{} events", data["events"])),
        _ => return None,
    })
}

/// Formats a node event, such as `laptop  cargo test  exit 0  3.20 s`.
fn node_event(event: &Value) -> String {
    let data = &event["data"];
    let mut parts = vec![text(&event["node"]).to_owned()];
    let words = ["command", "message", "path"].into_iter().find_map(|key| data[key].as_str());
    parts.extend(words.map(|text| excerpt(80, text).into_owned()));
    parts.extend(data["exitCode"].as_i64().map(|code| format!("exit {code}")));
    parts.extend(data["signal"].as_str().map(|signal| format!("signal {signal}")));
    parts.extend(data["durationMs"].as_u64().map(|ms| duration(ms.saturating_mul(1_000))));
    // An unknown event is shown as JSON.
    if parts.len() == 1 && !data.is_null() {
        parts.push(excerpt(80, &data.to_string()).into_owned());
    }
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(data: Value, expected: &str) {
        let event = serde_json::json!({ "node": "laptop", "event": "process.finished", "data": data, "at_ms": 0 });
        let (_, what, rest) = describe("node_event", &event, &mut Beginnings::default()).unwrap();
        assert_eq!(format!("{what}: {rest}"), format!("process finished: {expected}"));
    }

    #[track_caller]
    fn check_rest(name: &str, data: Value, expected: &str) {
        assert_eq!(describe(name, &data, &mut Beginnings::default()).unwrap().2, expected);
    }

    #[test]
    fn what_it_is_about_is_named_once() {
        let left = serde_json::json!({ "what": "node.left", "who": "node laptop from 127.0.0.1:5", "subject": "laptop",
            "detail": "graceful shutdown: bye" });
        check_rest("audit", left, "node laptop from 127.0.0.1:5  graceful shutdown: bye");
        let made = serde_json::json!({ "what": "token.made", "who": "operator ann", "subject": "bot", "detail": "" });
        check_rest("audit", made, "operator ann  bot");
    }

    #[test]
    fn the_lines_of_a_call_have_one_name_and_an_id_that_no_other_one_shows() {
        let (first, second) =
            ("019a8f6b-1234-7000-8000-00000000000a", "019a8f6b-1234-7001-8000-00000000000a");
        let event = |id: &str| {
            serde_json::json!({ "id": id, "tool": "Bash", "exposed": "laptop__Bash", "ok": true, "duration_us": 1_500,
                "principal": { "name": "ann" } })
        };
        let mut ids = Beginnings::default();
        let mut rest = |name: &str, id: &str| describe(name, &event(id), &mut ids).unwrap().2;
        assert_eq!(rest("call_started", first), "019a8f6b-1234  Bash  by ann");
        // Starts in the same millisecond.
        assert_eq!(rest("call_started", second), "019a8f6b-1234-7  Bash  by ann");
        assert_eq!(rest("call_ended", first), "019a8f6b-1234  Bash  1.5 ms  by ann");
        assert_eq!(rest("call_ended", second), "019a8f6b-1234-7  Bash  1.5 ms  by ann");
        assert_eq!(
            rest("call_ended", second),
            "019a8f6b-1234  Bash  1.5 ms  by ann",
            "its start was not seen"
        );
        let mut ids = Beginnings { whole: true, ..Beginnings::default() };
        assert_eq!(
            describe("call_started", &event(first), &mut ids).unwrap().2,
            format!("{first}  Bash  by ann")
        );
    }

    #[test]
    fn what_a_node_says_is_one_line() {
        check(
            serde_json::json!({ "command": "cargo test", "exitCode": 0, "durationMs": 3_200, "sessionId": "x" }),
            "laptop  cargo test  exit 0  3.20 s",
        );
        check(
            serde_json::json!({ "signal": "SIGKILL", "exitCode": null }),
            "laptop  signal SIGKILL",
        );
        check(Value::Null, "laptop");
        check(serde_json::json!({ "free": 3 }), "laptop  {\"free\":3}");
        check(serde_json::json!("x".repeat(100)), &format!("laptop  \"{}…", "x".repeat(79)));
    }
}
