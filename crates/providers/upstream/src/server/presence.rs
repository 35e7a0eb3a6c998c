//! Whether a server is available, and the errors that callers receive while it is not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sa_core::{CallError, CallErrorKind};
use tokio::time::Instant;

use super::{Phase, Server, State};
use crate::connection::Connection;

/// How long a document request waits for a server that has just gone offline.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Server {
    /// Returns the main connection, once the server is ready. Starts the server if it is idle.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, CallError> {
        self.start_requested.notify_one();
        let mut phase = self.phase.subscribe();
        loop {
            match &*phase.borrow_and_update() {
                Phase::Ready(connection) => return Ok(Arc::clone(connection)),
                Phase::Offline(since) => return Err(self.offline_error(*since)),
                Phase::LoginRequired => return Err(self.login_error()),
                Phase::Waiting => {}
            }
            if phase.changed().await.is_err() {
                return Err(self.offline_error(Instant::now()));
            }
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(&*self.phase.borrow(), Phase::Ready(_))
    }

    /// Waits until the first attempt to connect has succeeded or failed. Returns at once if the
    /// server is not starting.
    pub(crate) async fn wait_for_first_attempt(&self) {
        if self.health().state == State::Starting {
            let mut phase = self.phase.subscribe();
            let _ = phase.wait_for(|phase| !matches!(phase, Phase::Waiting)).await;
        }
    }

    /// Waits until the server may be available again, or is removed.
    pub(crate) async fn wait_until_available(&self) {
        let mut phase = self.phase.subscribe();
        tokio::select! {
            _ = phase.wait_for(|phase| !matches!(phase, Phase::Offline(_) | Phase::LoginRequired)) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Returns whether a server that has just gone offline becomes ready shortly: most outages
    /// are restarts.
    pub(crate) async fn reconnects_soon(&self) -> bool {
        let mut phase = self.phase.subscribe();
        let left = match &*phase.borrow() {
            Phase::Offline(since) => RECONNECT_TIMEOUT.saturating_sub(since.elapsed()),
            Phase::Waiting | Phase::Ready(_) | Phase::LoginRequired => RECONNECT_TIMEOUT,
        };
        let usable = |phase: &Phase| matches!(phase, Phase::Ready(connection) if !connection.suspect.is_cancelled());
        tokio::time::timeout(left, phase.wait_for(usable)).await.is_ok_and(|found| found.is_ok())
    }

    /// Returns whether the server has ever listed its tools.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    /// Lets calls wait for the result of an operator's action.
    pub(super) fn start_over(&self) {
        self.phase.send_if_modified(|phase| {
            let awaited = matches!(phase, Phase::LoginRequired) || !self.is_listed();
            if awaited {
                *phase = Phase::Waiting;
            }
            awaited
        });
    }

    /// Returns the error for a call before the server has listed its tools. While the server
    /// starts, the call counts as undelivered. The router then looks the tool up again after each
    /// change, until the call's deadline.
    pub(crate) fn unlisted(&self) -> CallError {
        match &*self.phase.borrow() {
            Phase::Waiting | Phase::Ready(_) => {
                CallError::undelivered(format!("the upstream \"{}\" is starting", self.name)).hint(
                    format!(
                        "run `switchboard upstream show {}` to see its progress; then retry",
                        self.name
                    ),
                )
            }
            Phase::LoginRequired => self.login_error(),
            Phase::Offline(_) => {
                let why = self.health().last_error.unwrap_or_default();
                let message =
                    format!("the upstream \"{}\" has not listed its tools yet: {why}", self.name);
                CallError::new(CallErrorKind::Offline, message)
                    .hint(format!("run `switchboard upstream show {}` to see its state", self.name))
            }
        }
    }

    fn offline_error(&self, since: Instant) -> CallError {
        let why = self.health.lock().last_error.clone();
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let seconds = since.elapsed().as_secs();
        CallError::undelivered(format!(
            "the upstream \"{}\" disconnected {seconds} s ago{why}",
            self.name
        ))
    }

    /// Returns the error for a call while there is no login. Waiting would be pointless.
    fn login_error(&self) -> CallError {
        let why = self.health.lock().last_error.clone().unwrap_or_default();
        CallError::new(
            CallErrorKind::Failed,
            format!("the upstream \"{}\" needs a login: {why}", self.name),
        )
        .hint(format!("an operator can log in with `switchboard upstream login {}`", self.name))
        .retryable(false)
    }
}
