//! Whether a caller is there.
//!
//! A caller that listens on a stream of ours is there, and one whose last stream has ended is gone once its grace is over.
//! One that was never seen to listen may have a road that the gateway does not see (it asks now and then, or another
//! process listens for it): it is waited for, each time until the tool's timeout.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Presence {
    state: Mutex<State>,
    grace: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Never seen to listen.
    Unknown,
    /// Silent, because it is at work on what it was given.
    Working,
    Here,
    /// It stopped listening at this time.
    Left(Instant),
    Gone,
}

impl Presence {
    pub(crate) fn new(grace: Duration) -> Self {
        Self { state: Mutex::new(State::Unknown), grace }
    }

    pub(crate) fn is_gone(&self) -> bool {
        *self.state() == State::Gone
    }

    pub(crate) fn as_str(&self) -> &'static str {
        match *self.state() {
            State::Unknown => "unknown",
            State::Working => "working",
            State::Here => "listening",
            State::Left(_) => "left",
            State::Gone => "gone",
        }
    }

    /// Takes in whether somebody listens now. `true` when the caller has just become gone.
    pub(crate) fn look(&self, listens: bool, now: Instant) -> bool {
        let mut state = self.state();
        *state = match *state {
            _ if listens => State::Here,
            State::Here => State::Left(now),
            State::Left(since) if now.duration_since(since) >= self.grace => State::Gone,
            // Nothing new: whoever is gone has been gone before.
            _ => return false,
        };
        *state == State::Gone
    }

    /// When the caller will count as gone, if it does not come back.
    pub(crate) fn due(&self) -> Option<Instant> {
        match *self.state() {
            State::Left(since) => Some(since + self.grace),
            _ => None,
        }
    }

    /// The caller did something: it has its grace again.
    pub(crate) fn active(&self) {
        let mut state = self.state();
        if matches!(*state, State::Left(_) | State::Gone) {
            *state = State::Left(Instant::now());
        }
    }

    /// The caller was given work by a question that is answered now; it will be silent until it has done it.
    pub(crate) fn at_work(&self) {
        *self.state() = State::Working;
    }

    /// The caller has done what it was given. It has its grace to ask for more.
    pub(crate) fn done(&self) {
        let mut state = self.state();
        if *state == State::Working {
            *state = State::Left(Instant::now());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_caller_is_gone_once_its_grace_is_over_and_back_when_it_listens() {
        let presence = Presence::new(Duration::from_secs(5));
        let after = async |seconds| tokio::time::advance(Duration::from_secs(seconds)).await;
        assert!(!presence.look(false, Instant::now()) && !presence.is_gone(), "never seen: waited for");
        presence.look(true, Instant::now());
        assert!(!presence.look(false, Instant::now()));
        after(4).await;
        presence.active();
        after(4).await;
        assert!(!presence.look(false, Instant::now()), "it did something meanwhile");
        after(1).await;
        assert!(presence.look(false, Instant::now()) && presence.is_gone());
        assert!(!presence.look(false, Instant::now()), "it goes only once");
        presence.look(true, Instant::now());
        assert!(!presence.is_gone());
        presence.at_work();
        after(60).await;
        assert!(!presence.look(false, Instant::now()), "it works on what it was given");
        presence.done();
        after(6).await;
        assert!(presence.look(false, Instant::now()), "it has not asked for more");
    }
}
