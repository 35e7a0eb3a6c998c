//! How the connection is.

/// Whether a client is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// For the first time.
    Connecting,
    Connected,
    /// The connection was lost. What is sent now waits for the next one.
    Reconnecting {
        /// Which attempt comes next; the first is 1.
        attempt: u32,
    },
    /// For good.
    Closed,
}

/// A lost connection is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reconnected {
    /// Whether everything that was said meanwhile has been delivered. `Some(false)` if some of it was deleted, or the
    /// channel is another one by now; `None` if the server cannot tell.
    pub recovered: Option<bool>,
}
