//! Ctrl-C for commands that follow events.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::output::Failure;

/// Receives Ctrl-C from the moment it is created, so that no signal is lost between two events.
pub(super) struct CtrlC(Signal);

impl CtrlC {
    pub(super) fn new() -> Result<Self, Failure> {
        signal(SignalKind::interrupt()).map(Self).map_err(|error| {
            Failure::other(format!("cannot install a handler for Ctrl-C: {error}"))
        })
    }

    /// Waits until Ctrl-C is pressed.
    pub(super) async fn pressed(&mut self) {
        self.0.recv().await;
    }
}
