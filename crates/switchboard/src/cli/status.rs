//! `status`: what the running gateway is doing, on a few lines.

use serde_json::Value;

use super::Global;
use super::client::Client;
use super::lists::text;
use super::output::{Failure, json, line, span};
use super::table::{facts, prose, shortened};
use crate::redact::printable;

/// Servers that are named with what is wrong with them; of the others there is a number.
const NAMED: usize = 3;
/// The longest word on why one of them is down: the whole of it is in `upstream show`.
const WHY: usize = 100;

pub(super) async fn run(global: &Global) -> Result<(), Failure> {
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
        ("calls", format!("{} running, {} recorded", number("running_calls"), number("recorded_calls"))),
    ];
    facts(&rows)?;
    if status["shutting_down"] == true {
        prose("  It is SHUTTING DOWN: it takes no new calls, and ends once those that run have ended.")?;
    }
    if status["lost_records"] != 0 {
        prose(&format!("  WARNING: {} records could not be written to disk", number("lost_records")))?;
    }
    let unwritten = &status["unwritten"];
    if let (Some(message), Some(hint)) = (unwritten["message"].as_str(), unwritten["hint"].as_str()) {
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

/// `2 up, 1 down`, and below it what is wrong with whom. Nothing where there are none.
fn upstream(servers: &Value) -> String {
    let down = servers["down"].as_array().map(Vec::as_slice).unwrap_or_default();
    let count = |key: &str| servers[key].as_u64().unwrap_or(0);
    let some = [
        ("up", count("up")),
        ("starting", count("starting")),
        ("turned off", count("disabled")),
        ("down", down.len() as u64),
    ];
    let counted = some.iter().filter(|(_, number)| *number > 0).map(|(what, number)| format!("{number} {what}"));
    let mut lines = vec![counted.collect::<Vec<_>>().join(", ")];
    lines.extend(down.iter().take(NAMED).map(trouble));
    if down.len() > NAMED {
        lines.push(format!("{} more: switchboard upstream list", down.len() - NAMED));
    }
    lines.join("\n")
}

fn trouble(server: &Value) -> String {
    let name = text(&server["name"]);
    let why = match (text(&server["state"]), text(&server["why"])) {
        ("login_needed", _) => format!("somebody has to log in, with: switchboard upstream login {name}"),
        (state, "") => state.to_owned(),
        (_, why) => shortened(&why.split_whitespace().collect::<Vec<_>>().join(" "), WHY),
    };
    format!("{name}: {why}")
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
        check(&json!({ "up": 2, "starting": 1, "disabled": 3, "down": [] }), "2 up, 1 starting, 3 turned off");
        let failed = json!({ "name": "files", "state": "failed", "why": "no such\nprogram" });
        check(&json!({ "up": 2, "down": [failed] }), "2 up, 1 down\nfiles: no such program");
        let closed = json!({ "name": "mail", "state": "login_needed", "why": "401" });
        check(
            &json!({ "up": 0, "down": [closed] }),
            "1 down\nmail: somebody has to log in, with: switchboard upstream login mail",
        );
        let long = json!({ "name": "a", "state": "offline", "why": "x".repeat(5_000) });
        check(&json!({ "up": 0, "down": [long] }), &format!("1 down\na: {}…", "x".repeat(WHY - 1)));
        let many: Vec<Value> = (0..9).map(|n| json!({ "name": format!("s{n}"), "state": "offline" })).collect();
        check(
            &json!({ "up": 0, "down": many }),
            "9 down\ns0: offline\ns1: offline\ns2: offline\n6 more: switchboard upstream list",
        );
        check(&Value::Null, "");
    }
}
