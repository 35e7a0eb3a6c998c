//! The codes with which a gateway closes a node's socket, and what a node does about each.

/// The gateway is going away, or restarting. Connect again.
pub const GOING_AWAY: u16 = 1001;

/// The gateway has no room at the moment: for what has come of a large message, or for what the hello says. Connect again.
pub const TRY_AGAIN_LATER: u16 = 1013;

/// The hello could not be used; the reason says what is wrong with it. Final, because the same hello would be sent
/// again.
pub const BAD_HELLO: u16 = 4400;

/// The token is not known, or not valid any more. Final.
pub const UNAUTHORIZED: u16 = 4401;

/// The gateway does not speak the protocol version of the hello. Final.
pub const VERSION_NOT_SUPPORTED: u16 = 4406;

/// The hello did not come in time. Connect again.
pub const HELLO_TOO_LATE: u16 = 4408;

/// The node id belongs to somebody else's node. Final.
pub const ID_HELD: u16 = 4409;

/// A newer connection with the same node id took over.
///
/// Not final, because the newer one may be this very node, back over another network, and may go away again. But two
/// processes with one id would throw each other out for ever, so a node that was replaced waits for the longest delay
/// of its backoff before it connects again.
pub const REPLACED: u16 = 4410;

/// The node reads more slowly than the gateway has to write. Connect again.
pub const TOO_SLOW: u16 = 4429;

/// Whether a node that was closed with this code must not connect again by itself.
pub const fn is_final(code: u16) -> bool {
    matches!(code, BAD_HELLO | UNAUTHORIZED | VERSION_NOT_SUPPORTED | ID_HELD)
}
