//! `calls`: what ran, and what runs.

use sa_core::CallId;
use serde_json::Value;

use super::Global;
use super::client::{Client, segment};
use super::lists::text;
use super::output::{Failure, clock, duration, json, line, pretty, when};
use super::table::{facts, name, shortened, spared, table, whole};
use crate::redact::printable;

#[derive(Debug, clap::Args)]
pub(crate) struct CallsArgs {
    /// Show this call with its arguments and result. The beginning of an id will do, where no other call's is the same.
    id: Option<String>,
    /// How many ended calls, newest first.
    #[arg(long, default_value_t = 20)]
    limit: usize,
    /// Only calls of this tool.
    #[arg(long)]
    tool: Option<String>,
    /// Only calls with this outcome: ok, or a kind of error such as timeout.
    #[arg(long)]
    outcome: Option<String>,
    /// Cancel the call with this id, or with the one that begins so.
    #[arg(long, conflicts_with = "id", value_name = "ID")]
    cancel: Option<String>,
}

pub(super) async fn run(global: &Global, args: CallsArgs) -> Result<(), Failure> {
    let client = Client::new(global)?;
    if let Some(id) = args.cancel {
        let id = whole_id(&client, id, "&state=running").await?;
        let response =
            client.send(client.request(reqwest::Method::DELETE, &format!("/v1/calls/{}", segment(&id)))).await?;
        let body = response.text().await.unwrap_or_default();
        return if global.json { json(&body) } else { line(&format!("cancelled {id}")) };
    }
    if let Some(id) = args.id {
        let id = whole_id(&client, id, "").await?;
        let (call, raw): (Value, _) = client.get(&format!("/v1/calls/{}", segment(&id))).await?;
        return if global.json { json(&raw) } else { show(&call) };
    }
    let mut path = format!("/v1/calls?limit={}", args.limit);
    let filtered = args.tool.is_some() || args.outcome.is_some();
    for (name, value) in [("tool", args.tool), ("outcome", args.outcome)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", segment(&value)));
        }
    }
    let (list, raw): (Value, _) = client.get(&path).await?;
    if global.json {
        return json(&raw);
    }
    let calls = list["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    if calls.is_empty() && filtered {
        return line("No call is like that. All of them: switchboard calls");
    }
    if calls.is_empty() {
        return line("No calls yet. Make one: switchboard call TOOL key=value");
    }
    let columns = [whole("AT (UTC)"), name("TOOL"), whole("OUTCOME"), spared("TOOK"), spared("BY"), whole("ID")];
    table(&columns, &calls.iter().map(row).collect::<Vec<_>>())
}

/// The id of the one call whose id begins with what somebody typed.
async fn whole_id(client: &Client, typed: String, among: &str) -> Result<String, Failure> {
    /// More than these help nobody to choose.
    const CANDIDATES: usize = 10;
    if typed.len() >= CallId::LEN || typed.parse::<CallId>().is_ok() {
        return Ok(typed);
    }
    let path = format!("/v1/calls?limit={CANDIDATES}&id={}{among}", segment(&typed));
    let (list, _): (Value, _) = client.get(&path).await?;
    let calls = list["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    match calls {
        [] => {
            let what = if among.is_empty() { "no call that this token may see has" } else { "no call is running with" };
            let message = format!("{what} an id that begins with {}", printable(&typed));
            Err(Failure::of_kind("not_found", message).hint("switchboard calls lists them"))
        }
        [call] => Ok(text(&call["id"]).to_owned()),
        several => {
            let shown = several.iter().take(CANDIDATES).map(|call| {
                let at = when(call["at_ms"].as_i64().unwrap_or(0));
                // The id is what has to be typed, so the name makes room for it.
                format!("{}  {at}  {}", text(&call["id"]), shortened(&printable(listed_name(call)), 20))
            });
            let more = if several.len() > CANDIDATES || list["next_cursor"].is_u64() { "\nand more" } else { "" };
            let candidates = shown.collect::<Vec<_>>().join("\n");
            let message =
                format!("more than one call has an id that begins with {}:\n{candidates}{more}", printable(&typed));
            Err(Failure::usage(message).hint("type more of the id"))
        }
    }
}

/// One call, as somebody who asks what became of it wants to know it.
fn show(call: &Value) -> Result<(), Failure> {
    let provider = &call["provider"];
    let took = call["duration_us"].as_u64().map(duration).unwrap_or_default();
    line(&format!("{}  {}", printable(listed_name(call)), outcome(call)))?;
    let called = text(&call["tool"]);
    let message = text(&call["error"]["message"]);
    facts(&[
        ("id", text(&call["id"]).to_owned()),
        ("error", message.to_owned()),
        ("called", if called == listed_name(call) { String::new() } else { called.to_owned() }),
        ("started", clock(call["at_ms"].as_i64().unwrap_or(0))),
        ("took", took),
        ("waited", call["waited_us"].as_u64().map(duration).unwrap_or_default()),
        ("by", format!("{} ({})", text(&call["principal"]["name"]), text(&call["principal"]["role"]))),
        ("through", text(&call["surface"]).to_owned()),
        ("session", text(&call["session_key"]).to_owned()),
        ("provider", format!("{} {}", text(&provider["kind"]), text(&provider["id"])).trim().to_owned()),
        ("trace", text(&call["trace_id"]).to_owned()),
    ])?;
    for (name, value) in [("arguments", &call["args"]), ("result", &call["result"])] {
        match (&value["json"], value["bytes"].as_u64()) {
            (Value::Null, None) => {}
            (Value::Null, Some(bytes)) => line(&format!("\n{name}: {bytes} bytes, too large to be kept"))?,
            (json, _) => line(&format!("\n{name}:\n{}", pretty(json)))?,
        }
    }
    Ok(())
}

/// The tool's name as lists have it, however the caller called it.
pub(super) fn listed_name(call: &Value) -> &str {
    call["exposed"].as_str().unwrap_or_else(|| text(&call["tool"]))
}

pub(super) fn row(call: &Value) -> Vec<String> {
    vec![
        when(call["at_ms"].as_i64().unwrap_or(0)),
        listed_name(call).to_owned(),
        outcome(call).to_owned(),
        duration(call["duration_us"].as_u64().unwrap_or(0)),
        text(&call["principal"]["name"]).to_owned(),
        text(&call["id"]).to_owned(),
    ]
}

pub(super) fn outcome(call: &Value) -> &str {
    match (&call["ok"], &call["error"]["kind"]) {
        (Value::Bool(true), _) => "ok",
        (_, Value::String(kind)) => kind,
        _ => "running",
    }
}
