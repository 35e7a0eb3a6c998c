//! The checks of `switchboard doctor` for plugins.

use sa_http::doctor::{Doctor, Finding, Installed, Seen, text};
use serde_json::Value;

use crate::{KIND, Settings};

const INSTALLED: Installed = Installed { kind: KIND, list: "plugins", id: "identifier" };

impl Doctor for Settings {
    fn route(&self) -> &'static str {
        "/v1/plugins?reach=true"
    }

    fn installed(&self) -> Option<Installed> {
        Some(INSTALLED)
    }

    fn check(&self, seen: &Seen<'_>, findings: &mut Vec<Finding>) {
        let Some(answer) = seen.answer else { return };
        if !self.allow_private.is_empty() {
            let places = self.allow_private.join(", ");
            findings.push(Finding::good(format!(
                "every plugin may access {places} (plugins.allow_private)"
            )));
        }
        for plugin in INSTALLED.of(answer) {
            check_plugin(plugin, findings);
        }
    }
}

/// Reports a held-back change, a source error or unavailable servers. Also lists the access to
/// private addresses.
fn check_plugin(plugin: &Value, findings: &mut Vec<Finding>) {
    let id = text(&plugin["identifier"]);
    let private: Vec<&str> =
        plugin["allow_private"].as_array().into_iter().flatten().map(text).collect();
    if !private.is_empty() {
        let places = private.join(", ");
        findings.push(Finding::good(format!(
            "the plugin \"{id}\" may access {places}, although that is not public"
        )));
    }
    for away in plugin["away"].as_array().into_iter().flatten() {
        findings.push(Finding::bad(
            format!("the server of the plugin \"{id}\" is unavailable: {}", text(&away["why"])),
            format!(
                "start the server at {}; if it no longer exists, run `switchboard plugin disable {id}`",
                text(&away["origin"])
            ),
        ));
    }
    if plugin["held_back"].is_object() {
        findings.push(Finding::bad(
            format!("the plugin \"{id}\" has changed at its source; the accepted version is still used"),
            format!("run `switchboard plugin show {id}` to see the change, then `switchboard plugin accept {id}` or `switchboard plugin refuse {id}`"),
        ));
    }
    if let Some(error) = plugin["last_error"].as_str() {
        findings.push(Finding::bad(
            format!("the source of the plugin \"{id}\" cannot be used: {error}"),
            format!("fix the source, then run `switchboard plugin refresh {id}`"),
        ));
    }
}
