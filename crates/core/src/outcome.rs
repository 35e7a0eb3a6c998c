//! How a call ends, exactly once: an [`Output`] or a [`CallError`].

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use crate::passthrough::Passthrough;
use sa_limits::budget::Refused;
use sa_limits::received::{Held, Received};
use sa_text::json::RawJson;

pub type Outcome = Result<Output, CallError>;

/// The [`reason`](CallError::reason) of an answer that a budget refuses.
const ANSWER_REFUSED: &str = "answer_refused";

/// The output of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The result as JSON, as the provider wrote it.
    pub content: RawJson,
    /// The same result as blocks for a model (text, images), if the provider returned blocks.
    pub blocks: Vec<Block>,
    pub attachments: Vec<Attachment>,
    /// The whole result in the provider's own protocol.
    pub passthrough: Option<Passthrough>,
    /// The part of the budget for answers that this output holds.
    pub held: Held,
}

impl Output {
    pub fn json(content: RawJson) -> Self {
        Self {
            content,
            blocks: Vec::new(),
            attachments: Vec::new(),
            passthrough: None,
            held: Held::default(),
        }
    }

    /// Returns the number of bytes that serialization must process.
    pub fn weight(&self) -> usize {
        let blocks = self.blocks.iter().map(|block| match block {
            Block::Text(text) => text.len(),
            Block::Image { data, mime_type } => data.len() + mime_type.len(),
            Block::Other(json) => json.len(),
        });
        let attachments = self.attachments.iter().map(Attachment::weight);
        let passthrough = self.passthrough.as_ref().map_or(0, |passthrough| passthrough.json.len());
        self.content.len() + passthrough + blocks.sum::<usize>() + attachments.sum::<usize>()
    }
}

/// Returns the number of bytes of an outcome that serialization must process.
pub fn weight(outcome: &Outcome) -> usize {
    match outcome {
        Ok(output) => output.weight(),
        Err(error) => {
            error.message.len()
                + error.passthrough().map_or(0, |passthrough| passthrough.json.len())
        }
    }
}

/// Adds the budget that a received answer holds to the outcome that was made of it.
pub fn holding(outcome: Outcome, mut received: Received) -> Outcome {
    received.shrink(weight(&outcome));
    let held = received.into_held();
    match outcome {
        Ok(output) => Ok(Output { held, ..output }),
        Err(error) => Err(CallError { held, ..error }),
    }
}

/// Returns the budget that an outcome holds.
pub fn held(outcome: &Outcome) -> Held {
    match outcome {
        Ok(output) => output.held.clone(),
        Err(error) => error.held.clone(),
    }
}

/// A part of a result in the form that models accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    Text(String),
    /// `data` is base64, as in every wire format that carries it.
    Image {
        data: String,
        mime_type: String,
    },
    /// A block of any other kind, such as audio or a link: a JSON object as the provider wrote it.
    Other(RawJson),
}

/// Binary data attached to a result or a chunk.
#[derive(Clone, PartialEq, Eq)]
pub struct Attachment {
    pub mime_type: String,
    pub name: Option<String>,
    pub data: Bytes,
}

impl Attachment {
    /// Returns the memory size in bytes, including metadata.
    pub fn weight(&self) -> usize {
        size_of::<Self>()
            + self.mime_type.len()
            + self.name.as_ref().map_or(0, String::len)
            + self.data.len()
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attachment({}, {} bytes)", self.mime_type, self.data.len())
    }
}

/// The kinds of call errors, shared by all surfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallErrorKind {
    InvalidArgs,
    NotAllowed,
    NotFound,
    Timeout,
    Cancelled,
    Failed,
    /// The provider disconnected.
    Offline,
    /// A limit is reached; a later retry may succeed.
    Overloaded,
    /// The call conflicts with something that happened before.
    Conflict,
    /// Required data could not be stored.
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

    fn usually_retryable(self) -> bool {
        matches!(self, Self::Timeout | Self::Offline | Self::Overloaded | Self::Store)
    }
}

impl fmt::Display for CallErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Describes the error, the remedy, and whether a retry can help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    pub kind: CallErrorKind,
    pub message: String,
    pub hint: Option<Cow<'static, str>>,
    pub retryable: bool,
    /// See [`Self::reason`].
    reason: Option<&'static str>,
    /// The provider certainly never received the call, so the call may be sent again, to any
    /// provider.
    undelivered: bool,
    /// The tool exists, but the caller must not learn that. Only the audit log records it.
    concealed: bool,
    passthrough: Option<Passthrough>,
    /// See [`Output::held`].
    held: Held,
}

impl From<Refused> for CallError {
    fn from(refused: Refused) -> Self {
        let Refused { message, hint, transient } = refused;
        Self::new(CallErrorKind::Overloaded, message).hint(hint).retryable(transient)
    }
}

impl From<sa_schema::Error> for CallError {
    fn from(error: sa_schema::Error) -> Self {
        let invalid = |why| Self::new(CallErrorKind::InvalidArgs, why);
        match error {
            sa_schema::Error::Schema(why) => {
                let message = format!("the tool's input schema cannot be used: {why}");
                Self::new(CallErrorKind::Failed, message)
                    .hint("the tool's author must fix the schema")
            }
            sa_schema::Error::TooExpensive(why) => {
                invalid(why).hint("pass fewer or flatter arguments")
            }
            sa_schema::Error::Invalid(why) => invalid(why).hint("see the tool's input_schema"),
        }
    }
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
            passthrough: None,
            held: Held::default(),
        }
    }

    /// Creates the error for a provider that disconnected before it received the call.
    pub fn undelivered(message: impl Into<String>) -> Self {
        Self { undelivered: true, ..Self::new(CallErrorKind::Offline, message) }
    }

    /// Creates the error for an answer that a budget refuses. The call was executed by then, so it
    /// must not simply be repeated.
    pub fn answer_refused(refused: Refused) -> Self {
        let Refused { message, hint, .. } = refused;
        let message =
            format!("the call was processed, but there is no budget for its answer: {message}");
        Self::new(CallErrorKind::Overloaded, message)
            .hint(format!("it may have had an effect; check before you repeat it; {hint}"))
            .retryable(false)
            .with_reason(ANSWER_REFUSED)
    }

    /// Returns whether a budget refused the answer of a call that was executed.
    pub fn is_answer_refused(&self) -> bool {
        self.reason == Some(ANSWER_REFUSED)
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

    /// Returns a more specific name than the kind, for programs that can handle it, such as
    /// `settings_invalid`.
    pub fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    pub fn is_undelivered(&self) -> bool {
        self.undelivered
    }

    /// Marks the error as one that conceals a tool from its caller.
    #[must_use]
    pub(crate) fn concealing(mut self, concealed: bool) -> Self {
        self.concealed = concealed;
        self
    }

    /// Returns whether the caller was refused, even if the error states that the tool does not
    /// exist.
    pub fn is_refusal(&self) -> bool {
        self.concealed || self.kind == CallErrorKind::NotAllowed
    }

    /// Adds the failed result or the error in the provider's own protocol.
    #[must_use]
    pub fn with_passthrough(mut self, passthrough: Passthrough) -> Self {
        self.passthrough = Some(passthrough);
        self
    }

    pub fn passthrough(&self) -> Option<&Passthrough> {
        self.passthrough.as_ref()
    }

    /// Returns the error and its remedy as text for a model.
    pub fn for_models(&self) -> String {
        let hint = self.hint.as_deref().and_then(without_commands).map(|hint| format!("; {hint}"));
        format!("{}: {}{}", self.kind, self.message, hint.unwrap_or_default())
    }
}

/// Returns a hint without shell commands, which are useless to a caller without a terminal. Advice
/// for operators stays, because the caller can pass it on. Returns `None` if nothing is left.
pub fn without_commands(hint: &str) -> Option<String> {
    let all = hint.split("   ").flat_map(|part| part.split("; "));
    let clauses =
        all.filter(|clause| !clause.contains("switchboard ") || clause.contains("operator"));
    let clauses: Vec<&str> = clauses
        .map(|clause| if is_balanced(clause) { clause } else { clause.trim_matches(['(', ')']) })
        .collect();
    (!clauses.is_empty()).then(|| clauses.join("; "))
}

/// Returns whether all brackets are balanced. The text between two of them may have been removed.
fn is_balanced(clause: &str) -> bool {
    clause.matches('(').count() == clause.matches(')').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_hint(hint: &str, expected: Option<&str>) {
        assert_eq!(without_commands(hint).as_deref(), expected, "{hint}");
    }

    #[test]
    fn hints_for_models_contain_no_commands() {
        check_hint("did you mean demo_echo?", Some("did you mean demo_echo?"));
        check_hint("run `switchboard tools` to list the tools", None);
        check_hint(
            "list them with: switchboard tools   (a bare name needs a host, and there is none; start one with: switchboard node)",
            Some("a bare name needs a host, and there is none"),
        );
        check_hint("wait (a minute); then retry", Some("wait (a minute); then retry"));
        let login = "an operator logs in with: switchboard upstream login mail";
        check_hint(login, Some(login));
        let error = CallError::new(CallErrorKind::NotFound, "there is no tool \"x\"")
            .hint("switchboard tools");
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
