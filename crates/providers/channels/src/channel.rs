//! One channel: its participants, readers and running calls.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use sa_core::call::CancelReason;
use sa_core::clock;
use sa_core::store::{Appended, Log, StoreError};
use sa_limits::budget::Holder;
use sa_protocol::channel::{Envelope, encode_body, encode_error, encode_message};
use sa_socket::Outbox;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::error;

use crate::authors::Authors;
use crate::calls::Calls;
use crate::declared::{self, Declared, with_methods};
use crate::history::{Stored, sender_of};
use crate::methods::{Metadata, MethodLink};
use crate::pipeline::{self, IN_FLIGHT, Item, Storage};
use crate::presence::{Presenting, payload};
use crate::roster::Presence;
use crate::usage::Usage;
use crate::{About, Channels, GATEWAY, OpenError, attachments, stream};

/// The number of stored messages that are read at a time to count them.
const COUNTED_AT_ONCE: usize = 256;
/// The number of bytes by which a departure is longer than an arrival, because of its reason.
const LEAVE_REASON: usize = 40;

/// An open channel.
pub struct Channel {
    pub(crate) name: Arc<str>,
    pub(crate) stream: Arc<str>,
    pub(crate) epoch: Arc<str>,
    pub(crate) hub: Arc<Channels>,
    pub(crate) usage: Arc<Usage>,
    state: Mutex<State>,
    items: UnboundedSender<Item>,
    /// The number of messages that are being stored.
    pub(crate) on_way: AtomicUsize,
    room: Arc<Semaphore>,
    /// The channel's document. It is locked while it is changed.
    about: tokio::sync::Mutex<About>,
}

pub(crate) struct State {
    /// The last stored message that was sent to readers.
    pub(crate) head: u64,
    /// All connections that receive messages. Copied on write while it is in use.
    readers: Arc<Vec<Arc<Member>>>,
    pub(crate) roster: BTreeMap<Arc<str>, Presence>,
    pub(crate) calls: Calls,
    pub(crate) authors: Authors,
    pub(crate) declared: Declared,
    next_member: u64,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: u64,
    pub(crate) participant: Arc<str>,
    /// The instance id of the participant's program, if it sends one. It stays the same across
    /// reconnects.
    pub(crate) instance: Option<Arc<str>>,
    pub(crate) outbox: Outbox,
    pub(crate) reads: bool,
    /// The last message that it received before it became a reader.
    pub(crate) seen: u64,
    /// The last message that was queued for it.
    pub(crate) last: AtomicU64,
}

/// How a participant leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    Graceful,
    Disconnect,
}

impl Leave {
    fn as_str(self) -> &'static str {
        match self {
            Self::Graceful => "graceful",
            Self::Disconnect => "disconnect",
        }
    }
}

impl Channel {
    /// Opens a channel. `has_stale_presence` is set if participants were present when the gateway
    /// ended.
    pub(crate) async fn open(
        hub: Arc<Channels>,
        name: &str,
        about: &About,
        usage: Arc<Usage>,
        has_stale_presence: bool,
    ) -> Result<Arc<Self>, StoreError> {
        let stream: Arc<str> = stream(name).into();
        let head = hub.log.bounds(&stream).await?.last;
        let (items, queue) = unbounded_channel();
        let methods_bucket = declared::bucket(name);
        let declared = Declared::load(hub.records.list(&methods_bucket).await?);
        let storage = Storage {
            log: Arc::clone(&hub.log),
            stream: Arc::clone(&stream),
            records: Arc::clone(&hub.records),
            methods_bucket,
        };
        let state = State {
            head,
            readers: Arc::default(),
            roster: BTreeMap::new(),
            calls: Calls::default(),
            authors: Authors::default(),
            declared,
            next_member: 1,
        };
        let channel = Arc::new(Self {
            name: name.into(),
            stream,
            epoch: about.epoch.as_str().into(),
            hub,
            usage,
            state: Mutex::new(state),
            items,
            on_way: AtomicUsize::new(0),
            room: Arc::new(Semaphore::new(IN_FLIGHT)),
            about: about.clone().into(),
        });
        tokio::spawn(pipeline::run(Arc::downgrade(&channel), storage, queue));
        if has_stale_presence {
            channel.take_up_calls().await?;
        }
        if let Some(after) = channel.usage.missing(head) {
            count_stored(&channel.hub.log, &channel.stream, &channel.usage, after, head).await?;
        }
        Ok(channel)
    }

    /// Adds a connection as a reader, and calls `first` to send its first messages. Returns
    /// `None` if there are stored messages that it has not received: it must read those first.
    pub(crate) fn admit(
        &self,
        make: impl FnOnce(u64) -> Member,
        has: Option<u64>,
        first: impl FnOnce(&State, &Member),
    ) -> Option<Arc<Member>> {
        let mut state = self.state();
        if has.is_some_and(|has| has < state.head) {
            return None;
        }
        let member = Arc::new(make(state.next_member));
        state.next_member += 1;
        first(&state, &member);
        Arc::make_mut(&mut state.readers).push(Arc::clone(&member));
        Some(member)
    }

    /// Adds a connection of a participant. The first connection announces the participant to all
    /// readers; a later one receives only its own join message.
    pub(crate) fn join(self: &Arc<Self>, participant: &Arc<str>, member: &Member) {
        let mut state = self.state();
        if let Some(presence) = state.roster.get_mut(participant) {
            presence.connections += 1;
            let body = presence_body(participant, "join", &presence.metadata, None);
            drop(state);
            pipeline::send(
                self,
                member,
                pipeline::frame(&encode_message("ephemeral", None, &body, None, false), None),
                None,
            );
            return;
        }
        let presenting = Presenting::new();
        let arrival = presenting.note(&self.name, participant, true);
        // The stored message has no earlier methods: readers get those from the roster in memory.
        let stored = presence_body(participant, "join", "{}", None);
        // Space for the departure is reserved now, so that leaving is always possible.
        let reserve =
            |bytes| self.usage.reserve(&Holder::named(Arc::clone(participant)), bytes).ok();
        let departure = reserve(stored.len() + LEAVE_REASON);
        let reserved = departure.as_ref().and_then(|_| reserve(stored.len()));
        let mut presence = Presence {
            metadata: "{}".into(),
            handle: None,
            connections: 1,
            joined_ms: clock::now_ms(),
            presenting,
            departure: departure.filter(|_| reserved.is_some()),
            by_connection: Vec::new(),
            methods: None,
            offer: None,
        };
        if let Some(methods) = state.declared.get(member) {
            let metadata = with_methods("{}", methods);
            if let Ok(read) = Metadata::read(&metadata) {
                presence.set_metadata(member, &metadata, None);
                presence.declare(self, participant, &read);
            }
        }
        let body = presence_body(participant, "join", &presence.metadata, None);
        state.roster.insert(Arc::clone(participant), presence);
        // If the quota is exhausted, it is not stored, but still sent to all readers.
        let (persist, stored) = (reserved.is_some(), Some(stored));
        self.enqueue(Item {
            presence: Some(arrival),
            stored,
            reserved,
            ..Item::new(body, persist)
        });
    }

    /// Removes a connection. With its last one the participant leaves: its methods are withdrawn,
    /// and its calls fail.
    pub(crate) fn leave(self: &Arc<Self>, participant: &Arc<str>, member: &Member, how: Leave) {
        let mut state = self.state();
        Arc::make_mut(&mut state.readers).retain(|reader| reader.id != member.id);
        if how == Leave::Graceful
            && let Some(change) = state.declared.remove(member)
        {
            self.enqueue(Item::of_declared(vec![change]));
        }
        let Some(presence) = state.roster.get_mut(participant) else { return };
        presence.connections -= 1;
        presence.by_connection.retain(|sent| sent.member != member.id);
        if presence.connections > 0 {
            return self.go_back(participant, presence);
        }
        let Some(presence) = state.roster.remove(participant) else { return };
        let body = presence_body(participant, "leave", &presence.metadata, Some(how.as_str()));
        let departure = presence.presenting.note(&self.name, participant, false);
        let key = presence.presenting.departure_key();
        let stored = Some(presence_body(participant, "leave", "{}", Some(how.as_str())));
        let (persist, reserved) = (presence.departure.is_some(), presence.departure);
        self.enqueue(Item {
            presence: Some(departure),
            key: Some(key),
            stored,
            reserved,
            ..Item::new(body, persist)
        });
        let orphaned = state.calls.provider_left(participant);
        for call in orphaned {
            self.enqueue(call.failure(
                "provider-offline",
                &format!("the participant \"{participant}\" left during the call"),
            ));
        }
        let abandoned = state.calls.caller_left(participant);
        for call in &abandoned {
            // The caller may reconnect, and look for the result of its call.
            self.enqueue(
                call.failure(
                    "cancelled",
                    &format!("the caller \"{participant}\" left the channel"),
                ),
            );
        }
        drop(state);
        for id in abandoned.into_iter().filter_map(|call| call.routed) {
            self.hub.router.cancel(id, CancelReason::Disconnected, |_| true);
        }
        if let Some(offer) = presence.offer {
            offer.withdraw(participant);
        }
    }

    /// Restores the latest metadata of the remaining connections, after a connection was removed.
    fn go_back(self: &Arc<Self>, participant: &Arc<str>, presence: &mut Presence) {
        let Some(last) =
            presence.by_connection.last().filter(|last| last.metadata != presence.metadata)
        else {
            return;
        };
        (presence.metadata, presence.handle) = (Arc::clone(&last.metadata), last.handle.clone());
        let metadata = Arc::clone(&presence.metadata);
        if let Ok(read) = Metadata::read(&metadata) {
            presence.declare(self, participant, &read);
        }
        let body = presence_body(participant, "update", &metadata, None);
        let reserved = self.usage.reserve(&Holder::named(Arc::clone(participant)), body.len()).ok();
        let persist = reserved.is_some();
        self.enqueue(Item { reserved, ..Item::new(body, persist) });
    }

    /// Hands a message to the pipeline, which fixes its position in the order. The state must be
    /// locked if the order depends on it.
    pub(crate) fn enqueue(&self, mut item: Item) {
        if item.persist && item.reserved.is_none() {
            let attached = item.attached.as_ref().map_or(0, |(bytes, _)| bytes.len());
            let owner = item.owner.take().unwrap_or_else(|| GATEWAY.into());
            item.reserved = Some(self.usage.charge(&owner, item.body.len() + attached));
        }
        self.on_way.fetch_add(1, Ordering::AcqRel);
        // Fails only if the channel is closed, and then no one holds a reference to it.
        let _ = self.items.send(item);
    }

    /// Waits for a slot in the queue.
    pub(crate) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).acquire_owned().await.ok()
    }

    /// Returns a slot in the queue, if one is free.
    pub(crate) fn place_now(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_owned().ok()
    }

    /// Records that a message was stored or sent, and returns the readers to send it to.
    pub(crate) fn released(
        &self,
        id: Option<u64>,
        message_id: Option<&str>,
    ) -> Arc<Vec<Arc<Member>>> {
        let mut state = self.state();
        if let Some(id) = id {
            state.head = state.head.max(id);
            if let Some(message_id) = message_id {
                state.authors.confirm(message_id);
            }
        }
        Arc::clone(&state.readers)
    }

    /// Sends a frame to one connection.
    pub(crate) fn tell(&self, member: u64, frame: String) {
        let reader = self.state().readers.iter().find(|reader| reader.id == member).cloned();
        if let Some(reader) = reader {
            pipeline::send(self, &reader, pipeline::frame(&frame, None), None);
        }
    }

    /// Answers a duplicate message: with the first one's id if it has the same sender, otherwise
    /// with an error.
    pub(crate) fn answer_duplicate(self: Arc<Self>, item: Item, appended: Option<Appended>) {
        let Some(appended) = appended else { return };
        tokio::spawn(async move {
            let first =
                self.hub.log.read(&self.stream, appended.seq - 1, 1).await.unwrap_or_default();
            let author = first.first().and_then(|entry| sender_of(&entry.body));
            let sender = sender_of(item.body.as_bytes());
            if let (Some(author), Some(message)) = (&author, &item.message_id) {
                self.state().authors.correct(message, author);
            }
            if let Some(call) = &item.call_id {
                match self.stored_call(call).await {
                    Ok(Some(stored)) => self.state().calls.correct(call, stored),
                    Ok(None) => {}
                    Err(failure) => error!(error = %failure, "cannot look up a call"),
                }
            }
            let same = author == sender;
            if let Some((from, reference)) = item.from {
                self.tell(
                    from,
                    if same {
                        encode_message("persisted", Some(appended.seq), &item.body, reference, true)
                    } else {
                        encode_error("another participant has used this id", "conflict", reference)
                    },
                );
            }
            if let Some(answer) = item.answer {
                let conflict = || StoreError {
                    kind: sa_core::store::StoreErrorKind::Conflict,
                    message: "another participant has used this id".into(),
                };
                let _ = answer.send(if same { Ok(appended) } else { Err(conflict()) });
            }
        });
    }

    /// Checks that the channel belongs to this context. If it belongs to none and `may_set` is
    /// true, assigns it.
    pub(crate) async fn belong_to(&self, context: &str, may_set: bool) -> Result<(), OpenError> {
        let mut about = self.about.lock().await;
        match &about.context {
            Some(own) if own == context => Ok(()),
            Some(_) => Err(OpenError::OtherContext),
            None if !may_set => Ok(()),
            None => {
                let next = About { context: Some(context.to_owned()), ..about.clone() };
                self.hub.write_about(&self.name, &next).await?;
                *about = next;
                Ok(())
            }
        }
    }

    /// Returns the context that the channel belongs to, and its configuration.
    pub(crate) async fn context(&self) -> (Option<String>, Option<String>) {
        let about = self.about.lock().await;
        (about.context.clone(), about.config.clone())
    }

    /// Reserves the next numbers for attachments without their own id, and returns the first.
    pub(crate) async fn number_attachments(&self, count: u64) -> Result<u64, StoreError> {
        let mut about = self.about.lock().await;
        let next = About { numbered: about.numbered + count, ..about.clone() };
        self.hub.write_about(&self.name, &next).await?;
        let first = about.numbered + 1;
        *about = next;
        Ok(first)
    }

    /// Returns the presence notes of all present participants.
    pub(crate) fn presences(&self) -> Vec<Bytes> {
        let state = self.state();
        state
            .roster
            .iter()
            .map(|(id, presence)| presence.presenting.note(&self.name, id, true))
            .collect()
    }

    /// Returns whether the channel has no participants and no messages in flight.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state();
        state.roster.is_empty()
            && state.readers.is_empty()
            && self.on_way.load(Ordering::Acquire) == 0
    }

    /// Returns the instance id of the program that receives the participant's calls.
    pub(crate) fn serving(&self, participant: &str) -> Option<Arc<str>> {
        self.state().roster.get(participant)?.serving().cloned()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Returns the links of all participants that offer methods.
    pub(crate) fn offers(&self) -> impl Iterator<Item = &MethodLink> {
        self.roster
            .values()
            .filter_map(|presence| presence.offer.as_ref())
            .map(|offer| offer.provider().link())
    }
}

/// Counts stored messages that are not in the usage record yet, after a crash or an update from
/// an older version.
pub(crate) async fn count_stored(
    log: &Arc<dyn Log>,
    stream: &str,
    usage: &Arc<Usage>,
    mut after: u64,
    head: u64,
) -> Result<(), StoreError> {
    while after < head {
        let entries = log.read(stream, after, COUNTED_AT_ONCE).await?;
        if entries.is_empty() {
            break;
        }
        for entry in entries.iter().take_while(|entry| entry.seq <= head) {
            let owner = sender_of(&entry.body).unwrap_or_else(|| GATEWAY.to_owned());
            let attached = Stored::of(entry).map_or(0, |stored| attached_bytes(&stored.body));
            usage.charge(&owner.into(), entry.body.len() + attached).stored(entry.seq);
        }
        after = entries.last().map_or(head, |entry| entry.seq);
    }
    usage.counted(head);
    Ok(())
}

fn attached_bytes(body: &[u8]) -> usize {
    attachments::described(body).iter().fold(0, |sum, meta| sum + meta.size as usize)
}

/// Returns the message body for a participant that joins, changes or leaves.
pub(crate) fn presence_body(
    participant: &str,
    action: &str,
    metadata: &str,
    reason: Option<&str>,
) -> String {
    encode_body(&Envelope {
        kind: "presence",
        payload: &payload(action, metadata, reason),
        sender: participant,
        at_ms: clock::now_ms(),
        sender_metadata: metadata,
        attachments: &[],
    })
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("name", &self.name).finish_non_exhaustive()
    }
}
