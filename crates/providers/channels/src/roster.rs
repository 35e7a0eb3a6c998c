//! The participants that are present in a channel.

use std::ops::Bound;
use std::sync::Arc;

use sa_protocol::channel::handle_key;

use crate::channel::{Channel, Member};
use crate::history::MAX_PAGE_BYTES;
use crate::methods::{Metadata, Method, Offer};
use crate::presence::Presenting;
use crate::usage::Reservation;

/// One participant, with one or more connections.
pub(crate) struct Presence {
    /// A JSON object.
    pub(crate) metadata: Arc<str>,
    pub(crate) handle: Option<String>,
    pub(crate) connections: usize,
    pub(crate) joined_ms: i64,
    pub(crate) presenting: Presenting,
    /// The quota reserved for the departure. `None` if the quota had no space for both messages:
    /// then neither is stored.
    pub(crate) departure: Option<Reservation>,
    /// The metadata of each connection, the latest last. The latest one is in effect, and its
    /// program receives the calls.
    pub(crate) by_connection: Vec<ConnectionMetadata>,
    /// The names of its methods, if it has declared any list of methods.
    pub(crate) methods: Option<Vec<String>>,
    /// Its methods, offered as tools.
    pub(crate) offer: Option<Offer>,
}

/// The metadata that one connection sent about its participant.
pub(crate) struct ConnectionMetadata {
    pub(crate) member: u64,
    instance: Option<Arc<str>>,
    pub(crate) metadata: Arc<str>,
    pub(crate) handle: Option<String>,
}

impl Presence {
    /// Offers the methods of the metadata, and replaces the previous offer.
    pub(crate) fn declare(
        &mut self,
        channel: &Arc<Channel>,
        participant: &Arc<str>,
        metadata: &Metadata<'_>,
    ) {
        let names =
            |methods: &Vec<Method<'_>>| methods.iter().map(|method| method.name.clone()).collect();
        self.methods = metadata.methods.as_ref().map(names);
        self.offer = Offer::make(self.offer.take(), channel, participant, metadata);
    }

    /// Returns whether calls of this method are forwarded. Without a list, every call is.
    pub(crate) fn may_have(&self, method: &str) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.iter().any(|name| name == method))
    }

    /// Applies the metadata that a connection sends about the participant.
    pub(crate) fn set_metadata(
        &mut self,
        member: &Member,
        metadata: &str,
        handle: Option<&String>,
    ) {
        let (metadata, handle) = (Arc::<str>::from(metadata), handle.cloned());
        self.by_connection.retain(|sent| sent.member != member.id);
        (self.metadata, self.handle) = (Arc::clone(&metadata), handle.clone());
        self.by_connection.push(ConnectionMetadata {
            member: member.id,
            instance: member.instance.clone(),
            metadata,
            handle,
        });
    }

    /// Returns whether a connection of this participant has requested this handle.
    pub(crate) fn claims(&self, handle: &str) -> bool {
        let key = handle_key(handle);
        let mut handles = self.by_connection.iter().filter_map(|sent| sent.handle.as_ref());
        handles.any(|handle| handle_key(handle) == key)
    }

    /// Returns the instance id of the program that receives the calls, if it is known.
    pub(crate) fn serving(&self) -> Option<&Arc<str>> {
        self.by_connection.last()?.instance.as_ref()
    }
}

/// A participant in a list.
#[derive(Debug, Clone)]
pub struct Participant {
    pub id: Arc<str>,
    /// A JSON object.
    pub metadata: Arc<str>,
    pub joined_ms: i64,
    pub connections: usize,
}

impl Channel {
    /// Returns the number of present participants.
    pub fn present(&self) -> usize {
        self.state().roster.len()
    }

    /// Returns the present participants after this id, sorted by id, up to the limit and the size
    /// of a page. The second value is whether there are more.
    pub fn roster(&self, after: Option<&str>, limit: usize) -> (Vec<Participant>, bool) {
        let state = self.state();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut listed, mut bytes) = (Vec::new(), 0);
        for (id, presence) in state.roster.range::<str, _>((from, Bound::Unbounded)) {
            bytes += id.len() + presence.metadata.len();
            if !listed.is_empty() && (listed.len() >= limit || bytes > MAX_PAGE_BYTES) {
                return (listed, true);
            }
            listed.push(Participant {
                id: Arc::clone(id),
                metadata: Arc::clone(&presence.metadata),
                joined_ms: presence.joined_ms,
                connections: presence.connections,
            });
        }
        (listed, false)
    }
}
