//! Converts tools and results into MCP types.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rmcp::model::{
    CallToolResult, ContentBlock, ErrorData, Icon, JsonObject, MetaObject, ResourceContents,
    ResultType, Tool,
};
use sa_core::directory::ToolView;
use sa_core::outcome::{Attachment, Block, Outcome};
use sa_core::{CallError, Output, RawJson, Schema};
use sa_http::MCP;
use sa_text::json::check_parsed_bytes;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The fields of MCP results, apart from a tool's own.
const OF_THE_PROTOCOL: [&str; 5] =
    ["content", "structuredContent", "isError", "_meta", "resultType"];

/// The key in the `_meta` of a tool, a resource or a prompt. The value `false` means that its
/// provider is offline.
pub(crate) const ONLINE: &str = "switchboard/online";

/// The maximum size of the cached MCP tools in bytes. They take several times as much in this form.
const MAX_CACHED: usize = 8 << 20;

/// A cache of tools in their MCP form, because clients request lists of thousands again and again.
#[derive(Debug, Default)]
pub(crate) struct Tools(Mutex<CacheState>);

#[derive(Debug, Default)]
struct CacheState {
    revision: u64,
    bytes: usize,
    tools: HashMap<Arc<str>, Entry>,
    /// The entries of the previous revision of the directory. Most of them are unchanged and can be
    /// reused once.
    before: HashMap<Arc<str>, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    source: Arc<sa_core::Tool>,
    online: bool,
    tool: Tool,
}

impl Tools {
    /// Returns a page of tools; `revision` is the directory's. Entries that were not used for two
    /// revisions are dropped.
    pub(crate) fn page(&self, revision: u64, views: &[ToolView]) -> Vec<Tool> {
        let known: Vec<Option<Entry>> = {
            let mut cache = self.cache();
            if cache.revision != revision {
                let before = std::mem::take(&mut cache.tools);
                *cache = CacheState { revision, before, ..CacheState::default() };
            }
            views.iter().map(|view| cache.find(view)).collect()
        };
        // Entries are created without the lock, so that smaller requests do not wait.
        let entries = views.iter().zip(known).map(|(view, known)| {
            known.unwrap_or_else(|| Entry {
                source: Arc::clone(&view.tool),
                online: view.online,
                tool: tool(view),
            })
        });
        let entries: Vec<Entry> = entries.collect();
        let mut cache = self.cache();
        if cache.revision == revision {
            for (view, entry) in views.iter().zip(&entries) {
                cache.insert(&view.name, entry);
            }
        }
        entries.into_iter().map(|entry| entry.tool).collect()
    }

    fn cache(&self) -> parking_lot::MutexGuard<'_, CacheState> {
        self.0.lock()
    }
}

impl CacheState {
    fn find(&self, view: &ToolView) -> Option<Entry> {
        // Two scopes may each have a tool with this name.
        let same =
            |entry: &&Entry| Arc::ptr_eq(&entry.source, &view.tool) && entry.online == view.online;
        let found = |cache: &HashMap<Arc<str>, Entry>| cache.get(&view.name).filter(same).cloned();
        found(&self.tools).or_else(|| found(&self.before))
    }

    fn insert(&mut self, name: &Arc<str>, entry: &Entry) {
        if self.bytes + entry.source.weight() > MAX_CACHED {
            return;
        }
        self.bytes += entry.source.weight();
        if let Some(old) = self.tools.insert(Arc::clone(name), entry.clone()) {
            self.bytes -= old.source.weight();
        }
    }
}

pub(crate) fn tool(view: &ToolView) -> Tool {
    let tool = &view.tool;
    let mut input = tool.input.as_ref().and_then(|schema| object(schema.raw())).unwrap_or_default();
    // Clients require an object, and a tool without a schema accepts any arguments.
    input.entry("type").or_insert_with(|| "object".into());
    let description = tool.description.clone().unwrap_or_default();
    let mut converted = Tool::new(view.name.to_string(), description, Arc::new(input));
    converted.title.clone_from(&tool.title);
    converted.output_schema =
        listed_output(tool).and_then(|schema| object(schema.raw())).map(Arc::new);
    converted.annotations = tool
        .annotations
        .as_ref()
        .and_then(|annotations| serde_json::from_str(annotations.as_str()).ok());
    let passthrough = tool.passthrough.as_ref().and_then(|data| data.in_format(MCP));
    if let Some(OtherFields { icons, meta }) =
        passthrough.and_then(|fields| serde_json::from_str(fields.as_str()).ok())
    {
        (converted.icons, converted.meta) = (icons, meta);
    }
    if !view.online {
        converted.meta.get_or_insert_default().0.insert(ONLINE.into(), false.into());
    }
    converted
}

/// The output schema that clients get to see, and by which they check results. MCP has none but
/// those of objects, and a client may fail on one that does not compile.
pub(crate) fn listed_output(tool: &sa_core::Tool) -> Option<&Schema> {
    #[derive(serde::Deserialize)]
    struct Kind<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
    }
    let schema = tool.output.as_ref()?;
    let kind: Kind<'_> = serde_json::from_str(schema.raw().as_str()).ok()?;
    (kind.r#type == "object" && schema.check_fast().is_ok()).then_some(schema)
}

/// The fields of a tool that exist only in MCP.
#[derive(serde::Deserialize)]
struct OtherFields {
    icons: Option<Vec<Icon>>,
    #[serde(rename = "_meta")]
    meta: Option<MetaObject>,
}

/// Converts the outcome of a call into an MCP result.
pub fn result(outcome: &Outcome) -> CallToolResult {
    // A result that a provider returns in MCP form needs no conversion.
    let result: Option<CallToolResult> = passed_through(outcome)
        .filter(|result| check_parsed_bytes(result.as_str().as_bytes()).is_ok())
        .and_then(|result| serde_json::from_str(result.as_str()).ok());
    if let Some(mut result) = result {
        // An upstream of the older era sends no result type; rmcp removes it for clients of that
        // era.
        result.result_type.get_or_insert(ResultType::COMPLETE);
        return result;
    }
    match outcome {
        Ok(output) => success(output),
        Err(error) => failure(error),
    }
}

/// Returns the result or the error that a provider returned in MCP form.
fn passed_through(outcome: &Outcome) -> Option<&RawJson> {
    let data = match outcome {
        Ok(output) => output.passthrough.as_ref(),
        Err(error) => error.passthrough(),
    };
    data?.in_format(MCP)
}

/// The same for a tool whose output schema clients may have seen. They refuse a result that does
/// not fit it, and nobody sees what the tool said; so such a result becomes an error, with all of
/// it as content.
pub(crate) fn result_of(
    outcome: &Outcome,
    tool: &str,
    listed: impl FnOnce() -> Option<Schema>,
) -> CallToolResult {
    let mut result = result(outcome);
    let failed = result.is_error == Some(true);
    if failed && result.structured_content.is_none() {
        return result;
    }
    let Some(schema) = listed() else { return result };
    let mut structured = result.structured_content.take();
    let why = match &structured {
        Some(structured_value) => schema.result_error(&RawJson::of(structured_value)),
        None => match outcome.as_ref().ok().filter(|_| passed_through(outcome).is_none()) {
            // Content blocks alone. Their own JSON may be what the schema describes.
            Some(output) => match object(&output.content) {
                Some(own) => {
                    let why = schema.result_error(&output.content);
                    structured = why.is_none().then_some(Value::Object(own));
                    why
                }
                None => Some(match check_parsed_bytes(output.content.as_str().as_bytes()) {
                    Ok(()) => "it is not an object".to_owned(),
                    Err(error) => error.to_string(),
                }),
            },
            None => Some("it has no structured content".to_owned()),
        },
    };
    let Some(why) = why else {
        result.structured_content = structured;
        return result;
    };
    if let Some(structured_value) = structured.filter(|structured_value| {
        !result.content.iter().any(|block| contains(block, structured_value))
    }) {
        result.content.push(ContentBlock::text(structured_value.to_string()));
    }
    if !failed {
        result.is_error = Some(true);
        let message = format!(
            "the result of {tool} does not match the tool's output schema: {why}; the result follows:"
        );
        result.content.insert(0, ContentBlock::text(message));
    }
    result
}

fn contains(block: &ContentBlock, structured_value: &Value) -> bool {
    let text = match block {
        ContentBlock::Text(text) => &text.text,
        _ => return false,
    };
    serde_json::from_str::<Value>(text).is_ok_and(|value| value == *structured_value)
}

/// An MCP result of plain JSON. It is not parsed into a tree, because that would cost more than the
/// rest of the call, and far more for large results.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Plain<'a> {
    result_type: &'static str,
    content: [PlainText<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<&'a RawValue>,
    is_error: bool,
}

#[derive(Serialize)]
struct PlainText<'a> {
    r#type: &'static str,
    text: Cow<'a, str>,
}

/// Converts an outcome like [`result`], if its content is only plain JSON.
pub(crate) fn plain(outcome: &Outcome) -> Option<Plain<'_>> {
    let output = outcome.as_ref().ok()?;
    let Output { content, blocks, attachments, .. } = output;
    if passed_through(outcome).is_some()
        || !blocks.is_empty()
        || !attachments.is_empty()
        || may_be_blocks(content)
        || may_have_meta(content)
    {
        return None;
    }
    let structured =
        content.as_str().starts_with('{').then(|| serde_json::from_str(content.as_str()));
    Some(Plain {
        result_type: "complete",
        content: [PlainText { r#type: "text", text: text(content) }],
        structured_content: structured.transpose().ok()?,
        is_error: false,
    })
}

impl Plain<'_> {
    pub(crate) fn is_structured(&self) -> bool {
        self.structured_content.is_some()
    }
}

/// Returns the protocol error of a call that failed like a request, if the provider returned one in
/// MCP form.
pub(crate) fn protocol_error(outcome: &Outcome) -> Option<ErrorData> {
    #[derive(serde::Deserialize)]
    struct Failed {
        error: ErrorData,
    }
    let error = passed_through(outcome).filter(|_| outcome.is_err())?;
    serde_json::from_str::<Failed>(error.as_str()).ok().map(|failed| failed.error)
}

fn success(output: &Output) -> CallToolResult {
    let mut result = blocks(&output.content).unwrap_or_else(|| {
        let mut structured = object(&output.content);
        let meta =
            structured.as_mut().filter(|_| may_have_meta(&output.content)).and_then(take_meta);
        let text = ContentBlock::text(text(&output.content).into_owned());
        let own: Vec<_> = output.blocks.iter().map(block).collect();
        let mut result = CallToolResult::success(if own.is_empty() { vec![text] } else { own });
        result.structured_content = structured.map(Value::Object);
        result.meta = meta;
        result
    });
    result.content.extend(output.attachments.iter().zip(1..).map(attachment));
    result
}

/// Converts a result that is a list of MCP blocks, `{"content":[…]}`. The blocks are not repeated
/// as structured content: only the result's other fields are.
fn blocks(content: &RawJson) -> Option<CallToolResult> {
    if !may_be_blocks(content) {
        return None;
    }
    let mut fields = object(content)?;
    let blocks: Vec<ContentBlock> = serde_json::from_value(fields.get("content")?.clone()).ok()?;
    let is_error = fields.get("isError").and_then(Value::as_bool).unwrap_or(false);
    let structured = fields.remove("structuredContent");
    let mut result =
        if is_error { CallToolResult::error(blocks) } else { CallToolResult::success(blocks) };
    result.meta = take_meta(&mut fields);
    fields.retain(|field, _| !OF_THE_PROTOCOL.contains(&field.as_str()));
    result.structured_content =
        structured.or_else(|| (!fields.is_empty()).then_some(Value::Object(fields)));
    Some(result)
}

/// Removes the metadata from a result. MCP has a separate field for it.
fn take_meta(fields: &mut JsonObject) -> Option<MetaObject> {
    let meta = fields.get("_meta").cloned().and_then(|meta| serde_json::from_value(meta).ok())?;
    fields.remove("_meta");
    Some(meta)
}

fn may_have_meta(content: &RawJson) -> bool {
    content.as_str().starts_with('{') && content.as_str().contains("\"_meta\"")
}

/// Nearly no result has this form, and a quick check rejects most of them.
fn may_be_blocks(content: &RawJson) -> bool {
    let text = content.as_str();
    text.starts_with('{') && text.contains("\"content\"") && text.contains("\"type\"")
}

/// Converts a failed call into a result that the model can read: the error, and a hint.
pub(crate) fn failure(error: &CallError) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(error.for_models())])
}

fn block(block: &Block) -> ContentBlock {
    match block {
        Block::Text(text) => ContentBlock::text(text.clone()),
        Block::Image { data, mime_type } => ContentBlock::image(data.clone(), mime_type.clone()),
        Block::Other(json) => serde_json::from_str(json.as_str())
            .unwrap_or_else(|_| ContentBlock::text(json.as_str())),
    }
}

/// Converts an attachment. An image or audio file becomes a block that the model can process. Any
/// other file becomes an embedded resource, as text if possible.
fn attachment((attachment, number): (&Attachment, usize)) -> ContentBlock {
    use base64::Engine as _;
    let Attachment { mime_type, name, data } = attachment;
    let encoded = || base64::prelude::BASE64_STANDARD.encode(data);
    match mime_type.split_once('/') {
        Some(("image", _)) => return ContentBlock::image(encoded(), mime_type.clone()),
        Some(("audio", _)) => return ContentBlock::audio(encoded(), mime_type.clone()),
        _ => {}
    }
    // A resource needs a URI, although nothing can be fetched from it. Two files may have the same
    // name.
    let name = name.as_deref().unwrap_or("attachment");
    let uri = format!("attachment:///{number}/{}", utf8_percent_encode(name, NON_ALPHANUMERIC));
    let contents = match std::str::from_utf8(data) {
        Ok(text) if is_text(mime_type) => ResourceContents::text(text, uri),
        _ => ResourceContents::blob(encoded(), uri),
    };
    ContentBlock::resource(contents.with_mime_type(mime_type.clone()))
}

/// Returns whether a file of this type is text.
fn is_text(mime_type: &str) -> bool {
    let kind = mime_type.split(';').next().unwrap_or_default().trim();
    kind.starts_with("text/")
        || ["json", "xml", "yaml", "toml", "javascript"].iter().any(|format| kind.ends_with(format))
}

/// Returns a text result as text, and any other result as JSON.
fn text(content: &RawJson) -> Cow<'_, str> {
    let text = content
        .as_str()
        .starts_with('"')
        .then(|| serde_json::from_str(content.as_str()).ok())
        .flatten();
    text.map_or(Cow::Borrowed(content.as_str()), Cow::Owned)
}

/// Returns the fields of an object. An object that would take too much memory is not parsed.
fn object(json: &RawJson) -> Option<JsonObject> {
    check_parsed_bytes(json.as_str().as_bytes()).ok()?;
    serde_json::from_str(json.as_str()).ok()
}

#[cfg(test)]
mod tests;
