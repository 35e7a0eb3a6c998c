//! Commands that print lists: tools, nodes and audit events.

use sa_text::similar;
use serde::Deserialize;
use serde_json::Value;

use super::Global;
use super::client::{Client, segment};
use super::output::{Failure, json, line, when};
use super::table::{
    Column, cut, filled, name, spared, table, terminal_width, told, whole, wrapped,
};
use super::{channel, completion, sessions, tool};
use sa_gateway::http::MAX_PAGE;
pub(super) use sa_http::doctor::text;
use sa_text::printable;
use sa_text::span;

#[derive(Debug, clap::Args)]
pub(crate) struct ToolsArgs {
    /// Show one tool with its full description and schema.
    #[arg(add = completion::tools())]
    name: Option<String>,
    /// Also list the tools that the caller of this session provides.
    #[arg(long, value_name = "ID", add = completion::names(&sessions::NAMES))]
    session: Option<String>,
    /// Also list the methods of this channel's participants.
    #[arg(long, value_name = "NAME", add = completion::names(&channel::NAMES))]
    channel: Option<String>,
}

/// Additional sources of tools, beside the tools that are available everywhere.
#[derive(Clone, Copy, Default)]
pub(super) struct Place<'a> {
    pub(super) session: Option<&'a str>,
    pub(super) channel: Option<&'a str>,
}

impl Place<'_> {
    /// Returns the options of `tools` for this source.
    pub(super) fn options(&self) -> String {
        let option = |name: &str, value: Option<&str>| {
            value.map(|value| format!(" --{name} {}", printable(value)))
        };
        [option("session", self.session), option("channel", self.channel)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Returns the command line that calls a tool of this source.
    fn call(&self, name: &str) -> String {
        let session = Place { channel: None, ..*self }.options();
        let channel = self.channel.map(|channel| format!("channel call {}", printable(channel)));
        format!("switchboard {}{session} {name}", channel.as_deref().unwrap_or("call"))
    }
}

#[derive(Deserialize)]
struct ToolPage {
    tools: Vec<Value>,
    next_cursor: Option<String>,
}

pub(super) async fn tools(global: &Global, args: ToolsArgs) -> Result<(), Failure> {
    let place = Place { session: args.session.as_deref(), channel: args.channel.as_deref() };
    let tools = all_tools(&Client::new(global)?, place).await?;
    if let Some(name) = args.name {
        let tool = named(&tools, &name).ok_or_else(|| {
            Failure::of_kind("not_found", format!("there is no tool \"{}\"", printable(&name)))
                .hint(format!("run `switchboard tools{}` to list the tools", place.options()))
                .or_meant(&name, tools.iter().map(|tool| text(&tool["name"])))
        })?;
        return if global.json {
            json(&tool.to_string())
        } else {
            tool::show(tool, &place.call(text(&tool["name"])))
        };
    }
    if global.json {
        return json(&serde_json::json!({ "tools": tools }).to_string());
    }
    if tools.is_empty() {
        return line(
            "No tools yet. Run `switchboard node --workspace DIR` to offer this machine's shell and files.",
        );
    }
    let rows: Vec<Vec<String>> = tools
        .iter()
        .map(|tool| {
            let provider =
                format!("{} {}", text(&tool["provider"]["kind"]), text(&tool["provider"]["id"]));
            let state = if tool["online"] == true { "online" } else { "offline" };
            let description =
                text(&tool["description"]).lines().next().unwrap_or_default().to_owned();
            vec![text(&tool["name"]).to_owned(), provider, state.to_owned(), description]
        })
        .collect();
    table(&[name("TOOL"), spared("PROVIDER"), whole("STATE"), cut("DESCRIPTION")], &rows)
}

/// Returns all tools that the token may use, including those of `place`.
pub(super) async fn all_tools(client: &Client, place: Place<'_>) -> Result<Vec<Value>, Failure> {
    let mut tools = Vec::new();
    let mut first = "/v1/tools?limit=1000".to_owned();
    for (key, value) in [("session", place.session), ("channel", place.channel)] {
        first.extend(value.map(|value| format!("&{key}={}", segment(value))));
    }
    let mut path = first.clone();
    loop {
        let (page, _): (ToolPage, _) = client.get(&path).await?;
        tools.extend(page.tools);
        match page.next_cursor {
            Some(cursor) => path = format!("{first}&cursor={}", segment(&cursor)),
            None => return Ok(tools),
        }
    }
}

/// Finds a tool by its exposed name or by its provider's name: `mail_send` for `mail.send`,
/// `laptop__Bash` for `Bash`.
pub(super) fn named<'a>(tools: &'a [Value], name: &str) -> Option<&'a Value> {
    let exposed = name.replace(['.', ':'], "_");
    let own = format!("__{exposed}");
    let called = |wanted: &str| tools.iter().find(|tool| text(&tool["name"]) == wanted);
    called(name)
        .or_else(|| called(&exposed))
        .or_else(|| tools.iter().find(|tool| text(&tool["name"]).ends_with(&own)))
}

/// Describes a list of the API: its path, its key in the response, and the key of the names.
pub(super) struct Names {
    pub(super) path: &'static str,
    pub(super) list: &'static str,
    pub(super) key: &'static str,
}

impl Names {
    /// Returns all entries of the list, without revoked ones.
    pub(super) async fn known(&self, client: &Client) -> Result<Vec<Value>, Failure> {
        let (mut answer, _): (Value, _) = client.get(self.path).await?;
        let Value::Array(mut known) = answer[self.list].take() else { return Ok(Vec::new()) };
        known.retain(|entry| entry["revoked_ms"].is_null());
        Ok(known)
    }
}

impl Failure {
    /// Adds a suggestion to a "not found" failure, taken from the existing names.
    pub(super) async fn or_meant_in(self, name: &str, client: &Client, names: &Names) -> Self {
        if self.code != Self::of_kind("not_found", "").code {
            return self;
        }
        let Ok(known) = names.known(client).await else { return self };
        self.or_meant(name, known.iter().map(|entry| text(&entry[names.key])))
    }

    fn or_meant<'a>(self, name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.collect();
        let names = similar(name, known.iter().copied());
        // If the name exists, the failure is about something else.
        if names.is_empty() || known.contains(&name) {
            return self;
        }
        self.hint(format!("did you mean {}?", printable(&names.join(", "))))
    }
}

pub(super) async fn nodes(global: &Global, tag: Option<&str>) -> Result<(), Failure> {
    let path =
        tag.map_or_else(|| "/v1/nodes".to_owned(), |tag| format!("/v1/nodes?tag={}", segment(tag)));
    let (list, raw): (Value, _) = Client::new(global)?.get(&path).await?;
    if global.json {
        return json(&raw);
    }
    let nodes = list["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(tag) = tag.filter(|_| nodes.is_empty()) {
        return line(&format!("No node has the tag {}.", printable(tag)));
    }
    if nodes.is_empty() {
        return line(
            "No nodes yet. Run `switchboard node --workspace DIR` to offer this machine's shell and files.",
        );
    }
    let rows: Vec<Vec<String>> = nodes
        .iter()
        .map(|node| {
            let since = span(node["for_ms"].as_u64().unwrap_or(0));
            let state = match (&node["online"], &node["stopped"]) {
                (Value::Bool(true), _) => format!("online for {since}"),
                (_, Value::Bool(true)) => format!("stopped {since} ago"),
                _ => format!("lost {since} ago"),
            };
            let offers = node["tools"].as_array().map_or(0, Vec::len);
            let capabilities = [&node["capabilities"], &node["host_capabilities"]];
            let capabilities: Vec<_> =
                capabilities.into_iter().filter_map(Value::as_array).flatten().map(text).collect();
            let blocked = node["blocked"].as_array().map_or(0, Vec::len);
            let mut capabilities = capabilities.join(" ");
            if blocked > 0 {
                capabilities.push_str(&format!(" ({blocked} held by another node)"));
            }
            let tags = node["about"]["tags"]
                .as_array()
                .into_iter()
                .flatten()
                .map(text)
                .collect::<Vec<_>>();
            let primary = if node["primary"] == true { " (primary)" } else { "" };
            vec![
                text(&node["id"]).to_owned(),
                state,
                format!("{}{primary}", text(&node["role"])),
                text(&node["hostOs"]).to_owned(),
                offers.to_string(),
                node["running_calls"].to_string(),
                tags.join(" "),
                capabilities,
            ]
        })
        .collect();
    filled(&NODES, &rows)
}

pub(super) const NODES: [Column; 8] = [
    name("NODE"),
    whole("STATE"),
    wrapped("ROLE"),
    spared("OS"),
    whole("TOOLS"),
    spared("RUNNING"),
    spared("TAGS"),
    wrapped("CAPABILITIES"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// Number of events to list, newest first.
    #[arg(long, default_value_t = 50, value_parser = page)]
    limit: usize,
}

/// Parses a page size and checks it against the gateway's maximum.
pub(super) fn page(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_PAGE).contains(number));
    number.ok_or_else(|| format!("it must be a whole number from 1 to {MAX_PAGE}"))
}

pub(super) async fn audit(global: &Global, args: AuditArgs) -> Result<(), Failure> {
    let (list, raw): (Value, _) =
        Client::new(global)?.get(&format!("/v1/audit?limit={}", args.limit)).await?;
    if global.json {
        return json(&raw);
    }
    let events = list["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    if terminal_width().is_some_and(|width| width < WIDE) {
        return events.iter().try_for_each(|event| {
            let at = when(event["at_ms"].as_i64().unwrap_or(0));
            line(&told(&at, text(&event["what"]), &audited(event)))
        });
    }
    let rows: Vec<Vec<String>> = events
        .iter()
        .map(|event| {
            let at = when(event["at_ms"].as_i64().unwrap_or(0));
            let part = |key: &str| text(&event[key]).to_owned();
            vec![at, part("what"), part("who"), part("subject"), part("detail")]
        })
        .collect();
    table(&AUDIT, &rows)
}

/// Formats the actor, subject and detail of an audit event on one line.
pub(super) fn audited(event: &Value) -> String {
    let [who, subject, detail] = ["who", "subject", "detail"].map(|key| text(&event[key]));
    // For connections, the actor usually contains the subject already.
    let subject = if who.split(' ').any(|word| word == subject) { "" } else { subject };
    let parts = [who, subject, detail].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("  ")
}

/// The minimum terminal width for a table with actor, subject and detail. In a narrower terminal,
/// all three columns would be cut.
const WIDE: usize = 140;

/// The columns of the audit table. Actor, subject and detail are shortened alike.
pub(super) const AUDIT: [Column; 5] =
    [whole("AT (UTC)"), whole("WHAT"), cut("WHO"), cut("SUBJECT"), cut("DETAIL")];
