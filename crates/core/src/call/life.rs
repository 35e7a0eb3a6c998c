//! How long a call may live, and who ends it before.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::{CancelReason, Overrun, Update, UpdateSink};
use crate::provider::ProviderId;

/// What the router, the provider and whoever cancels share of one running call.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) deadline: Deadline,
    pub(crate) cancel: CancelSignal,
    pub(crate) updates: AtomicU32,
    pub(crate) reader: Reader,
    /// The tool's exposed name, where the caller used another one.
    pub(crate) exposed: OnceLock<Arc<str>>,
    /// Whom the call was given to, and when.
    pub(crate) dispatched: Mutex<Option<(ProviderId, Instant)>>,
}

/// Whoever follows the call, for as long as there is somebody: until the call is over, or goes on without its caller.
///
/// An update is given over under the lock under which the reader leaves. So whoever has seen it leave, as everybody has who
/// has the outcome, knows that each update was given over before, and that none will be.
pub(crate) struct Reader(Mutex<Option<Arc<dyn UpdateSink>>>);

impl Reader {
    pub(crate) fn new(sink: Option<Arc<dyn UpdateSink>>) -> Self {
        Self(Mutex::new(sink))
    }

    /// Gives an update over, if somebody is there.
    pub(crate) fn tell(&self, update: impl FnOnce() -> Update) -> Result<(), Overrun> {
        match &*self.lock() {
            Some(sink) => sink.send(update()),
            None => Ok(()),
        }
    }

    /// Nobody takes updates any more.
    pub(crate) fn leave(&self) {
        let sink = self.lock().take();
        // Not under the lock: what it lets go of is the surface's.
        drop(sink);
    }

    pub(crate) fn sink(&self) -> Option<Arc<dyn UpdateSink>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn UpdateSink>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

/// A time limit that signs of life extend, up to a cap that nothing moves. A limit that equals its cap is a hard one.
#[derive(Debug)]
pub(crate) struct Deadline {
    started: Instant,
    /// Milliseconds after `started`.
    ends: AtomicU64,
    limit_ms: AtomicU64,
    cap_ms: u64,
    /// Wakes whoever sleeps until an end that has come nearer meanwhile.
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
            moved: Notify::new(),
        }
    }

    pub(crate) fn limit(&self) -> Duration {
        Duration::from_millis(self.limit_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn cap(&self) -> Duration {
        Duration::from_millis(self.cap_ms)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.ends() <= Instant::now()
    }

    /// Whether it was the cap that ended it, after signs of life.
    pub(crate) fn is_at_cap(&self) -> bool {
        let ends = self.ends.load(Ordering::Acquire);
        ends == self.cap_ms && ends > self.limit_ms.load(Ordering::Relaxed)
    }

    /// Changes the limit, which counts from the call's start.
    pub(crate) fn set_limit(&self, limit: Duration) {
        let limit_ms = (limit.as_millis() as u64).min(self.cap_ms);
        self.limit_ms.store(limit_ms, Ordering::Relaxed);
        self.ends.store(limit_ms, Ordering::Release);
        self.moved.notify_one();
    }

    pub(crate) fn extend(&self) {
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

    /// Resolves when the time is really up, however often it was extended meanwhile.
    pub(crate) async fn expired(&self) {
        loop {
            let ends = self.ends();
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(ends) => {}
                () = self.moved.notified() => {}
            }
            if self.is_over() {
                return;
            }
        }
    }
}

/// Fires once, with the first reason given.
#[derive(Debug, Default)]
pub(crate) struct CancelSignal {
    reason: OnceLock<CancelReason>,
    news: Notify,
}

impl CancelSignal {
    /// `false` when it had fired before.
    pub(crate) fn fire(&self, reason: CancelReason) -> bool {
        let first = self.reason.set(reason).is_ok();
        self.news.notify_waiters();
        first
    }

    pub(crate) fn reason(&self) -> Option<CancelReason> {
        self.reason.get().copied()
    }

    pub(crate) async fn fired(&self) -> CancelReason {
        loop {
            // Made before the look at the reason, so that what fires in between is not missed.
            let news = self.news.notified();
            if let Some(reason) = self.reason() {
                return reason;
            }
            news.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sign_of_life_moves_the_deadline_up_to_its_cap() {
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
