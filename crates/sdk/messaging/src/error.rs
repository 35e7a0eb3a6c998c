use std::fmt;

/// What went wrong. [`code`](Error::code) is what programs on the other side of the wire tell it by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `method-not-found`: the participant offers no such method.
    #[error("{0}")]
    MethodNotFound(String),
    /// `provider-not-found`: no such participant is in the channel.
    #[error("{0}")]
    ProviderNotFound(String),
    /// `provider-offline`: the participant left in the middle of the call.
    #[error("{0}")]
    ProviderOffline(String),
    /// `execution-error`: the method ran and failed.
    #[error("{0}")]
    Execution(String),
    /// `timeout`: no result came in time.
    #[error("{0}")]
    Timeout(String),
    /// `cancelled`: the call was cancelled.
    #[error("{0}")]
    Cancelled(String),
    /// `validation-error`: a message, an argument or an option cannot be used.
    #[error(transparent)]
    Validation(#[from] ValidationError),
    /// `connection-error`: there is no connection, or none can be made.
    #[error("{0}")]
    Connection(String),
    /// The server refused a message, for a reason that is its own: `not-allowed`, `conflict`, `handle-conflict`,
    /// `rate-limited`, `store-error`.
    #[error("the server refused it ({code}): {message}")]
    Refused {
        /// What programs tell refusals apart by.
        code: String,
        /// The server's words.
        message: String,
    },
}

/// Something that is not as the protocol, or a method's schema, has it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be {direction}: {}", details.join("; "))]
pub struct ValidationError {
    /// Whether this program wanted to send it, or somebody else sent it.
    pub direction: Direction,
    /// What it is about, such as `a message`.
    pub what: String,
    /// Every mistake that was found.
    pub details: Vec<String>,
}

/// Which way a message went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From this program to the channel.
    Sent,
    /// From the channel to this program.
    Received,
}

impl Error {
    /// The protocol's word for it.
    pub fn code(&self) -> &str {
        match self {
            Self::MethodNotFound(_) => "method-not-found",
            Self::ProviderNotFound(_) => "provider-not-found",
            Self::ProviderOffline(_) => "provider-offline",
            Self::Execution(_) => "execution-error",
            Self::Timeout(_) => "timeout",
            Self::Cancelled(_) => "cancelled",
            Self::Validation(_) => "validation-error",
            Self::Connection(_) => "connection-error",
            Self::Refused { code, .. } => code,
        }
    }

    /// An error from its code and its words, as they come over the wire. What has no code of its own is an
    /// `execution-error`.
    pub fn from_code(code: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        match code {
            "method-not-found" => Self::MethodNotFound(message),
            "provider-not-found" => Self::ProviderNotFound(message),
            "provider-offline" => Self::ProviderOffline(message),
            "timeout" => Self::Timeout(message),
            "cancelled" => Self::Cancelled(message),
            "validation-error" => Self::received("what was sent", message),
            "connection-error" => Self::Connection(message),
            _ => Self::Execution(message),
        }
    }

    /// What a server's refusal of a frame means.
    pub(crate) fn refused(code: Option<&str>, message: &str) -> Self {
        match code {
            Some("validation-error") => Self::sent("the message", message),
            code => Self::Refused { code: code.unwrap_or("refused").into(), message: message.into() },
        }
    }

    pub(crate) fn sent(what: &str, detail: impl Into<String>) -> Self {
        ValidationError { direction: Direction::Sent, what: what.into(), details: vec![detail.into()] }.into()
    }

    pub(crate) fn received(what: &str, detail: impl Into<String>) -> Self {
        ValidationError { direction: Direction::Received, what: what.into(), details: vec![detail.into()] }.into()
    }

    pub(crate) fn closed() -> Self {
        Self::Connection("the client is closed; connect again to go on".into())
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sent => "sent",
            Self::Received => "used",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_the_wire() {
        for code in [
            "method-not-found",
            "provider-not-found",
            "provider-offline",
            "execution-error",
            "timeout",
            "cancelled",
            "validation-error",
            "connection-error",
        ] {
            assert_eq!(Error::from_code(code, "x").code(), code);
        }
        assert_eq!(Error::from_code("my-own", "x").code(), "execution-error");
        assert_eq!(Error::refused(Some("handle-conflict"), "x").code(), "handle-conflict");
    }
}
