//! Keeps a client connected: one task per client, which ends when the client does.

mod open;
mod outbox;
mod parting;
mod session;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use self::outbox::Outbox;
use self::session::{End, Session};
use crate::Error;
use crate::builder::ReplayMode;
use crate::shared::{Command, Position, Shared};
use crate::state::{ConnectionState, Reconnected};

pub(crate) struct Actor {
    shared: Arc<Shared>,
    commands: mpsc::Receiver<Command>,
    outbox: Outbox,
    /// Resolves `connect` after the first connection.
    first: Option<oneshot::Sender<Result<(), Error>>>,
    /// The position from which the next connection continues.
    position: Option<Position>,
    /// Whether the channel has another history than before, so that missed messages are unknown.
    other_history: bool,
}

impl Actor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        commands: mpsc::Receiver<Command>,
        first: oneshot::Sender<Result<(), Error>>,
    ) -> Self {
        let config = &shared.config;
        let position = (config.replay != ReplayMode::Skip).then(|| config.from.clone());
        Self {
            shared,
            commands,
            outbox: Outbox::default(),
            first: Some(first),
            position,
            other_history: false,
        }
    }

    pub(crate) async fn run(mut self) {
        let reason = self.stay_connected().await;
        tracing::debug!(%reason, "left the channel");
        self.shared.end(reason.clone());
        if let Some(first) = self.first.take() {
            let _ = first.send(Err(reason));
        }
    }

    /// Connects once and echoes every message until the connection ends.
    pub(crate) async fn echo(mut self) -> Result<(), Error> {
        let opened = open::open(&self.shared.config, self.position.as_ref()).await;
        let socket = opened.map_err(|failed| failed.error)?;
        Session::new(&mut self).echo(socket).await;
        Ok(())
    }

    /// Reconnects until the client ends, and returns the reason.
    async fn stay_connected(&mut self) -> Error {
        let shared = Arc::clone(&self.shared);
        let mut failures = 0;
        loop {
            let opening = Box::pin(open::open(&shared.config, self.position.as_ref()));
            let Some(opened) = shared.closed.run_until_cancelled(opening).await else {
                return Error::closed();
            };
            let end = match opened {
                Ok(socket) => Session::new(self).run(socket).await,
                Err(failed) if failed.is_final => End::Final(failed.error),
                Err(failed) => {
                    End::Lost { error: failed.error, was_connected: false, at_once: false }
                }
            };
            let (error, was_connected, at_once) = match end {
                End::Closed => return Error::closed(),
                End::Final(error) => {
                    self.disconnected(&error);
                    return error;
                }
                End::Again => continue,
                End::Lost { error, was_connected, at_once } => (error, was_connected, at_once),
            };
            self.outbox.lost(self.is_idempotent());
            if self.first.is_some() {
                return error;
            }
            if was_connected {
                failures = 0;
                self.disconnected(&error);
            } else {
                failures += 1;
                shared.report(&error);
            }
            let Some(backoff) = &shared.config.reconnect else { return error };
            if failures > 0 && failures == backoff.max_attempts {
                return Error::Connection(format!(
                    "gave up after {failures} attempts; the last error was: {error}"
                ));
            }
            shared.state.send_replace(ConnectionState::Reconnecting { attempt: failures + 1 });
            shared.on_reconnecting.call(&(failures + 1));
            let delay =
                if at_once { Duration::ZERO } else { backoff.delay(failures, rand::random()) };
            tracing::debug!(%error, ?delay, "not connected; reconnecting");
            if shared.closed.run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
                return Error::closed();
            }
        }
    }

    fn disconnected(&self, error: &Error) {
        let was_connected = *self.shared.state.borrow() == ConnectionState::Connected;
        if was_connected {
            self.shared.on_disconnect.call(error);
        }
    }

    /// Handles the registration of this participant in the channel.
    fn connected(&mut self, recovered: Option<bool>) {
        let recovered =
            if std::mem::take(&mut self.other_history) { Some(false) } else { recovered };
        self.shared.state.send_replace(ConnectionState::Connected);
        match self.first.take() {
            Some(first) => drop(first.send(Ok(()))),
            None => self.shared.on_reconnect.call(&Reconnected { recovered }),
        }
    }

    /// Returns whether the server stores a message only once if it is sent twice.
    fn is_idempotent(&self) -> bool {
        self.shared.identity().extensions.iter().any(|extension| extension == "client-message-id")
    }
}
