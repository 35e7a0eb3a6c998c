//! `tail`: what happens, as it happens.

use reqwest::Method;
use serde_json::Value;

use super::Global;
use super::calls::{listed_name, outcome};
use super::client::Client;
use super::lists::text;
use super::output::{Failure, duration, line, when};
use super::table::told;
use crate::wording::shortened_to;

pub(super) async fn run(global: &Global) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let response = client.send(client.request(Method::GET, "/v1/events?watch=true")).await?;
    let mut events = client.events(response)?;
    if !global.json {
        eprintln!("watching {}; Ctrl-C ends it", client.place());
    }
    loop {
        let event = tokio::select! {
            event = events.next() => event.map_err(|broken| client.unheard(&broken))?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let Some(event) = event else {
            return Err(
                Failure::new(3, "the gateway has closed the feed").hint("it may be restarting; run the command again")
            );
        };
        if global.json {
            line(&format!("{{\"event\":{},\"data\":{}}}", Value::from(event.name), event.data))?;
            continue;
        }
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        if let Some((at, what, rest)) = describe(&event.name, &data) {
            line(&told(&at, &what, &rest))?;
        }
    }
}

/// When, what, and the rest of it.
fn describe(name: &str, data: &Value) -> Option<(String, String, String)> {
    let at = when(data["at_ms"].as_i64().unwrap_or(0));
    let who = text(&data["principal"]["name"]);
    Some(match name {
        "call_started" => (at, "started".to_owned(), format!("{}  by {who}", listed_name(data))),
        "call_ended" => {
            let ended = data["at_ms"].as_i64().unwrap_or(0) + data["duration_us"].as_i64().unwrap_or(0) / 1_000;
            let took = duration(data["duration_us"].as_u64().unwrap_or(0));
            let message = data["error"]["message"].as_str().map(|message| format!(": {message}")).unwrap_or_default();
            let rest = format!("{}  {took}  by {who}{message}", listed_name(data));
            (when(ended), outcome(data).to_owned(), rest)
        }
        "audit" => {
            let [who, subject, detail] = ["who", "subject", "detail"].map(|key| text(&data[key]));
            // Who connects is mostly what it is about.
            let subject = if who.split(' ').any(|word| word == subject) { "" } else { subject };
            let parts = [who, subject, detail].into_iter().filter(|part| !part.is_empty());
            (at, text(&data["what"]).to_owned(), parts.collect::<Vec<_>>().join("  "))
        }
        "node_event" => (at, text(&data["event"]).replace(['.', '_'], " "), node_event(data)),
        "missed" => (String::new(), "missed".to_owned(), format!("{} events", data["events"])),
        _ => return None,
    })
}

/// `laptop  cargo test  exit 0  3.20 s`
fn node_event(event: &Value) -> String {
    let data = &event["data"];
    let mut parts = vec![text(&event["node"]).to_owned()];
    let words = ["command", "message", "path"].into_iter().find_map(|key| data[key].as_str());
    parts.extend(words.map(shortened));
    parts.extend(data["exitCode"].as_i64().map(|code| format!("exit {code}")));
    parts.extend(data["signal"].as_str().map(|signal| format!("signal {signal}")));
    parts.extend(data["durationMs"].as_u64().map(|ms| duration(ms.saturating_mul(1_000))));
    // Whatever it is, it is shown.
    if parts.len() == 1 && !data.is_null() {
        parts.push(shortened(&data.to_string()));
    }
    parts.join("  ")
}

fn shortened(text: &str) -> String {
    shortened_to(80, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(data: Value, expected: &str) {
        let event = serde_json::json!({ "node": "laptop", "event": "process.finished", "data": data, "at_ms": 0 });
        let (_, what, rest) = describe("node_event", &event).unwrap();
        assert_eq!(format!("{what}: {rest}"), format!("process finished: {expected}"));
    }

    #[track_caller]
    fn check_rest(name: &str, data: Value, expected: &str) {
        assert_eq!(describe(name, &data).unwrap().2, expected);
    }

    #[test]
    fn what_it_is_about_is_named_once_and_as_lists_name_it() {
        let left = serde_json::json!({ "what": "node.left", "who": "node laptop from 127.0.0.1:5", "subject": "laptop",
            "detail": "it said goodbye" });
        check_rest("audit", left, "node laptop from 127.0.0.1:5  it said goodbye");
        let made = serde_json::json!({ "what": "token.made", "who": "operator ann", "subject": "bot", "detail": "" });
        check_rest("audit", made, "operator ann  bot");
        let call = serde_json::json!({ "tool": "Bash", "exposed": "laptop__Bash", "principal": { "name": "ann" } });
        check_rest("call_started", call, "laptop__Bash  by ann");
    }

    #[test]
    fn what_a_node_says_is_one_line() {
        check(
            serde_json::json!({ "command": "cargo test", "exitCode": 0, "durationMs": 3_200, "sessionId": "x" }),
            "laptop  cargo test  exit 0  3.20 s",
        );
        check(serde_json::json!({ "signal": "SIGKILL", "exitCode": null }), "laptop  signal SIGKILL");
        check(Value::Null, "laptop");
        check(serde_json::json!({ "free": 3 }), "laptop  {\"free\":3}");
        check(serde_json::json!("x".repeat(100)), &format!("laptop  \"{}…", "x".repeat(79)));
    }
}
