//! WebSocket connections with bounded resources.
//!
//! The gateway serves every socket the same way:
//!
//! - One task reads and writes concurrently, so two peers that wait for each other cannot deadlock.
//! - An [`Outbox`] bounds the send queue, so a slow reader only costs its own connection.
//! - Pings detect a dead peer.
//! - A connection ends with a close code and a reason.
//!
//! Frames that are queued while the socket is busy are sent in one write.

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
