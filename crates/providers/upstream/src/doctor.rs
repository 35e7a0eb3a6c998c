//! The checks of `switchboard doctor` for upstream servers.

use sa_http::doctor::{Doctor, Finding, Installed, Seen, text};
use sa_text::printable;
use serde_json::Value;

use crate::{KIND, Settings};

const INSTALLED: Installed = Installed { kind: KIND, list: "upstream", id: "name" };

impl Doctor for Settings {
    fn route(&self) -> &'static str {
        "/v1/upstream"
    }

    fn installed(&self) -> Option<Installed> {
        Some(INSTALLED)
    }

    fn check(&self, seen: &Seen<'_>, findings: &mut Vec<Finding>) {
        for server in seen.answer.into_iter().flat_map(|answer| INSTALLED.of(answer)) {
            check_server(server, findings);
        }
    }
}

/// Reports the state of a server.
fn check_server(server: &Value, findings: &mut Vec<Finding>) {
    let name = text(&server["name"]);
    for left in server["left_out"].as_array().into_iter().flatten() {
        let (tool, why) = (printable(text(&left["tool"])), text(&left["why"]));
        findings.push(Finding::bad(
            format!("the upstream \"{name}\" has a tool that is left out, \"{tool}\": {why}"),
            "ask the author of the server to shorten or flatten the definition of the tool; its other tools can be called",
        ));
    }
    let why = server["last_error"]
        .as_str()
        .map(|why| format!(": {}", printable(why)))
        .unwrap_or_default();
    // Restarting does not help if the program does not exist.
    let missing = why.contains("no such program");
    let variable = unset_variable(&why);
    let unauthorised = why.contains(" answered 401 ") || why.contains(" answered 403 ");
    match text(&server["state"]) {
        "offline" | "failed" | "starting" if variable.is_some() => findings.push(Finding::bad(
            format!("the upstream \"{name}\" does not run{why}"),
            unset_variable_fix(variable.unwrap_or_default()),
        )),
        "offline" | "failed" if missing && server["source"] == "added" => findings.push(Finding::bad(
            format!("the upstream \"{name}\" does not run{why}"),
            format!("run `switchboard upstream remove {name}`, then add it again with a program that exists"),
        )),
        "offline" | "failed" if missing => findings.push(Finding::bad(
            format!("the upstream \"{name}\" does not run{why}"),
            format!("fix command of [upstream.{name}] in the configuration file, and restart the gateway"),
        )),
        "offline" if unauthorised => findings.push(Finding::bad(
            format!("the upstream \"{name}\" is offline{why}"),
            if server["source"] == "added" {
                format!(
                    "run `switchboard upstream remove {name}`, then add it again with a valid token: --bearer file:PATH"
                )
            } else {
                format!("set bearer of [upstream.{name}] in the configuration file, and restart the gateway")
            },
        )),
        "ready" => findings.push(Finding::good(format!("the upstream \"{name}\" is ready"))),
        "idle" => findings.push(Finding::good(format!(
            "the upstream \"{name}\" is idle: the first call starts it"
        ))),
        "offline" => findings.push(Finding::bad(
            format!("the upstream \"{name}\" is offline{why}"),
            "the gateway keeps retrying; run `switchboard upstream list` to see its state",
        )),
        "login_needed" => findings.push(Finding::bad(
            format!("the upstream \"{name}\" needs a login{why}"),
            format!("run `switchboard upstream login {name}`"),
        )),
        "failed" => findings.push(Finding::bad(
            format!("the upstream \"{name}\" failed too often{why}"),
            format!("fix it, then run `switchboard upstream restart {name}`"),
        )),
        // A server that keeps exiting is in the state `starting` most of the time.
        "starting" if !why.is_empty() => findings.push(Finding::bad(
            format!("the upstream \"{name}\" is restarting{why}"),
            if server["source"] == "added" {
                format!(
                    "fix the error, then run `switchboard upstream restart {name}`; to change the program or its \
                     arguments, run `switchboard upstream remove {name}` and add it again"
                )
            } else {
                format!(
                    "fix the error or [upstream.{name}] in the configuration file, then run \
                     `switchboard upstream restart {name}`"
                )
            },
        )),
        _ => {}
    }
}

/// Returns the variable that an error of an upstream server reports as not set.
pub fn unset_variable(why: &str) -> Option<&str> {
    let (_, after) = why.split_once("the environment variable ")?;
    after.split_once(" is not set").map(|(name, _)| name)
}

/// Returns the fix for a variable that the gateway lacks. Setting it in another process, such as
/// the shell of this command, has no effect.
pub fn unset_variable_fix(name: &str) -> String {
    format!(
        "the gateway's own process needs {name}: restart the gateway with {name} set, or add the server again \
         with a file in place of the variable (file:PATH)"
    )
}
