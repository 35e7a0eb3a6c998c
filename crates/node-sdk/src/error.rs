use crate::url::Token;

/// Why a client could not be built, or stopped running.
///
/// [`run`](crate::NodeClient::run) ends with one of these. It never returns a failure that reconnecting can fix: that is logged,
/// and counts towards [`ReconnectExhausted`](NodeSdkError::ReconnectExhausted).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeSdkError {
    /// The builder was given something that cannot work.
    #[error("the node's configuration is not usable: {0}")]
    Config(String),

    /// The token that was passed to `run` was cancelled. This is how a node ends that was told to.
    #[error("the node was shut down")]
    Shutdown,

    /// The gateway refused the token, or this node with it.
    #[error(
        "the gateway refused this node ({status}): {reason}; check SA_NODE_TOKEN, and that the token may register this node id"
    )]
    Unauthorized {
        /// The HTTP status of the upgrade, or the code of the close.
        status: u16,
        /// The gateway's words.
        reason: String,
    },

    /// Gateway and node speak different versions of the protocol.
    #[error(
        "this node speaks protocol version {}, the gateway does not: {reason}; update the older of the two",
        sa_protocol::PROTOCOL_VERSION
    )]
    ProtocolMismatch {
        /// The gateway's words, or the version it answered with.
        reason: String,
    },

    /// The gateway took the connection, but will never take this node as it is.
    #[error("the gateway refused this node (close code {code}): {reason}{}", what_to_set(*code))]
    Refused {
        /// The code of the close.
        code: u16,
        /// The gateway's words.
        reason: String,
    },

    /// As many attempts failed in a row as the backoff allows. The log says how.
    #[error("gave up after {0} failed attempts to connect to the gateway; the log has the reasons")]
    ReconnectExhausted(u32),

    /// No connection came about, or it was lost.
    #[error("{0}")]
    WebSocket(String),

    /// There was a connection, but no welcome.
    #[error("the gateway did not welcome this node: {0}")]
    Handshake(String),

    /// Any other error, for programs that return this type from their own functions. The client makes none.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

/// Where the id and the token of a node come from that are not each other's.
fn what_to_set(code: u16) -> &'static str {
    if code == sa_protocol::close::ID_HELD {
        "; NodeInfo::from_env takes the id from SA_NODE_ID, else from the node's type and the machine's name"
    } else {
        ""
    }
}

impl NodeSdkError {
    /// What a close of the gateway's means, by its code.
    pub(crate) fn from_close(code: u16, reason: &str, token: &Token) -> Self {
        use sa_protocol::close;
        let reason = if reason.is_empty() { "no reason given".to_owned() } else { token.redact(reason) };
        match code {
            close::UNAUTHORIZED => Self::Unauthorized { status: code, reason },
            close::VERSION_NOT_SUPPORTED => Self::ProtocolMismatch { reason },
            _ if close::is_final(code) => Self::Refused { code, reason },
            _ => Self::lost(&format!("the gateway closed it with code {code}: {reason}")),
        }
    }

    pub(crate) fn lost(reason: &str) -> Self {
        Self::WebSocket(format!("the connection was lost: {reason}"))
    }

    /// Whether connecting again would only fail in the same way.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::WebSocket(_) | Self::Handshake(_) => false,
            Self::Config(_)
            | Self::Shutdown
            | Self::Unauthorized { .. }
            | Self::ProtocolMismatch { .. }
            | Self::Refused { .. }
            | Self::ReconnectExhausted(_)
            | Self::Other(_) => true,
        }
    }
}
