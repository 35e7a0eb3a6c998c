//! Reads the hello of a node: it tolerates unusable parts, but stores only valid ones.

use std::collections::HashSet;
use std::time::Duration;

use sa_core::{Catalog, RawJson, Schema, Tool};
use sa_http::annotations::is_repeatable;
use sa_protocol::node::{Features, Hello, ToolSpec};
use sa_protocol::{
    CapabilityError, PROTOCOL_VERSION, close, validate_name, validate_prefix, validate_tool_name,
};
use sa_socket::Close;
use serde_json::json;
use serde_json::value::RawValue;

use crate::{NodeOptions, machine};

const MAX_ID: usize = 128;
const MAX_DESCRIPTION: usize = 16 * 1024;
/// The maximum length of a node's name, type or version.
const MAX_WORD: usize = 256;
/// The maximum size of all tags of a node together.
const MAX_TAGS: usize = 4 * 1024;
/// The maximum size of a node's machine description. The part that is stored is smaller, see
/// `machine.rs`.
const MAX_HOST: usize = 128 * 1024;
/// The maximum stored size of one hello, mostly tools and their schemas.
///
/// A thousand tools with long descriptions take about a fourth of it.
const MAX_KEPT: usize = 4 * 1024 * 1024;
/// The total size of the schemas that are checked before the welcome.
///
/// It covers common nodes, and costs little even for ten thousand of them. Errors in the other
/// schemas are reported when the tool is first used.
const MAX_LOOKED_AT: usize = 64 * 1024;
/// The maximum number of mistakes that are reported one by one.
const MAX_TOLD: usize = 8;

/// The result of a checked hello.
pub(crate) struct Introduction {
    pub(crate) id: String,
    pub(crate) catalog: Catalog,
    pub(crate) about: RawJson,
    pub(crate) features: Features,
    pub(crate) modern: bool,
    /// The largest request that the node accepts; `usize::MAX` if the hello does not set a limit.
    pub(crate) max_request_bytes: usize,
    /// The mistakes in the hello, each with its reason, for the author of the node. Their number is
    /// limited.
    pub(crate) mistakes: Vec<String>,
}

impl Introduction {
    /// Returns the approximate size of the stored hello in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.catalog.weight() + self.about.len()
    }
}

pub(crate) fn read(
    hello: &Hello<'_>,
    options: &NodeOptions,
    remote: &str,
) -> Result<Introduction, Close> {
    let id = &hello.node.id;
    if hello.protocol_version != PROTOCOL_VERSION {
        let spoken = hello.protocol_version;
        return Err(Close::new(
            close::VERSION_NOT_SUPPORTED,
            format!(
                "protocol version {spoken} is not supported; this gateway supports version {PROTOCOL_VERSION}"
            ),
        ));
    }
    check_id(id).map_err(|why| bad(format!("node.id: {why}")))?;
    if hello.tools.len() + hello.capabilities.len() > options.max_tools {
        return Err(bad(format!(
            "a node may offer at most {} tools and capabilities",
            options.max_tools
        )));
    }
    brief(hello)?;
    let mut ignored = Vec::new();
    let host = machine::shown(hello.host, &mut ignored);
    let mut usable =
        |name: &str, validate: fn(&str) -> Result<(), CapabilityError>| match validate(name) {
            Ok(()) => true,
            Err(error) => {
                ignored.push(format!(
                    "{}: {error}",
                    name.escape_debug().take(140).collect::<String>()
                ));
                false
            }
        };
    let described: Vec<&ToolSpec> =
        hello.tools.iter().filter(|spec| usable(&spec.name, validate_tool_name)).collect();
    let capabilities = hello.capabilities.iter().filter(|name| usable(name, validate_prefix));
    let mut prefixes: Vec<String> = capabilities.cloned().collect();
    // A host's `Bash` is a tool that every host has. It is not a namespace that one host could own.
    prefixes
        .retain(|prefix| prefix.contains('.') || described.iter().all(|spec| spec.name != *prefix));
    let bare_names = host["role"] != "specialized";
    let open = undescribed(&prefixes, &described).map(|prefix| open(hello, prefix, bare_names));
    let mut tools: Vec<Tool> = open.collect();
    let mut flaws = Vec::new();
    let mut room = MAX_LOOKED_AT;
    for spec in described {
        match spec.input_schema.as_deref().map(readable).transpose() {
            Ok(input) => {
                let tool = tool(id, spec, input);
                let mut look = |schema: &Option<Schema>, consequence: &str| {
                    let Some(schema) = schema else { return };
                    let Some(left) = room.checked_sub(schema.raw().len()) else { return };
                    room = left;
                    if let Err(why) = schema.check_fast() {
                        flaws.push(format!("{}: its {consequence}: {why}", spec.name));
                    }
                };
                look(&tool.input, "input_schema is invalid, so every call fails");
                look(&tool.output, "output_schema is invalid, so it is not listed");
                tools.push(tool);
            }
            Err(error) => {
                ignored.push(format!("{}: its input_schema is not valid JSON: {error}", spec.name));
            }
        }
    }
    let modern =
        !hello.features.names().is_empty() || !hello.tools.is_empty() || hello.host.is_some();
    let about = json!({
        "name": hello.node.name,
        "node_type": hello.node.node_type,
        "version": hello.node.version,
        "tags": hello.node.tags,
        "features": hello.features.names(),
        "max_request_bytes": hello.max_request_bytes,
        "host": host,
        "remote": remote,
        "ignored": ignored,
    });
    let introduction = Introduction {
        id: id.clone(),
        catalog: Catalog {
            tools,
            prefixes,
            bare_names,
            preferred: options.primary.as_ref() == Some(id),
            watched: true,
            saved: true,
            ..Catalog::default()
        },
        about: RawJson::of(&about),
        features: hello.features,
        modern,
        max_request_bytes: hello
            .max_request_bytes
            .and_then(|bytes| bytes.try_into().ok())
            .unwrap_or(usize::MAX),
        mistakes: told(ignored, flaws),
    };
    match introduction.weight() {
        0..=MAX_KEPT => Ok(introduction),
        bytes => Err(bad(format!(
            "its tools and their schemas have {bytes} bytes; the maximum is {MAX_KEPT}"
        ))),
    }
}

/// Refuses a node with descriptions that are too long. Every operator that lists the nodes sees
/// them.
fn brief(hello: &Hello<'_>) -> Result<(), Close> {
    let node = &hello.node;
    let tags = node.tags.iter().map(|tag| tag.len() + 3).sum();
    let said = [
        ("node.name", node.name.len(), MAX_WORD),
        ("node.node_type", node.node_type.len(), MAX_WORD),
        ("node.version", node.version.len(), MAX_WORD),
        ("node.tags", tags, MAX_TAGS),
        ("host", hello.host.map_or(0, str::len), MAX_HOST),
    ];
    match said.into_iter().find(|(_, bytes, most)| bytes > most) {
        Some((field, bytes, most)) => {
            Err(bad(format!("{field} has {bytes} bytes; the maximum is {most}")))
        }
        None => Ok(()),
    }
}

/// Returns the first mistakes and the number of further ones.
fn told(ignored: Vec<String>, flaws: Vec<String>) -> Vec<String> {
    let mut mistakes = ignored;
    mistakes.extend(flaws);
    let more = mistakes.len().saturating_sub(MAX_TOLD);
    mistakes.truncate(MAX_TOLD);
    if more > 0 {
        mistakes.push(format!("and {more} more; run `switchboard doctor` to list them"));
    }
    mistakes
}

/// Checks a node id, and returns the reason if it is invalid.
pub fn check_id(id: &str) -> Result<(), String> {
    if id.len() > MAX_ID {
        return Err(format!("the id has more than {MAX_ID} bytes; shorten it"));
    }
    validate_name(id).map_err(|error| error.to_string())
}

/// Returns the capabilities for which the node describes no tool, neither at the name nor below it.
fn undescribed<'a>(
    prefixes: &'a [String],
    described: &[&'a ToolSpec],
) -> impl Iterator<Item = &'a String> {
    let above =
        |name: &'a str| std::iter::successors(Some(name), |name| Some(name.rsplit_once('.')?.0));
    let known: HashSet<&str> = described.iter().flat_map(|spec| above(&spec.name)).collect();
    prefixes.iter().filter(move |prefix| !known.contains(prefix.as_str()))
}

/// Lists a capability without described tools as one tool with the name of the capability.
fn open(hello: &Hello<'_>, prefix: &str, bare_names: bool) -> Tool {
    let node = &hello.node;
    let description = format!(
        "Tools of the node \"{}\" with names that begin with {prefix}. The node does not describe them. Put the rest of the dotted \
         name into `tool` (\"search\" for {prefix}.search) and the arguments into `args`.",
        if node.name.is_empty() { &node.id } else { &node.name },
    );
    let tool = Tool::open(prefix, description);
    let preferred_name = if bare_names || prefix.contains('.') {
        prefix.to_owned()
    } else {
        with_host(&node.id, prefix)
    };
    Tool { preferred_name, ..tool }
}

/// Returns the name of an undotted tool with its host's name in front.
fn with_host(node: &str, name: &str) -> String {
    format!("{node}__{name}")
}

/// Converts the specification of a tool.
///
/// A dotted tool name has its own namespace. Any other name needs the host's name to differ from
/// the tools of other hosts.
fn tool(node: &str, spec: &ToolSpec, input: Option<RawJson>) -> Tool {
    let preferred_name =
        if spec.name.contains('.') { spec.name.clone() } else { with_host(node, &spec.name) };
    let annotations = spec.annotations.as_deref().and_then(|raw| readable(raw).ok());
    Tool {
        preferred_name,
        title: spec.title.clone(),
        description: spec.description.as_deref().map(shortened),
        input: input.map(Schema::new),
        output: spec.output_schema.as_deref().and_then(|raw| readable(raw).ok()).map(Schema::new),
        repeatable: is_repeatable(annotations.as_ref()),
        annotations,
        capabilities: spec
            .capabilities
            .iter()
            .filter(|name| validate_tool_name(name).is_ok())
            .take(64)
            .cloned()
            .collect(),
        timeout: spec.timeout_ms.filter(|ms| *ms > 0).map(Duration::from_millis),
        ..Tool::named(&spec.name)
    }
}

/// Checks that all readers understand the JSON in the same way. For a duplicate key, for example,
/// some readers take the first value.
fn readable(raw: &RawValue) -> Result<RawJson, serde_json::Error> {
    let json = RawJson::part(raw)?;
    json.to_value().map(|_| json)
}

fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_DESCRIPTION)].to_owned()
}

pub(crate) fn bad(reason: impl Into<std::borrow::Cow<'static, str>>) -> Close {
    Close::new(close::BAD_HELLO, reason)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sa_protocol::node::Incoming;
    use sa_socket::Liveness;
    use serde_json::Value;

    use super::*;

    fn usual() -> Value {
        json!({
            "type": "node_hello", "protocol_version": PROTOCOL_VERSION, "capabilities": ["a.b", "Bash"], "features": ["progress"],
            "node": { "id": "n", "name": "N", "node_type": "t", "version": "1", "tags": ["x"] }, "max_request_bytes": 5,
            "tools": [{ "name": "a.b.c", "title": "T", "description": "d", "input_schema": { "type": "object" },
                "output_schema": {}, "annotations": {}, "capabilities": ["x.y"], "timeout_ms": 5 }],
            "host": { "role": "execution", "os": "linux", "env": ["A"] },
        })
    }

    fn options() -> NodeOptions {
        let second = Duration::from_secs(1);
        NodeOptions {
            hello_timeout: second,
            liveness: Liveness { ping_every: second, dead_after: second },
            max_pending: 1,
            max_frame_bytes: 1 << 20,
            max_outbox_bytes: 1 << 20,
            outboxes_bytes: 1 << 20,
            max_tools: 4,
            hello_bytes: 1 << 20,
            message_bytes: 1 << 20,
            primary: None,
            gateway_version: "0",
        }
    }

    fn introduction(frame: &Value) -> Introduction {
        let text = frame.to_string();
        let Ok(Incoming::Hello(hello)) = Incoming::decode(&text) else { panic!("{text}") };
        read(&hello, &options(), "here").unwrap()
    }

    fn listed(frame: &Value) -> Vec<Tool> {
        introduction(frame).catalog.tools
    }

    #[test]
    fn capabilities_with_empty_words_are_refused_by_name() {
        let node = json!({ "id": "n", "name": "n", "node_type": "t", "version": "1" });
        let capabilities = ["macos..notes", ".macos", "macos.", "Bash"];
        let read = introduction(
            &json!({ "type": "node_hello", "node": node, "capabilities": capabilities }),
        );
        assert_eq!(read.catalog.prefixes, ["Bash"]);
        assert_eq!(read.mistakes.len(), 3);
        for (mistake, words) in
            read.mistakes.iter().zip(["two dots", "begins or ends", "begins or ends"])
        {
            let (name, why) = mistake.split_once(": ").unwrap();
            assert!(capabilities.contains(&name) && why.contains(words), "{mistake}");
        }
    }

    #[test]
    fn a_capability_without_described_tools_is_listed_as_one_tool() {
        let node =
            json!({ "id": "mac-01", "name": "Steph's Mac", "node_type": "macos", "version": "1" });
        let old = json!({ "type": "node_hello", "node": node, "capabilities": ["macos.notes", "clipboard"] });
        let tools = listed(&old);
        let names: Vec<_> =
            tools.iter().map(|tool| (&*tool.name, tool.preferred_name.as_str())).collect();
        assert_eq!(names, [("macos.notes", "macos.notes"), ("clipboard", "clipboard")]);
        for tool in &tools {
            let description = tool.description.as_deref().unwrap();
            assert!(
                tool.open
                    && description.contains("Steph's Mac")
                    && description.contains(&*tool.name),
                "{tool:?}"
            );
            let schema = tool.input.as_ref().unwrap().raw().to_value().unwrap();
            let rest = "rest of the dotted name, empty for the capability itself";
            let properties = json!({ "tool": { "type": "string", "description": rest }, "args": { "type": "object" } });
            assert_eq!(schema, json!({ "type": "object", "properties": properties }));
        }
        let mut described = old.clone();
        described["tools"] = json!([{ "name": "macos.notes.search" }, { "name": "clipboard" }]);
        assert!(listed(&described).iter().all(|tool| !tool.open));
        let mut specialized = old;
        specialized["host"] = json!({ "role": "specialized" });
        assert_eq!(listed(&specialized)[1].preferred_name, "mac-01__clipboard");
    }

    proptest! {
        #[test]
        fn whoever_is_let_in_keeps_to_the_rules(text in sa_hostile::nearly(usual())) {
            let Ok(Incoming::Hello(hello)) = Incoming::decode(&text) else { return Ok(()) };
            match read(&hello, &options(), "here") {
                Ok(node) => {
                    prop_assert!((1..=MAX_ID).contains(&node.id.len()) && check_id(&node.id).is_ok());
                    prop_assert!(node.weight() <= MAX_KEPT);
                    prop_assert!(node.catalog.tools.len() <= 4 && node.catalog.prefixes.len() <= 4);
                    for tool in &node.catalog.tools {
                        prop_assert!(validate_tool_name(&tool.name).is_ok());
                        prop_assert!(tool.description.as_ref().is_none_or(|text| text.len() <= MAX_DESCRIPTION));
                        prop_assert!(tool.input.as_ref().is_none_or(|schema| schema.raw().to_value().is_ok()));
                    }
                    prop_assert!(node.mistakes.len() <= MAX_TOLD + 1);
                    prop_assert!(node.mistakes.iter().all(|why| why.len() < sa_hostile::SHORT));
                    prop_assert!(node.about.to_value().is_ok());
                }
                Err(close) => prop_assert!(close.reason.len() <= 123),
            }
        }
    }
}
