//! What is to be written, bounded in bytes: for each connection, and by a budget that connections share.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use sa_core::aside;
use sa_core::budget::{Permit, Refused, Share};
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
    /// What it is closed with when the shared budget refuses what must be sent. Without it, that is sent all the same.
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
    /// What the queue takes from the budget that connections share.
    permit: Option<Permit>,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Declined {
    /// The connection is closed, or about to be.
    Closed,
    /// The reader has so many bytes before it that were offered and not written yet; the connection goes on.
    Full(usize),
    /// The shared budget for what many have not read is exhausted; the connection goes on.
    NoRoom(Refused),
}

impl Outbox {
    pub fn new(max_bytes: usize, overrun: Close) -> Self {
        Self::made(max_bytes, overrun, None, None)
    }

    /// One of many that share a budget for what their readers have not taken yet: the bound of one connection, times all
    /// that may be open, is more than any machine has. A little is free for each of them. A connection that is refused is
    /// closed with `crowded_out`; without such a reason, an offer is declined, and what must be sent is sent all the same.
    pub fn within(share: &Share, crowded_out: Option<Close>, max_bytes: usize, overrun: Close) -> Self {
        Self::made(max_bytes, overrun, Some(share.empty()), crowded_out)
    }

    fn made(max_bytes: usize, overrun: Close, permit: Option<Permit>, crowded_out: Option<Close>) -> Self {
        let queue = Mutex::new(Queue { permit, ..Queue::default() });
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
        queue.count(frame.len()).map_err(Declined::NoRoom)?;
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
            } else if let (Err(_), Some(close)) = (queue.count(len), &self.0.crowded_out) {
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
    /// Counts what waits, with this many bytes more.
    fn count(&mut self, more: usize) -> Result<(), Refused> {
        let waiting = self.sent + self.offered + self.taken + more;
        let Some(permit) = &mut self.permit else { return Ok(()) };
        // What is by itself always fits: it is what its reader asked for.
        permit.resize_in_steps(waiting.min(permit.budget().largest()))
    }

    /// Gives back what nothing waits in any more. What was sent without a permit may take one now.
    fn gives_back(&mut self) {
        let _ = self.count(0);
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
    use sa_core::budget::{Holder, Limit, STEP, SharedBudget};

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

    fn budget(pieces: usize) -> Arc<SharedBudget> {
        let limit = Limit { name: "unread", what: "unread bytes", key: "x.y", remedy: "read", total: pieces * PIECE };
        SharedBudget::new(limit)
    }

    fn text(bytes: usize) -> String {
        "x".repeat(bytes)
    }

    fn sharing(budget: &Arc<SharedBudget>, holder: &'static str, crowded_out: Option<Close>) -> Outbox {
        let share = budget.share(&Holder::named(holder));
        Outbox::within(&share, crowded_out, 100 * PIECE, Close::new(4429, "too slow"))
    }

    #[test]
    fn what_is_large_takes_from_the_budget_until_it_is_written() {
        let budget = budget(16);
        let outbox = sharing(&budget, "a", Some(Close::new(1013, "no room")));
        assert_eq!((outbox.send(text(STEP - 1)), budget.used()), (Ok(()), 0), "a little is free");
        assert!(!outbox.take().large && budget.used() == 0);
        for frame in [PIECE, 2 * PIECE] {
            assert_eq!(outbox.send(text(frame)), Ok(()));
        }
        assert_eq!(budget.used(), 3 * PIECE);
        assert!(outbox.take().large && budget.used() == 3 * PIECE, "what was taken still waits");
        outbox.written(PIECE);
        assert_eq!(budget.used(), 2 * PIECE);
        assert_eq!((outbox.send(text(PIECE)), budget.used()), (Ok(()), 3 * PIECE));
        outbox.written(usize::MAX);
        assert_eq!(budget.used(), PIECE);
        outbox.shut(Close::new(1006, "lost"));
        assert_eq!(budget.used(), 0, "though others still hold on to it");
    }

    #[test]
    fn a_connection_that_is_refused_is_closed_and_no_other() {
        let budget = budget(16);
        let reason = || Some(Close::new(1013, "no room"));
        let (first, second) = (sharing(&budget, "greedy", reason()), sharing(&budget, "greedy", reason()));
        let third = sharing(&budget, "modest", reason());
        assert_eq!(first.send(text(12 * PIECE)), Ok(()));
        assert_eq!(second.send(text(PIECE)), Err(Rejected::Overrun));
        assert_eq!(second.take().close.map(|close| close.code), Some(1013));
        assert_eq!((third.send(text(PIECE)), third.send("x")), (Ok(()), Ok(())), "another principal has its share");
        assert!(!first.is_closed() && !third.is_closed());
        drop(first);
        assert_eq!(third.send(text(11 * PIECE)), Ok(()), "there is enough again");
    }

    #[test]
    fn one_that_is_by_itself_always_fits() {
        let budget = budget(16);
        let (large, small) = (sharing(&budget, "a", None), sharing(&budget, "b", None));
        assert_eq!((large.offer(text(99 * PIECE)), budget.used()), (Ok(()), 15 * PIECE));
        let declined = small.offer(text(PIECE)).unwrap_err();
        assert!(matches!(declined, Declined::NoRoom(why) if why.hint.contains("x.y")));
        assert_eq!((small.offer("x"), small.send(text(PIECE))), (Ok(()), Ok(())), "what must be sent is sent");
        assert!(!small.is_closed());
    }
}
