//! How whoever made a call can be spoken to while it runs.

use std::fmt;

use crate::json::RawJson;

/// What a surface can pass on to whoever made a call, so that a provider with several ways to speak takes the fitting one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Manner {
    /// How they can be asked; `None` where they cannot, or where it makes no difference.
    pub asking: Option<Asking>,
    /// From which level on they want what the tool logs. Without one the tool logs as it sees fit.
    pub log: Option<LogLevel>,
    /// What they can answer, in the words of MCP (`ClientCapabilities`), where that is known.
    pub answers: Option<RawJson>,
}

/// How a question reaches whoever made the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asking {
    /// As a request of its own, while the call goes on.
    Meanwhile,
    /// As the answer to the call, which they then repeat with what was asked for.
    Instead,
}

/// How grave a message is, from what only its author needs to what everybody must know.
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
