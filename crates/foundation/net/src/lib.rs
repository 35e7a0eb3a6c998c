//! WebSocket connections that stay bounded, whatever the other side does.
//!
//! Every socket of the gateway is served the same way: one task that reads and writes at once (so that two peers which
//! both wait for the other to read cannot lock up), an [`Outbox`] with a limit (so that a reader who is too slow costs
//! its own connection and nothing else), pings (so that a dead peer is noticed), and a close with a code and a reason.
//! Frames that queue up while the socket is busy leave in one write.

mod cut;
mod frames;
mod outbox;
mod serve;
mod source;
mod split;
mod upgrade;
mod watched;

pub use outbox::{Declined, Outbox, Rejected};
pub use serve::{Close, Liveness, Next, Received, Work, dismiss, serve, serve_messages};
pub use tokio_tungstenite::tungstenite::Message;
pub use upgrade::{NoUpgrade, SocketLimits, Upgrade, WebSocket};
pub use watched::Watched;
