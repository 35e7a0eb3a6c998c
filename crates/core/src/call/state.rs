//! The lifetime of a call: its deadline and its cancellation.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{CancelReason, Overrun, Update, UpdateSink};
use crate::provider::ProviderId;

/// The state of one running call that the router, the provider and cancellation share.
#[derive(Debug)]
pub(crate) struct CallState {
    pub(crate) deadline: Deadline,
    pub(crate) cancel: CancelSignal,
    pub(crate) updates: AtomicU32,
    pub(crate) reader: Reader,
    /// The tool's exposed name, if the caller used another one.
    pub(crate) exposed: OnceLock<Arc<str>>,
    /// The provider of the call and the time of dispatch.
    pub(crate) dispatched: Mutex<Option<(ProviderId, Instant)>>,
}

/// The reader of a call's updates. It is removed when the call ends, or continues without its
/// caller.
///
/// Sending an update and removing the reader take the same lock. After the reader is removed, which
/// precedes the outcome, every earlier update has been delivered and none will follow.
pub(crate) struct Reader(Mutex<Option<Arc<dyn UpdateSink>>>);

impl Reader {
    pub(crate) fn new(sink: Option<Arc<dyn UpdateSink>>) -> Self {
        Self(Mutex::new(sink))
    }

    /// Sends an update, if there is a reader.
    pub(crate) fn send(&self, update: impl FnOnce() -> Update) -> Result<(), Overrun> {
        match &*self.lock() {
            Some(sink) => sink.send(update()),
            None => Ok(()),
        }
    }

    /// Removes the reader. Further updates are discarded.
    pub(crate) fn detach(&self) {
        let sink = self.lock().take();
        // The sink is dropped outside of the lock, because dropping it runs code of the surface.
        drop(sink);
    }

    pub(crate) fn sink(&self) -> Option<Arc<dyn UpdateSink>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn UpdateSink>>> {
        self.0.lock()
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

/// A time limit that updates extend, up to a fixed cap. A limit that equals its cap is a hard one.
#[derive(Debug)]
pub(crate) struct Deadline {
    started: Instant,
    /// Milliseconds after `started`.
    ends: AtomicU64,
    limit_ms: AtomicU64,
    cap_ms: u64,
    /// Whether progress does not extend the limit.
    hard: AtomicBool,
    /// Wakes the task that waits for the deadline, after the deadline was moved forward.
    moved: Notify,
}

impl Deadline {
    pub(crate) fn new(limit: Duration, cap: Duration) -> Self {
        let cap_ms = cap.as_millis() as u64;
        let limit_ms = (limit.as_millis() as u64).min(cap_ms);
        Self {
            started: Instant::now(),
            ends: AtomicU64::new(limit_ms),
            limit_ms: AtomicU64::new(limit_ms),
            cap_ms,
            hard: AtomicBool::new(false),
            moved: Notify::new(),
        }
    }

    pub(crate) fn limit(&self) -> Duration {
        Duration::from_millis(self.limit_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn cap(&self) -> Duration {
        Duration::from_millis(self.cap_ms)
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.ends() <= Instant::now()
    }

    /// Returns whether the call reached the cap after updates had extended its deadline.
    pub(crate) fn is_at_cap(&self) -> bool {
        let ends = self.ends.load(Ordering::Acquire);
        ends == self.cap_ms && ends > self.limit_ms.load(Ordering::Relaxed)
    }

    /// Whether signs of life do not extend the limit.
    pub(crate) fn is_hard(&self) -> bool {
        self.hard.load(Ordering::Relaxed)
    }

    /// Changes the limit, which counts from the call's start. The same limit keeps its extensions.
    pub(crate) fn set_limit(&self, limit: Duration, hard: bool) {
        let limit_ms = (limit.as_millis() as u64).min(self.cap_ms);
        if (self.limit_ms.load(Ordering::Relaxed), self.is_hard()) == (limit_ms, hard) {
            return;
        }
        self.hard.store(hard, Ordering::Relaxed);
        self.limit_ms.store(limit_ms, Ordering::Relaxed);
        self.ends.store(limit_ms, Ordering::Release);
        self.moved.notify_one();
    }

    pub(crate) fn extend(&self) {
        if self.is_hard() {
            return;
        }
        let now = self.started.elapsed().as_millis() as u64;
        let limit = self.limit_ms.load(Ordering::Relaxed);
        self.ends.fetch_max(now.saturating_add(limit).min(self.cap_ms), Ordering::AcqRel);
    }

    /// Resolves when the cap is reached.
    pub(crate) async fn capped(&self) {
        tokio::time::sleep_until(self.started + self.cap()).await;
    }

    pub(crate) fn ends(&self) -> Instant {
        self.started + Duration::from_millis(self.ends.load(Ordering::Acquire))
    }

    /// Resolves when the deadline has passed, including all extensions.
    pub(crate) async fn expired(&self) {
        loop {
            let ends = self.ends();
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(ends) => {}
                () = self.moved.notified() => {}
            }
            if self.is_expired() {
                return;
            }
        }
    }
}

/// A signal that fires once, with the first reason given.
#[derive(Debug, Default)]
pub(crate) struct CancelSignal {
    reason: OnceLock<CancelReason>,
    notify: Notify,
}

impl CancelSignal {
    /// Returns `false` if the signal has fired before.
    pub(crate) fn fire(&self, reason: CancelReason) -> bool {
        let first = self.reason.set(reason).is_ok();
        self.notify.notify_waiters();
        first
    }

    pub(crate) fn reason(&self) -> Option<CancelReason> {
        self.reason.get().copied()
    }

    pub(crate) async fn fired(&self) -> CancelReason {
        loop {
            // The future is created before the reason is checked, so that a signal in between is
            // not missed.
            let notify = self.notify.notified();
            if let Some(reason) = self.reason() {
                return reason;
            }
            notify.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn progress_moves_the_deadline_up_to_its_cap() {
        let deadline = Deadline::new(Duration::from_secs(60), Duration::from_secs(100));
        let started = Instant::now();
        tokio::time::advance(Duration::from_secs(30)).await;
        deadline.extend();
        assert_eq!(deadline.ends() - started, Duration::from_secs(90));
        tokio::time::advance(Duration::from_secs(30)).await;
        deadline.extend();
        assert_eq!(deadline.ends() - started, Duration::from_secs(100));
        deadline.expired().await;
        assert_eq!(Instant::now() - started, Duration::from_secs(100));
    }
}
