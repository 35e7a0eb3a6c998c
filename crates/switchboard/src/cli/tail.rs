//! `tail`: what happens, as it happens.

use reqwest::Method;
use serde_json::Value;

use super::Global;
use super::calls::outcome;
use super::client::Client;
use super::lists::text;
use super::output::{Failure, clock, duration, line};
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
    let at = |at: &Value| clock(at.as_i64().unwrap_or(0));
    let who = text(&data["principal"]["name"]);
    Some(match name {
        "call_started" => format!("{}  started  {}  by {who}", at(&data["at_ms"]), text(&data["tool"])),
        "call_ended" => {
            let ended = data["at_ms"].as_i64().unwrap_or(0) + data["duration_us"].as_i64().unwrap_or(0) / 1_000;
            let took = duration(data["duration_us"].as_u64().unwrap_or(0));
            let message = data["error"]["message"].as_str().map(|message| format!(": {message}")).unwrap_or_default();
            format!("{}  {:7}  {}  {took}  by {who}{message}", clock(ended), outcome(data), text(&data["tool"]))
        }
        "audit" => format!(
            "{}  {}  {}  {}",
            at(&data["at_ms"]),
            text(&data["what"]),
            text(&data["who"]),
            text(&data["detail"])
        ),
        "missed" => format!("({} events were missed)", data["events"]),
        _ => return None,
    })
}
