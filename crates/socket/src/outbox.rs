//! What is to be written, bounded in bytes: for each connection, and once it is large for all that share a room.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use sa_core::aside;
use sa_core::limits::{Ceiling, Growing};
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::serve::Close;

/// So many frames are worth a write.
const LOAD: usize = 16;

/// The sending end of a connection: cheap to clone, usable from anywhere, never waits.
#[derive(Debug, Clone)]
pub struct Outbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Notify,
    /// Tells whoever fills the queue at the reader's pace that it has been emptied.
    emptied: Notify,
    max_bytes: usize,
    /// What the connection is closed with when its reader is too slow.
    overrun: Close,
    /// What it is closed with when there is no room in common for what must be sent; where there is none, that is sent all the
    /// same.
    crowded_out: Option<Close>,
}

#[derive(Debug, Default)]
struct Queue {
    frames: Vec<Message>,
    /// Counted apart, so that what was merely offered never closes the connection, by leaving no room for what must be sent.
    sent: usize,
    offered: usize,
    /// What the writer has taken and not written yet, if it is large.
    taken: usize,
    /// Shared with other connections.
    room: Option<Growing>,
    close: Option<Close>,
}

/// What the writer gets at a time.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) frames: Vec<Message>,
    /// The reason to close after them, if there is one.
    pub(crate) close: Option<Close>,
    /// Whether they take room until they are written, see [`Outbox::written`].
    pub(crate) large: bool,
}

/// Why a frame was not taken. It certainly was not and will not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// The connection is closed, or about to be.
    Closed,
    /// The reader is too slow, or there is no room for more of what many have not read; the connection is being closed for it.
    Overrun,
}

/// Why a frame that was offered was not taken. It certainly was not and will not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declined {
    /// The connection is closed, or about to be.
    Closed,
    /// The reader has so many bytes before it that were offered and not written yet; the connection goes on.
    Full(usize),
    /// There is no room in common for more of what many have not read; the connection goes on.
    NoRoom,
}

impl Outbox {
    pub fn new(max_bytes: usize, overrun: Close) -> Self {
        Self::made(max_bytes, overrun, None, None)
    }

    /// One of many that share a room for what their readers have not taken yet: the bound of one connection, times all that
    /// may be open, is more than any machine has. A little is free, for each of them. Who finds the room full is closed
    /// with `crowded_out`; if there is no such reason, an offer is declined, and what must be sent is sent all the same.
    pub fn within(room: Arc<Ceiling>, crowded_out: Option<Close>, max_bytes: usize, overrun: Close) -> Self {
        Self::made(max_bytes, overrun, Some(Growing::new(room)), crowded_out)
    }

    fn made(max_bytes: usize, overrun: Close, room: Option<Growing>, crowded_out: Option<Close>) -> Self {
        let queue = Mutex::new(Queue { room, ..Queue::default() });
        let (changed, emptied) = (Notify::new(), Notify::new());
        Self(Arc::new(Shared { queue, changed, emptied, max_bytes, overrun, crowded_out }))
    }

    /// Queues a text frame.
    pub fn send(&self, frame: impl Into<Utf8Bytes>) -> Result<(), Rejected> {
        self.queue(Message::Text(frame.into()), || self.0.overrun.clone())
    }

    /// Queues a binary frame.
    pub fn send_binary(&self, frame: Bytes) -> Result<(), Rejected> {
        self.queue(Message::Binary(frame), || self.0.overrun.clone())
    }

    /// Queues a frame of either kind; if there is no room for it, the connection is closed with what `overrun` says.
    pub fn send_else(&self, frame: Message, overrun: impl FnOnce() -> Close) -> Result<(), Rejected> {
        self.queue(frame, overrun)
    }

    /// Queues a text frame if there is room for it, and otherwise leaves both the frame and the connection alone. For frames of
    /// many senders who share a connection: one that sends too much does not end it for the others.
    pub fn offer(&self, frame: impl Into<Utf8Bytes>) -> Result<(), Declined> {
        let frame = frame.into();
        let mut queue = self.lock();
        if queue.close.is_some() {
            return Err(Declined::Closed);
        }
        if self.overruns(queue.offered, frame.len()) {
            return Err(Declined::Full(queue.offered));
        }
        if !queue.keeps(frame.len()) {
            return Err(Declined::NoRoom);
        }
        queue.offered += frame.len();
        let wake = queue.push(Message::Text(frame));
        drop(queue);
        if wake {
            self.0.changed.notify_one();
        }
        Ok(())
    }

    /// Whether there is no room for so many bytes more. One frame always fits: it is what the peer asked for.
    fn overruns(&self, queued: usize, more: usize) -> bool {
        queued > 0 && queued + more > self.0.max_bytes
    }

    /// Waits until the writer has taken everything that was queued, or there is nobody to write for any more. For whoever
    /// has more to send than the queue holds, and sends it at the reader's pace.
    pub async fn emptied(&self) -> Result<(), Rejected> {
        loop {
            let emptied = self.0.emptied.notified();
            {
                let queue = self.lock();
                if queue.close.is_some() {
                    return Err(Rejected::Closed);
                }
                if queue.frames.is_empty() {
                    return Ok(());
                }
            }
            emptied.await;
        }
    }

    fn queue(&self, frame: Message, overrun: impl FnOnce() -> Close) -> Result<(), Rejected> {
        let len = size(&frame);
        let (result, wake) = {
            let mut queue = self.lock();
            if queue.close.is_some() {
                (Err(Rejected::Closed), false)
            } else if self.overruns(queue.sent, len) {
                queue.close = Some(overrun());
                (Err(Rejected::Overrun), true)
            } else if let (false, Some(close)) = (queue.keeps(len), &self.0.crowded_out) {
                queue.close = Some(close.clone());
                (Err(Rejected::Overrun), true)
            } else {
                queue.sent += len;
                (Ok(()), queue.push(frame))
            }
        };
        if wake {
            self.0.changed.notify_one();
        }
        if result == Err(Rejected::Overrun) {
            self.0.emptied.notify_waiters();
        }
        result
    }

    /// Closes the connection once what is queued has been written. The first reason given counts.
    pub fn close(&self, close: Close) {
        self.lock().close.get_or_insert(close);
        self.0.changed.notify_one();
        self.0.emptied.notify_waiters();
    }

    pub fn is_closed(&self) -> bool {
        self.lock().close.is_some()
    }

    /// Waits for something to do.
    pub(crate) async fn ready(&self) {
        self.reaches(1).await;
    }

    /// Waits for as much as is worth a write without waiting for more.
    pub(crate) async fn loaded(&self) {
        self.reaches(LOAD).await;
    }

    async fn reaches(&self, frames: usize) {
        loop {
            let changed = self.0.changed.notified();
            {
                let queue = self.lock();
                if queue.frames.len() >= frames || queue.close.is_some() {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Waits until there is a reason to close.
    pub(crate) async fn closing(&self) -> Close {
        loop {
            let changed = self.0.changed.notified();
            if let Some(close) = self.lock().close.clone() {
                return close;
            }
            changed.await;
        }
    }

    /// What is to be written.
    pub(crate) fn take(&self) -> Taken {
        let taken = {
            let mut queue = self.lock();
            // What is small is gone in a moment, and nobody need say so.
            queue.taken = Some(queue.sent + queue.offered).filter(|bytes| *bytes >= aside::LARGE).unwrap_or(0);
            (queue.sent, queue.offered) = (0, 0);
            queue.gives_back();
            let (frames, close) = (std::mem::take(&mut queue.frames), queue.close.clone());
            Taken { frames, close, large: queue.taken > 0 }
        };
        self.0.emptied.notify_waiters();
        taken
    }

    /// So many bytes of what was taken wait here no longer.
    pub(crate) fn written(&self, bytes: usize) {
        let mut queue = self.lock();
        queue.taken = queue.taken.saturating_sub(bytes);
        queue.gives_back();
    }

    /// Nothing can be sent any more; what was queued is gone.
    pub(crate) fn shut(&self, close: Close) {
        let mut queue = self.lock();
        queue.close.get_or_insert(close);
        queue.frames = Vec::new();
        (queue.sent, queue.offered, queue.taken) = (0, 0, 0);
        queue.gives_back();
        drop(queue);
        self.0.emptied.notify_waiters();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a frame counts for.
pub(crate) fn size(frame: &Message) -> usize {
    match frame {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes.len(),
        Message::Close(_) | Message::Frame(_) => 0,
    }
}

impl Queue {
    /// Takes room in common for so many bytes more, once all that waits is large; `false` when there is none.
    fn keeps(&mut self, more: usize) -> bool {
        let waiting = self.sent + self.offered + self.taken + more;
        // What is by itself always fits: it is what its reader asked for.
        self.room.as_mut().is_none_or(|room| room.keep(waiting.min(room.max())))
    }

    /// Gives room back that nothing waits in any more. What was sent without any may take some now.
    fn gives_back(&mut self) {
        let _ = self.keeps(0);
    }

    /// Adds a frame, and says whether the writer is to be woken: one wake-up is enough for all that is queued until it comes,
    /// and one when it waits for more.
    fn push(&mut self, frame: Message) -> bool {
        self.frames.push(frame);
        matches!(self.frames.len(), 1 | LOAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox() -> Outbox {
        Outbox::new(10, Close::new(4429, "too slow"))
    }

    #[tokio::test]
    async fn takes_frames_up_to_its_limit_and_then_closes() {
        let outbox = outbox();
        assert_eq!(outbox.send("12345678901234567890"), Ok(()), "one frame always fits: it is what the peer asked for");
        assert_eq!(outbox.send("x"), Err(Rejected::Overrun));
        assert_eq!(outbox.send("x"), Err(Rejected::Closed));
        outbox.ready().await;
        let Taken { frames, close, .. } = outbox.take();
        assert_eq!(frames.len(), 1);
        assert_eq!(close.map(|close| close.code), Some(4429));
    }

    #[tokio::test]
    async fn an_offer_that_does_not_fit_is_declined_and_harms_nothing() {
        let outbox = outbox();
        assert_eq!(outbox.offer("123456789012345"), Ok(()), "one frame always fits");
        assert_eq!(outbox.offer("x"), Err(Declined::Full(15)));
        assert_eq!(outbox.send("x"), Ok(()), "what must be sent has room of its own");
        outbox.ready().await;
        let Taken { frames, close, .. } = outbox.take();
        assert_eq!((frames.len(), close), (2, None), "in the order in which they came, and nothing closed");
        assert_eq!(frames[0].to_text().unwrap(), "123456789012345");
        for frame in ["12345", "67890"] {
            assert_eq!(outbox.offer(frame), Ok(()), "there is room again, up to the limit");
        }
        assert_eq!(outbox.offer("x"), Err(Declined::Full(10)));
        outbox.close(Close::new(1001, "going away"));
        assert_eq!(outbox.offer("x"), Err(Declined::Closed));
    }

    #[tokio::test]
    async fn the_first_reason_to_close_counts() {
        let outbox = outbox();
        outbox.close(Close::new(1001, "going away"));
        outbox.close(Close::new(4401, "revoked"));
        outbox.ready().await;
        assert_eq!(outbox.take().close.map(|close| close.code), Some(1001));
    }

    const PIECE: usize = aside::LARGE;

    fn text(bytes: usize) -> String {
        "x".repeat(bytes)
    }

    fn sharing(room: &Arc<Ceiling>, crowded_out: Option<Close>) -> Outbox {
        Outbox::within(Arc::clone(room), crowded_out, 100 * PIECE, Close::new(4429, "too slow"))
    }

    #[test]
    fn what_is_large_takes_room_in_common_until_it_is_written() {
        let room = Arc::new(Ceiling::new(4 * PIECE));
        let outbox = sharing(&room, Some(Close::new(1013, "no room")));
        assert_eq!((outbox.send(text(PIECE - 1)), room.count()), (Ok(()), 0), "a little is free");
        assert!(!outbox.take().large && room.count() == 0);
        for frame in [PIECE, 2 * PIECE] {
            assert_eq!(outbox.send(text(frame)), Ok(()));
        }
        assert_eq!(room.count(), 3 * PIECE);
        assert!(outbox.take().large && room.count() == 3 * PIECE, "what was taken still waits");
        outbox.written(PIECE);
        assert_eq!(room.count(), 2 * PIECE);
        assert_eq!((outbox.send(text(PIECE)), room.count()), (Ok(()), 3 * PIECE));
        outbox.written(usize::MAX);
        assert_eq!(room.count(), PIECE);
        outbox.shut(Close::new(1006, "lost"));
        assert_eq!(room.count(), 0, "though others still hold on to it");
    }

    #[test]
    fn who_finds_no_room_is_closed_and_nobody_else() {
        let room = Arc::new(Ceiling::new(4 * PIECE));
        let reason = || Some(Close::new(1013, "no room"));
        let (first, second, third) = (sharing(&room, reason()), sharing(&room, reason()), sharing(&room, reason()));
        assert_eq!(first.send(text(3 * PIECE)), Ok(()));
        assert_eq!(second.send(text(2 * PIECE)), Err(Rejected::Overrun));
        assert_eq!(second.take().close.map(|close| close.code), Some(1013));
        assert_eq!((third.send(text(PIECE)), third.send("x")), (Ok(()), Ok(())));
        assert!(!first.is_closed() && !third.is_closed());
        drop(first);
        assert_eq!(third.send(text(2 * PIECE)), Ok(()), "there is room again");
    }

    #[test]
    fn one_that_is_by_itself_always_fits() {
        let room = Arc::new(Ceiling::new(2 * PIECE));
        let (large, small) = (sharing(&room, None), sharing(&room, None));
        assert_eq!((large.offer(text(9 * PIECE)), room.count()), (Ok(()), 2 * PIECE));
        assert_eq!(small.offer(text(PIECE)), Err(Declined::NoRoom));
        assert_eq!((small.offer("x"), small.send(text(PIECE))), (Ok(()), Ok(())), "what must be sent is sent");
        assert!(!small.is_closed());
    }
}
