//! Whether a server can be had now, and what is said to whoever wants it while it cannot.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sa_core::{CallError, CallErrorKind};
use tokio::time::Instant;

use super::{Phase, Server, State};
use crate::connection::Connection;

/// How long after it went away a reader still waits for it.
const ABSENCE: Duration = Duration::from_secs(5);

impl Server {
    /// The server's own connection, once it is ready. Starts it when it is idle.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, CallError> {
        self.wanted.notify_one();
        let mut phase = self.phase.subscribe();
        loop {
            match &*phase.borrow_and_update() {
                Phase::Ready(connection) => return Ok(Arc::clone(connection)),
                Phase::Away(since) => return Err(self.absence(*since)),
                Phase::Locked => return Err(self.lock()),
                Phase::Waiting => {}
            }
            if phase.changed().await.is_err() {
                return Err(self.absence(Instant::now()));
            }
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(&*self.phase.borrow(), Phase::Ready(_))
    }

    /// Resolves when it was tried once, however that went, or is not tried yet.
    pub(crate) async fn is_settled(&self) {
        if self.health().state == State::Starting {
            let mut phase = self.phase.subscribe();
            let _ = phase.wait_for(|phase| !matches!(phase, Phase::Waiting)).await;
        }
    }

    /// Resolves when it is not known to be away, or over for good.
    pub(crate) async fn back(&self) {
        let mut phase = self.phase.subscribe();
        tokio::select! {
            _ = phase.wait_for(|phase| !matches!(phase, Phase::Away(_) | Phase::Locked)) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Whether one that has only just gone is back after a moment: most absences are restarts.
    pub(crate) async fn is_back_soon(&self) -> bool {
        let mut phase = self.phase.subscribe();
        let left = match &*phase.borrow() {
            Phase::Away(since) => ABSENCE.saturating_sub(since.elapsed()),
            Phase::Waiting | Phase::Ready(_) | Phase::Locked => ABSENCE,
        };
        let usable = |phase: &Phase| matches!(phase, Phase::Ready(connection) if !connection.suspect.is_cancelled());
        tokio::time::timeout(left, phase.wait_for(usable)).await.is_ok_and(|found| found.is_ok())
    }

    /// Whether it has ever said what it has.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    /// Somebody has done something about it, so that calls wait for what comes of that.
    pub(super) fn begin_again(&self) {
        self.phase.send_if_modified(|phase| {
            let awaited = matches!(phase, Phase::Locked) || !self.is_listed();
            if awaited {
                *phase = Phase::Waiting;
            }
            awaited
        });
    }

    /// What a call is told before the server has listed its tools. While it is being started, the call is given back to
    /// the router, which looks for the tool again when there is news, for as long as the call has time.
    pub(crate) fn unlisted(&self) -> CallError {
        match &*self.phase.borrow() {
            Phase::Waiting | Phase::Ready(_) => {
                CallError::undelivered(format!("the upstream \"{}\" is starting", self.name))
                    .hint(format!("switchboard upstream show {} says how far it is; then retry", self.name))
            }
            Phase::Locked => self.lock(),
            Phase::Away(_) => {
                let why = self.health().last_error.unwrap_or_default();
                let message = format!("the upstream \"{}\" has not listed its tools yet: {why}", self.name);
                CallError::new(CallErrorKind::Offline, message)
                    .hint(format!("switchboard upstream show {} says how it is", self.name))
            }
        }
    }

    fn absence(&self, since: Instant) -> CallError {
        let why = self.health.lock().unwrap_or_else(PoisonError::into_inner).last_error.clone();
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let seconds = since.elapsed().as_secs();
        CallError::undelivered(format!("the upstream \"{}\" went away {seconds} s ago{why}", self.name))
    }

    /// What a call is told while nobody is logged in. It would wait in vain.
    fn lock(&self) -> CallError {
        let why = self.health.lock().unwrap_or_else(PoisonError::into_inner).last_error.clone().unwrap_or_default();
        CallError::new(CallErrorKind::Failed, format!("the upstream \"{}\" needs a login: {why}", self.name))
            .hint(format!("an operator logs in with: switchboard upstream login {}", self.name))
            .retryable(false)
    }
}
