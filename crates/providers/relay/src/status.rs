//! The sessions in the gateway's status.

use serde::Serialize;

use crate::Sessions;

impl Sessions {
    pub fn status(&self) -> SessionStatus {
        let (open, running) = self.count();
        SessionStatus { open, running }
    }
}

/// The open sessions.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct SessionStatus {
    pub open: usize,
    /// The number of sessions with a working agent.
    pub running: usize,
}
