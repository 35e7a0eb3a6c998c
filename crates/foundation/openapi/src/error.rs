//! What can be wrong: with a document, with one part of it, with one call.

use std::fmt;

/// Why a document cannot be used at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentError {
    pub kind: DocumentErrorKind,
    /// Where in the document, as a JSON pointer; empty for the document itself.
    pub pointer: String,
    /// Line and column, both from one, where the text could not be read.
    pub place: Option<(usize, usize)>,
    /// What is wrong, and what to do.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentErrorKind {
    /// Neither JSON nor YAML.
    Syntax,
    /// Larger, deeper or with more operations than the limits allow.
    TooLarge,
    /// Readable, but not an OpenAPI document.
    NotOpenApi,
    /// A version that is neither OpenAPI 3.x nor Swagger 2.0.
    Version,
    /// No operation can be called.
    Empty,
}

impl DocumentError {
    pub(crate) fn new(kind: DocumentErrorKind, pointer: impl Into<String>, message: impl Into<String>) -> Self {
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

/// A part of a document that is not used, or not as it is written; the rest works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub kind: ProblemKind,
    /// Where in the document, as a JSON pointer.
    pub pointer: String,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// A `$ref` that leaves the document. The operation is left out: nothing is ever fetched for it.
    RemoteReference,
    /// A `$ref` to something that is not there, or that leads back to itself.
    BrokenReference,
    /// The operation's input schema is too large even without descriptions; the operation is left out.
    TooLarge,
    /// Something that OpenAPI says to ignore, or that a caller may not set, such as a parameter `Host`.
    Ignored,
    /// Something that does not follow the specification.
    Malformed,
    /// Something valid that is not supported, such as mutual TLS.
    Unsupported,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, pointer: pointer.into(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.pointer, self.message)
    }
}

/// Why no request can be made of a call. The text never contains a secret, nor the value of an argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    pub kind: RequestErrorKind,
    /// The argument or setting that it is about; empty if it is about neither.
    pub name: String,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestErrorKind {
    /// A required argument is not there.
    MissingArgument,
    /// An argument that the operation does not have.
    UnknownArgument,
    /// An argument that cannot be sent: of a wrong type, with a line break in a header, `..` in a path.
    InvalidArgument,
    /// A setting that the operation's security asks for is not there.
    MissingSetting,
    /// A setting that cannot be sent.
    InvalidSetting,
    /// The token of an OAuth2 scheme has to be fetched first: see [`crate::Operation::tokens`].
    MissingToken,
    /// There is no server to send it to.
    Server,
}

impl RequestError {
    pub(crate) fn new(kind: RequestErrorKind, name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, name: name.into(), message: message.into() }
    }

    pub(crate) fn argument(name: &str, message: impl fmt::Display) -> Self {
        Self::new(RequestErrorKind::InvalidArgument, name, format!("the argument \"{name}\" {message}"))
    }

    pub(crate) fn setting(name: &str, message: impl fmt::Display) -> Self {
        Self::new(RequestErrorKind::InvalidSetting, name, format!("the setting \"{name}\" {message}"))
    }
}
