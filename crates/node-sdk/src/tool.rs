use std::time::Duration;

use sa_protocol::{ErrorKind, ToolResponseError};
use serde_json::Value;

use crate::ToolContext;

/// The result of a tool: any JSON value, or an error.
pub type ToolResult = Result<Value, ToolError>;

/// A tool of a node.
///
/// Only [`call`](NodeTool::call) is required. The other methods describe the tool to agents. A tool
/// without a description works, but a model then has only its name.
#[async_trait::async_trait]
pub trait NodeTool: Send + Sync + 'static {
    /// Runs the tool once. Calls run concurrently on the Tokio runtime; blocking work belongs in
    /// [`tokio::task::spawn_blocking`].
    async fn call(&self, ctx: ToolContext, args: Value) -> ToolResult;

    /// Returns a name for people.
    fn title(&self) -> Option<String> {
        None
    }

    /// Returns a description of the tool, for models.
    fn description(&self) -> Option<String> {
        None
    }

    /// Returns the JSON Schema of the arguments. The gateway checks them before it sends a call.
    fn input_schema(&self) -> Option<Value> {
        None
    }

    /// Returns the JSON Schema of the result.
    fn output_schema(&self) -> Option<Value> {
        None
    }

    /// Returns hints for agents in the form that MCP defines, such as `{"readOnlyHint": true}`.
    fn annotations(&self) -> Option<Value> {
        None
    }

    /// Returns the capabilities that the tool gives a host, such as `shell.exec`. Skills can
    /// require them.
    fn capabilities(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the time limit of one call. When it expires, [`ToolContext::cancel`] fires and the
    /// call ends as `timeout`.
    fn timeout(&self) -> Option<Duration> {
        None
    }
}

/// The reason why a tool failed. Each variant is one [`ErrorKind`] on the wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The arguments are missing or wrong.
    #[error("invalid arguments: {0}")]
    InvalidArgs(String),
    /// The node does not allow this operation.
    #[error("not allowed: {0}")]
    NotAllowed(String),
    /// The operation failed.
    #[error("failed: {0}")]
    Failed(String),
    /// The operation took too long.
    #[error("timed out: {0}")]
    Timeout(String),
    /// The caller stopped waiting, or the node is shutting down.
    #[error("cancelled: {0}")]
    Cancelled(String),
    /// The requested object does not exist.
    #[error("not found: {0}")]
    NotFound(String),
}

impl ToolError {
    /// Returns the kind on the wire.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidArgs(_) => ErrorKind::InvalidArgs,
            Self::NotAllowed(_) => ErrorKind::NotAllowed,
            Self::Failed(_) => ErrorKind::Failed,
            Self::Timeout(_) => ErrorKind::Timeout,
            Self::Cancelled(_) => ErrorKind::Cancelled,
            Self::NotFound(_) => ErrorKind::NotFound,
        }
    }

    /// Returns the message, without the kind.
    pub fn message(&self) -> &str {
        match self {
            Self::InvalidArgs(message)
            | Self::NotAllowed(message)
            | Self::Failed(message)
            | Self::Timeout(message)
            | Self::Cancelled(message)
            | Self::NotFound(message) => message,
        }
    }
}

impl From<ToolError> for ToolResponseError {
    fn from(error: ToolError) -> Self {
        Self { kind: error.kind(), message: error.message().to_owned() }
    }
}

/// Converts a JSON error into invalid arguments, because arguments are the JSON that a tool usually
/// parses.
impl From<serde_json::Error> for ToolError {
    fn from(error: serde_json::Error) -> Self {
        Self::InvalidArgs(error.to_string())
    }
}

impl From<tokio::time::error::Elapsed> for ToolError {
    fn from(error: tokio::time::error::Elapsed) -> Self {
        Self::Timeout(error.to_string())
    }
}

/// Joins the whole chain of causes in one line.
impl From<anyhow::Error> for ToolError {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => error,
            Err(error) => Self::Failed(format!("{error:#}")),
        }
    }
}

/// Implements `?` for the errors that tools encounter most. A type that is an error itself cannot
/// convert from all errors at once; for the rest there is `anyhow`, or `map_err`.
macro_rules! failed_from {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for ToolError {
            fn from(error: $error) -> Self {
                Self::Failed(error.to_string())
            }
        }
    )*};
}

failed_from!(
    std::io::Error,
    Box<dyn std::error::Error + Send + Sync>,
    Box<dyn std::error::Error>,
    String,
    &str,
    std::fmt::Error,
    std::str::Utf8Error,
    std::string::FromUtf8Error,
    std::num::ParseIntError,
    std::num::ParseFloatError,
    std::env::VarError,
    std::time::SystemTimeError,
    tokio::task::JoinError,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: impl Into<ToolError>, kind: ErrorKind) {
        assert_eq!(error.into().kind(), kind);
    }

    #[test]
    fn question_mark_conversions() {
        check(std::io::Error::other("disk"), ErrorKind::Failed);
        check("text", ErrorKind::Failed);
        check(anyhow::anyhow!("any"), ErrorKind::Failed);
        check(anyhow::Error::from(ToolError::NotFound("x".into())), ErrorKind::NotFound);
        check(Box::<dyn std::error::Error + Send + Sync>::from("boxed"), ErrorKind::Failed);
        check(serde_json::from_str::<u8>("x").unwrap_err(), ErrorKind::InvalidArgs);
    }
}
