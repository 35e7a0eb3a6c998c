//! One channel: who is in it, who listens, what runs.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sa_core::call::CancelReason;
use sa_core::clock;
use sa_core::store::{Appended, StoreError};
use sa_protocol::channel::{Envelope, encode_body, encode_error, encode_message, handle_key};
use sa_socket::Outbox;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::error;

use crate::authors::Authors;
use crate::calls::Calls;
use crate::declared::{Declared, with_methods};
use crate::history::{MAX_PAGE_BYTES, Stored, sender_of};
use crate::methods::{Metadata, Method, MethodLink, Offer};
use crate::pipeline::{self, IN_FLIGHT, Item};
use crate::presence::{Presenting, payload};
use crate::usage::Usage;
use crate::{About, Channels, GATEWAY, OpenError, attachments, stream};

/// How many stored messages are counted at a time.
const COUNTED_AT_ONCE: usize = 256;

/// A channel that is in use.
pub struct Channel {
    pub(crate) name: Arc<str>,
    pub(crate) stream: Arc<str>,
    pub(crate) epoch: Arc<str>,
    pub(crate) hub: Arc<Channels>,
    pub(crate) usage: Arc<Usage>,
    state: Mutex<State>,
    items: UnboundedSender<Item>,
    /// How many messages are on their way to the disk.
    pub(crate) on_way: AtomicUsize,
    room: Arc<Semaphore>,
    /// What the channel's document says; held while it is changed.
    about: tokio::sync::Mutex<About>,
}

pub(crate) struct State {
    /// The last stored message that readers were sent.
    pub(crate) head: u64,
    /// Everybody who is sent messages. Copied when it changes while it is being read.
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
    /// Which of the participant's programs this is, where it says so. It is the same when it connects again.
    pub(crate) instance: Option<Arc<str>>,
    pub(crate) outbox: Outbox,
    pub(crate) reads: bool,
    /// The last message that it got before it became a reader.
    pub(crate) seen: u64,
    /// The last message that was queued for it.
    pub(crate) last: AtomicU64,
}

/// One participant, with however many connections.
pub(crate) struct Presence {
    /// JSON, an object.
    pub(crate) metadata: Arc<str>,
    pub(crate) handle: Option<String>,
    connections: usize,
    joined_ms: i64,
    presenting: Presenting,
    /// What its connections said about it, the latest last: that counts, and whoever said it is given the calls.
    said: Vec<Said>,
    /// The names of its methods, where it has declared which it has.
    methods: Option<Vec<String>>,
    /// Its methods, where it has any.
    pub(crate) offer: Option<Offer>,
}

/// What one connection said about its participant.
struct Said {
    member: u64,
    instance: Option<Arc<str>>,
    metadata: Arc<str>,
    handle: Option<String>,
}

impl Presence {
    /// Offers what the metadata declares, in place of what was offered before.
    pub(crate) fn declare(&mut self, channel: &Arc<Channel>, participant: &Arc<str>, metadata: &Metadata<'_>) {
        let names = |methods: &Vec<Method<'_>>| methods.iter().map(|method| method.name.clone()).collect();
        self.methods = metadata.methods.as_ref().map(names);
        self.offer = Offer::make(self.offer.take(), channel, participant, metadata);
    }

    /// Whether a call of this method is for the participant to answer. One that has declared nothing answers for itself.
    pub(crate) fn may_have(&self, method: &str) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.iter().any(|name| name == method))
    }

    /// Takes what a connection says about the participant.
    pub(crate) fn says(&mut self, member: &Member, metadata: &str, handle: Option<&String>) {
        let (metadata, handle) = (Arc::<str>::from(metadata), handle.cloned());
        self.said.retain(|said| said.member != member.id);
        (self.metadata, self.handle) = (Arc::clone(&metadata), handle.clone());
        self.said.push(Said { member: member.id, instance: member.instance.clone(), metadata, handle });
    }

    /// Whether a connection of this participant's has asked for this handle.
    pub(crate) fn claims(&self, handle: &str) -> bool {
        let key = handle_key(handle);
        self.said.iter().filter_map(|said| said.handle.as_ref()).any(|said| handle_key(said) == key)
    }

    /// The program that is given the calls, where it is known.
    pub(crate) fn serving(&self) -> Option<&Arc<str>> {
        self.said.last()?.instance.as_ref()
    }
}

/// A participant, as it is listed.
#[derive(Debug, Clone)]
pub struct Participant {
    pub id: Arc<str>,
    /// JSON, an object.
    pub metadata: Arc<str>,
    pub joined_ms: i64,
    pub connections: usize,
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
    /// `haunted` is one that somebody was in when the gateway ended.
    pub(crate) async fn open(
        hub: Arc<Channels>,
        name: &str,
        about: &About,
        usage: Arc<Usage>,
        haunted: bool,
    ) -> Result<Arc<Self>, StoreError> {
        let stream: Arc<str> = stream(name).into();
        let head = hub.log.bounds(&stream).await?.last;
        let (items, queue) = unbounded_channel();
        let log = Arc::clone(&hub.log);
        let state = State {
            head,
            readers: Arc::default(),
            roster: BTreeMap::new(),
            calls: Calls::default(),
            authors: Authors::default(),
            declared: Declared::default(),
            next_member: 1,
        };
        let channel = Arc::new(Self {
            name: name.into(),
            stream: Arc::clone(&stream),
            epoch: about.epoch.as_str().into(),
            hub,
            usage,
            state: Mutex::new(state),
            items,
            on_way: AtomicUsize::new(0),
            room: Arc::new(Semaphore::new(IN_FLIGHT)),
            about: about.clone().into(),
        });
        tokio::spawn(pipeline::run(Arc::downgrade(&channel), log, stream, queue));
        if haunted {
            channel.take_up_calls().await?;
        }
        if let Some(after) = channel.usage.missing(head) {
            tokio::spawn(count_stored(Arc::clone(&channel), after, head));
        }
        Ok(channel)
    }

    /// How many participants are here.
    pub fn present(&self) -> usize {
        self.state().roster.len()
    }

    /// Who is here, by id: those after this one, at most so many of them, and no more than make a page. Says whether there
    /// are more.
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

    /// Makes a reader of a connection, unless there are stored messages that it has not had: then it has to read on first.
    /// What `first` says is the first thing that it is sent.
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

    /// A participant has one more connection. With the first one it is present, and everybody is told; one that comes
    /// later is told by itself.
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
        let mut presence = Presence {
            metadata: "{}".into(),
            handle: None,
            connections: 1,
            joined_ms: clock::now_ms(),
            presenting,
            said: Vec::new(),
            methods: None,
            offer: None,
        };
        if let Some(methods) = state.declared.get(member) {
            let metadata = with_methods("{}", methods);
            if let Ok(read) = Metadata::read(&metadata) {
                presence.says(member, &metadata, None);
                presence.declare(self, participant, &read);
            }
        }
        let body = presence_body(participant, "join", &presence.metadata, None);
        state.roster.insert(Arc::clone(participant), presence);
        let owner = Some(Arc::clone(participant));
        self.enqueue(Item { presence: Some(arrival), owner, ..Item::new(body, true) });
    }

    /// A connection is gone. With its last one the participant leaves: its methods are not offered any more, and what was
    /// asked of it fails.
    pub(crate) fn leave(self: &Arc<Self>, participant: &Arc<str>, member: &Member, how: Leave) {
        let mut state = self.state();
        Arc::make_mut(&mut state.readers).retain(|reader| reader.id != member.id);
        if how == Leave::Graceful {
            state.declared.remove(member);
        }
        let Some(presence) = state.roster.get_mut(participant) else { return };
        presence.connections -= 1;
        presence.said.retain(|said| said.member != member.id);
        if presence.connections > 0 {
            return self.go_back(participant, presence);
        }
        let Some(presence) = state.roster.remove(participant) else { return };
        let body = presence_body(participant, "leave", &presence.metadata, Some(how.as_str()));
        let departure = presence.presenting.note(&self.name, participant, false);
        let key = presence.presenting.departure_key();
        let owner = Some(Arc::clone(participant));
        self.enqueue(Item { presence: Some(departure), key: Some(key), owner, ..Item::new(body, true) });
        let orphaned = state.calls.provider_left(participant);
        for call in orphaned {
            self.enqueue(call.failure(
                "provider-offline",
                &format!("the participant \"{participant}\" left in the middle of the call"),
            ));
        }
        let abandoned = state.calls.caller_left(participant);
        for call in &abandoned {
            // Its caller may come back, and looks for the end of what it asked for.
            self.enqueue(
                call.failure("cancelled", &format!("the participant \"{participant}\" left, who made the call")),
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

    /// What counts now that a connection is gone: the latest word of those that are left.
    fn go_back(self: &Arc<Self>, participant: &Arc<str>, presence: &mut Presence) {
        let Some(said) = presence.said.last().filter(|said| said.metadata != presence.metadata) else { return };
        (presence.metadata, presence.handle) = (Arc::clone(&said.metadata), said.handle.clone());
        let metadata = Arc::clone(&presence.metadata);
        if let Ok(read) = Metadata::read(&metadata) {
            presence.declare(self, participant, &read);
        }
        let body = presence_body(participant, "update", &metadata, None);
        self.enqueue(Item { owner: Some(Arc::clone(participant)), ..Item::new(body, true) });
    }

    /// Hands a message over; from here on its place in the order is settled. Called with the state locked where the
    /// order depends on that.
    pub(crate) fn enqueue(&self, mut item: Item) {
        if item.persist && item.reserved.is_none() {
            let attached = item.attached.as_ref().map_or(0, |(bytes, _)| bytes.len());
            let owner = item.owner.take().unwrap_or_else(|| GATEWAY.into());
            item.reserved = Some(self.usage.charge(&owner, item.body.len() + attached));
        }
        self.on_way.fetch_add(1, Ordering::AcqRel);
        // Fails when the channel is let go of, which nobody who has it can see.
        let _ = self.items.send(item);
    }

    /// Waits for a place in the queue.
    pub(crate) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).acquire_owned().await.ok()
    }

    /// A place in the queue, if there is one.
    pub(crate) fn place_now(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_owned().ok()
    }

    /// A message is out. Returns those who are to be sent it.
    pub(crate) fn released(&self, id: Option<u64>, message_id: Option<&str>) -> Arc<Vec<Arc<Member>>> {
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

    /// Answers a message that was stored before: with the first one's id, if that was the same sender's.
    pub(crate) fn answer_duplicate(self: Arc<Self>, item: Item, appended: Option<Appended>) {
        let Some(appended) = appended else { return };
        tokio::spawn(async move {
            let first = self.hub.log.read(&self.stream, appended.seq - 1, 1).await.unwrap_or_default();
            let author = first.first().and_then(|entry| sender_of(&entry.body));
            let sender = sender_of(item.body.as_bytes());
            if let (Some(author), Some(message)) = (&author, &item.message_id) {
                self.state().authors.correct(message, author);
            }
            if let Some(call) = &item.call_id {
                match self.stored_call(call).await {
                    Ok(Some(stored)) => self.state().calls.correct(call, stored),
                    Ok(None) => {}
                    Err(failure) => error!(error = %failure, "a call cannot be looked up"),
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

    /// Checks that the channel belongs to this context. One that belongs to none does from now on, if `may_set`.
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

    /// The context that the channel belongs to, and its configuration.
    pub(crate) async fn context(&self) -> (Option<String>, Option<String>) {
        let about = self.about.lock().await;
        (about.context.clone(), about.config.clone())
    }

    /// Takes the next numbers for attachments without an id of their own.
    pub(crate) async fn number_attachments(&self, count: u64) -> Result<u64, StoreError> {
        let mut about = self.about.lock().await;
        let next = About { numbered: about.numbered + count, ..about.clone() };
        self.hub.write_about(&self.name, &next).await?;
        let first = about.numbered + 1;
        *about = next;
        Ok(first)
    }

    /// The notes of everybody who is here.
    pub(crate) fn presences(&self) -> Vec<Bytes> {
        let state = self.state();
        state.roster.iter().map(|(id, presence)| presence.presenting.note(&self.name, id, true)).collect()
    }

    /// Whether nobody is here, and nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state();
        state.roster.is_empty() && state.readers.is_empty() && self.on_way.load(Ordering::Acquire) == 0
    }

    /// The program of a participant's that is given its calls, where it is known.
    pub(crate) fn serving(&self, participant: &str) -> Option<Arc<str>> {
        self.state().roster.get(participant)?.serving().cloned()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Those who offer methods.
    pub(crate) fn offers(&self) -> impl Iterator<Item = &MethodLink> {
        self.roster.values().filter_map(|presence| presence.offer.as_ref()).map(|offer| offer.provider().link())
    }
}

/// Counts messages that were stored before, and are in no sum: a crash came first, or an older version stored them.
async fn count_stored(channel: Arc<Channel>, mut after: u64, head: u64) {
    while after < head {
        let entries = match channel.hub.log.read(&channel.stream, after, COUNTED_AT_ONCE).await {
            Ok(entries) if !entries.is_empty() => entries,
            Ok(_) => break,
            Err(error) => return error!(channel = &*channel.name, %error, "cannot count what is stored"),
        };
        for entry in entries.iter().take_while(|entry| entry.seq <= head) {
            let owner = sender_of(&entry.body).unwrap_or_else(|| GATEWAY.to_owned());
            let attached = Stored::of(entry).map_or(0, |stored| attached_bytes(&stored.body));
            channel.usage.charge(&owner.into(), entry.body.len() + attached).stored(entry.seq);
        }
        after = entries.last().map_or(head, |entry| entry.seq);
    }
    channel.usage.counted(head);
}

fn attached_bytes(body: &[u8]) -> usize {
    attachments::described(body).iter().fold(0, |sum, meta| sum + meta.size as usize)
}

/// The message that says who came, changed or left.
pub(crate) fn presence_body(participant: &str, action: &str, metadata: &str, reason: Option<&str>) -> String {
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
