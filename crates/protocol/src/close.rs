//! The close codes of a gateway for a node's socket, and the node's reaction to each.

/// The gateway is shutting down or restarting. Connect again.
pub const GOING_AWAY: u16 = 1001;

/// The gateway has no buffer space at the moment, either for a partly received large message or for
/// the content of the hello. Connect again.
pub const TRY_AGAIN_LATER: u16 = 1013;

/// The hello is invalid; the close reason gives the details. Final, because the node would send the
/// same hello again.
pub const BAD_HELLO: u16 = 4400;

/// The token is unknown or no longer valid. Final.
pub const UNAUTHORIZED: u16 = 4401;

/// The gateway does not support the protocol version of the hello. Final.
pub const VERSION_NOT_SUPPORTED: u16 = 4406;

/// The hello did not arrive in time. Connect again.
pub const HELLO_TOO_LATE: u16 = 4408;

/// The node id belongs to another owner's node. Final.
pub const ID_HELD: u16 = 4409;

/// A newer connection with the same node id replaced this one.
///
/// Not final, because the newer connection may be this very node over another network, and may
/// close again. But two processes with one id would replace each other forever. So a replaced node
/// waits for the longest delay of its backoff before it connects again.
pub const REPLACED: u16 = 4410;

/// The node reads more slowly than the gateway writes. Connect again.
pub const TOO_SLOW: u16 = 4429;

/// Returns whether a node must not reconnect by itself after this close code.
pub const fn is_final(code: u16) -> bool {
    matches!(code, BAD_HELLO | UNAUTHORIZED | VERSION_NOT_SUPPORTED | ID_HELD)
}
