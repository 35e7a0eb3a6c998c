//! The participants in the channel.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, mem};

use futures_util::Stream;
use serde_json::{Map, Value};

use crate::event::{LeaveReason, Presence, PresenceAction};
use crate::metadata::Participant;
use crate::queue::{Item, Reader};

/// All participants in the channel, by id.
pub type Roster = BTreeMap<String, Participant>;

/// A change of the roster.
#[derive(Debug, Clone, PartialEq)]
pub struct RosterUpdate {
    /// The current participants.
    pub participants: Arc<Roster>,
    pub change: RosterChange,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RosterChange {
    Joined(String),
    Updated(String),
    Left(String, LeaveReason),
    /// The client has connected and received the whole roster.
    Replaced,
    /// The number of changes that were dropped, because the stream was not read in time.
    Lagged(u64),
}

/// The client's copy of the roster.
#[derive(Debug, Default)]
pub(crate) struct Known {
    now: Arc<Roster>,
    /// The roster according to the messages before `ready`, until it is known whether they count.
    told: Roster,
}

impl Known {
    pub(crate) fn now(&self) -> Arc<Roster> {
        Arc::clone(&self.now)
    }

    /// Begins a new connection, which sends the roster again.
    pub(crate) fn begin(&mut self) {
        self.told.clear();
    }

    /// Applies a presence that arrived before `ready`.
    pub(crate) fn tell(&mut self, id: &str, presence: &Presence) {
        apply(&mut self.told, id, presence);
    }

    /// Completes the roster of a ready connection. `snapshot` is the server's roster, if it sent
    /// one.
    pub(crate) fn replace(&mut self, snapshot: Option<&str>) -> Option<RosterUpdate> {
        let told = mem::take(&mut self.told);
        let next = snapshot.and_then(read).unwrap_or(told);
        if next == *self.now {
            return None;
        }
        self.now = Arc::new(next);
        Some(RosterUpdate { participants: self.now(), change: RosterChange::Replaced })
    }

    /// Applies a new presence.
    pub(crate) fn change(&mut self, id: &str, presence: &Presence) -> Option<RosterUpdate> {
        let known = self.now.contains_key(id);
        apply(Arc::make_mut(&mut self.now), id, presence);
        let change = match presence.action {
            PresenceAction::Leave(_) if !known => return None,
            PresenceAction::Leave(reason) => RosterChange::Left(id.into(), reason),
            _ if known => RosterChange::Updated(id.into()),
            _ => RosterChange::Joined(id.into()),
        };
        Some(RosterUpdate { participants: self.now(), change })
    }
}

fn apply(roster: &mut Roster, id: &str, presence: &Presence) {
    if let PresenceAction::Leave(_) = presence.action {
        roster.remove(id);
        return;
    }
    roster.insert(id.into(), Participant { id: id.into(), metadata: presence.metadata.clone() });
}

fn read(snapshot: &str) -> Option<Roster> {
    let entries: BTreeMap<String, Value> = serde_json::from_str(snapshot).ok()?;
    let participant = |(id, mut entry): (String, Value)| {
        let metadata = match entry.get_mut("metadata").map(Value::take) {
            Some(Value::Object(metadata)) => metadata,
            _ => Map::new(),
        };
        (id.clone(), Participant { id, metadata })
    };
    Some(entries.into_iter().map(participant).collect())
}

impl Item for RosterUpdate {
    fn weight(&self) -> usize {
        256
    }

    fn lagged(missed: u64) -> Self {
        Self { participants: Arc::default(), change: RosterChange::Lagged(missed) }
    }
}

/// The stream that [`Client::roster_changes`](crate::Client::roster_changes) returns.
pub struct RosterChanges {
    pub(crate) reader: Reader<RosterUpdate>,
}

impl Stream for RosterChanges {
    type Item = RosterUpdate;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<RosterUpdate>> {
        Pin::new(&mut self.reader).poll_next(cx)
    }
}

impl fmt::Debug for RosterChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RosterChanges").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presence(action: PresenceAction) -> Presence {
        Presence { action, metadata: Map::new() }
    }

    #[test]
    fn a_snapshot_counts_more_than_what_was_told() {
        let mut known = Known::default();
        known.tell("ghost", &presence(PresenceAction::Join));
        let update = known.replace(Some(r#"{"ann":{"metadata":{"name":"Ann"}},"bob":7}"#)).unwrap();
        assert_eq!(update.participants.keys().collect::<Vec<_>>(), ["ann", "bob"]);
        assert_eq!(update.participants["ann"].name(), "Ann");
        known.begin();
        known.tell("carl", &presence(PresenceAction::Join));
        known.tell("dora", &presence(PresenceAction::Join));
        known.tell("carl", &presence(PresenceAction::Leave(LeaveReason::Graceful)));
        assert_eq!(known.replace(None).unwrap().participants.keys().collect::<Vec<_>>(), ["dora"]);
    }

    #[test]
    fn changes_say_what_they_are() {
        let mut known = Known::default();
        let leave = PresenceAction::Leave(LeaveReason::Disconnect);
        assert_eq!(known.change("a", &presence(leave)), None);
        let mut change = |action| known.change("a", &presence(action)).unwrap().change;
        assert_eq!(change(PresenceAction::Join), RosterChange::Joined("a".into()));
        assert_eq!(change(PresenceAction::Update), RosterChange::Updated("a".into()));
        assert_eq!(change(leave), RosterChange::Left("a".into(), LeaveReason::Disconnect));
    }

    proptest::proptest! {
        #[test]
        fn a_snapshot_is_who_is_here_or_none(text in sa_hostile::nearly(serde_json::json!({
            "ann": { "metadata": { "name": "Ann", "methods": [{ "name": "a", "timeout": 5 }] } }, "bob": {},
        }))) {
            for (id, participant) in read(&text).into_iter().flatten() {
                proptest::prop_assert_eq!(&id, &participant.id);
                let _ = (participant.name(), participant.handle(), participant.kind());
                proptest::prop_assert!(participant.methods().iter().all(|method| method.timeout.is_none_or(|millis| millis > 0)));
            }
        }
    }
}
