use std::fmt;

/// An error of a client. Programs on the other side of the connection identify it by its
/// [`code`](Error::code).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `method-not-found`: the participant offers no such method.
    #[error("{0}")]
    MethodNotFound(String),
    /// `provider-not-found`: no such participant is in the channel.
    #[error("{0}")]
    ProviderNotFound(String),
    /// `provider-offline`: the participant left during the call.
    #[error("{0}")]
    ProviderOffline(String),
    /// `execution-error`: the method ran and failed.
    #[error("{0}")]
    Execution(String),
    /// `timeout`: no result arrived in time.
    #[error("{0}")]
    Timeout(String),
    /// `cancelled`: the call was cancelled.
    #[error("{0}")]
    Cancelled(String),
    /// `validation-error`: a message, an argument or an option is invalid.
    #[error(transparent)]
    Validation(#[from] ValidationError),
    /// `connection-error`: there is no connection, and none can be opened.
    #[error("{0}")]
    Connection(String),
    /// The server rejected a message for a reason of its own: `not-allowed`, `conflict`,
    /// `handle-conflict`, `rate-limited`, `store-error`.
    #[error("the server rejected the message ({code}): {message}")]
    Refused {
        /// The code of the rejection, for programs.
        code: String,
        /// The server's message.
        message: String,
    },
}

/// A value that violates the protocol or a method's schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be {direction}: {}", details.join("; "))]
pub struct ValidationError {
    /// Whether this program tried to send the value, or received it.
    pub direction: Direction,
    /// A description of the value, such as `a message`.
    pub what: String,
    /// All violations that were found.
    pub details: Vec<String>,
}

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From this program to the channel.
    Sent,
    /// From the channel to this program.
    Received,
}

impl Error {
    /// Returns the protocol's code of the error.
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

    /// Creates an error from its code and its message, as received. An unknown code becomes an
    /// `execution-error`.
    pub fn from_code(code: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        match code {
            "method-not-found" => Self::MethodNotFound(message),
            "provider-not-found" => Self::ProviderNotFound(message),
            "provider-offline" => Self::ProviderOffline(message),
            "timeout" => Self::Timeout(message),
            "cancelled" => Self::Cancelled(message),
            "validation-error" => Self::received("the sent value", message),
            "connection-error" => Self::Connection(message),
            _ => Self::Execution(message),
        }
    }

    /// Converts the server's rejection of a frame into an error.
    pub(crate) fn refused(code: Option<&str>, message: &str) -> Self {
        match code {
            Some("validation-error") => Self::sent("the message", message),
            code => {
                Self::Refused { code: code.unwrap_or("refused").into(), message: message.into() }
            }
        }
    }

    pub(crate) fn sent(what: &str, detail: impl Into<String>) -> Self {
        ValidationError {
            direction: Direction::Sent,
            what: what.into(),
            details: vec![detail.into()],
        }
        .into()
    }

    pub(crate) fn received(what: &str, detail: impl Into<String>) -> Self {
        ValidationError {
            direction: Direction::Received,
            what: what.into(),
            details: vec![detail.into()],
        }
        .into()
    }

    pub(crate) fn closed() -> Self {
        Self::Connection("the client is closed; connect again to continue".into())
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
