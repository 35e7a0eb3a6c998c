//! `tail`: what happens, as it happens.

use reqwest::Method;
use serde_json::Value;

use super::Global;
use super::calls::outcome;
use super::client::Client;
use super::lists::text;
use super::output::{Failure, duration, line, when};
use super::sse::Events;
use crate::redact::printable;

pub(super) async fn run(global: &Global) -> Result<(), Failure> {
    let client = Client::new(global)?;
    let response = client.send(client.request(Method::GET, "/v1/events")).await?;
    let mut events = Events::new(response);
    if !global.json {
        eprintln!("watching {}; Ctrl-C ends it", client.base());
    }
    loop {
        let event = tokio::select! {
            event = events.next() => event.map_err(|error| client.unreachable(&error))?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let Some(event) = event else {
            return Err(
                Failure::new(3, "the gateway has closed the feed").hint("it may be restarting; run the command again")
            );
        };
        if global.json {
            line(&format!("{{\"event\":\"{}\",\"data\":{}}}", event.name, event.data))?;
            continue;
        }
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        if let Some(text) = describe(&event.name, &data) {
            line(&printable(&text))?;
        }
    }
}

fn describe(name: &str, data: &Value) -> Option<String> {
    let at = |at: &Value| when(at.as_i64().unwrap_or(0));
    let who = text(&data["principal"]["name"]);
    Some(match name {
        "call_started" => format!("{}  {:12}  {}  by {who}", at(&data["at_ms"]), "started", text(&data["tool"])),
        "call_ended" => {
            let ended = data["at_ms"].as_i64().unwrap_or(0) + data["duration_us"].as_i64().unwrap_or(0) / 1_000;
            let took = duration(data["duration_us"].as_u64().unwrap_or(0));
            let message = data["error"]["message"].as_str().map(|message| format!(": {message}")).unwrap_or_default();
            format!("{}  {:12}  {}  {took}  by {who}{message}", when(ended), outcome(data), text(&data["tool"]))
        }
        "audit" => format!(
            "{}  {}  {}  {}",
            at(&data["at_ms"]),
            text(&data["what"]),
            text(&data["who"]),
            text(&data["detail"])
        ),
        "node_event" => node_event(data),
        "missed" => format!("({} events were missed)", data["events"]),
        _ => return None,
    })
}

/// `2026-01-01 12:00:01.000Z  laptop  process finished  cargo test  exit 0  3.20 s`
fn node_event(event: &Value) -> String {
    let data = &event["data"];
    let mut parts = vec![
        when(event["at_ms"].as_i64().unwrap_or(0)),
        text(&event["node"]).to_owned(),
        text(&event["event"]).replace(['.', '_'], " "),
    ];
    let words = ["command", "message", "path"].into_iter().find_map(|key| data[key].as_str());
    parts.extend(words.map(shortened));
    parts.extend(data["exitCode"].as_i64().map(|code| format!("exit {code}")));
    parts.extend(data["signal"].as_str().map(|signal| format!("signal {signal}")));
    parts.extend(data["durationMs"].as_u64().map(|ms| duration(ms.saturating_mul(1_000))));
    // Whatever it is, it is shown.
    if parts.len() == 3 && !data.is_null() {
        parts.push(shortened(&data.to_string()));
    }
    parts.join("  ")
}

fn shortened(text: &str) -> String {
    const WIDEST: usize = 80;
    match text.char_indices().nth(WIDEST) {
        None => text.to_owned(),
        Some((cut, _)) => format!("{}…", &text[..cut]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(data: Value, expected: &str) {
        let event = serde_json::json!({ "node": "laptop", "event": "process.finished", "data": data, "at_ms": 0 });
        let shown = describe("node_event", &event).unwrap();
        assert_eq!(shown.split_once("  ").unwrap().1, expected);
    }

    #[test]
    fn what_a_node_says_is_one_line() {
        check(
            serde_json::json!({ "command": "cargo test", "exitCode": 0, "durationMs": 3_200, "sessionId": "x" }),
            "laptop  process finished  cargo test  exit 0  3.20 s",
        );
        check(serde_json::json!({ "signal": "SIGKILL", "exitCode": null }), "laptop  process finished  signal SIGKILL");
        check(Value::Null, "laptop  process finished");
        check(serde_json::json!({ "free": 3 }), "laptop  process finished  {\"free\":3}");
        check(serde_json::json!("x".repeat(100)), &format!("laptop  process finished  \"{}…", "x".repeat(79)));
    }
}
