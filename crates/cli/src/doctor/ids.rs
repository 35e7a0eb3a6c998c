//! Ids that installed providers share with each other or with tokens of nodes.

use sa_core::naming::exposed_id;
use sa_http::doctor::Finding;
use serde_json::Value;

use crate::lists::text;

/// Reports ids that two installed providers share, or that a node's token is bound to. Ids count as
/// equal if they are equal in tool names, where `my.mail` is `my_mail`.
pub(super) fn ids_in_use(
    installed: &[(&str, String)],
    tokens: &Value,
    findings: &mut Vec<Finding>,
) {
    for (at, (kind, id)) in installed.iter().enumerate() {
        let space = exposed_id(id);
        for (other, same) in installed[..at].iter().filter(|(_, other)| exposed_id(other) == space)
        {
            findings.push(Finding::bad(
                format!(
                    "the {other} \"{same}\" and the {kind} \"{id}\" have the same id{}",
                    in_names(same, id)
                ),
                format!("remove one of them and add it under another name: a pattern such as {space}__* matches both"),
            ));
        }
        for token in tokens.as_array().into_iter().flatten() {
            let Some(node_id) = token["node_id"].as_str() else { continue };
            if !token["revoked_ms"].is_null() || exposed_id(node_id) != space {
                continue;
            }
            let name = text(&token["name"]);
            findings.push(Finding::bad(
                format!(
                    "the token \"{name}\" is for the node id \"{node_id}\", which the {kind} \"{id}\" uses{}",
                    in_names(node_id, id)
                ),
                format!("no node can connect as {node_id}: create a token for another id, and revoke this one"),
            ));
        }
    }
}

/// Explains why two ids count as equal.
fn in_names(one: &str, other: &str) -> &'static str {
    if one == other { "" } else { " in tool names" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn findings(installed: &[(&'static str, &str)], tokens: &Value) -> Vec<String> {
        let installed: Vec<_> =
            installed.iter().map(|(kind, id)| (*kind, (*id).to_owned())).collect();
        let mut findings = Vec::new();
        ids_in_use(&installed, tokens, &mut findings);
        findings.into_iter().map(|finding| finding.what + "; " + &finding.fix.unwrap()).collect()
    }

    #[track_caller]
    fn check_installed(plugin: &str, upstream: &str, expected: Option<&str>) {
        let found = findings(&[("upstream", upstream), ("plugin", plugin)], &json!([]));
        assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
        assert!(
            expected
                .is_none_or(|part| { found[0].contains(part) && found[0].contains("my_mail__*") }),
            "{found:?}"
        );
    }

    #[test]
    fn two_installed_providers_with_one_id_are_reported() {
        check_installed("my_mail", "my_mail", Some("\"my_mail\" have the same id; "));
        check_installed(
            "my.mail",
            "my_mail",
            Some(
                "the upstream \"my_mail\" and the plugin \"my.mail\" have the same id in tool names",
            ),
        );
        check_installed("my:mail", "my.mail", Some("in tool names"));
        check_installed("my-mail", "my_mail", None);
        check_installed("mymail", "my_mail", None);
        check_installed("My_mail", "my_mail", None);
    }

    #[track_caller]
    fn check_token(node_id: &Value, revoked_ms: Option<i64>, expected: Option<&str>) {
        let tokens = json!([{ "name": "t", "node_id": node_id, "revoked_ms": revoked_ms }]);
        let found = findings(&[("plugin", "my.mail")], &tokens);
        assert_eq!(found.len(), usize::from(expected.is_some()), "{node_id}: {found:?}");
        assert!(expected.is_none_or(|part| found[0].contains(part)), "{found:?}");
    }

    #[test]
    fn tokens_for_the_id_of_an_installed_provider_are_reported() {
        check_token(&json!("my.mail"), None, Some("the plugin \"my.mail\" uses; "));
        check_token(
            &json!("my_mail"),
            None,
            Some(
                "for the node id \"my_mail\", which the plugin \"my.mail\" uses in tool names; no node can connect as my_mail",
            ),
        );
        check_token(&json!("my:mail"), None, Some("in tool names"));
        check_token(&json!("my_mail"), Some(1), None);
        check_token(&json!("mail"), None, None);
        check_token(&Value::Null, None, None);
    }
}
