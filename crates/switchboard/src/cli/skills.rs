//! Machines and what they are good for: `skills`, `eligibility`, `nodes probe`.

use reqwest::Method;
use serde_json::{Value, json};

use super::Global;
use super::client::{Client, segment};
use super::lists::text;
use super::output::{self, Failure, line, table};

#[derive(Debug, clap::Args)]
pub(crate) struct EligibilityArgs {
    /// What a host's tools must be able to do, such as shell.exec; may be given more than once, as all of these.
    #[arg(long, value_name = "CAPABILITY")]
    capability: Vec<String>,
    /// A program that must be there.
    #[arg(long, value_name = "NAME")]
    bin: Vec<String>,
    /// A program of which one must be there.
    #[arg(long, value_name = "NAME")]
    any_bin: Vec<String>,
    /// A key that must be in the environment.
    #[arg(long, value_name = "KEY")]
    env: Vec<String>,
    /// The operating system, such as linux or darwin; one of several will do.
    #[arg(long, value_name = "OS")]
    os: Vec<String>,
}

pub(super) async fn eligibility(global: &Global, args: EligibilityArgs) -> Result<(), Failure> {
    let EligibilityArgs { capability, bin, any_bin, env, os } = args;
    let body = json!({ "capabilities": capability, "bins": bin, "any_bins": any_bin, "env": env, "os": os });
    let (answer, raw) = post(global, "/v1/eligibility", &body).await?;
    if global.json {
        return output::json(&raw);
    }
    let hosts = list(&answer["hosts"]);
    if hosts.is_empty() {
        return line("No hosts are connected. Offer this machine with: switchboard node --id NAME");
    }
    let primary =
        |host: &Value| list(&answer["eligible"]).iter().any(|e| e["node"] == host["node"] && e["primary"] == true);
    let rows: Vec<Vec<String>> = hosts
        .iter()
        .map(|host| {
            let state = match (host["eligible"] == true, host["online"] == true) {
                (true, _) if primary(host) => "eligible (primary)",
                (true, _) => "eligible",
                (false, true) => "not eligible",
                (false, false) => "offline",
            };
            let mut lacks = lacking(&host["missing"]);
            if let Some(problem) = host["problem"].as_str() {
                lacks.push_str(&format!(" ({problem})"));
            }
            vec![text(&host["node"]).to_owned(), state.to_owned(), text(&host["role"]).to_owned(), lacks]
        })
        .collect();
    table(&["HOST", "STATE", "ROLE", "LACKS"], &rows)
}

pub(super) async fn skills(global: &Global) -> Result<(), Failure> {
    let (answer, raw): (Value, _) = Client::new(global)?.get("/v1/skills").await?;
    if global.json {
        return output::json(&raw);
    }
    for problem in list(&answer["problems"]) {
        eprintln!("warning: {}", crate::redact::printable(text(problem)));
    }
    let skills = list(&answer["skills"]);
    if skills.is_empty() {
        return line(
            "No skills yet. A skill is a folder with a SKILL.md, in the directory skills of the data directory.",
        );
    }
    let rows: Vec<Vec<String>> = skills
        .iter()
        .map(|skill| {
            let hosts: Vec<&str> = list(&skill["hosts"]).iter().map(text).collect();
            let state = match (skill["problem"].as_str(), skill["eligible"] == true) {
                (Some(problem), _) => format!("broken: {problem}"),
                (None, true) if hosts.is_empty() => "eligible".to_owned(),
                (None, true) => format!("eligible on {}", hosts.join(", ")),
                (None, false) => unmet(skill),
            };
            let description = text(&skill["description"]).lines().next().unwrap_or_default().chars().take(60).collect();
            vec![text(&skill["name"]).to_owned(), state, description]
        })
        .collect();
    table(&["SKILL", "STATE", "DESCRIPTION"], &rows)
}

/// What stands in the way of a skill: what the host lacks that lacks least.
fn unmet(skill: &Value) -> String {
    let missing = skill["missing"].as_object().into_iter().flatten();
    let count =
        |lacks: &Value| lacks.as_object().map_or(0, |lists| lists.values().map(|words| list(words).len()).sum());
    match missing.min_by_key(|(_, lacks)| count(lacks)) {
        Some((host, lacks)) => format!("{host} lacks {}", lacking(lacks)),
        None => "no host is connected".to_owned(),
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct NodesArgs {
    #[command(subcommand)]
    pub(super) command: Option<NodesCommand>,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum NodesCommand {
    /// Ask a node which programs its machine has.
    Probe {
        /// The node's id.
        id: String,
        /// Names of programs, without directories.
        #[arg(required = true, value_name = "BIN")]
        bins: Vec<String>,
    },
}

pub(super) async fn probe(global: &Global, id: &str, bins: &[String]) -> Result<(), Failure> {
    let (answer, raw) = post(global, &format!("/v1/nodes/{}/probe", segment(id)), &json!({ "bins": bins })).await?;
    if global.json {
        return output::json(&raw);
    }
    let rows: Vec<Vec<String>> = answer["hostBinStatus"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(bin, there)| vec![bin.clone(), if *there == true { "yes" } else { "no" }.to_owned()])
        .collect();
    table(&["PROGRAM", "THERE"], &rows)
}

async fn post(global: &Global, path: &str, body: &Value) -> Result<(Value, String), Failure> {
    let client = Client::new(global)?;
    let response = client.send(client.request(Method::POST, path).json(body)).await?;
    let raw = response.text().await.map_err(|error| client.unreachable(&error))?;
    let value = serde_json::from_str(&raw)
        .map_err(|error| Failure::other(format!("the gateway's answer cannot be read: {error}")))?;
    Ok((value, raw))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// `bins docker, podman; os darwin`
fn lacking(missing: &Value) -> String {
    let lists = missing.as_object().into_iter().flatten().filter(|(_, words)| !list(words).is_empty());
    let named = lists.map(|(name, words)| {
        let words: Vec<&str> = list(words).iter().map(text).collect();
        match name.as_str() {
            "any_bins" => format!("any of {}", words.join(", ")),
            "os" => format!("os {}", words.join(" or ")),
            _ => format!("{name} {}", words.join(", ")),
        }
    });
    named.collect::<Vec<_>>().join("; ")
}
