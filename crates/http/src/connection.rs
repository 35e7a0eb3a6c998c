//! The connection of a request.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::Extensions;
use sa_core::CallError;
use sa_limits::budget::Holder;

use crate::Problem;
use crate::slot::Slot;

/// The two ends of a connection, as its handlers see them.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub tls: bool,
}

/// Counts the connection of a socket for its principal. Only the handler of the socket knows the
/// token.
pub fn settle(extensions: &Extensions, holder: impl FnOnce() -> Holder) -> Result<(), Problem> {
    let slot = extensions.get::<Arc<Slot>>();
    slot.map_or(Ok(()), |slot| slot.settle(holder)).map_err(over_share)
}

pub fn over_share(refused: sa_limits::budget::Refused) -> Problem {
    Problem::from(&CallError::from(refused))
}
