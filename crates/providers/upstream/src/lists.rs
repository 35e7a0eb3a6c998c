//! The cached lists of a server, so that its tools can be listed before it is started.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rmcp::model::ServerResult;
use sa_core::store::{Expect, Records};
use sa_core::tool::invisible;
use sa_core::{Catalog, Listing, Passthrough, RawJson, Schema, Tool};
use sa_http::MCP;
use sa_http::annotations::is_repeatable;
use sa_limits::offload::{self, LARGE};
use sa_lines::{LEFT_OUT, TASK_REQUIRED};
use sa_protocol::validate_name;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tracing::warn;

use crate::child::printable;
use crate::connection::{Connection, Era, Failure};
use crate::errors::excerpt;
use crate::outcome;
use crate::spec::Spec;
use crate::table::Running;

const BUCKET: &str = "upstream_lists";
/// The maximum number of items of each kind that a server may list, and of pages.
const MAX_ITEMS: usize = 5_000;
const MAX_PAGES: usize = 200;
/// The maximum number of omitted tools that are reported.
const MAX_LEFT_OUT: usize = 20;
/// The maximum size of all items of one kind, in bytes. They are all cached, and sent to every
/// client.
const MAX_BYTES: usize = 16 << 20;

/// The tools, resources, templates and prompts that a server lists.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Lists {
    fingerprint: String,
    pub(crate) era: Era,
    tools: Vec<rmcp::model::Tool>,
    pub(crate) left_out: Vec<LeftOut>,
    resources: Vec<serde_json::Value>,
    templates: Vec<serde_json::Value>,
    prompts: Vec<serde_json::Value>,
    /// The documents that had invisible characters in their texts, each with their number.
    invisible: Vec<(String, usize)>,
}

/// A tool that a server lists, and that was omitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub tool: String,
    pub why: String,
}

impl Lists {
    /// Requests all lists from the server, within the timeout.
    pub(crate) async fn load(
        connection: &Connection,
        spec: &Spec,
        timeout: Duration,
    ) -> Result<Self, String> {
        let offers = &connection.info.capabilities;
        let load = async {
            let mut lists =
                Self { fingerprint: spec.fingerprint(), era: connection.era(), ..Self::default() };
            // A server without any declared capability is asked for every list: some servers
            // forget to declare them.
            let silent =
                offers.tools.is_none() && offers.resources.is_none() && offers.prompts.is_none();
            if offers.tools.is_some() || silent {
                let listed = tools(connection).await;
                lists.take_tools(
                    listed.or_else(|why| if silent { Ok(Vec::new()) } else { Err(why) })?,
                );
            }
            let listed = async |method, key, must: bool| match values(connection, method, key).await
            {
                Err(why) if must => Err(why),
                listed => Ok(listed.unwrap_or_default()),
            };
            if offers.resources.is_some() || silent {
                lists.resources = listed("resources/list", "resources", !silent).await?;
                // A server with resources may not support templates.
                lists.templates =
                    listed("resources/templates/list", "resourceTemplates", false).await?;
            }
            if offers.prompts.is_some() || silent {
                lists.prompts = listed("prompts/list", "prompts", !silent).await?;
            }
            lists.invisible = lists.remove_invisible();
            Ok(lists)
        };
        tokio::time::timeout(timeout, load).await.unwrap_or_else(|_| {
            Err("it did not return its lists within half a minute; check its log".into())
        })
    }

    /// Removes invisible characters from the texts of documents, and returns the documents that
    /// had some. The directory does so for tools. The server knows its documents and the arguments
    /// of its prompts by their names, so characters in these are only counted.
    fn remove_invisible(&mut self) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        for (kind, id, list) in [
            ("resource", "uri", &mut self.resources),
            ("resource template", "uriTemplate", &mut self.templates),
            ("prompt", "name", &mut self.prompts),
        ] {
            for document in list {
                let invisible = clean_except(document, id);
                if invisible > 0 {
                    let mut name = document["name"].clone();
                    invisible::clean(&mut name);
                    let name = name.as_str().unwrap_or_default();
                    found.push((format!("the {kind} \"{name}\""), invisible));
                }
            }
        }
        found
    }

    /// Returns the documents that had invisible characters, if `before` did not have the same.
    pub(crate) fn new_invisible(&self, before: &Self) -> Vec<(Arc<str>, usize)> {
        let found = self.invisible.iter().filter(|_| self.invisible != before.invisible);
        found.map(|(document, removed)| (document.as_str().into(), *removed)).collect()
    }

    /// Adds the listed tools, except unreadable ones and those with an invalid name.
    fn take_tools(&mut self, listed: Vec<rmcp::model::Tool>) {
        for tool in listed {
            let unreadable = tool
                .meta
                .as_ref()
                .and_then(|meta| meta.0.get(LEFT_OUT)?.as_str())
                .map(str::to_owned);
            match unreadable
                .or_else(|| validate_name(&tool.name).err().map(|error| error.to_string()))
            {
                Some(why) if self.left_out.len() < MAX_LEFT_OUT => {
                    self.left_out
                        .push(LeftOut { tool: printable(&tool.name), why: printable(&why) });
                }
                Some(_) => {}
                None => self.tools.push(tool),
            }
        }
    }

    /// Loads the cached lists, if they belong to a server with this specification.
    pub(crate) async fn load_cached(
        records: &dyn Records,
        name: &str,
        spec: &Spec,
    ) -> Option<Self> {
        let record = records.get(BUCKET, name).await.ok()??;
        let read = || serde_json::from_slice(&record.value).ok();
        let mut lists: Self = offload::run_queued(record.value.len(), read).await?;
        // An older version of the gateway may have stored names that are no longer valid.
        let tools = std::mem::take(&mut lists.tools);
        lists.take_tools(tools);
        lists.remove_invisible();
        (lists.fingerprint == spec.fingerprint()).then_some(lists)
    }

    pub(crate) async fn save(&self, records: &dyn Records, name: &str) {
        // Offloaded: this is rare, and the lists may be large.
        let Ok(bytes) = offload::run_queued(LARGE, || serde_json::to_vec(self)).await else {
            return;
        };
        if let Err(error) = records.put(BUCKET, name, Bytes::from(bytes), Expect::Anything).await {
            warn!(upstream = name, %error, "cannot store its tool list; the gateway requests it again after a restart");
        }
    }

    pub(crate) async fn forget(records: &dyn Records, name: &str) {
        let _ = records.delete(BUCKET, name).await;
    }

    pub(crate) fn tools(&self) -> usize {
        self.tools.len()
    }

    pub(crate) fn documents(&self, listing: Listing) -> Vec<RawJson> {
        self.list(listing).iter().map(RawJson::of).collect()
    }

    /// Returns the approximate size of the list as text, in bytes.
    pub(crate) fn weight(&self, listing: Listing) -> usize {
        self.list(listing).iter().map(outcome::values).sum()
    }

    fn list(&self, listing: Listing) -> &[serde_json::Value] {
        match listing {
            Listing::Resources => &self.resources,
            Listing::Templates => &self.templates,
            Listing::Prompts => &self.prompts,
        }
    }

    /// Returns whether the server lists this resource.
    pub(crate) fn has_resource(&self, uri: &str) -> bool {
        self.resources.iter().any(|resource| resource["uri"] == uri)
    }

    /// Returns whether both have the same documents.
    pub(crate) fn same_documents(&self, other: &Self) -> bool {
        self.resources == other.resources
            && self.templates == other.templates
            && self.prompts == other.prompts
    }

    /// Returns whether a tool requires some of its arguments to be repeated in headers. rmcp
    /// learns their names from a tool list, so each connection must have requested one.
    pub(crate) fn wants_headers(&self) -> bool {
        let wants = |tool: &rmcp::model::Tool| {
            let properties =
                tool.input_schema.get("properties").and_then(serde_json::Value::as_object);
            properties.is_some_and(|all| {
                all.values().any(|property| property.get("x-mcp-header").is_some())
            })
        };
        self.tools.iter().any(wants)
    }

    /// Returns whether the server runs this tool only as a task.
    pub(crate) fn requires_task(&self, tool: &str) -> bool {
        let mut named = self.tools.iter().filter(|listed| listed.name == tool);
        named.any(|listed| {
            listed.meta.as_ref().is_some_and(|meta| meta.0.contains_key(TASK_REQUIRED))
        })
    }

    pub(crate) fn has_documents(&self) -> bool {
        !(self.resources.is_empty() && self.templates.is_empty() && self.prompts.is_empty())
    }

    /// Returns the lists as a catalog for the directory. A tool's own name has the server's name
    /// as a prefix, so that it is unique.
    pub(crate) fn catalog(&self, name: &str, spec: &Spec) -> Catalog {
        let json = |value: Option<serde_json::Value>| value.as_ref().map(RawJson::of);
        let tools = self.tools.iter().map(|tool| {
            let annotations = tool
                .annotations
                .as_ref()
                .and_then(|annotations| json(serde_json::to_value(annotations).ok()));
            Tool {
                short: Some(tool.name.as_ref().into()),
                title: tool.title.clone(),
                description: tool.description.as_ref().map(ToString::to_string),
                input: json(serde_json::to_value(&*tool.input_schema).ok()).map(Schema::new),
                output: tool
                    .output_schema
                    .as_ref()
                    .and_then(|schema| json(serde_json::to_value(&**schema).ok()))
                    .map(Schema::new),
                repeatable: is_repeatable(annotations.as_ref()),
                annotations,
                passthrough: passthrough(tool),
                timeout: spec.timeout(),
                for_models: is_for_models(tool),
                ..Tool::named(&own_name(name, &tool.name))
            }
        });
        Catalog { tools: tools.collect(), watched: true, ..Catalog::default() }
    }
}

/// Removes invisible characters from the texts of an object, except from the member `id` and from
/// the names of arguments. Returns the number of characters, including those that stay.
fn clean_except(object: &mut serde_json::Value, id: &str) -> usize {
    let members = object.as_object_mut().into_iter().flatten();
    let cleaned = members.map(|(key, value)| match (key.as_str(), value) {
        (key, value) if key == id => invisible::clean(&mut value.clone()),
        ("arguments", serde_json::Value::Array(arguments)) => {
            arguments.iter_mut().map(|argument| clean_except(argument, "name")).sum()
        }
        (_, value) => invisible::clean(value),
    });
    cleaned.sum()
}

/// Returns whether a tool is visible to models. A tool may declare that it is only for the
/// server's page.
fn is_for_models(tool: &rmcp::model::Tool) -> bool {
    let visibility =
        tool.meta.as_ref().and_then(|meta| meta.0.get("ui")?.get("visibility")?.as_array());
    visibility.is_none_or(|to| to.iter().any(|audience| audience == "model"))
}

/// Returns the fields of a tool that the gateway's model does not have.
fn passthrough(tool: &rmcp::model::Tool) -> Option<Passthrough> {
    let mut meta = tool.meta.clone();
    // The gateway runs the task. Callers see an ordinary tool.
    if let Some(meta) = &mut meta {
        meta.0.remove(TASK_REQUIRED);
    }
    let fields = OtherFields {
        icons: tool.icons.as_ref(),
        meta: meta.as_ref().filter(|meta| !meta.0.is_empty()),
    };
    let any = fields.icons.is_some() || fields.meta.is_some();
    let fields = any.then(|| serde_json::to_value(fields).ok()).flatten()?;
    Some(Passthrough::new(MCP, RawJson::of(&fields)))
}

#[derive(Serialize)]
struct OtherFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    icons: Option<&'a Vec<rmcp::model::Icon>>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a rmcp::model::MetaObject>,
}

fn own_name(server: &str, tool: &str) -> String {
    format!("{server}__{tool}")
}

/// Returns the server's name for a tool, given the gateway's name.
pub(crate) fn server_name<'a>(server: &Arc<str>, own: &'a str) -> &'a str {
    own.strip_prefix(&**server).and_then(|rest| rest.strip_prefix("__")).unwrap_or(own)
}

pub(crate) async fn tools(connection: &Connection) -> Result<Vec<rmcp::model::Tool>, String> {
    all(connection, "tools/list", |result| match result {
        ServerResult::ListToolsResult(page) => Some((page.tools, page.next_cursor)),
        _ => None,
    })
    .await
}

async fn values(
    connection: &Connection,
    method: &str,
    key: &str,
) -> Result<Vec<serde_json::Value>, String> {
    all(connection, method, |result| {
        let mut page = serde_json::to_value(&result).ok()?;
        let items = page.get_mut(key)?.as_array_mut().map(std::mem::take)?;
        Some((items, page.get("nextCursor").and_then(|cursor| cursor.as_str()).map(str::to_owned)))
    })
    .await
}

/// Requests all pages of a list.
async fn all<T: Serialize>(
    connection: &Connection,
    method: &str,
    page: impl Fn(ServerResult) -> Option<(Vec<T>, Option<String>)>,
) -> Result<Vec<T>, String> {
    let (mut items, mut bytes) = (Vec::new(), 0);
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        let result = connection
            .request(method, &RawJson::of(&params), &Running::of_gateway())
            .await
            .map_err(|failure| match failure {
                Failure::Answered(error) => {
                    format!("it returned an error for {method}: {}", excerpt(&error.message))
                }
                Failure::Refused(why) => format!("it rejected {method}: {why}"),
                _ => format!("it closed the connection during {method}; check its log"),
            })?;
        // Offloaded: this is rare, and the list may be large.
        let read = || page(result).map(|(more, next)| (length(&more), more, next));
        let read = offload::run_queued(LARGE, read).await;
        let (length, more, next) =
            read.ok_or_else(|| format!("its response to {method} is not a list"))?;
        bytes += length;
        if bytes > MAX_BYTES {
            return Err(format!(
                "{method}: the list is longer than {MAX_BYTES} bytes, the limit for one server"
            ));
        }
        items.extend(more);
        if items.len() > MAX_ITEMS {
            return Err(format!(
                "{method}: the list has more than {MAX_ITEMS} items, the limit for one server"
            ));
        }
        match next {
            Some(next) => cursor = Some(next),
            None => return Ok(items),
        }
    }
    Err(format!("{method}: the list has more than {MAX_PAGES} pages"))
}

/// Returns the length of a value as JSON text.
fn length(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tool_with_a_misleading_name_is_left_out_with_its_reason() {
        let tool = |name: &str| {
            serde_json::from_value(json!({ "name": name, "inputSchema": {} })).unwrap()
        };
        let mut lists = Lists::default();
        lists.take_tools(
            ["read", "read\u{200b}", "two words", "re\u{430}d", "検索"].map(tool).to_vec(),
        );
        let kept: Vec<&str> = lists.tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(kept, ["read", "検索"]);
        let reasons: Vec<&str> = lists.left_out.iter().map(|left| left.why.as_str()).collect();
        for (why, word) in reasons.iter().zip([
            "U+200B at position 5",
            "U+0020 at position 4",
            "U+0430 at position 3",
        ]) {
            assert!(why.contains(word), "{why}");
        }
        assert_eq!(reasons.len(), 3);
    }

    #[test]
    fn documents_are_listed_without_invisible_characters() {
        let hidden = "read\u{e0041} all\u{200b}\u{202e} of it";
        let document = |name: &str, more: serde_json::Value| {
            let mut document = json!({
                name: "a\u{200b}", "mimeType": "text/plain", "title": hidden, "description": hidden,
                "annotations": { "audience": [hidden] },
            });
            document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            document
        };
        let arguments = json!({ "arguments": [{ "name": "x\u{200b}", "description": hidden }] });
        let mut lists = Lists {
            resources: vec![
                document("uri", json!({ "name": "n\u{200b}" })),
                json!({ "uri": "a:\u{200b}", "name": "plain", "title": "A title" }),
            ],
            templates: vec![document("uriTemplate", json!({ "name": "n" }))],
            prompts: vec![document("name", arguments)],
            ..Lists::default()
        };
        let found = lists.remove_invisible();
        let found: Vec<_> = found.iter().map(|(of, removed)| (of.as_str(), *removed)).collect();
        assert_eq!(
            found,
            [
                ("the resource \"n\"", 11),
                ("the resource \"plain\"", 1),
                ("the resource template \"n\"", 10),
                ("the prompt \"a\"", 14)
            ]
        );
        let stay: Vec<usize> = lists.remove_invisible().iter().map(|(_, count)| *count).collect();
        assert_eq!(stay, [1, 1, 1, 2]);
        assert_eq!(lists.resources[0]["name"], "n");
        for list in [&lists.resources, &lists.templates, &lists.prompts] {
            for text in ["/title", "/description", "/annotations/audience/0"] {
                assert_eq!(list[0].pointer(text).unwrap(), "read all of it", "{text}: {list:?}");
            }
        }
        assert_eq!(lists.prompts[0]["arguments"][0]["description"], "read all of it");
        assert_eq!(lists.prompts[0]["arguments"][0]["name"], "x\u{200b}");
        // The server knows its documents by these.
        for (list, name) in
            [(&lists.resources, "uri"), (&lists.templates, "uriTemplate"), (&lists.prompts, "name")]
        {
            assert_eq!(list[0][name], "a\u{200b}");
        }
    }

    proptest! {
        #[test]
        fn cached_lists_are_read_or_requested_again(text in sa_hostile::nearly(json!({
            "fingerprint": "f", "era": "discover", "resources": [{ "uri": "a:b", "name": "n" }], "templates": [], "prompts": [{ "name": "p" }],
            "tools": [{ "name": "t", "description": "d", "inputSchema": { "type": "object", "properties": { "a": {} } } }],
        }))) {
            if let Ok(lists) = serde_json::from_str::<Lists>(&text) {
                match serde_json::from_slice::<Lists>(&serde_json::to_vec(&lists).unwrap()) {
                    Ok(again) => prop_assert_eq!(&again, &lists),
                    // The text may contain a key that `serde_json` reserves for itself.
                    Err(_) => prop_assert!(text.contains("$serde_json::private")),
                }
                let catalog = lists.catalog("mail", &Spec::default());
                prop_assert!(catalog.tools.iter().all(|tool| server_name(&"mail".into(), &tool.name) == tool.short.as_deref().unwrap()));
                let _ = (lists.wants_headers(), lists.has_resource("a:b"), lists.documents(Listing::Prompts));
            }
        }
    }
}
