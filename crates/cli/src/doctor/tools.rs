//! The checks of `doctor` for tool definitions and names.

use std::collections::{BTreeMap, BTreeSet};

use sa_http::doctor::Finding;
use serde_json::Value;

use crate::lists::text;
use sa_gateway::config::Config;

/// The audit event for removed invisible characters.
pub(super) const INVISIBLE: &str = "definition.invisible_text";

/// Reports changed tool definitions, and tools with invisible characters. One line of each kind for
/// each provider.
pub(super) fn changes_of(changes: &Value, config: &Config, findings: &mut Vec<Finding>) {
    let mut providers: BTreeMap<[&str; 2], Vec<&Value>> = BTreeMap::new();
    for change in changes.as_array().into_iter().flatten() {
        providers.entry(provider_of(change)).or_default().push(change);
    }
    let (show, accept) = (config.typed("tool-changes"), config.typed("tool-changes accept TOOL"));
    let fix = format!("run `{show}` to see the changes, and `{accept}` to accept one");
    for ([kind, id], changes) in providers {
        let (unchanged, changed): (Vec<&Value>, Vec<&Value>) = changes
            .into_iter()
            .partition(|change| has_invisible(change) && differences_of(change) == 0);
        if let Some(tools) = named(&changed) {
            let definitions = if changed.len() == 1 { "definition" } else { "definitions" };
            let hidden = if changed.iter().any(|change| has_invisible(change)) {
                "; invisible characters were removed from their texts"
            } else {
                ""
            };
            let what =
                format!("the {kind} \"{id}\" has changed the {definitions} of {tools}{hidden}");
            findings.push(match changed.iter().filter(|change| change["held"] == true).count() {
                0 => Finding::note(format!("{what}; {fix}")),
                held => Finding::bad(
                    format!(
                        "{what}; calls fail until an operator accepts the change ({held} held)"
                    ),
                    &fix,
                ),
            });
        }
        if let Some(tools) = named(&unchanged) {
            findings.push(Finding::note(format!(
                "the {kind} \"{id}\" has invisible characters in the texts of {tools}; they were removed where calls do not \
                 need them; {fix}"
            )));
        }
    }
}

/// Reports invisible characters that are only in the audit log: those of plugins, sessions and
/// channels, and those in prompts and resources.
pub(super) fn invisible_texts(events: &[Value], changes: &Value, findings: &mut Vec<Finding>) {
    let changes = changes.as_array().into_iter().flatten();
    let mut known: BTreeSet<String> = changes
        .filter(|change| has_invisible(change))
        .map(|change| {
            let [kind, id] = provider_of(change);
            format!("{kind} \"{id}\"")
        })
        .collect();
    for event in events {
        let [what, who, detail] = ["what", "who", "detail"].map(|key| text(&event[key]));
        if what == INVISIBLE && known.insert(who.to_owned()) {
            findings.push(Finding::note(format!("the {who}: {detail}")));
        }
    }
}

/// Reports tools with a suffixed name, and the providers that own the plain name. One line for each
/// pair of providers.
pub(super) fn renamed_of(renamed: &Value, findings: &mut Vec<Finding>) {
    let mut pairs: BTreeMap<[&str; 4], (&Value, usize)> = BTreeMap::new();
    for tool in renamed.as_array().into_iter().flatten() {
        let (own, holder) = (&tool["provider"], &tool["held_by"]);
        let pair = [&own["kind"], &own["id"], &holder["kind"], &holder["id"]].map(text);
        pairs.entry(pair).or_insert((tool, 0)).1 += 1;
    }
    for ([kind, id, holders_kind, holder], (tool, count)) in pairs {
        let until = if tool["holder_away"] == true {
            ", which is offline, until that is forgotten"
        } else {
            ""
        };
        let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
        findings.push(Finding::note(format!(
            "the {kind} \"{id}\" lists a tool under the longer name {}: {} belongs to the {holders_kind} \"{holder}\"{until}{more}; \
             to change that, rename one of the tools",
            text(&tool["name"]),
            text(&tool["wanted"]),
        )));
    }
}

fn provider_of(change: &Value) -> [&str; 2] {
    [&change["provider"]["kind"], &change["provider"]["id"]].map(text)
}

fn has_invisible(change: &Value) -> bool {
    change["invisible_characters"].as_u64() > Some(0)
}

fn differences_of(change: &Value) -> usize {
    change["differences"].as_array().map_or(0, Vec::len)
}

/// Names the first of these tools, and the number of the others. `None` if there are none.
fn named(changes: &[&Value]) -> Option<String> {
    let first = text(&changes.first()?["tool"]);
    Some(match changes.len() - 1 {
        0 => format!("the tool \"{first}\""),
        more => format!("the tool \"{first}\" and {more} more"),
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use sa_gateway::config::layers::Layers;
    use serde_json::json;

    use super::*;

    fn change(
        provider: (&str, &str),
        tool: &str,
        differences: usize,
        invisible: usize,
        held: bool,
    ) -> Value {
        let (kind, id) = provider;
        let differences = vec![json!({ "path": "/description" }); differences];
        json!({
            "provider": { "kind": kind, "id": id }, "tool": tool, "differences": differences,
            "invisible_characters": invisible, "held": held,
        })
    }

    fn found(report: impl FnOnce(&mut Vec<Finding>)) -> Vec<String> {
        let mut findings = Vec::new();
        report(&mut findings);
        let kind = |finding: &Finding| if finding.fix.is_some() { "FIX" } else { "note" };
        findings.iter().map(|finding| format!("{} {}", kind(finding), finding.what)).collect()
    }

    #[test]
    fn invisible_characters_are_not_reported_as_a_change() {
        let nothing = std::iter::empty::<(OsString, OsString)>();
        let config = Config::resolve(&Layers::read(None, nothing, &[]).unwrap()).unwrap();
        let (mail, notes) = (("upstream", "mail"), ("node", "notes"));
        let changes = json!([
            change(mail, "read", 0, 3, false),
            change(mail, "send", 0, 1, false),
            change(notes, "list", 0, 1, false),
            change(notes, "read", 1, 2, false),
            change(notes, "write", 1, 0, true),
        ]);
        let found = found(|findings| changes_of(&changes, &config, findings));
        let expected = [
            "note the node \"notes\" has invisible characters in the texts of the tool \"list\"; they were removed",
            "FIX the node \"notes\" has changed the definitions of the tool \"read\" and 1 more; invisible characters",
            "note the upstream \"mail\" has invisible characters in the texts of the tool \"read\" and 1 more; they were",
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for expected in expected {
            assert!(found.iter().any(|found| found.starts_with(expected)), "{expected}: {found:?}");
        }
    }

    #[test]
    fn invisible_characters_of_plugins_and_prompts_are_reported_once() {
        let event = |who: &str, detail: &str| json!({ "what": "definition.invisible_text", "who": who, "subject": "x", "detail": detail });
        let events = [
            event("plugin \"rates\"", "2 invisible characters in the texts of rates"),
            event("plugin \"rates\"", "1 invisible character"),
            event("upstream \"mail\"", "known from its tools"),
            json!({ "what": "node.connected", "who": "node \"notes\"" }),
        ];
        let changes = json!([
            change(("upstream", "mail"), "read", 0, 3, false),
            change(("node", "notes"), "list", 1, 0, false),
        ]);
        let found = found(|findings| invisible_texts(&events, &changes, findings));
        assert_eq!(
            found,
            ["note the plugin \"rates\": 2 invisible characters in the texts of rates"]
        );
    }
}
