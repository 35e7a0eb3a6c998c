//! The pipeline that orders a channel's messages. Messages are stored and sent to all readers in
//! the order in which they are queued, whether they are stored or not.
//!
//! Many messages are stored concurrently, and leave in the order in which they entered. The store
//! numbers messages in the order in which it receives them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::join;
use futures_util::stream::FuturesOrdered;
use sa_core::store::{Appended, Log, NewEntry, Records, StoreError};
use sa_limits::budget::Permit;
use sa_protocol::channel::{binary, encode_error, encode_message};
use sa_protocol::close;
use sa_socket::{Close, Message, Rejected};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::error;

use crate::channel::{Channel, Member};
use crate::declared::{self, Change};
use crate::presence;
use crate::usage::Reservation;

#[cfg(test)]
mod tests;

/// The maximum number of messages of a channel in flight.
pub(crate) const IN_FLIGHT: usize = 4_096;

/// A message that has passed all checks.
#[derive(Debug)]
pub(crate) struct Item {
    /// The output of [`sa_protocol::channel::encode_body`].
    pub(crate) body: String,
    /// Stored instead of the body, if it is shorter.
    pub(crate) stored: Option<String>,
    /// The bytes of its attachments, and the name of their file.
    pub(crate) attached: Option<(Bytes, Arc<str>)>,
    pub(crate) persist: bool,
    /// The deduplication key: a message with the same key is stored only once.
    pub(crate) key: Option<Arc<str>>,
    /// The id of the message that it begins. Its sender is the author.
    pub(crate) message_id: Option<String>,
    /// The id of the call that it makes.
    pub(crate) call_id: Option<String>,
    /// The participant that it calls.
    pub(crate) provider: Option<Arc<str>>,
    /// The connection that sent it, and the reference for the reply.
    pub(crate) from: Option<(u64, Option<i64>)>,
    /// Receives the result, for a caller without a connection.
    pub(crate) answer: Option<oneshot::Sender<Result<Appended, StoreError>>>,
    /// The participant that a stored message is charged to, if nothing is reserved. `None` for
    /// the gateway.
    pub(crate) owner: Option<Arc<str>>,
    /// The storage quota reserved for it.
    pub(crate) reserved: Option<Reservation>,
    /// The memory budget that it uses until it was sent to all readers.
    pub(crate) pending: Option<Permit>,
    /// The presence note: written before a join is stored, and after a leave was stored.
    pub(crate) presence: Option<Bytes>,
    /// The changes of declared methods, stored before the message is acknowledged.
    pub(crate) declared: Vec<Change>,
    /// Its slot in the queue. The gateway's own messages have none, and never wait.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

impl Item {
    pub(crate) fn new(body: String, persist: bool) -> Self {
        Self {
            body,
            persist,
            stored: None,
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
            declared: Vec::new(),
            permit: None,
        }
    }

    /// Creates an item that stores these changes, and is not sent to readers.
    pub(crate) fn of_declared(declared: Vec<Change>) -> Self {
        Self { declared, ..Self::new(String::new(), false) }
    }
}

/// Where a channel's messages and declared methods are stored.
pub(crate) struct Storage {
    pub(crate) log: Arc<dyn Log>,
    pub(crate) stream: Arc<str>,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) methods_bucket: String,
}

pub(crate) async fn run(
    channel: Weak<Channel>,
    storage: Storage,
    mut items: UnboundedReceiver<Item>,
) {
    let log = &storage.log;
    let mut stored = FuturesOrdered::new();
    loop {
        tokio::select! {
            biased;
            Some((item, result)) = stored.next(), if !stored.is_empty() => release(&channel, log, item, result),
            item = items.recv() => {
                let Some(item) = item else { break };
                stored.push_back(store(&storage, item));
            }
        }
    }
    // The channel is closed; the queued messages are still stored.
    while let Some((item, result)) = stored.next().await {
        release(&channel, log, item, result);
    }
}

async fn store(
    Storage { log, stream, records, methods_bucket }: &Storage,
    item: Item,
) -> (Item, Result<Option<Appended>, StoreError>) {
    if let Some(note) = item.presence.as_ref().filter(|note| presence::is_arrival(note)) {
        log.record(presence::STREAM, None, note);
    }
    let declare = declared::store(&**records, methods_bucket, &item.declared);
    if !item.persist {
        declare.await;
        return (item, Ok(None));
    }
    let body = match &item.attached {
        None => Bytes::copy_from_slice(item.stored.as_ref().unwrap_or(&item.body).as_bytes()),
        Some((_, file)) => format!("@{file}\n{}", item.body).into(),
    };
    let append = log.append(NewEntry { stream: Arc::clone(stream), key: item.key.clone(), body });
    // Both are queued at once, so that no later message overtakes this one.
    let ((), result) = join(declare, append).await;
    (item, result.map(Some))
}

fn release(
    channel: &Weak<Channel>,
    log: &Arc<dyn Log>,
    mut item: Item,
    result: Result<Option<Appended>, StoreError>,
) {
    if let Some(channel) = channel.upgrade() {
        channel.on_way.fetch_sub(1, Ordering::AcqRel);
    }
    if item.body.is_empty() {
        return;
    }
    let appended = match result {
        Ok(appended) => appended,
        Err(failure) => {
            error!(error = %failure, "cannot store a message");
            if let (Some(channel), Some((from, reference))) = (channel.upgrade(), item.from) {
                let text = encode_error(
                    &format!("the message was not stored: {failure}"),
                    "store-error",
                    reference,
                );
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
    if let (Some(reserved), Some(appended)) =
        (item.reserved.take_if(|_| !is_duplicate(appended)), appended)
    {
        reserved.stored(appended.seq);
    }
    let pending = item.pending.take();
    if let Some(channel) = channel.upgrade() {
        let duplicate = is_duplicate(appended);
        let (kind, id) =
            appended.map_or(("ephemeral", None), |appended| ("persisted", Some(appended.seq)));
        let bytes = item.attached.as_ref().map(|(bytes, _)| bytes);
        let frame = |reference, duplicate| {
            frame(&encode_message(kind, id, &item.body, reference, duplicate), bytes)
        };
        if duplicate {
            // The other readers have already received it. The stored message shows whether it has
            // the same sender.
            return channel.answer_duplicate(item, appended);
        }
        let readers = channel.released(id, item.message_id.as_deref());
        let serving = item
            .provider
            .as_ref()
            .and_then(|provider| Some((provider, channel.serving(provider)?)));
        // A participant may run several programs. A call goes to one of them, and the others do
        // not receive it.
        let elsewhere = |member: &Member| {
            serving.as_ref().is_some_and(|(provider, instance)| {
                member.participant == **provider
                    && member.instance.as_ref().is_some_and(|own| own != instance)
            })
        };
        let mut shared: Option<Message> = None;
        let mut pending = pending;
        for member in readers.iter() {
            let own = item.from.filter(|(from, _)| *from == member.id);
            match own {
                // Its own call, which another program handles: sent as a duplicate, so that it
                // only confirms the call.
                Some((_, reference)) => {
                    send(&channel, member, frame(reference, elsewhere(member)), id);
                }
                // It has already received the message, or may not read.
                None if !member.reads
                    || id.is_some_and(|id| id <= member.seen)
                    || elsewhere(member) => {}
                None => {
                    let shared =
                        shared.get_or_insert_with(|| counted(frame(None, false), pending.take()));
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

/// Encodes a message for the socket.
pub(crate) fn frame(json: &str, attachments: Option<&Bytes>) -> Message {
    match attachments {
        None => Message::Text(json.into()),
        Some(bytes) => Message::Binary(binary::join(json, bytes).into()),
    }
}

fn is_duplicate(appended: Option<Appended>) -> bool {
    appended.is_some_and(|appended| appended.duplicate)
}

/// Returns the same frame, which holds the budget until it was sent to the last reader. The
/// readers share its bytes.
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

/// Queues a frame for a participant. If the queue is full, closes the connection, with the
/// message id to resume from.
pub(crate) fn send(channel: &Channel, member: &Member, frame: Message, id: Option<u64>) {
    let overrun = || {
        let last = member.last.load(Ordering::Relaxed);
        Close::new(close::TOO_SLOW, format!("read too slowly; reconnect with sinceId={last}"))
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
