//! The commands `skills`, `eligibility` and `nodes probe`: show the abilities of hosts.

use reqwest::Method;
use serde_json::{Value, json};

use super::client::{Client, segment};
use super::lists::{Names, text};
use super::output::{self, Failure};
use super::table::{cut, prose, table, whole, wrapped};
use super::{Global, completion};

#[derive(Debug, clap::Args)]
pub(crate) struct EligibilityArgs {
    /// Required capability, such as shell.exec; can be repeated, and all are required.
    #[arg(long, value_name = "CAPABILITY")]
    capability: Vec<String>,
    /// Required program; can be repeated, and all are required.
    #[arg(long, value_name = "NAME")]
    bin: Vec<String>,
    /// Alternative program; can be repeated, and one of them is required.
    #[arg(long, value_name = "NAME")]
    any_bin: Vec<String>,
    /// Required environment variable; can be repeated, and all are required.
    #[arg(long, value_name = "KEY")]
    env: Vec<String>,
    /// Accepted operating system, such as linux or darwin; can be repeated.
    #[arg(long, value_name = "OS")]
    os: Vec<String>,
}

pub(super) async fn eligibility(global: &Global, args: EligibilityArgs) -> Result<(), Failure> {
    let EligibilityArgs { capability, bin, any_bin, env, os } = args;
    let body = json!({ "capabilities": capability, "bins": bin, "any_bins": any_bin, "env": env, "os": os });
    let (answer, raw) = post(global, "/v1/eligibility", &body).await?;
    if global.json {
        output::json(&raw)?;
        return found(&answer).map_err(Failure::told);
    }
    let hosts = list(&answer["hosts"]);
    if hosts.is_empty() {
        return found(&answer);
    }
    let primary = |host: &Value| {
        list(&answer["eligible"]).iter().any(|e| e["node"] == host["node"] && e["primary"] == true)
    };
    let rows: Vec<Vec<String>> = hosts
        .iter()
        .map(|host| {
            let state = match (host["eligible"] == true, host["online"] == true) {
                (true, _) if primary(host) => "eligible (primary)",
                (true, _) => "eligible",
                (false, true) => "not eligible",
                (false, false) => "offline",
            };
            vec![
                text(&host["node"]).to_owned(),
                state.to_owned(),
                text(&host["role"]).to_owned(),
                shortcomings(host),
            ]
        })
        .collect();
    table(&[whole("HOST"), whole("STATE"), whole("ROLE"), wrapped("LACKS")], &rows)?;
    found(&answer)
}

/// Returns a failure if no host is eligible, so that scripts can use the exit code.
fn found(answer: &Value) -> Result<(), Failure> {
    match (list(&answer["eligible"]), list(&answer["hosts"])) {
        ([], []) => Err(Failure::of_kind("not_found", "no host is connected")
            .hint("run `switchboard node --id NAME` to offer this machine")),
        ([], _) => Err(Failure::of_kind("not_found", "no host meets the requirements")),
        _ => Ok(()),
    }
}

/// Describes the requirements that a host does not meet. If its programs could not be checked, they
/// are reported as unknown, not as missing.
fn shortcomings(host: &Value) -> String {
    let Some(problem) = host["problem"].as_str() else { return lacking(&host["missing"]) };
    let mut known = host["missing"].clone();
    let programs =
        ["bins", "any_bins"].map(|key| !list(&known[key].take()).is_empty()).contains(&true);
    let unknown = programs.then(|| format!("programs unknown: {problem}"));
    let known = Some(lacking(&known)).filter(|known| !known.is_empty());
    known.into_iter().chain(unknown).collect::<Vec<_>>().join("; ")
}

pub(super) async fn skills(global: &Global) -> Result<(), Failure> {
    let (answer, raw): (Value, _) = Client::new(global)?.get("/v1/skills").await?;
    if global.json {
        return output::json(&raw);
    }
    for problem in list(&answer["problems"]) {
        output::note("warning", text(problem));
    }
    let skills = list(&answer["skills"]);
    if skills.is_empty() {
        return prose(&format!(
            "No skills yet. A skill is a folder with a SKILL.md, in {}.",
            place(&answer["dirs"])
        ));
    }
    let rows: Vec<Vec<String>> = skills
        .iter()
        .map(|skill| {
            let hosts: Vec<&str> = list(&skill["hosts"]).iter().map(text).collect();
            let state = match (skill["problem"].as_str(), skill["eligible"] == true) {
                (Some(_), _) => "broken".to_owned(),
                (None, true) if hosts.is_empty() => "eligible".to_owned(),
                (None, true) => format!("eligible on {}", hosts.join(", ")),
                (None, false) => unmet(skill),
            };
            let description =
                text(&skill["description"]).lines().next().unwrap_or_default().to_owned();
            vec![text(&skill["name"]).to_owned(), state, description]
        })
        .collect();
    table(&[whole("SKILL"), wrapped("STATE"), cut("DESCRIPTION")], &rows)?;
    // Problems are full sentences, which are too long for the table.
    for problem in skills.iter().filter_map(|skill| skill["problem"].as_str()) {
        output::note("warning", problem);
    }
    Ok(())
}

/// Returns the skill directories. The API only includes them for operators.
fn place(dirs: &Value) -> String {
    let dirs: Vec<&str> = list(dirs).iter().map(text).collect();
    if dirs.is_empty() {
        "the directory skills of the data directory".to_owned()
    } else {
        dirs.join(" or ")
    }
}

/// Describes the missing requirements of the host that lacks the fewest.
fn unmet(skill: &Value) -> String {
    let missing = skill["missing"].as_object().into_iter().flatten();
    let count = |lacks: &Value| {
        lacks.as_object().map_or(0, |lists| lists.values().map(|words| list(words).len()).sum())
    };
    match missing.min_by_key(|(_, lacks)| count(lacks)) {
        Some((host, lacks)) => format!("{host} lacks {}", lacking(lacks)),
        None => "no host is connected".to_owned(),
    }
}

const NODES: Names = Names { path: "/v1/nodes", list: "nodes", key: "id" };

#[derive(Debug, clap::Args)]
pub(crate) struct NodesArgs {
    /// Only list nodes with this tag.
    #[arg(long, value_name = "TAG")]
    pub(super) tag: Option<String>,
    #[command(subcommand)]
    pub(super) command: Option<NodesCommand>,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum NodesCommand {
    /// Check which programs are installed on a node.
    Probe {
        /// Id of the node.
        #[arg(add = completion::names(&NODES))]
        id: String,
        /// Names of programs, without directories.
        #[arg(required = true, value_name = "BIN")]
        bins: Vec<String>,
    },
}

pub(super) async fn probe(global: &Global, id: &str, bins: &[String]) -> Result<(), Failure> {
    let (answer, raw) =
        post(global, &format!("/v1/nodes/{}/probe", segment(id)), &json!({ "bins": bins })).await?;
    if global.json {
        return output::json(&raw);
    }
    let rows: Vec<Vec<String>> = answer["hostBinStatus"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(bin, there)| vec![bin.clone(), if *there == true { "yes" } else { "no" }.to_owned()])
        .collect();
    table(&[whole("PROGRAM"), whole("INSTALLED")], &rows)
}

async fn post(global: &Global, path: &str, body: &Value) -> Result<(Value, String), Failure> {
    let client = Client::new(global)?;
    let response = client.send(client.request(Method::POST, path).json(body)).await?;
    let raw = response.text().await.map_err(|error| client.unreachable(&error))?;
    Ok((client.read(&raw)?, raw))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Formats missing requirements, such as `bins docker, podman; os darwin`.
fn lacking(missing: &Value) -> String {
    let lists =
        missing.as_object().into_iter().flatten().filter(|(_, words)| !list(words).is_empty());
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
