//! Errors of a document, problems of its parts, and errors of calls.

use std::fmt;

/// The reason why a document cannot be used at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentError {
    pub kind: DocumentErrorKind,
    /// The position in the document as a JSON pointer; empty for the document itself.
    pub pointer: String,
    /// The line and column, both starting at one, if the text could not be parsed.
    pub place: Option<(usize, usize)>,
    /// The error, and how to fix it.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentErrorKind {
    /// The text is neither JSON nor YAML.
    Syntax,
    /// The document is larger, deeper or has more operations than the limits allow.
    TooLarge,
    /// The text is valid, but not an OpenAPI document.
    NotOpenApi,
    /// The version is neither OpenAPI 3.x nor Swagger 2.0.
    Version,
    /// The document has no callable operation.
    Empty,
}

impl DocumentError {
    pub(crate) fn new(
        kind: DocumentErrorKind,
        pointer: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, pointer: pointer.into(), place: None, message: message.into() }
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.place {
            write!(f, "line {line}, column {column}: ")?;
        }
        if !self.pointer.is_empty() {
            write!(f, "at {}: ", self.pointer)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for DocumentError {}

/// A part of a document that is not used, or not as it is written. The rest works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub kind: ProblemKind,
    /// The position in the document as a JSON pointer.
    pub pointer: String,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// A `$ref` that leaves the document. The operation is left out, because nothing is ever
    /// fetched for it.
    RemoteReference,
    /// A `$ref` to a missing target, or one that leads back to itself.
    BrokenReference,
    /// The operation's input schema is too large even without descriptions. The operation is left
    /// out.
    TooLarge,
    /// A part that OpenAPI requires to ignore, or that a caller may not set, such as a parameter
    /// `Host`.
    Ignored,
    /// A violation of the specification.
    Malformed,
    /// A valid part that is not supported, such as mutual TLS.
    Unsupported,
}

impl Problem {
    pub(crate) fn new(
        kind: ProblemKind,
        pointer: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, pointer: pointer.into(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.pointer, self.message)
    }
}

/// The reason why a call cannot become a request. The text never contains a secret or the value of
/// an argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    pub kind: RequestErrorKind,
    /// The argument or setting that causes the error; empty if there is none.
    pub name: String,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestErrorKind {
    /// A required argument is missing.
    MissingArgument,
    /// The operation has no such argument.
    UnknownArgument,
    /// The argument cannot be sent: it has a wrong type, a line break in a header, or `..` in a
    /// path.
    InvalidArgument,
    /// A setting that the operation's security requires is missing.
    MissingSetting,
    /// The setting cannot be sent.
    InvalidSetting,
    /// The token of an OAuth2 scheme must be fetched first: see [`crate::Operation::tokens`].
    MissingToken,
    /// There is no server for the request.
    Server,
}

impl RequestError {
    pub(crate) fn new(
        kind: RequestErrorKind,
        name: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, name: name.into(), message: message.into() }
    }

    pub(crate) fn argument(name: &str, message: impl fmt::Display) -> Self {
        Self::new(
            RequestErrorKind::InvalidArgument,
            name,
            format!("the argument \"{name}\" {message}"),
        )
    }

    pub(crate) fn setting(name: &str, message: impl fmt::Display) -> Self {
        Self::new(
            RequestErrorKind::InvalidSetting,
            name,
            format!("the setting \"{name}\" {message}"),
        )
    }
}
