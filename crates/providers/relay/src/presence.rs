//! Tracks whether a caller is connected.
//!
//! A caller with an open stream is present. After its last stream has closed, it counts as absent
//! at the end of a grace period, which is zero by default. A caller that polls, or sends a
//! request without an open stream, has [`POLL_GRACE`] to return. A caller that was never seen
//! listening may use a way that the gateway cannot see: rare polls, or another process that
//! listens for it. Calls then wait for it until the tool's timeout.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// Between two polls a caller has no open request, and is still present.
const POLL_GRACE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Presence {
    state: Mutex<Known>,
    grace: Duration,
}

#[derive(Debug)]
struct Known {
    state: State,
    /// Until this time the caller does not count as absent, even if its streams close.
    active_until: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Never seen listening.
    Unknown,
    /// Not listening, because it handles the requests that it has received.
    Working,
    Connected,
    /// Not listening; counts as absent from this time on.
    Left(Instant),
    Gone,
}

impl Presence {
    pub(crate) fn new(grace: Duration) -> Self {
        Self { state: Mutex::new(Known { state: State::Unknown, active_until: None }), grace }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.known().state == State::Gone
    }

    pub(crate) fn as_str(&self) -> &'static str {
        match self.known().state {
            State::Unknown => "unknown",
            State::Working => "working",
            State::Connected => "listening",
            State::Left(_) => "left",
            State::Gone => "gone",
        }
    }

    /// Updates the state with whether the caller is listening now. Returns `true` if the caller
    /// has just become absent.
    pub(crate) fn update(&self, listens: bool, now: Instant) -> bool {
        let mut known = self.known();
        if listens {
            if known.state != State::Connected {
                *known = Known { state: State::Connected, active_until: None };
            }
            return false;
        }
        if known.state == State::Connected {
            known.leave(now + self.grace);
        }
        let is_over = matches!(known.state, State::Left(until) if now >= until);
        if is_over {
            known.state = State::Gone;
        }
        is_over
    }

    /// Returns when the caller will count as absent, if it does not return.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.known().state {
            State::Left(until) => Some(until),
            _ => None,
        }
    }

    /// Records a request of a caller that is not listening, which has time to listen again.
    pub(crate) fn active(&self) {
        let mut known = self.known();
        if matches!(known.state, State::Left(_) | State::Gone) {
            known.leave(Instant::now() + self.grace.max(POLL_GRACE));
        }
    }

    /// Records that the caller is listening, so that it needs no time for another request.
    pub(crate) fn here(&self) {
        *self.known() = Known { state: State::Connected, active_until: None };
    }

    /// Records the end of a long poll, after which the caller has time for its next poll.
    pub(crate) fn polled_again(&self) {
        let mut known = self.known();
        let until = Instant::now() + self.grace.max(POLL_GRACE);
        known.active_until = Some(until);
        if matches!(known.state, State::Left(_) | State::Gone) {
            known.leave(until);
        }
    }

    /// Records that a poll returns requests: the caller will be silent until it has handled them.
    pub(crate) fn started_work(&self) {
        self.known().state = State::Working;
    }

    /// Records that the caller has answered all requests. It has time to poll again.
    pub(crate) fn done(&self) {
        let mut known = self.known();
        if known.state == State::Working {
            known.leave(Instant::now() + self.grace.max(POLL_GRACE));
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.state.lock()
    }
}

impl Known {
    fn leave(&mut self, until: Instant) {
        self.state = State::Left(self.active_until.map_or(until, |active| until.max(active)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_caller_is_gone_after_its_grace_and_back_when_it_listens() {
        let presence = Presence::new(Duration::from_secs(5));
        let after = async |seconds| tokio::time::advance(Duration::from_secs(seconds)).await;
        assert!(
            !presence.update(false, Instant::now()) && !presence.is_gone(),
            "never seen: waited for"
        );
        presence.update(true, Instant::now());
        assert!(!presence.update(false, Instant::now()));
        after(4).await;
        presence.active();
        after(4).await;
        assert!(!presence.update(false, Instant::now()), "it did something meanwhile");
        after(1).await;
        assert!(presence.update(false, Instant::now()) && presence.is_gone());
        assert!(!presence.update(false, Instant::now()), "it goes only once");
        presence.update(true, Instant::now());
        assert!(!presence.is_gone());
        presence.started_work();
        after(60).await;
        assert!(!presence.update(false, Instant::now()), "it works on what it was given");
        presence.done();
        after(6).await;
        assert!(presence.update(false, Instant::now()), "it has not asked for more");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_grace_a_closed_stream_is_the_end_and_a_poll_is_not() {
        let presence = Presence::new(Duration::ZERO);
        presence.update(true, Instant::now());
        presence.active();
        assert!(
            presence.update(false, Instant::now()) && presence.is_gone(),
            "its stream has closed"
        );
        presence.active();
        assert!(!presence.update(false, Instant::now()) && !presence.is_gone(), "it did something");
        presence.update(true, Instant::now());
        presence.polled_again();
        assert!(!presence.update(false, Instant::now()) && !presence.is_gone(), "it polls");
        tokio::time::advance(POLL_GRACE).await;
        assert!(presence.update(false, Instant::now()), "it does not poll any more");
        presence.polled_again();
        presence.update(true, Instant::now());
        assert!(
            presence.update(false, Instant::now()),
            "a stream that was opened since then has closed"
        );
    }
}
