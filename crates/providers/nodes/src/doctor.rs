//! The checks of `switchboard doctor` for nodes.

use std::collections::{BTreeMap, BTreeSet};

use sa_http::doctor::{Doctor, Finding, Seen, text};
use sa_text::span;
use serde_json::Value;

use crate::{KIND, Settings, TOOK_PLACE};

/// The number of replaced connections of one node, within a time window, that is reported. A node
/// that changes its network replaces its connection once. An SDK node that was replaced waits a
/// minute, so two such nodes replace each other about once a minute.
const REPLACED_OFTEN: usize = 3;
const REPLACED_WITHIN_MS: i64 = 10 * 60 * 1_000;

/// The audit events that are checked.
const CONTESTED: &str = "name.contested";
const CONNECTED: &str = "node.connected";

impl Doctor for Settings {
    fn route(&self) -> &'static str {
        "/v1/nodes"
    }

    fn events(&self) -> &'static [&'static str] {
        &[CONTESTED, CONNECTED]
    }

    fn check(&self, seen: &Seen<'_>, findings: &mut Vec<Finding>) {
        lost_ids(seen.events, findings);
        replaced_nodes(seen.events, seen.now_ms, findings);
        if let Some(answer) = seen.answer {
            let nodes = answer["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
            check_nodes(nodes, seen, findings);
        }
    }
}

fn check_nodes(nodes: &[Value], seen: &Seen<'_>, findings: &mut Vec<Finding>) {
    if nodes.is_empty() && seen.installed > 0 {
        findings.push(Finding::good(
            "no node is connected; there are tools of plugins or other servers",
        ));
    } else if nodes.is_empty() {
        // A gateway without nodes is not a problem.
        let tools = seen.tools;
        let own = if *tools == 0 {
            "there are no tools".to_owned()
        } else {
            format!("all {tools} tools are built in")
        };
        findings.push(Finding::note(format!(
            "no node is connected, and {own}; run `switchboard node` to offer this machine's shell and files"
        )));
    }
    for node in nodes {
        let id = text(&node["id"]);
        if node["online"] == true {
            findings.push(Finding::good(format!("the node \"{id}\" is online")));
        } else {
            let gone = span(node["for_ms"].as_u64().unwrap_or(0));
            if node["stopped"] == true {
                findings.push(Finding::note(format!(
                    "the node \"{id}\" was stopped {gone} ago; its tools are offline"
                )));
                continue;
            }
            findings.push(Finding::bad(
                format!("the node \"{id}\" disconnected {gone} ago"),
                "start it again on its machine",
            ));
        }
        for blocked in node["blocked"].as_array().into_iter().flatten() {
            let (name, holder, kind) =
                (text(&blocked["name"]), text(&blocked["held_by"]), text(&blocked["held_by_kind"]));
            if kind != KIND {
                findings.push(Finding::bad(
                    format!(
                        "the node \"{id}\" claims {name}, which belongs to the {kind} \"{holder}\""
                    ),
                    "rename the tool in the node; servers and plugins that an operator installed have priority",
                ));
                continue;
            }
            let away = nodes.iter().any(|node| node["id"] == *holder && node["online"] == false);
            let mut fix =
                "give both nodes the same token if they may replace each other".to_owned();
            if away {
                fix.push_str(&format!(
                    "; \"{holder}\" is offline: its names become free when it is forgotten, or when its token is revoked"
                ));
            }
            findings.push(Finding::bad(
                format!("the node \"{id}\" offers {name}, which \"{holder}\" holds"),
                fix,
            ));
        }
        for ignored in node["about"]["ignored"].as_array().into_iter().flatten() {
            findings.push(Finding::bad(
                format!("the node \"{id}\" offers a name that cannot be used: {}", text(ignored)),
                "fix the name in the node",
            ));
        }
        for flaw in node["unusable_schemas"].as_array().into_iter().flatten() {
            let (tool, why) = (text(&flaw["tool"]), text(&flaw["why"]));
            findings.push(Finding::bad(
                format!(
                    "every call of {tool} fails: the input_schema from the node \"{id}\" cannot be used: {why}"
                ),
                "fix the schema in the node, and restart it",
            ));
        }
        if let Some(count) = node["bad_frames"]["count"].as_u64() {
            let frames = if count == 1 { "a frame".to_owned() } else { format!("{count} frames") };
            let last = text(&node["bad_frames"]["last"]);
            findings.push(Finding::bad(
                format!(
                    "the node \"{id}\" has sent {frames} that cannot be read; error of the last one: {last}"
                ),
                "fix the frames that the node sends; see docs/nodes.md",
            ));
        }
    }
}

/// Reports nodes that lost their ids in the last day to an installed provider.
fn lost_ids(events: &[Value], findings: &mut Vec<Finding>) {
    let mut seen = BTreeSet::new();
    for event in events {
        let (what, detail) = (text(&event["what"]), text(&event["detail"]));
        let lost = what == CONTESTED && detail.starts_with("the id ");
        if lost && seen.insert(text(&event["subject"])) {
            findings.push(Finding::note(format!(
                "{detail}; to connect the node again, give it another id"
            )));
        }
    }
}

/// Reports node ids with new connections that keep replacing open ones. The likely cause is that
/// two processes use the same id.
fn replaced_nodes(events: &[Value], now_ms: i64, findings: &mut Vec<Finding>) {
    let since = now_ms - REPLACED_WITHIN_MS;
    let mut replaced: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for event in events {
        let [what, who, subject, detail] =
            ["what", "who", "subject", "detail"].map(|key| text(&event[key]));
        if what == CONNECTED && detail == TOOK_PLACE && event["at_ms"].as_i64() > Some(since) {
            let (count, from) = replaced.entry(subject).or_default();
            *count += 1;
            // The port is left out because it differs for each connection.
            from.extend(
                who.rsplit_once(" from ").and_then(|(_, remote)| Some(remote.rsplit_once(':')?.0)),
            );
        }
    }
    for (id, (count, from)) in
        replaced.into_iter().filter(|(_, (count, _))| *count >= REPLACED_OFTEN)
    {
        let from = from.into_iter().collect::<Vec<_>>().join(", ");
        let minutes = REPLACED_WITHIN_MS / 60_000;
        findings.push(Finding::bad(
            format!(
                "connections with the node id \"{id}\" replaced each other {count} times within {minutes} minutes (from {from}): \
                 two processes seem to have the same id"
            ),
            "give each node its own id, with SA_NODE_ID or `switchboard node --id NAME`",
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_that_keep_replacing_each_other_are_reported() {
        let event = |id: &str, port: u16, age_ms: i64, detail: &str| {
            let who = format!("node {id} from 192.0.2.{}:{port}", port % 2);
            json!({ "what": CONNECTED, "who": who, "subject": id, "detail": detail, "at_ms": 1_000_000 - age_ms })
        };
        let took = TOOK_PLACE;
        let mut events: Vec<Value> =
            (0..4).map(|n| event("twice", 4_000 + n, 1_000, took)).collect();
        events.extend([
            event("roams", 1, 1_000, took),
            event("roams", 1, 2_000, took),
            event("roams", 1, 3_000, ""),
        ]);
        events.extend((0..4).map(|n| event("long-ago", n, REPLACED_WITHIN_MS, took)));
        let mut findings = Vec::new();
        replaced_nodes(&events, 1_000_000, &mut findings);
        let [finding] = &findings[..] else { panic!("{} findings", findings.len()) };
        for words in ["\"twice\"", "4 times", "192.0.2.0, 192.0.2.1"] {
            assert!(finding.what.contains(words), "{}", finding.what);
        }
        assert!(finding.fix.as_ref().unwrap().contains("SA_NODE_ID"));
    }
}
