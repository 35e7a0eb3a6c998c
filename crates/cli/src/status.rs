//! The `status` command: shows the state of the running gateway.

use serde_json::Value;

use super::Global;
use super::client::Client;
use super::lists::text;
use super::output::{Failure, json, line, size};
use super::table::{facts, prose, shortened};
use sa_text::printable;
use sa_text::span;

/// The maximum number of failed servers that are listed by name. The others are only counted.
const NAMED: usize = 3;
/// The maximum length of an error message. `upstream show` prints it in full.
const WHY: usize = 100;

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Show all byte and count budgets that are in use, also those that are nearly empty.
    #[arg(long, short)]
    verbose: bool,
}

pub(super) async fn run(global: &Global, args: &StatusArgs) -> Result<(), Failure> {
    let (status, raw) = Client::new(global)?.status("").await?;
    if global.json {
        return json(&raw);
    }
    let number = |key: &str| status[key].to_string();
    line(&format!("Switchboard {} at {}", text(&status["version"]), text(&status["listen"])))?;
    let rows = [
        ("up for", span(status["uptime_s"].as_u64().unwrap_or(0) * 1_000)),
        ("data", text(&status["data_dir"]).to_owned()),
        ("config", text(&status["config_file"]).to_owned()),
        ("nodes", format!("{} online, {} known", number("nodes_online"), number("nodes_known"))),
        ("upstream", upstream(&status["upstream"])),
        ("sessions", sessions(&status["sessions"])),
        ("tools", number("tools")),
        (
            "calls",
            format!("{} running, {} recorded", number("running_calls"), number("recorded_calls")),
        ),
        ("memory", memory(&status["budgets"], &status["memory_limit_bytes"])),
        ("in use", in_use(&status["budgets"], args.verbose)),
    ];
    facts(&rows)?;
    if status["shutting_down"] == true {
        prose(
            "  It is SHUTTING DOWN: it accepts no new calls, and exits when the running calls have ended.",
        )?;
    }
    if status["lost_records"] != 0 {
        prose(&format!(
            "  WARNING: {} records could not be written to disk",
            number("lost_records")
        ))?;
    }
    let unwritten = &status["unwritten"];
    if let (Some(message), Some(hint)) = (unwritten["message"].as_str(), unwritten["hint"].as_str())
    {
        prose(&format!("  WARNING: {}; {}", printable(message), printable(hint)))?;
    }
    let paused = &status["retention_paused"];
    if let (Some(message), Some(hint)) = (paused["message"].as_str(), paused["hint"].as_str()) {
        prose(&format!("  WARNING: {}; {}", printable(message), printable(hint)))?;
    }
    if let Some(message) = status["store_trouble"]["message"].as_str() {
        prose(&format!("  WARNING: {}", printable(message)))?;
    }
    Ok(())
}

/// Formats the upstream servers, such as `2 up, 1 down`, with the errors below. Empty if there are
/// no servers.
fn upstream(servers: &Value) -> String {
    let down = servers["down"].as_array().map(Vec::as_slice).unwrap_or_default();
    let count = |key: &str| servers[key].as_u64().unwrap_or(0);
    let some = [
        ("up", count("up")),
        ("starting", count("starting")),
        ("disabled", count("disabled")),
        ("down", down.len() as u64),
    ];
    let counted = some
        .iter()
        .filter(|(_, number)| *number > 0)
        .map(|(what, number)| format!("{number} {what}"));
    let mut lines = vec![counted.collect::<Vec<_>>().join(", ")];
    lines.extend(down.iter().take(NAMED).map(trouble));
    if down.len() > NAMED {
        lines.push(format!("{} more: run `switchboard upstream list`", down.len() - NAMED));
    }
    lines.join("\n")
}

fn trouble(server: &Value) -> String {
    let name = text(&server["name"]);
    let why = match (text(&server["state"]), text(&server["why"])) {
        ("login_needed", _) => {
            format!("login needed, run `switchboard upstream login {name}`")
        }
        (state, "") => state.to_owned(),
        (_, why) => shortened(&why.split_whitespace().collect::<Vec<_>>().join(" "), WHY),
    };
    format!("{name}: {why}")
}

/// Formats the sum of the in-memory byte budgets.
fn memory(budgets: &Value, limit: &Value) -> String {
    let (mut used, mut total) = (0, 0);
    for budget in in_memory(budgets) {
        used += budget["used"].as_u64().unwrap_or(0);
        total += budget["total"].as_u64().unwrap_or(0);
    }
    match limit.as_u64() {
        Some(limit) => format!(
            "{} of {} in byte budgets, limit {}",
            size(used as usize),
            size(total as usize),
            size(limit as usize)
        ),
        None => String::new(),
    }
}

fn in_memory(budgets: &Value) -> impl Iterator<Item = &Value> {
    let budgets = budgets.as_array().map(Vec::as_slice).unwrap_or_default();
    budgets.iter().filter(|budget| is_bytes(budget) && budget["name"] != "stored")
}

fn is_bytes(budget: &Value) -> bool {
    text(&budget["what"]).starts_with("bytes ")
}

/// Lists the budgets that are in use, one per line. Unless `all` is set, budgets below 1 % of their
/// size are left out.
fn in_use(budgets: &Value, all: bool) -> String {
    let budgets = budgets.as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |budget: &Value| {
        let (used, total) =
            (budget["used"].as_u64().filter(|used| *used > 0)?, budget["total"].as_u64()?);
        if !all && used < total / 100 {
            return None;
        }
        let amount = if is_bytes(budget) {
            format!("{} of {}", size(used as usize), size(total as usize))
        } else {
            format!("{used} of {total}")
        };
        Some(format!("{}: {amount}", text(&budget["name"])))
    };
    budgets.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

fn sessions(sessions: &Value) -> String {
    if sessions.is_null() {
        String::new()
    } else {
        format!("{} open, {} running", sessions["open"], sessions["running"])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(servers: &Value, expected: &str) {
        assert_eq!(upstream(servers), expected);
    }

    #[test]
    fn servers_are_counted_and_those_that_are_down_are_named() {
        check(&json!({ "up": 0, "starting": 0, "disabled": 0, "down": [] }), "");
        check(
            &json!({ "up": 2, "starting": 1, "disabled": 3, "down": [] }),
            "2 up, 1 starting, 3 disabled",
        );
        let failed = json!({ "name": "files", "state": "failed", "why": "no such\nprogram" });
        check(&json!({ "up": 2, "down": [failed] }), "2 up, 1 down\nfiles: no such program");
        let closed = json!({ "name": "mail", "state": "login_needed", "why": "401" });
        check(
            &json!({ "up": 0, "down": [closed] }),
            "1 down\nmail: login needed, run `switchboard upstream login mail`",
        );
        let long = json!({ "name": "a", "state": "offline", "why": "x".repeat(5_000) });
        check(&json!({ "up": 0, "down": [long] }), &format!("1 down\na: {}…", "x".repeat(WHY - 1)));
        let many: Vec<Value> =
            (0..9).map(|n| json!({ "name": format!("s{n}"), "state": "offline" })).collect();
        check(
            &json!({ "up": 0, "down": many }),
            "9 down\ns0: offline\ns1: offline\ns2: offline\n6 more: run `switchboard upstream list`",
        );
        check(&Value::Null, "");
    }

    #[test]
    fn budgets_are_summed_up_and_those_in_use_are_named() {
        let budgets = json!([
            { "name": "connections", "what": "open connections", "used": 3, "total": 20 },
            { "name": "requests", "what": "bytes of large requests", "used": 2_000_000, "total": 8_388_608 },
            { "name": "answers", "what": "bytes of answers", "used": 0, "total": 1_048_576 },
            { "name": "stored", "what": "bytes of stored messages", "used": 5_000, "total": 99 << 20 },
        ]);
        assert_eq!(
            memory(&budgets, &json!(1 << 30)),
            "2.0 MB of 9.4 MB in byte budgets, limit 1.1 GB"
        );
        assert_eq!(in_use(&budgets, false), "connections: 3 of 20\nrequests: 2.0 MB of 8.4 MB");
        assert_eq!(
            in_use(&budgets, true),
            "connections: 3 of 20\nrequests: 2.0 MB of 8.4 MB\nstored: 5 KB of 103.8 MB"
        );
        assert_eq!(
            (memory(&Value::Null, &Value::Null), in_use(&Value::Null, false)),
            (String::new(), String::new())
        );
    }
}
