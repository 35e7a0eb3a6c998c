use crate::url::Token;

/// The reason why a client could not be built, or stopped running.
///
/// [`run`](crate::NodeClient::run) ends with one of these. It never returns an error that
/// reconnecting can fix: such an error is logged, and counts towards
/// [`ReconnectExhausted`](NodeSdkError::ReconnectExhausted).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeSdkError {
    /// The builder has a setting that cannot work.
    #[error("the configuration of the node is invalid: {0}")]
    Config(String),

    /// The token that was passed to `run` was cancelled. This is the normal end of a node.
    #[error("the node was shut down")]
    Shutdown,

    /// The gateway rejected the token, or this node with that token.
    #[error(
        "the gateway refused this node ({status}): {reason}; check SA_NODE_TOKEN, and that the token is allowed to register this node id"
    )]
    Unauthorized {
        /// The HTTP status of the upgrade, or the close code.
        status: u16,
        /// The gateway's reason.
        reason: String,
    },

    /// Gateway and node support different versions of the protocol.
    #[error(
        "the gateway does not support protocol version {} of this node: {reason}; update the older of the two",
        sa_protocol::PROTOCOL_VERSION
    )]
    ProtocolMismatch {
        /// The gateway's reason, or the version that it answered with.
        reason: String,
    },

    /// The gateway accepted the connection, but will never accept this node as configured.
    #[error("the gateway refused this node (close code {code}): {reason}{}", what_to_set(*code))]
    Refused {
        /// The close code.
        code: u16,
        /// The gateway's reason.
        reason: String,
    },

    /// The number of failed attempts in a row reached the limit of the backoff. The log has the
    /// reasons.
    #[error("gave up after {0} failed attempts to connect to the gateway; the log has the reasons")]
    ReconnectExhausted(u32),

    /// The connection failed, or was lost.
    #[error("{0}")]
    WebSocket(String),

    /// The connection was opened, but the gateway sent no welcome.
    #[error("the handshake with the gateway failed: {0}")]
    Handshake(String),

    /// Any other error, for programs that return this type from their own functions. The client
    /// never returns it.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

/// Returns a hint about the sources of a node's id, if id and token do not match.
fn what_to_set(code: u16) -> &'static str {
    if code == sa_protocol::close::ID_HELD {
        "; NodeInfo::from_env takes the id from SA_NODE_ID, or from the type of the node and the name of the machine"
    } else {
        ""
    }
}

impl NodeSdkError {
    /// Converts a close by the gateway into an error, by its close code.
    pub(crate) fn from_close(code: u16, reason: &str, token: &Token) -> Self {
        use sa_protocol::close;
        let reason =
            if reason.is_empty() { "no reason given".to_owned() } else { token.redact(reason) };
        match code {
            close::UNAUTHORIZED => Self::Unauthorized { status: code, reason },
            close::VERSION_NOT_SUPPORTED => Self::ProtocolMismatch { reason },
            _ if close::is_final(code) => Self::Refused { code, reason },
            _ => Self::lost(&format!("the gateway closed it (code {code}): {reason}")),
        }
    }

    pub(crate) fn lost(reason: &str) -> Self {
        Self::WebSocket(format!("the connection was lost: {reason}"))
    }

    /// Returns whether reconnecting would only fail in the same way.
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
