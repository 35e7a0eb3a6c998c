//! The send queue of a connection, bounded in bytes.
//!
//! Each connection has its own limit. Connections can also share a budget.

use std::sync::Arc;

use axum::body::Bytes;
use parking_lot::Mutex;
use sa_limits::budget::{Permit, Refused, Share};
use sa_limits::offload;
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::serve::Close;

/// The number of queued frames that is worth a write.
const LOAD: usize = 16;

/// The sending end of a connection. It is cheap to clone, usable from any task, and never blocks.
#[derive(Debug, Clone)]
pub struct Outbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Notify,
    /// Notified when the queue has been emptied, for senders that follow the reader's pace.
    emptied: Notify,
    max_bytes: usize,
    /// The close code and reason for a reader that is too slow.
    overrun: Close,
    /// The close code and reason for a send that the shared budget refuses.
    ///
    /// If it is `None`, the frame is sent anyway.
    crowded_out: Option<Close>,
}

#[derive(Debug, Default)]
struct Queue {
    frames: Vec<Message>,
    /// Sent and offered bytes are counted separately. Otherwise offered frames could fill the
    /// queue, and the next send would close the connection.
    sent: usize,
    offered: usize,
    /// The bytes that the writer has taken and not written yet, counted only if they are large.
    taken: usize,
    /// The bytes that the queue takes from the shared budget.
    permit: Option<Permit>,
    close: Option<Close>,
}

/// The frames that the writer takes in one step.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) frames: Vec<Message>,
    /// The reason to close the connection after these frames, if there is one.
    pub(crate) close: Option<Close>,
    /// Whether the frames count against the budget until they are written, see [`Outbox::written`].
    pub(crate) large: bool,
}

/// The reason why a frame was refused. A refused frame is never sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// The connection is closed or about to close.
    Closed,
    /// The reader is too slow, or the shared budget for unread data is exhausted. The connection is
    /// being closed.
    Overrun,
}

/// The reason why an offered frame was declined. A declined frame is never sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Declined {
    /// The connection is closed or about to close.
    Closed,
    /// This many offered bytes are queued and not written yet. The connection stays open.
    Full(usize),
    /// The shared budget for unread data is exhausted. The connection stays open.
    NoRoom(Refused),
}

impl Outbox {
    pub fn new(max_bytes: usize, overrun: Close) -> Self {
        Self::made(max_bytes, overrun, None, None)
    }

    /// Creates an outbox that shares a budget for unread data with other outboxes.
    ///
    /// The limit of one connection, times the maximum number of connections, exceeds the memory of
    /// any machine. Each connection may queue a small amount without taking from the budget.
    ///
    /// If the budget refuses a frame, the connection is closed with `crowded_out`. Without
    /// `crowded_out`, an offered frame is declined and a sent frame is sent anyway.
    pub fn within(
        share: &Share,
        crowded_out: Option<Close>,
        max_bytes: usize,
        overrun: Close,
    ) -> Self {
        Self::made(max_bytes, overrun, Some(share.empty()), crowded_out)
    }

    fn made(
        max_bytes: usize,
        overrun: Close,
        permit: Option<Permit>,
        crowded_out: Option<Close>,
    ) -> Self {
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

    /// Queues a text or binary frame. If the queue is full, the connection is closed with the
    /// result of `overrun`.
    pub fn send_else(
        &self,
        frame: Message,
        overrun: impl FnOnce() -> Close,
    ) -> Result<(), Rejected> {
        self.queue(frame, overrun)
    }

    /// Queues a text frame if there is space for it. Otherwise neither the frame is queued nor the
    /// connection closed.
    ///
    /// This is for senders that share a connection. A sender that sends too much does not close it
    /// for the others.
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

    /// Whether `more` bytes exceed the limit. A single frame always fits, because the peer asked
    /// for it.
    fn overruns(&self, queued: usize, more: usize) -> bool {
        queued > 0 && queued + more > self.0.max_bytes
    }

    /// Waits until the writer has taken all queued frames, or the connection is closed.
    ///
    /// This is for a sender with more data than the queue holds, which sends at the reader's pace.
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

    /// Closes the connection after the queued frames have been written. Only the first reason
    /// counts.
    pub fn close(&self, close: Close) {
        self.lock().close.get_or_insert(close);
        self.0.changed.notify_one();
        self.0.emptied.notify_waiters();
    }

    pub fn is_closed(&self) -> bool {
        self.lock().close.is_some()
    }

    /// Waits until there is a frame to write or a reason to close.
    pub(crate) async fn ready(&self) {
        self.reaches(1).await;
    }

    /// Waits until enough frames are queued to write them without waiting for more.
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

    /// Takes all queued frames.
    pub(crate) fn take(&self) -> Taken {
        let taken = {
            let mut queue = self.lock();
            // Small frames are written in a moment, so they are not counted while they are written.
            queue.taken = Some(queue.sent + queue.offered)
                .filter(|bytes| *bytes >= offload::LARGE)
                .unwrap_or(0);
            (queue.sent, queue.offered) = (0, 0);
            queue.gives_back();
            let (frames, close) = (std::mem::take(&mut queue.frames), queue.close.clone());
            Taken { frames, close, large: queue.taken > 0 }
        };
        self.0.emptied.notify_waiters();
        taken
    }

    /// Reports that this many taken bytes have been written.
    pub(crate) fn written(&self, bytes: usize) {
        let mut queue = self.lock();
        queue.taken = queue.taken.saturating_sub(bytes);
        queue.gives_back();
    }

    /// Closes the outbox and drops all queued frames.
    pub(crate) fn shut(&self, close: Close) {
        let mut queue = self.lock();
        queue.close.get_or_insert(close);
        queue.frames = Vec::new();
        (queue.sent, queue.offered, queue.taken) = (0, 0, 0);
        queue.gives_back();
        drop(queue);
        self.0.emptied.notify_waiters();
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Queue> {
        self.0.queue.lock()
    }
}

/// Returns the number of bytes that a frame counts against the limits.
pub(crate) fn size(frame: &Message) -> usize {
    match frame {
        Message::Text(text) => text.len(),
        Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes.len(),
        Message::Close(_) | Message::Frame(_) => 0,
    }
}

impl Queue {
    /// Adjusts the permit to the waiting bytes plus `more`.
    fn count(&mut self, more: usize) -> Result<(), Refused> {
        let waiting = self.sent + self.offered + self.taken + more;
        let Some(permit) = &mut self.permit else { return Ok(()) };
        // A single frame always fits, because the reader asked for it.
        permit.resize_in_steps(waiting.min(permit.budget().largest()))
    }

    /// Returns unused bytes to the budget. Bytes that were sent without a permit may get one now.
    fn gives_back(&mut self) {
        let _ = self.count(0);
    }

    /// Adds a frame, and returns whether to wake the writer.
    ///
    /// One wake-up covers all frames until the writer runs. Another one follows when a load is
    /// complete.
    fn push(&mut self, frame: Message) -> bool {
        self.frames.push(frame);
        matches!(self.frames.len(), 1 | LOAD)
    }
}

#[cfg(test)]
mod tests {
    use sa_limits::budget::{Holder, Limit, STEP, SharedBudget};

    use super::*;

    fn outbox() -> Outbox {
        Outbox::new(10, Close::new(4429, "too slow"))
    }

    #[tokio::test]
    async fn takes_frames_up_to_its_limit_and_then_closes() {
        let outbox = outbox();
        assert_eq!(
            outbox.send("12345678901234567890"),
            Ok(()),
            "one frame always fits: it is what the peer asked for"
        );
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
        assert_eq!(
            (frames.len(), close),
            (2, None),
            "in the order in which they came, and nothing closed"
        );
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

    const PIECE: usize = offload::LARGE;

    fn budget(pieces: usize) -> Arc<SharedBudget> {
        let limit = Limit {
            name: "unread",
            what: "unread bytes",
            key: "x.y",
            remedy: "read",
            total: pieces * PIECE,
        };
        SharedBudget::new(limit)
    }

    fn text(bytes: usize) -> String {
        "x".repeat(bytes)
    }

    fn sharing(
        budget: &Arc<SharedBudget>,
        holder: &'static str,
        crowded_out: Option<Close>,
    ) -> Outbox {
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
        let (first, second) =
            (sharing(&budget, "greedy", reason()), sharing(&budget, "greedy", reason()));
        let third = sharing(&budget, "modest", reason());
        assert_eq!(first.send(text(12 * PIECE)), Ok(()));
        assert_eq!(second.send(text(PIECE)), Err(Rejected::Overrun));
        assert_eq!(second.take().close.map(|close| close.code), Some(1013));
        assert_eq!(
            (third.send(text(PIECE)), third.send("x")),
            (Ok(()), Ok(())),
            "another principal has its share"
        );
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
        assert_eq!(
            (small.offer("x"), small.send(text(PIECE))),
            (Ok(()), Ok(())),
            "what must be sent is sent"
        );
        assert!(!small.is_closed());
    }
}
