//! The `calls` command: lists past and running calls.

use sa_core::CallId;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::{Client, segment};
use super::lists::{page, text};
use super::output::{Failure, clock, duration, json, line, pretty, when};
use super::table::{begun, cut, facts, name, shortened, table, whole};
use super::{Global, completion};
use sa_text::printable;

#[derive(Debug, clap::Args)]
pub(crate) struct CallsArgs {
    /// Show this call with its arguments and result. A prefix of the id is enough if it is unique.
    #[arg(add = completion::calls(""))]
    id: Option<String>,
    /// Number of finished calls to list, latest first.
    #[arg(long, default_value_t = 20, value_parser = page)]
    limit: usize,
    /// Only list calls of this tool.
    #[arg(long, add = completion::tools())]
    tool: Option<String>,
    /// Only list calls with this outcome: ok, or an error kind such as timeout.
    #[arg(long)]
    outcome: Option<String>,
    /// Cancel the running call with this id or unique id prefix.
    #[arg(long, conflicts_with = "id", value_name = "ID", add = completion::calls("&state=running"))]
    cancel: Option<String>,
}

pub(super) async fn run(global: &Global, args: CallsArgs) -> Result<(), Failure> {
    let client = Client::new(global)?;
    if let Some(id) = args.cancel {
        let id = match whole_id(&client, id.clone(), "&state=running").await {
            // No running call matches. Look among the finished calls, so that the error can state
            // that the call has ended.
            Err(none) if none.code == Failure::of_kind("not_found", "").code => {
                whole_id(&client, id, "").await.map_err(|_| none)?
            }
            found => found?,
        };
        let response = client
            .send(client.request(reqwest::Method::DELETE, &format!("/v1/calls/{}", segment(&id))))
            .await?;
        let body = response.text().await.unwrap_or_default();
        return if global.json { json(&body) } else { line(&format!("cancelled {id}")) };
    }
    if let Some(id) = args.id {
        let id = whole_id(&client, id, "").await?;
        let (call, raw): (Value, _) = client.get(&format!("/v1/calls/{}", segment(&id))).await?;
        return if global.json { json(&raw) } else { show(&call, &raw) };
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
        return line("No call matches. Run `switchboard calls` to list all calls.");
    }
    if calls.is_empty() {
        return line("No calls yet. Run `switchboard call TOOL key=value` to make one.");
    }
    let columns = [
        whole("ENDED (UTC)"),
        name("TOOL"),
        whole("OUTCOME"),
        whole("TOOK"),
        cut("BY"),
        begun("ID"),
    ];
    table(&columns, &calls.iter().map(row).collect::<Vec<_>>())?;
    match list["more_running"].as_u64() {
        Some(more) => line(&format!(
            "{more} more are running. Run `switchboard calls --limit N` to list more calls."
        )),
        None => Ok(()),
    }
}

/// Returns the id of the only call with the typed prefix.
async fn whole_id(client: &Client, typed: String, among: &str) -> Result<String, Failure> {
    /// The maximum number of candidates in the error message.
    const CANDIDATES: usize = 10;
    if typed.parse::<CallId>().is_ok() {
        return Ok(typed);
    }
    let may_begin_one = (1..CallId::LEN).contains(&typed.len())
        && typed.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if !may_begin_one {
        let message = format!(
            "there is no call \"{}\": no id begins with it",
            shortened(&printable(&typed), CallId::LEN)
        );
        return Err(Failure::of_kind("not_found", message)
            .hint("run `switchboard calls` to list the calls"));
    }
    let path = format!("/v1/calls?limit={CANDIDATES}&id={}{among}", segment(&typed));
    let (list, _): (Value, _) = client.get(&path).await?;
    let calls = list["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    match calls {
        [] => {
            let what = if among.is_empty() {
                "no call that this token may see has"
            } else {
                "no running call has"
            };
            let message = format!("{what} an id that begins with {}", printable(&typed));
            Err(Failure::of_kind("not_found", message)
                .hint("run `switchboard calls` to list the calls"))
        }
        [call] => Ok(text(&call["id"]).to_owned()),
        several => {
            let shown = several.iter().take(CANDIDATES).map(|call| {
                let at = when(call["at_ms"].as_i64().unwrap_or(0));
                // The id must stay complete because the user has to type it. The name is shortened
                // instead.
                format!(
                    "{}  {at}  {}",
                    text(&call["id"]),
                    shortened(&printable(listed_name(call)), 20)
                )
            });
            let left_out = list["next_cursor"].is_u64() || list["more_running"].is_u64();
            let more = if several.len() > CANDIDATES || left_out { "\nand more" } else { "" };
            let candidates = shown.collect::<Vec<_>>().join("\n");
            let message = format!(
                "more than one call has an id that begins with {}:\n{candidates}{more}",
                printable(&typed)
            );
            Err(Failure::usage(message).hint("use more characters of the id"))
        }
    }
}

/// Prints one call in detail.
fn show(call: &Value, written: &str) -> Result<(), Failure> {
    let provider = &call["provider"];
    line(&format!("{}  {}", printable(listed_name(call)), outcome(call)))?;
    let called = text(&call["tool"]);
    let message = text(&call["error"]["message"]);
    facts(&[
        ("id", text(&call["id"]).to_owned()),
        ("error", message.to_owned()),
        ("called", if called == listed_name(call) { String::new() } else { called.to_owned() }),
        ("started", clock(call["at_ms"].as_i64().unwrap_or(0))),
        ("took", took(call)),
        ("waited", call["waited_us"].as_u64().map(duration).unwrap_or_default()),
        (
            "by",
            format!("{} ({})", text(&call["principal"]["name"]), text(&call["principal"]["role"])),
        ),
        ("through", text(&call["surface"]).to_owned()),
        ("session", text(&call["session_key"]).to_owned()),
        (
            "provider",
            format!("{} {}", text(&provider["kind"]), text(&provider["id"])).trim().to_owned(),
        ),
        ("trace", text(&call["trace_id"]).to_owned()),
    ])?;
    let Kept { args, result } = serde_json::from_str(written).unwrap_or_default();
    for (name, part) in [("arguments", args), ("result", result)] {
        match part.map(|Part { json, bytes }| (json, bytes)) {
            None | Some((None, None)) => {}
            Some((None, Some(bytes))) => {
                line(&format!("\n{name}: {bytes} bytes, too large to be kept"))?;
            }
            Some((Some(json), _)) => line(&format!("\n{name}:\n{}", pretty(json.get())))?,
        }
    }
    Ok(())
}

/// The stored arguments and result of a call, as raw JSON.
#[derive(Default, Deserialize)]
struct Kept<'a> {
    #[serde(borrow)]
    args: Option<Part<'a>>,
    #[serde(borrow)]
    result: Option<Part<'a>>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    json: Option<&'a RawValue>,
    bytes: Option<u64>,
}

/// Returns the tool name as shown in lists, even if the caller used another name.
pub(super) fn listed_name(call: &Value) -> &str {
    call["exposed"].as_str().unwrap_or_else(|| text(&call["tool"]))
}

fn row(call: &Value) -> Vec<String> {
    vec![
        ended(call, when),
        listed_name(call).to_owned(),
        outcome(call).to_owned(),
        took(call),
        text(&call["principal"]["name"]).to_owned(),
        text(&call["id"]).to_owned(),
    ]
}

/// Returns the end time of the call, or the closest known time.
fn ended(call: &Value, when: fn(i64) -> String) -> String {
    let began = call["at_ms"].as_i64().unwrap_or(0);
    match (outcome(call), call["duration_us"].as_i64()) {
        ("running", _) => format!("since {}", when(began)),
        (_, Some(took)) => when(began.saturating_add(took / 1_000)),
        (_, None) => format!("after {}", when(began)),
    }
}

/// The duration is unknown if the gateway was killed during the call.
fn took(call: &Value) -> String {
    call["duration_us"].as_u64().map_or_else(|| "unknown".to_owned(), duration)
}

pub(super) fn outcome(call: &Value) -> &str {
    match (&call["ok"], &call["error"]["kind"]) {
        (Value::Bool(true), _) => "ok",
        (_, Value::String(kind)) => kind,
        _ => "running",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_ended(call: Value, expected: &str) {
        assert_eq!(ended(&call, |at| at.to_string()), expected, "{call}");
    }

    #[test]
    fn a_list_that_is_in_the_order_of_ends_shows_ends() {
        check_ended(json!({ "at_ms": 5_000, "duration_us": 2_500_000, "ok": true }), "7500");
        check_ended(
            json!({ "at_ms": 5_000, "duration_us": 2_500_000, "state": "running" }),
            "since 5000",
        );
        check_ended(
            json!({ "at_ms": 5_000, "ok": false, "error": { "kind": "failed" } }),
            "after 5000",
        );
    }
}
