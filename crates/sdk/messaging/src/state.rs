//! The state of the connection.

/// Whether a client is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// The first connection is being opened.
    Connecting,
    Connected,
    /// The connection was lost. New messages wait for the next one.
    Reconnecting {
        /// The number of the next attempt; the first is 1.
        attempt: u32,
    },
    /// The client has ended for good.
    Closed,
}

/// A lost connection is restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reconnected {
    /// Whether all missed messages have been delivered. `Some(false)` if some were deleted or the
    /// channel was replaced; `None` if the server does not report it.
    pub recovered: Option<bool>,
}
