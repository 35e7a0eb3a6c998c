//! The background sessions: the running ones, and for a while those that have ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sa_limits::budget::{Holder, Limit, Permit, SharedBudget};
use sa_node_sdk::{Principal, ToolContext, ToolError};

use super::session::Session;

/// The time for which an ended session is kept.
pub(super) const RETENTION: Duration = Duration::from_secs(30 * 60);
/// The maximum memory of ended sessions, in bytes. The session that ended first is removed first.
const MAX_FINISHED_BYTES: usize = 64 << 20;
/// The maximum number of running sessions, which their owners share.
const RUNNING: Limit = Limit {
    name: "background_sessions",
    what: "background sessions",
    key: "",
    remedy: "end one with Process, action kill, or retry later",
    total: 64,
};

#[derive(Debug)]
pub(super) struct Sessions {
    known: Mutex<HashMap<String, Arc<Session>>>,
    running: Arc<SharedBudget>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { known: Mutex::default(), running: SharedBudget::new(RUNNING) }
    }
}

/// The sessions that a call may see and control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Access {
    /// All sessions: the caller is an operator, or the gateway does not send the principals of its
    /// calls.
    All,
    /// The sessions that this principal started.
    Own(String),
}

impl Access {
    pub(super) fn of(ctx: &ToolContext) -> Self {
        Self::for_principal(ctx.principal())
    }

    fn for_principal(principal: Option<Principal>) -> Self {
        principal
            .filter(|principal| !principal.is_operator())
            .map_or(Self::All, |principal| Self::Own(principal.id))
    }

    fn includes(&self, session: &Session) -> bool {
        match self {
            Self::All => true,
            Self::Own(id) => session.owner.as_deref() == Some(id),
        }
    }
}

impl Sessions {
    /// Acquires a slot for a session that may run in the background. Callers without a principal
    /// share one part of the slots.
    ///
    /// The error does not reveal how many sessions of other principals are running.
    pub(super) fn acquire(&self, principal: Option<&Principal>) -> Result<Permit, ToolError> {
        let holder = match principal {
            None => Holder::anonymous(),
            Some(operator) if operator.is_operator() => Holder::operator(&*operator.id),
            Some(other) => Holder::named(&*other.id),
        };
        self.running.acquire(&holder, 1).map_err(|_| {
            let (running, Limit { what, remedy, .. }) = (self.running.held_by(&holder), RUNNING);
            ToolError::Failed(format!(
                "{running} {what} of this principal are running, and no more can start now; {remedy}"
            ))
        })
    }

    pub(super) fn insert(&self, session: &Arc<Session>) {
        self.known().insert(session.id.clone(), Arc::clone(session));
    }

    /// Returns a session. A session of another principal is reported as missing, so that its
    /// existence is not revealed.
    pub(super) fn get(&self, id: &str, access: &Access) -> Result<Arc<Session>, ToolError> {
        self.known().get(id).filter(|session| access.includes(session)).cloned().ok_or_else(|| {
            ToolError::NotFound(format!(
                "session {id} is not found or is not backgrounded; list your sessions with Process, action list"
            ))
        })
    }

    /// Returns the sessions that a call may see, newest first.
    pub(super) fn visible(&self, access: &Access) -> Vec<Arc<Session>> {
        let mut sessions = self.all();
        sessions.retain(|session| access.includes(session));
        sessions
    }

    /// Returns all sessions, newest first.
    fn all(&self) -> Vec<Arc<Session>> {
        let mut all: Vec<_> = self.known().values().cloned().collect();
        all.sort_unstable_by(|a, b| (b.started_ms, &b.id).cmp(&(a.started_ms, &a.id)));
        all
    }

    /// Starts the retention time of an ended session.
    pub(super) fn finished(self: &Arc<Self>, session: &Arc<Session>) {
        self.forget_beyond(MAX_FINISHED_BYTES);
        let (sessions, id) = (Arc::downgrade(self), session.id.clone());
        tokio::spawn(async move {
            tokio::time::sleep(RETENTION).await;
            if let Some(sessions) = sessions.upgrade() {
                sessions.known().remove(&id);
            }
        });
    }

    /// Removes the sessions that ended first, until the others take at most this many bytes.
    fn forget_beyond(&self, max_bytes: usize) {
        let ended = |session: Arc<Session>| Some((session.ended_ms(&session.end()?), session));
        let mut finished: Vec<_> = self.all().into_iter().filter_map(ended).collect();
        finished.sort_unstable_by(|(a, one), (b, other)| (b, &other.id).cmp(&(a, &one.id)));
        let mut bytes = 0_usize;
        for (_, session) in finished {
            bytes = bytes.saturating_add(session.weight());
            if bytes > max_bytes {
                self.known().remove(&session.id);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.known.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::input::Stdin;
    use crate::shell::session::{End, Identity};

    fn sessions(owners: &[Option<&str>]) -> Sessions {
        let sessions = Sessions::default();
        for (number, owner) in owners.iter().enumerate() {
            let who = Identity {
                id: number.to_string(),
                owner: owner.map(str::to_owned),
                command: "true".into(),
                workdir: "/".into(),
                pid: 1,
                slot: None,
            };
            sessions.insert(&Session::new(who, Stdin::new(None, false)).0);
        }
        sessions
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_that_ended_are_kept_by_their_bytes_and_not_by_their_number() {
        let sessions = Arc::new(sessions(&[None; 300]));
        let (mut all, mut finished) = (sessions.all(), Vec::new());
        all.sort_by_key(|session| session.id.parse::<u64>().unwrap());
        for session in &all[..299] {
            tokio::time::advance(Duration::from_millis(2)).await;
            session.write(&"x".repeat(1_000));
            let end =
                End { code: Some(0), signal: None, timed_out: false, after: session.elapsed() };
            session.finish(end, |_, _| {});
            sessions.finished(session);
            finished.push(session.weight());
        }
        assert_eq!(sessions.all().len(), 300, "small ones are all kept");
        sessions.forget_beyond(finished[..10].iter().sum());
        let kept = |number: usize| sessions.get(&number.to_string(), &Access::All).is_ok();
        assert!(kept(289) && kept(298) && !kept(288), "those that ended last");
        assert!(kept(299), "it still runs");
        tokio::time::sleep(RETENTION).await;
        tokio::task::yield_now().await;
        assert_eq!(sessions.all().len(), 1, "30 minutes later");
    }

    /// Acquires slots until no more are free.
    fn acquire_all(sessions: &Sessions, principal: Option<&Principal>) -> Vec<Permit> {
        std::iter::from_fn(|| sessions.acquire(principal).ok()).collect()
    }

    #[test]
    fn one_owner_leaves_slots_to_others_and_does_not_learn_their_number() {
        let sessions = Sessions::default();
        let agent = |id| Principal::new(id, "agent");
        let first = acquire_all(&sessions, Some(&agent("anna")));
        assert_eq!(first.len(), 48, "three quarters");
        let second = acquire_all(&sessions, Some(&agent("ben")));
        assert_eq!(second.len(), 9, "more than an eighth is refused");
        let nameless = acquire_all(&sessions, None);
        let operator = acquire_all(&sessions, Some(&Principal::new("boss", "operator")));
        assert_eq!((nameless.len(), operator.len()), (3, 4), "a sixteenth is for operators");
        let error = sessions.acquire(Some(&agent("ben"))).unwrap_err();
        let numbers: String = error
            .message()
            .chars()
            .map(|letter| if letter.is_ascii_digit() { letter } else { ' ' })
            .collect();
        assert_eq!(numbers.split_whitespace().collect::<Vec<_>>(), ["9"], "{error}");
        drop(second);
        assert!(sessions.acquire(Some(&agent("ben"))).is_ok());
        assert!(sessions.acquire(Some(&agent("anna"))).is_err());
    }

    #[track_caller]
    fn check(principal: Option<(&str, &str)>, expected: &[&str]) {
        let sessions = sessions(&[Some("anna"), Some("ben"), None]);
        let principal = principal.map(|(id, role)| Principal::new(id, role));
        let access = Access::for_principal(principal);
        let mut seen: Vec<_> =
            sessions.visible(&access).iter().map(|session| session.id.clone()).collect();
        seen.sort_unstable();
        assert_eq!(seen, expected);
        for id in ["0", "1", "2"] {
            assert_eq!(sessions.get(id, &access).is_ok(), expected.contains(&id), "{id}");
        }
    }

    #[tokio::test]
    async fn a_caller_sees_and_controls_its_own_sessions_and_an_operator_all() {
        check(Some(("anna", "agent")), &["0"]);
        check(Some(("ben", "user")), &["1"]);
        check(Some(("carl", "agent")), &[]);
        check(Some(("carl", "operator")), &["0", "1", "2"]);
        // A gateway that sends no principals leaves the access check to its policy.
        check(None, &["0", "1", "2"]);
    }
}
