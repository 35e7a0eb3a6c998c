//! Tools and results in the words of MCP.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rmcp::model::{
    CallToolResult, ContentBlock, ErrorData, Icon, JsonObject, MetaObject, ResourceContents, ResultType, Tool,
};
use sa_core::directory::ToolView;
use sa_core::outcome::{Attachment, Block, Outcome};
use sa_core::{CallError, Output, RawJson};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// What results of the form of MCP's own have beside what a tool says.
const OF_THE_PROTOCOL: [&str; 5] = ["content", "structuredContent", "isError", "_meta", "resultType"];

/// What in the `_meta` of a tool, a resource or a prompt says, by `false`, that whoever has it is away.
pub(crate) const ONLINE: &str = "switchboard/online";

/// How many bytes of tools are remembered in the words of MCP, in which they take several times as much.
const REMEMBERED: usize = 8 << 20;

/// Tools in the words of MCP, each made once: a list of thousands is asked for again and again.
#[derive(Debug, Default)]
pub(crate) struct Tools(Mutex<Made>);

#[derive(Debug, Default)]
struct Made {
    revision: u64,
    bytes: usize,
    tools: HashMap<Arc<str>, Entry>,
    /// What was made before the directory changed last. Most of it stays what it was, and is needed once more.
    before: HashMap<Arc<str>, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    source: Arc<sa_core::Tool>,
    online: bool,
    tool: Tool,
}

impl Tools {
    /// A page of tools; `revision` is the directory's. What was made two revisions ago and not asked for since is forgotten.
    pub(crate) fn page(&self, revision: u64, views: &[ToolView]) -> Vec<Tool> {
        let known: Vec<Option<Entry>> = {
            let mut made = self.made();
            if made.revision != revision {
                let before = std::mem::take(&mut made.tools);
                *made = Made { revision, before, ..Made::default() };
            }
            views.iter().map(|view| made.find(view)).collect()
        };
        // Made outside the lock: others may ask meanwhile, for less.
        let entries = views.iter().zip(known).map(|(view, known)| {
            known.unwrap_or_else(|| Entry { source: Arc::clone(&view.tool), online: view.online, tool: tool(view) })
        });
        let entries: Vec<Entry> = entries.collect();
        let mut made = self.made();
        if made.revision == revision {
            for (view, entry) in views.iter().zip(&entries) {
                made.remember(&view.name, entry);
            }
        }
        entries.into_iter().map(|entry| entry.tool).collect()
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Made> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Made {
    fn find(&self, view: &ToolView) -> Option<Entry> {
        // Two scopes may each have a tool of this name.
        let same = |entry: &&Entry| Arc::ptr_eq(&entry.source, &view.tool) && entry.online == view.online;
        let found = |made: &HashMap<Arc<str>, Entry>| made.get(&view.name).filter(same).cloned();
        found(&self.tools).or_else(|| found(&self.before))
    }

    fn remember(&mut self, name: &Arc<str>, entry: &Entry) {
        if self.bytes + entry.source.weight() > REMEMBERED {
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
    // Clients insist on an object, and a tool that says nothing of its arguments takes any.
    input.entry("type").or_insert_with(|| "object".into());
    let description = tool.description.clone().unwrap_or_default();
    let mut converted = Tool::new(view.name.to_string(), description, Arc::new(input));
    converted.title.clone_from(&tool.title);
    converted.output_schema = listed_output(tool).map(Arc::new);
    converted.annotations =
        tool.annotations.as_ref().and_then(|annotations| serde_json::from_str(annotations.as_str()).ok());
    if let Some(Extras { icons, meta }) =
        tool.extras.as_ref().and_then(|extras| serde_json::from_str(extras.as_str()).ok())
    {
        (converted.icons, converted.meta) = (icons, meta);
    }
    if !view.online {
        converted.meta.get_or_insert_default().0.insert(ONLINE.into(), false.into());
    }
    converted
}

/// The output schema that clients get to see. MCP has none but those of objects.
fn listed_output(tool: &sa_core::Tool) -> Option<JsonObject> {
    let schema = tool.output_schema.as_ref().and_then(object);
    schema.filter(|schema| schema.get("type").is_some_and(|kind| kind == "object"))
}

/// Whether clients expect structured content from a tool.
pub(crate) fn lists_output(tool: &sa_core::Tool) -> bool {
    listed_output(tool).is_some()
}

/// What a tool has in MCP's words alone.
#[derive(serde::Deserialize)]
struct Extras {
    icons: Option<Vec<Icon>>,
    #[serde(rename = "_meta")]
    meta: Option<MetaObject>,
}

/// How a call ended, as a result of MCP's.
pub fn result(outcome: &Outcome) -> CallToolResult {
    // What a provider says in MCP's own words needs no translation.
    let native = outcome.as_ref().map_or_else(CallError::native, |output| output.native.as_ref());
    let native: Option<CallToolResult> = native.and_then(|native| serde_json::from_str(native.as_str()).ok());
    if let Some(mut result) = native {
        // An upstream of the older era does not say that its answer is one; rmcp takes it out for clients of that era.
        result.result_type.get_or_insert(ResultType::COMPLETE);
        return result;
    }
    match outcome {
        Ok(output) => success(output),
        Err(error) => failure(error),
    }
}

/// The same for a tool of which clients may expect structured content: they refuse a successful result without any.
pub(crate) fn result_of(outcome: &Outcome, lists_output: impl FnOnce() -> bool) -> CallToolResult {
    let mut result = result(outcome);
    let complete = result.is_error == Some(true) || result.structured_content.is_some();
    let Some(output) = outcome.as_ref().ok().filter(|output| !complete && output.native.is_none()) else {
        return result;
    };
    if lists_output() {
        // Content blocks alone. Their own JSON is what the schema describes.
        result.structured_content = object(&output.content).map(Value::Object);
        if result.structured_content.is_none() {
            result.is_error = Some(true);
            result.content.insert(0, ContentBlock::text(NOT_AN_OBJECT));
        }
    }
    result
}

const NOT_AN_OBJECT: &str = "the tool's result is not an object, although its output schema describes one; it follows:";

/// A result of plain JSON, in the words of MCP. Nothing of it is read into a tree on its way: that would cost more than the
/// rest of the call, and large results far more.
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

/// What [`result`] makes of an outcome, for those that have nothing but plain JSON.
pub(crate) fn plain(outcome: &Outcome) -> Option<Plain<'_>> {
    let output = outcome.as_ref().ok()?;
    let Output { content, blocks, attachments, native: None } = output else { return None };
    if !blocks.is_empty() || !attachments.is_empty() || may_be_blocks(content) || may_have_meta(content) {
        return None;
    }
    let structured = content.as_str().starts_with('{').then(|| serde_json::from_str(content.as_str()));
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

/// A call that failed as a request does, by an error of the protocol: where a provider says so in MCP's own words.
pub(crate) fn protocol_error(outcome: &Outcome) -> Option<ErrorData> {
    #[derive(serde::Deserialize)]
    struct Failed {
        error: ErrorData,
    }
    let native = outcome.as_ref().err()?.native()?;
    serde_json::from_str::<Failed>(native.as_str()).ok().map(|failed| failed.error)
}

fn success(output: &Output) -> CallToolResult {
    let mut result = blocks(&output.content).unwrap_or_else(|| {
        let mut structured = object(&output.content);
        let meta = structured.as_mut().filter(|_| may_have_meta(&output.content)).and_then(take_meta);
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

/// A result that is a list of MCP's own blocks, `{"content":[…]}`. The blocks are not sent a second time as structured
/// content: only what the result has beside them is.
fn blocks(content: &RawJson) -> Option<CallToolResult> {
    if !may_be_blocks(content) {
        return None;
    }
    let mut fields = object(content)?;
    let blocks: Vec<ContentBlock> = serde_json::from_value(fields.get("content")?.clone()).ok()?;
    let is_error = fields.get("isError").and_then(Value::as_bool).unwrap_or(false);
    let structured = fields.remove("structuredContent");
    let mut result = if is_error { CallToolResult::error(blocks) } else { CallToolResult::success(blocks) };
    result.meta = take_meta(&mut fields);
    fields.retain(|field, _| !OF_THE_PROTOCOL.contains(&field.as_str()));
    result.structured_content = structured.or_else(|| (!fields.is_empty()).then_some(Value::Object(fields)));
    Some(result)
}

/// Takes the metadata out of a result. MCP has a place of its own for it.
fn take_meta(fields: &mut JsonObject) -> Option<MetaObject> {
    let meta = fields.get("_meta").cloned().and_then(|meta| serde_json::from_value(meta).ok())?;
    fields.remove("_meta");
    Some(meta)
}

fn may_have_meta(content: &RawJson) -> bool {
    content.as_str().starts_with('{') && content.as_str().contains("\"_meta\"")
}

/// Nearly no result has this form, and most can be told at a glance.
fn may_be_blocks(content: &RawJson) -> bool {
    let text = content.as_str();
    text.starts_with('{') && text.contains("\"content\"") && text.contains("\"type\"")
}

/// A failed call is a result that the model can read: what happened, and what to do.
pub(crate) fn failure(error: &CallError) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(error.for_models())])
}

fn block(block: &Block) -> ContentBlock {
    match block {
        Block::Text(text) => ContentBlock::text(text.clone()),
        Block::Image { data, mime_type } => ContentBlock::image(data.clone(), mime_type.clone()),
        Block::Other(json) => serde_json::from_str(json.as_str()).unwrap_or_else(|_| ContentBlock::text(json.as_str())),
    }
}

/// An image or a sound that came along as bytes is one that the model can look at or hear; any other file is a resource
/// inside of the result, as text if it is some.
fn attachment((attachment, number): (&Attachment, usize)) -> ContentBlock {
    use base64::Engine as _;
    let Attachment { mime_type, name, data } = attachment;
    let encoded = || base64::prelude::BASE64_STANDARD.encode(data);
    match mime_type.split_once('/') {
        Some(("image", _)) => return ContentBlock::image(encoded(), mime_type.clone()),
        Some(("audio", _)) => return ContentBlock::audio(encoded(), mime_type.clone()),
        _ => {}
    }
    // A resource has an address, though there is nothing to be fetched by it. Two files may have one name.
    let name = name.as_deref().unwrap_or("attachment");
    let uri = format!("attachment:///{number}/{}", utf8_percent_encode(name, NON_ALPHANUMERIC));
    let contents = match std::str::from_utf8(data) {
        Ok(text) if is_text(mime_type) => ResourceContents::text(text, uri),
        _ => ResourceContents::blob(encoded(), uri),
    };
    ContentBlock::resource(contents.with_mime_type(mime_type.clone()))
}

/// Whether a file of this type is for reading.
fn is_text(mime_type: &str) -> bool {
    let kind = mime_type.split(';').next().unwrap_or_default().trim();
    kind.starts_with("text/")
        || ["json", "xml", "yaml", "toml", "javascript"].iter().any(|format| kind.ends_with(format))
}

/// A text result as text, any other as JSON.
fn text(content: &RawJson) -> Cow<'_, str> {
    let text = content.as_str().starts_with('"').then(|| serde_json::from_str(content.as_str()).ok()).flatten();
    text.map_or(Cow::Borrowed(content.as_str()), Cow::Owned)
}

fn object(json: &RawJson) -> Option<JsonObject> {
    serde_json::from_str(json.as_str()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sa_core::CallErrorKind;
    use serde_json::json;

    /// The content's types, and what is structured beside them.
    #[track_caller]
    fn check(given: &Value, types: &[&str], structured: Option<Value>) {
        let converted = result(&Ok(Output::from_provider(RawJson::of(given), Vec::new())));
        let content = serde_json::to_value(&converted.content).unwrap();
        let found: Vec<_> = content.as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
        assert_eq!(found, types, "{given}");
        assert_eq!(converted.structured_content, structured, "{given}");
    }

    #[test]
    fn a_result_is_text_and_an_object_is_structured_too() {
        check(&json!({ "a": 1 }), &["text"], Some(json!({ "a": 1 })));
        check(&json!("plain"), &["text"], None);
        check(&json!([1, 2]), &["text"], None);
        let plain = result(&Ok(Output::json(RawJson::parse("\"plain\"").unwrap())));
        assert_eq!(serde_json::to_value(&plain.content).unwrap()[0]["text"], "plain");
    }

    #[test]
    fn a_plain_result_is_written_as_any_other_is() {
        let output = |json: &str| Ok(Output::from_provider(RawJson::parse(json).unwrap(), Vec::new()));
        let written = |outcome: &Outcome| plain(outcome).map(|plain| serde_json::to_value(plain).unwrap());
        for json in
            ["{}", r#"{"a":[1,{"b":"\u00e9"}]}"#, "[1,2]", "null", "17", r#""a \"text\"\n""#, r#"{"content":1}"#]
        {
            let outcome = output(json);
            assert_eq!(written(&outcome), Some(serde_json::to_value(result(&outcome)).unwrap()), "{json}");
        }
        assert_eq!(written(&output(r#"{"content":[{"type":"text","text":"x"}]}"#)), None);
        let attached = Attachment { mime_type: "image/png".into(), name: None, data: vec![0].into() };
        let content = RawJson::parse("{}").unwrap();
        assert_eq!(written(&Ok(Output { attachments: vec![attached], ..Output::json(content.clone()) })), None);
        assert_eq!(written(&Ok(Output { native: Some(content.clone()), ..Output::json(content) })), None);
        assert_eq!(written(&Err(CallError::new(CallErrorKind::Failed, "no"))), None);
    }

    #[test]
    fn blocks_are_sent_once() {
        let image = json!({ "type": "image", "data": "AA==", "mimeType": "image/png" });
        let audio = json!({ "type": "audio", "data": "AA==", "mimeType": "audio/wav" });
        let resource =
            json!({ "type": "resource", "resource": { "uri": "a://b", "mimeType": "text/plain", "text": "x" } });
        check(&json!({ "content": [image] }), &["image"], None);
        check(&json!({ "content": [image, audio, resource] }), &["image", "audio", "resource"], None);
        check(&json!({ "content": [image], "width": 3 }), &["image"], Some(json!({ "width": 3 })));
        let full = json!({ "content": [image], "structuredContent": { "a": 1 }, "isError": false, "_meta": {} });
        check(&full, &["image"], Some(json!({ "a": 1 })));
        let odd = json!({ "content": [{ "type": "video" }] });
        check(&odd, &["text"], Some(odd.clone()));
    }

    #[test]
    fn metadata_of_a_result_has_its_own_place() {
        let given = json!({ "a": 1, "_meta": { "k": ["v"] } });
        let outcome = Ok(Output::from_provider(RawJson::of(&given), Vec::new()));
        let converted = result(&outcome);
        assert_eq!(converted.structured_content, Some(json!({ "a": 1 })));
        assert_eq!(serde_json::to_value(converted.meta).unwrap(), json!({ "k": ["v"] }));
        assert!(plain(&outcome).is_none());
        let odd = json!({ "_meta": 1 });
        check(&odd, &["text"], Some(odd.clone()));
    }

    #[test]
    fn a_tool_with_an_output_schema_has_structured_content() {
        let made = |given: &Value, lists| {
            let outcome = Ok(Output::from_provider(RawJson::of(given), Vec::new()));
            let made = result_of(&outcome, || lists);
            (made.structured_content, made.is_error == Some(true), made.content.len())
        };
        let image = json!({ "content": [{ "type": "image", "data": "AA==", "mimeType": "image/png" }] });
        assert_eq!(made(&image, true), (Some(image.clone()), false, 1));
        assert_eq!(made(&image, false), (None, false, 1));
        assert_eq!(made(&json!({ "a": 1 }), true), (Some(json!({ "a": 1 })), false, 1));
        // What is promised and cannot be had is an error, with the result in it.
        assert_eq!(made(&json!("text"), true), (None, true, 2));
        assert_eq!(made(&json!("text"), false), (None, false, 1));
        let failed = result_of(&Err(CallError::new(CallErrorKind::Failed, "no")), || panic!("not needed"));
        assert_eq!(failed.structured_content, None);
    }

    #[test]
    fn a_provider_may_say_that_its_blocks_are_an_error() {
        let given = json!({ "content": [{ "type": "text", "text": "no" }], "isError": true });
        let converted = result(&Ok(Output::from_provider(RawJson::of(&given), Vec::new())));
        assert_eq!(converted.is_error, Some(true));
        assert_eq!(converted.structured_content, None);
    }

    #[test]
    fn every_file_that_came_along_is_a_block() {
        let attach = |mime: &str, name: Option<&str>, data: &[u8]| Attachment {
            mime_type: mime.into(),
            name: name.map(Into::into),
            data: data.to_vec().into(),
        };
        let attachments = vec![
            attach("image/png", None, &[0]),
            attach("audio/wav", None, &[0]),
            attach("application/zip", Some("a b/ü.zip"), &[0]),
            attach("text/csv; charset=utf-8", None, b"a,b"),
            attach("application/ld+json", Some("x"), b"{}"),
            attach("text/plain", None, &[0xff]),
        ];
        let output = Output { attachments, ..Output::json(RawJson::parse("{\"a\":1}").unwrap()) };
        let content = serde_json::to_value(result(&Ok(output)).content).unwrap();
        let expected = json!([
            { "type": "text", "text": "{\"a\":1}" },
            { "type": "image", "data": "AA==", "mimeType": "image/png" },
            { "type": "audio", "data": "AA==", "mimeType": "audio/wav" },
            { "type": "resource", "resource":
                { "uri": "attachment:///3/a%20b%2F%C3%BC%2Ezip", "mimeType": "application/zip", "blob": "AA==" } },
            { "type": "resource", "resource":
                { "uri": "attachment:///4/attachment", "mimeType": "text/csv; charset=utf-8", "text": "a,b" } },
            { "type": "resource", "resource":
                { "uri": "attachment:///5/x", "mimeType": "application/ld+json", "text": "{}" } },
            { "type": "resource", "resource":
                { "uri": "attachment:///6/attachment", "mimeType": "text/plain", "blob": "/w==" } },
        ]);
        assert_eq!(content, expected);
    }

    #[test]
    fn a_failure_is_an_error_that_the_model_can_read() {
        let error = CallError::new(CallErrorKind::InvalidArgs, "missing \"query\"").hint("see the schema");
        let converted = result(&Err(error));
        assert_eq!(converted.is_error, Some(true));
        let text = serde_json::to_value(&converted.content).unwrap()[0]["text"].as_str().unwrap().to_owned();
        assert_eq!(text, "invalid_args: missing \"query\"; see the schema");
    }

    const WORDS: &[&str] = &[
        "content",
        "type",
        "text",
        "image",
        "audio",
        "data",
        "mimeType",
        "image/png",
        "resource",
        "uri",
        "isError",
        "structuredContent",
        "_meta",
        "resultType",
        "complete",
        "error",
        "code",
        "message",
        "annotations",
    ];

    proptest::proptest! {
        #[test]
        fn any_result_is_one_that_clients_can_read(
            content in sa_hostile::json(WORDS), native in sa_hostile::json(WORDS), failed in proptest::prelude::any::<bool>(),
        ) {
            let wrapped = json!({ "content": [content] });
            for content in [content, wrapped] {
                let output = Output::from_provider(RawJson::of(&content), Vec::new());
                let told = result(&Ok(output.clone()));
                let written = serde_json::to_value(&told).unwrap();
                proptest::prop_assert!(serde_json::from_value::<CallToolResult>(written).is_ok());
                // The short way says the same as the long one.
                if let Some(plain) = plain(&Ok(output.clone())) {
                    proptest::prop_assert_eq!(serde_json::to_value(plain).unwrap(), serde_json::to_value(&told).unwrap());
                }
                let outcome = if failed {
                    Err(CallError::new(CallErrorKind::Failed, "f").with_native(RawJson::of(&native)))
                } else {
                    Ok(Output { native: Some(RawJson::of(&native)), ..output })
                };
                let written = serde_json::to_value(result(&outcome)).unwrap();
                proptest::prop_assert!(serde_json::from_value::<CallToolResult>(written).is_ok());
                let _ = protocol_error(&outcome);
            }
        }
    }
}
