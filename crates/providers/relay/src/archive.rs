//! The stored sessions, open and ended, and the space that their events use.
//!
//! Each session has a stream of its own. A store has space for a million streams in its lifetime,
//! and there may be more sessions than that, so a stream is used again after its session was
//! deleted.
//!
//! The events of a session count for its owner in one budget. If the budget refuses more, old
//! ended sessions are deleted. An owner above its share loses its own. An owner below its share
//! gets the space from the largest owner above its share. If that is not enough, the oldest events
//! of the session that writes are deleted.

mod space;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use sa_core::Trimmer;
use sa_core::retention::round_limit;
use sa_core::store::{Expect, Log, Records, Retention, StoreError, Trimmed};
use sa_limits::budget::{Holder, Limit, SharedBudget};
use sa_limits::eviction::to_evict;
use tracing::warn;

pub(crate) use self::space::Space;
use self::space::Streams;
use crate::record::Record;

/// The bucket of sessions in the store.
const BUCKET: &str = "sessions";
/// Deletes all entries of a stream.
const DELETE_ALL: Retention = Retention { entries: Some(0), bytes: None, aged: None };
/// An older version of the gateway stored the events of all sessions in this number of streams.
const OLD_STREAMS: u32 = 1_024;

pub(crate) struct Archive {
    pub(crate) log: Arc<dyn Log>,
    records: Arc<dyn Records>,
    trimmer: Arc<Trimmer>,
    limits: Limits,
    budget: Arc<SharedBudget>,
    streams: Arc<Streams>,
    sessions: Mutex<HashMap<Arc<str>, Stored>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The maximum number of ended sessions.
    pub(crate) ended: usize,
    /// How long ended sessions are kept.
    pub(crate) keep: Duration,
    /// The maximum size of the events of all sessions.
    pub(crate) bytes: usize,
}

struct Stored {
    space: Arc<Space>,
    ended_ms: Option<i64>,
}

/// An ended session.
struct Ended {
    at_ms: i64,
    id: Arc<str>,
    owner: Holder,
    /// The bytes that its deletion returns to the budget.
    bytes: usize,
}

impl Archive {
    /// Loads the stored sessions. Returns also those that an earlier gateway process left open.
    pub(crate) async fn load(
        log: Arc<dyn Log>,
        records: Arc<dyn Records>,
        trimmer: Arc<Trimmer>,
        limits: Limits,
    ) -> Result<(Arc<Self>, Vec<Record>), StoreError> {
        let budget = SharedBudget::new(Limit {
            name: "session_events",
            what: "bytes of stored session events",
            key: "sessions.max_stored_bytes",
            remedy: "wait until old sessions are deleted",
            total: limits.bytes,
        });
        let streams = Arc::new(Streams::default());
        let (mut sessions, mut left_open) = (HashMap::new(), Vec::new());
        let mut unreadable = Vec::new();
        for (id, record) in records.list(BUCKET).await? {
            let record = match serde_json::from_slice::<Record>(&record.value) {
                Ok(record) => record,
                Err(error) => {
                    unreadable.push((id, error));
                    continue;
                }
            };
            let owner = &*record.view.owner.id;
            let holder =
                if record.by_operator { Holder::operator(owner) } else { Holder::named(owner) };
            let space = Space::stored(&streams, record.stream, budget.empty(&holder));
            space.charge(record.event_bytes);
            let stored = Stored { space, ended_ms: record.view.ended_ms };
            sessions.insert(record.view.session_id.as_str().into(), stored);
            if record.view.ended_ms.is_none() {
                left_open.push(record);
            }
        }
        let sessions = Mutex::new(sessions);
        let archive = Self { log, records, trimmer, limits, budget, streams, sessions };
        archive.delete_unreadable(unreadable).await?;
        Ok((Arc::new(archive), left_open))
    }

    /// Deletes records that this version cannot read, and the events that belong to no session.
    async fn delete_unreadable(
        &self,
        unreadable: Vec<(String, serde_json::Error)>,
    ) -> Result<(), StoreError> {
        let Some((_, error)) = unreadable.first() else { return Ok(()) };
        let sessions = unreadable.len();
        warn!(sessions, %error, "deleting sessions that an older version of the gateway stored");
        for (id, _) in unreadable {
            self.records.delete(BUCKET, &id).await?;
        }
        let used: HashSet<Arc<str>> =
            self.sessions().values().map(|stored| Arc::clone(&stored.space.stream)).collect();
        for number in 0..OLD_STREAMS {
            let stream = space::stream_name(number);
            if used.contains(&stream) {
                continue;
            }
            let bounds = self.log.bounds(&stream).await?;
            if bounds.first <= bounds.last {
                self.log.trim(&stream, DELETE_ALL).await?;
            }
        }
        Ok(())
    }

    pub(crate) fn budget(&self) -> &Arc<SharedBudget> {
        &self.budget
    }

    /// Creates the empty stream of a new session.
    pub(crate) async fn create(
        &self,
        id: &Arc<str>,
        owner: &Holder,
    ) -> Result<Arc<Space>, StoreError> {
        let space = Space::new(&self.streams, self.budget.empty(owner));
        // The stream may have events of an earlier session that could not be deleted.
        let bounds = self.log.bounds(&space.stream).await?;
        if bounds.first <= bounds.last {
            self.log.trim(&space.stream, DELETE_ALL).await?;
        }
        let stored = Stored { space: Arc::clone(&space), ended_ms: None };
        self.sessions().insert(Arc::clone(id), stored);
        Ok(space)
    }

    /// Forgets a session that could not be opened.
    pub(crate) fn forget(&self, id: &str) {
        self.sessions().remove(id);
    }

    /// Returns the space of a session, if it is stored.
    pub(crate) fn space(&self, id: &str) -> Option<Arc<Space>> {
        self.sessions().get(id).map(|stored| Arc::clone(&stored.space))
    }

    pub(crate) async fn write(&self, record: &Record) -> Result<(), StoreError> {
        let id = record.view.session_id.as_str();
        let json = serde_json::to_vec(record).unwrap_or_default();
        self.records.put(BUCKET, id, Bytes::from(json), Expect::Anything).await?;
        let is_known = match self.sessions().get_mut(id) {
            Some(stored) => {
                stored.ended_ms = record.view.ended_ms;
                true
            }
            None => false,
        };
        if !is_known {
            // It was deleted meanwhile.
            self.records.delete(BUCKET, id).await?;
        }
        Ok(())
    }

    pub(crate) async fn read(&self, id: &str) -> Result<Option<Record>, StoreError> {
        let record = self.records.get(BUCKET, id).await?;
        Ok(record.and_then(|record| serde_json::from_slice(&record.value).ok()))
    }

    pub(crate) async fn list(&self) -> Result<Vec<Record>, StoreError> {
        let records = self.records.list(BUCKET).await?.into_iter();
        Ok(records.filter_map(|(_, record)| serde_json::from_slice(&record.value).ok()).collect())
    }

    /// Deletes ended sessions until the budget has space for the events of this one. Returns the
    /// size to which its own events must be reduced.
    pub(crate) async fn make_space(&self, space: &Space, limit: u64) -> u64 {
        let owner = space.owner();
        while space.is_refused() {
            let Some(oldest) = self.oldest_for(&owner) else { break };
            if let Err(error) = self.delete(&oldest.id).await {
                warn!(session = &*oldest.id, %error, "cannot delete an old session");
                break;
            }
            self.trimmer.report("session", Trimmed { over_limit: 1, aged: 0 });
        }
        space.limit(limit)
    }

    /// Deletes sessions that ended long ago, or exceed the limit. Above the limit, a session of the
    /// principal with the most ended sessions is deleted.
    pub(crate) async fn expire(&self) -> Result<(), StoreError> {
        let since_ms = self.trimmer.since_ms(self.limits.keep);
        let mut ended = self.ended();
        let at_most = round_limit(ended.len() as u64);
        let mut deleted = Trimmed::default();
        let owners = ended.iter().map(|session| (&**session.owner.id(), 1));
        let mut evicted = to_evict(owners, self.limits.ended);
        for position in &evicted {
            self.delete(&ended[*position].id).await?;
            deleted.over_limit += 1;
        }
        evicted.sort_unstable();
        for position in evicted.into_iter().rev() {
            ended.remove(position);
        }
        let is_old = |ended: &&Ended| since_ms.is_some_and(|since_ms| ended.at_ms < since_ms);
        for old in ended.iter().take_while(is_old).take(at_most as usize) {
            self.delete(&old.id).await?;
            deleted.aged += 1;
        }
        self.trimmer.report("session", deleted);
        Ok(())
    }

    /// Returns the session to delete for new events of this owner.
    fn oldest_for(&self, owner: &Holder) -> Option<Ended> {
        let (budget, mut ended) = (&self.budget, self.ended());
        ended.retain(|session| session.bytes > 0);
        let largest = ended
            .iter()
            .map(|session| &session.owner)
            .filter(|other| !budget.is_above_share(owner) && budget.is_above_share(other))
            .max_by_key(|other| budget.held_by(other));
        let victim = largest.unwrap_or(owner).id().clone();
        ended.into_iter().find(|session| *session.owner.id() == victim)
    }

    async fn delete(&self, id: &str) -> Result<(), StoreError> {
        // Removed first, so that nothing else deletes it. Its stream is used again when the last
        // reader and writer have dropped it.
        let Some((id, stored)) = self.sessions().remove_entry(id) else { return Ok(()) };
        if let Err(error) = self.records.delete(BUCKET, &id).await {
            self.sessions().insert(id, stored);
            return Err(error);
        }
        if let Err(error) = self.log.trim(&stored.space.stream, DELETE_ALL).await {
            warn!(session = &*id, %error, "cannot delete the events of an old session");
        }
        // A reader may still use the space.
        stored.space.reduced(0);
        Ok(())
    }

    /// Returns the ended sessions, oldest first.
    fn ended(&self) -> Vec<Ended> {
        let sessions = self.sessions();
        let ended = sessions.iter().filter_map(|(id, stored)| {
            let (id, space) = (Arc::clone(id), &stored.space);
            let at_ms = stored.ended_ms?;
            Some(Ended { at_ms, id, owner: space.owner(), bytes: space.charged() })
        });
        let mut ended: Vec<Ended> = ended.collect();
        drop(sessions);
        ended.sort_unstable_by(|a, b| (a.at_ms, &a.id).cmp(&(b.at_ms, &b.id)));
        ended
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Arc<str>, Stored>> {
        self.sessions.lock()
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive").field("sessions", &self.sessions().len()).finish_non_exhaustive()
    }
}
