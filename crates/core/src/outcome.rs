//! How a call ends, exactly once: an [`Output`] or a [`CallError`].

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::json::RawJson;

pub type Outcome = Result<Output, CallError>;

/// What a tool gives back.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The result as JSON, as the provider wrote it.
    pub content: RawJson,
    /// The same result as blocks that a model can look at (text, images), where the provider gave such.
    pub blocks: Vec<Block>,
    pub attachments: Vec<Attachment>,
    /// The whole result in the words of the protocol that the provider speaks (`tools/call` of MCP), for a surface that
    /// speaks it too and then has nothing to translate.
    pub native: Option<RawJson>,
}

impl Output {
    pub fn json(content: RawJson) -> Self {
        Self { content, blocks: Vec::new(), attachments: Vec::new(), native: None }
    }

    /// A provider's JSON result. A result of the form `{"content":[{"type":"text"|"image",…},…]}` is a list of
    /// blocks: it is kept as it came, and offered as blocks beside it.
    pub fn from_provider(content: RawJson, attachments: Vec<Attachment>) -> Self {
        let blocks = Block::find(&content);
        Self { content, blocks, attachments, native: None }
    }

    /// How many bytes it has, of which whoever writes it down has to make text.
    pub fn weight(&self) -> usize {
        let blocks = self.blocks.iter().map(|block| match block {
            Block::Text(text) => text.len(),
            Block::Image { data, mime_type } => data.len() + mime_type.len(),
            Block::Other(json) => json.len(),
        });
        let attachments = self.attachments.iter().map(Attachment::weight);
        let native = self.native.as_ref().map_or(0, RawJson::len);
        self.content.len() + native + blocks.sum::<usize>() + attachments.sum::<usize>()
    }
}

/// The same of how a call ended.
pub fn weight(outcome: &Outcome) -> usize {
    match outcome {
        Ok(output) => output.weight(),
        Err(error) => error.message.len() + error.native().map_or(0, RawJson::len),
    }
}

/// A piece of a result in the form that models take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    Text(String),
    /// `data` is base64, as every wire format that carries it has it.
    Image {
        data: String,
        mime_type: String,
    },
    /// A block of any other kind (audio, a link, an embedded document): a JSON object with a `type`, as the provider
    /// wrote it.
    Other(RawJson),
}

impl Block {
    fn find(content: &RawJson) -> Vec<Self> {
        #[derive(serde::Deserialize)]
        struct Shape<'a> {
            #[serde(borrow)]
            content: Vec<&'a RawValue>,
        }
        #[derive(serde::Deserialize)]
        struct Item<'a> {
            #[serde(borrow, rename = "type")]
            kind: Cow<'a, str>,
            #[serde(borrow)]
            text: Option<Cow<'a, str>>,
            #[serde(borrow)]
            data: Option<Cow<'a, str>>,
            #[serde(borrow, rename = "mimeType")]
            mime_type: Option<Cow<'a, str>>,
        }
        // Nearly no result has this form, and most can be told by their first bytes.
        let text = content.as_str();
        if !text.starts_with('{') || !text.contains("\"content\"") || !text.contains("\"type\"") {
            return Vec::new();
        }
        let Ok(shape) = serde_json::from_str::<Shape<'_>>(text) else {
            return Vec::new();
        };
        let blocks: Option<Vec<_>> = shape
            .content
            .into_iter()
            .map(|item| {
                // The reader of structs takes a list as well, for fields in their order.
                let item: Item<'_> =
                    serde_json::from_str(Some(item.get()).filter(|item| item.starts_with('{'))?).ok()?;
                match (&*item.kind, item.text, item.data, item.mime_type) {
                    ("text", Some(text), _, _) => Some(Self::Text(text.into_owned())),
                    ("image", _, Some(data), Some(mime)) => {
                        Some(Self::Image { data: data.into_owned(), mime_type: mime.into_owned() })
                    }
                    _ => None,
                }
            })
            .collect();
        blocks.unwrap_or_default()
    }
}

/// Bytes that go along with a result or a chunk.
#[derive(Clone, PartialEq, Eq)]
pub struct Attachment {
    pub mime_type: String,
    pub name: Option<String>,
    pub data: Bytes,
}

impl Attachment {
    /// How many bytes it takes, with what is said of it.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.mime_type.len() + self.name.as_ref().map_or(0, String::len) + self.data.len()
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attachment({}, {} bytes)", self.mime_type, self.data.len())
    }
}

/// Why a call did not give an output. One table for every surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallErrorKind {
    InvalidArgs,
    NotAllowed,
    NotFound,
    Timeout,
    Cancelled,
    Failed,
    /// The provider went away.
    Offline,
    /// A limit is reached; later it may work.
    Overloaded,
    /// It contradicts something that happened before.
    Conflict,
    /// What the call needs kept cannot be.
    Store,
}

impl CallErrorKind {
    pub const ALL: [Self; 10] = [
        Self::InvalidArgs,
        Self::NotAllowed,
        Self::NotFound,
        Self::Timeout,
        Self::Cancelled,
        Self::Failed,
        Self::Offline,
        Self::Overloaded,
        Self::Conflict,
        Self::Store,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgs => "invalid_args",
            Self::NotAllowed => "not_allowed",
            Self::NotFound => "not_found",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Offline => "offline",
            Self::Overloaded => "overloaded",
            Self::Conflict => "conflict",
            Self::Store => "store",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// The status code of an HTTP surface.
    pub fn http_status(self) -> u16 {
        match self {
            Self::InvalidArgs => 422,
            Self::NotAllowed => 403,
            Self::NotFound => 404,
            Self::Timeout => 504,
            Self::Cancelled => 499,
            Self::Failed => 502,
            Self::Offline | Self::Store => 503,
            Self::Overloaded => 429,
            Self::Conflict => 409,
        }
    }

    fn usually_retryable(self) -> bool {
        matches!(self, Self::Timeout | Self::Offline | Self::Overloaded | Self::Store)
    }
}

impl fmt::Display for CallErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What happened, what to do about it, and whether trying again can help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    pub kind: CallErrorKind,
    pub message: String,
    pub hint: Option<Cow<'static, str>>,
    pub retryable: bool,
    /// See [`Self::reason`].
    reason: Option<&'static str>,
    /// The provider certainly never saw the call, so it may be given to it (or to another) again.
    undelivered: bool,
    /// The tool exists, and the caller must not learn that. Only the audit log says so.
    concealed: bool,
    native: Option<RawJson>,
}

impl CallError {
    pub fn new(kind: CallErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            retryable: kind.usually_retryable(),
            reason: None,
            undelivered: false,
            concealed: false,
            native: None,
        }
    }

    /// The provider went away before it was given the call.
    pub fn undelivered(message: impl Into<String>) -> Self {
        Self { undelivered: true, ..Self::new(CallErrorKind::Offline, message) }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    #[must_use]
    pub fn with_reason(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    /// A more exact name than the kind, for programs that can do something about it: `settings_invalid`.
    pub fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    pub fn is_undelivered(&self) -> bool {
        self.undelivered
    }

    /// Marks the error as one that hides a tool from its caller.
    #[must_use]
    pub(crate) fn concealing(mut self, concealed: bool) -> Self {
        self.concealed = concealed;
        self
    }

    /// Whether the caller was refused, though the error may say that there is no such tool.
    pub fn is_refusal(&self) -> bool {
        self.concealed || self.kind == CallErrorKind::NotAllowed
    }

    /// Keeps the failed result as the provider wrote it, or the error of its protocol as `{"error":{…}}`; see
    /// [`Output::native`].
    #[must_use]
    pub fn with_native(mut self, native: RawJson) -> Self {
        self.native = Some(native);
        self
    }

    pub fn native(&self) -> Option<&RawJson> {
        self.native.as_ref()
    }

    /// What happened and what to do about it, for a model to read.
    pub fn for_models(&self) -> String {
        let hint = self.hint.as_deref().and_then(without_commands).map(|hint| format!("; {hint}"));
        format!("{}: {}{}", self.kind, self.message, hint.unwrap_or_default())
    }
}

/// A hint without what somebody at a terminal would type, which is no use to whoever has none. What an operator can do about
/// it stays: it can be passed on. `None` when nothing is left.
pub fn without_commands(hint: &str) -> Option<String> {
    let clauses = hint.split("   ").flat_map(|part| part.split("; "));
    let kept = clauses.filter(|clause| !clause.contains("switchboard ") || clause.contains("operator"));
    let kept: Vec<&str> =
        kept.map(|clause| if is_whole(clause) { clause } else { clause.trim_matches(['(', ')']) }).collect();
    (!kept.is_empty()).then(|| kept.join("; "))
}

/// Whether every bracket has its other half: what stood between two of them may have been left out.
fn is_whole(clause: &str) -> bool {
    clause.matches('(').count() == clause.matches(')').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_blocks(json: &str, expected: usize) {
        let output = Output::from_provider(RawJson::parse(json).unwrap(), Vec::new());
        assert_eq!(output.blocks.len(), expected, "{json}");
        assert_eq!(output.content.as_str(), json, "the result itself stays as it came");
    }

    #[test]
    fn blocks_are_found_only_where_every_item_is_one() {
        check_blocks(
            r#"{"content":[{"type":"text","text":"a"},{"type":"image","data":"AA==","mimeType":"image/png"}]}"#,
            2,
        );
        check_blocks(r#"{ "content" : [ { "text" : "a\n" , "type" : "text" } ] }"#, 1);
        check_blocks(r#"{"content":"plain","type":"text"}"#, 0);
        check_blocks(r#"{"content":[{"type":"text","text":"a"},{"type":"video"}]}"#, 0);
        check_blocks(r#"{"content":[{"type":"text"}]}"#, 0);
        check_blocks(r#"{"content":[["text","a","b","c"]],"type":1}"#, 0);
        check_blocks(r#"[{"type":"text","text":"content"}]"#, 0);
        check_blocks("null", 0);
    }

    #[track_caller]
    fn check_hint(hint: &str, expected: Option<&str>) {
        assert_eq!(without_commands(hint).as_deref(), expected, "{hint}");
    }

    #[test]
    fn a_model_is_not_told_what_to_type() {
        check_hint("did you mean demo_echo?", Some("did you mean demo_echo?"));
        check_hint("list the tools with: switchboard tools", None);
        check_hint(
            "list them with: switchboard tools   (a bare name needs a host, and there is none; start one with: switchboard node)",
            Some("a bare name needs a host, and there is none"),
        );
        check_hint("wait (a minute); then retry", Some("wait (a minute); then retry"));
        let login = "an operator logs in with: switchboard upstream login mail";
        check_hint(login, Some(login));
        let error = CallError::new(CallErrorKind::NotFound, "there is no tool \"x\"").hint("switchboard tools");
        assert_eq!(error.for_models(), "not_found: there is no tool \"x\"");
    }

    #[test]
    fn every_kind_is_read_back_from_its_name() {
        for kind in CallErrorKind::ALL {
            assert_eq!(CallErrorKind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(CallErrorKind::parse("nope"), None);
    }
}
