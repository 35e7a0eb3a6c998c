//! The one place where a channel's messages get their order: what is handed over first is stored first and sent first, to
//! everybody, whether it is stored or not.
//!
//! Many messages are on their way to the disk at once, and come out in the order in which they went in: the store
//! numbers what it is given in the order in which it is given.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use sa_core::budget::Permit;
use sa_core::store::{Appended, Log, NewEntry, StoreError};
use sa_protocol::channel::{binary, encode_error, encode_message};
use sa_protocol::close;
use sa_socket::{Close, Message, Rejected};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::error;

use crate::channel::{Channel, Member};
use crate::presence;
use crate::usage::Reservation;

#[cfg(test)]
mod tests;

/// How many messages of a channel may be on their way at once.
pub(crate) const IN_FLIGHT: usize = 4_096;

/// A message that has been checked.
#[derive(Debug)]
pub(crate) struct Item {
    /// What [`sa_protocol::channel::encode_body`] wrote.
    pub(crate) body: String,
    /// The bytes of its attachments, and the name of the file that has them.
    pub(crate) attached: Option<(Bytes, Arc<str>)>,
    pub(crate) persist: bool,
    /// Makes it stored once.
    pub(crate) key: Option<Arc<str>>,
    /// The id of the message that it begins, of which its sender is the author.
    pub(crate) message_id: Option<String>,
    /// The id of the call that it makes.
    pub(crate) call_id: Option<String>,
    /// The participant who is called by it.
    pub(crate) provider: Option<Arc<str>>,
    /// The connection it came from, and what its answer refers to.
    pub(crate) from: Option<(u64, Option<i64>)>,
    /// Who else waits for it.
    pub(crate) answer: Option<oneshot::Sender<Result<Appended, StoreError>>>,
    /// Whom a stored message counts for, where nothing is reserved for it. Absent for the gateway.
    pub(crate) owner: Option<Arc<str>>,
    /// What it takes of what may be stored.
    pub(crate) reserved: Option<Reservation>,
    /// What it takes in memory, until everybody has been sent it.
    pub(crate) pending: Option<Permit>,
    /// What is noted about presence: before a join is stored, and after a leave was.
    pub(crate) presence: Option<Bytes>,
    /// Its place in the queue. What the gateway itself has to say has none, and never waits.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

impl Item {
    pub(crate) fn new(body: String, persist: bool) -> Self {
        Self {
            body,
            persist,
            attached: None,
            key: None,
            message_id: None,
            call_id: None,
            provider: None,
            from: None,
            answer: None,
            owner: None,
            reserved: None,
            pending: None,
            presence: None,
            permit: None,
        }
    }
}

pub(crate) async fn run(
    channel: Weak<Channel>,
    log: Arc<dyn Log>,
    stream: Arc<str>,
    mut items: UnboundedReceiver<Item>,
) {
    let mut stored = FuturesOrdered::new();
    loop {
        tokio::select! {
            biased;
            Some((item, result)) = stored.next(), if !stored.is_empty() => release(&channel, &log, item, result),
            item = items.recv() => {
                let Some(item) = item else { break };
                stored.push_back(store(Arc::clone(&log), Arc::clone(&stream), item));
            }
        }
    }
    // The channel is let go of; what it was given is still stored.
    while let Some((item, result)) = stored.next().await {
        release(&channel, &log, item, result);
    }
}

async fn store(log: Arc<dyn Log>, stream: Arc<str>, item: Item) -> (Item, Result<Option<Appended>, StoreError>) {
    if !item.persist {
        return (item, Ok(None));
    }
    if let Some(note) = item.presence.as_ref().filter(|note| presence::is_arrival(note)) {
        log.record(presence::STREAM, None, note);
    }
    let body = match &item.attached {
        None => Bytes::copy_from_slice(item.body.as_bytes()),
        Some((_, file)) => format!("@{file}\n{}", item.body).into(),
    };
    let result = log.append(NewEntry { stream, key: item.key.clone(), body }).await;
    (item, result.map(Some))
}

fn release(channel: &Weak<Channel>, log: &Arc<dyn Log>, mut item: Item, result: Result<Option<Appended>, StoreError>) {
    if let Some(channel) = channel.upgrade() {
        channel.on_way.fetch_sub(1, Ordering::AcqRel);
    }
    let appended = match result {
        Ok(appended) => appended,
        Err(failure) => {
            error!(error = %failure, "a message could not be stored");
            if let (Some(channel), Some((from, reference))) = (channel.upgrade(), item.from) {
                let text = encode_error(&format!("the message was not stored: {failure}"), "store-error", reference);
                channel.tell(from, text);
            }
            if let Some(reserved) = item.reserved {
                reserved.failed();
            }
            item.answer.map(|answer| answer.send(Err(failure)));
            return;
        }
    };
    if let Some(note) = item.presence.as_ref().filter(|note| !presence::is_arrival(note)) {
        log.record(presence::STREAM, None, note);
    }
    if let (Some(reserved), Some(appended)) = (item.reserved.take_if(|_| !is_duplicate(appended)), appended) {
        reserved.stored(appended.seq);
    }
    let pending = item.pending.take();
    if let Some(channel) = channel.upgrade() {
        let duplicate = is_duplicate(appended);
        let (kind, id) = appended.map_or(("ephemeral", None), |appended| ("persisted", Some(appended.seq)));
        let bytes = item.attached.as_ref().map(|(bytes, _)| bytes);
        let frame = |reference, duplicate| frame(&encode_message(kind, id, &item.body, reference, duplicate), bytes);
        if duplicate {
            // Whoever else is here has had it. Whether it was this sender's is for the store to say.
            return channel.answer_duplicate(item, appended);
        }
        let readers = channel.released(id, item.message_id.as_deref());
        let serving = item.provider.as_ref().and_then(|provider| Some((provider, channel.serving(provider)?)));
        // A participant may be several programs. A call is for one of them, and the others do not get to see it.
        let elsewhere = |member: &Member| {
            serving.as_ref().is_some_and(|(provider, instance)| {
                member.participant == **provider && member.instance.as_ref().is_some_and(|own| own != instance)
            })
        };
        let mut shared: Option<Message> = None;
        let mut pending = pending;
        for member in readers.iter() {
            let own = item.from.filter(|(from, _)| *from == member.id);
            match own {
                // Its own call, which another one runs: an answer, and nothing to act on.
                Some((_, reference)) => send(&channel, member, frame(reference, elsewhere(member)), id),
                // It has had it in what it missed, or is not to read.
                None if !member.reads || id.is_some_and(|id| id <= member.seen) || elsewhere(member) => {}
                None => {
                    let shared = shared.get_or_insert_with(|| counted(frame(None, false), pending.take()));
                    send(&channel, member, shared.clone(), id);
                }
            }
        }
    }
    if let (Some(answer), Some(appended)) = (item.answer, appended) {
        let _ = answer.send(Ok(appended));
    }
    drop(item.permit);
}

/// A message for the wire.
pub(crate) fn frame(json: &str, attachments: Option<&Bytes>) -> Message {
    match attachments {
        None => Message::Text(json.into()),
        Some(bytes) => Message::Binary(binary::join(json, bytes).into()),
    }
}

fn is_duplicate(appended: Option<Appended>) -> bool {
    appended.is_some_and(|appended| appended.duplicate)
}

/// The same frame, which counts until the last of its readers has been sent it: they share its bytes.
fn counted(frame: Message, permit: Option<Permit>) -> Message {
    struct Counted(Bytes, #[expect(dead_code, reason = "held until the frame is dropped")] Permit);
    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let Some(permit) = permit else { return frame };
    match frame {
        Message::Binary(bytes) => Message::Binary(Bytes::from_owner(Counted(bytes, permit))),
        Message::Text(text) => {
            let bytes = Bytes::from_owner(Counted(Bytes::from(text), permit));
            bytes.try_into().map_or_else(|_| Message::Text("".into()), Message::Text)
        }
        other => other,
    }
}

/// Queues a frame for a participant. One for whom there is no room is closed, and told from where to go on.
pub(crate) fn send(channel: &Channel, member: &Member, frame: Message, id: Option<u64>) {
    let overrun = || {
        let last = member.last.load(Ordering::Relaxed);
        Close::new(close::TOO_SLOW, format!("read too slowly; go on with sinceId={last}"))
    };
    match member.outbox.send_else(frame, overrun) {
        Ok(()) => {
            if let Some(id) = id {
                member.last.fetch_max(id, Ordering::Relaxed);
            }
        }
        Err(Rejected::Overrun) => channel.hub.router.journal().count("channel", "too_slow"),
        Err(Rejected::Closed) => {}
    }
}
