//! The ways to reach the caller while a call runs.

use std::fmt;

use crate::passthrough::Passthrough;

/// The features of a surface for messages to the caller. A provider with several protocols selects
/// the matching one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClientCapabilities {
    /// How the caller can be asked questions; `None` if not, or if it makes no difference.
    pub question_mode: Option<QuestionMode>,
    /// The minimum level of log messages for the caller. By default the tool decides.
    pub log: Option<LogLevel>,
    /// The questions that the caller can answer, in its own protocol, if known.
    pub passthrough: Option<Passthrough>,
}

/// How a question reaches the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuestionMode {
    /// As a separate request, while the call continues.
    Request,
    /// As the response to the call. The caller then repeats the call with the answer.
    Response,
}

/// The severity of a log message, in increasing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    pub const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
