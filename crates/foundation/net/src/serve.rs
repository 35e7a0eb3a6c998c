//! The lifecycle of one connection.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use sa_limits::offload;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use crate::cut::{Cuts, TooLarge};
use crate::frames::TooManyFragments;
use crate::outbox::{Outbox, Taken, size};
use crate::source::Came;
use crate::upgrade::WebSocket;
use crate::watched::NoRoom;

/// The timeout for a peer to acknowledge a close before the connection is dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The time that a peer has to read the close reason after a protocol violation.
///
/// Nothing more is read from this peer, so it cannot acknowledge the close. Dropping the connection
/// at once could discard the reason before the peer reads it.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The timeout for a peer to read the data that was written before a close.
const READ_TIMEOUT: Duration = Duration::from_secs(8);

/// After this many single frames in a row, the writer no longer expects frames in groups.
const CROWD_MEMORY: u8 = 8;

const SILENT: &str = "the peer stopped responding";
const READS_NOTHING: &str = "the peer stopped reading";
const BAD_CODE: &str = "the peer closed with an invalid close code";

/// The code and reason with which a connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    pub code: u16,
    pub reason: Cow<'static, str>,
    /// Whether the peer sent this close.
    by_peer: bool,
}

impl Close {
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>) -> Self {
        let mut reason = reason.into();
        // A close frame has at most 125 bytes, and the code takes two of them.
        if reason.len() > 123 {
            let cut = reason.floor_char_boundary(120);
            reason = format!("{}...", &reason[..cut]).into();
        }
        Self { code, reason, by_peer: false }
    }

    /// Creates a close that the peer sent.
    fn by_peer(code: u16, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { by_peer: true, ..Self::new(code, reason) }
    }

    fn lost(reason: &'static str) -> Self {
        Self::new(1006, reason)
    }

    pub fn binary() -> Self {
        Self::new(1003, "binary frames are not part of this protocol")
    }

    pub fn too_large() -> Self {
        Self::new(1009, TooLarge.to_string())
    }

    /// Returns the close for a protocol violation, or `None` if the peer did not cause the error.
    pub fn violation(error: &Error) -> Option<Self> {
        match error {
            Error::Capacity(_) => Some(Self::too_large()),
            Error::Utf8(_) => Some(Self::new(1007, "the text is not UTF-8")),
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
            Error::Protocol(error) => Some(Self::new(1002, error.to_string())),
            Error::Io(error) => {
                let why = error.get_ref()?;
                let code = match () {
                    () if why.is::<TooLarge>() => 1009,
                    () if why.is::<TooManyFragments>() => 1008,
                    () if why.is::<NoRoom>() => 1013,
                    () => return None,
                };
                Some(Self::new(code, why.to_string()))
            }
            _ => None,
        }
    }

    /// Returns the peer's fault as one word for the metrics, or `None` for a normal end.
    pub fn fault(&self) -> Option<&'static str> {
        match self.code {
            // The peer closed the connection, so the fault that it reports is ours.
            _ if self.by_peer => None,
            1002 => Some("protocol"),
            1003 => Some("binary"),
            1006 if self.reason == SILENT => Some("silent"),
            1006 if self.reason == READS_NOTHING => Some("reads_nothing"),
            1007 => Some("not_utf8"),
            1008 => Some("too_many_fragments"),
            1009 => Some("too_large"),
            1013 => Some("no_room"),
            4429 => Some("too_slow"),
            _ => None,
        }
    }

    fn message(&self) -> Message {
        Message::Close(Some(CloseFrame {
            code: self.code.into(),
            reason: self.reason.as_ref().into(),
        }))
    }
}

/// When a silent peer is pinged, and when it counts as dead.
#[derive(Debug, Clone, Copy)]
pub struct Liveness {
    pub ping_every: Duration,
    pub dead_after: Duration,
}

/// Whether a connection continues after a message.
pub type Next = ControlFlow<Close>;

/// Serves a connection until either side closes it, and returns why it ended.
///
/// `on_text` is called with every text message. It must not block, and it answers through the
/// outbox.
///
/// This function is not an `async fn`, and the socket is boxed, to keep the socket out of the
/// futures. An idle connection costs little more than its futures. Each future that a socket passes
/// through would store it once more.
pub fn serve<'a>(
    socket: Box<WebSocket>,
    outbox: &'a Outbox,
    liveness: Liveness,
    mut on_text: impl FnMut(&str) -> Next + Send + 'a,
) -> impl Future<Output = Close> + Send + 'a {
    let on_message = move |message: Received| {
        Work::Done(match message {
            Received::Text(text) => on_text(&text),
            Received::Binary(_) => ControlFlow::Break(Close::binary()),
            Received::Cut { .. } => ControlFlow::Break(Close::too_large()),
        })
    };
    serve_messages(socket, outbox, liveness, on_message)
}

/// A received message.
#[derive(Debug, Clone)]
pub enum Received {
    Text(Utf8Bytes),
    Binary(Bytes),
    /// The beginning of a text that exceeds the size limit, and the full size in bytes.
    ///
    /// This only occurs if [`SocketLimits::cuts`](crate::SocketLimits::cuts) is set.
    Cut {
        beginning: Utf8Bytes,
        bytes: u64,
    },
}

impl Received {
    fn len(&self) -> usize {
        match self {
            Self::Text(text) | Self::Cut { beginning: text, .. } => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }
}

/// The work that a message causes. Work that is done at once takes no space in the connection's
/// future.
pub enum Work {
    Done(Next),
    Later(BoxFuture<'static, Next>),
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Done(_)) { "Done" } else { "Later" })
    }
}

/// Like [`serve`], but for protocols with binary frames and with work that takes a while.
///
/// The next message is read only after the work of the last one is done. This backpressure slows
/// down a peer that sends too much.
pub fn serve_messages<'a>(
    socket: Box<WebSocket>,
    outbox: &'a Outbox,
    liveness: Liveness,
    on_message: impl FnMut(Received) -> Work + Send + 'a,
) -> impl Future<Output = Close> + Send + 'a {
    // Boxed, because a future stores its arguments twice.
    let (cuts, heard) =
        (socket.get_ref().cuts().clone(), Box::new(Heard::new(socket.get_ref().came().clone())));
    let (sink, stream) = (*socket).split();
    serve_halves(sink, stream, cuts, heard, outbox, liveness, on_message)
}

/// Closes a connection that is not served at all.
pub async fn dismiss(mut socket: Box<WebSocket>, close: &Close) {
    let goodbye = async {
        socket.send(close.message()).await.ok()?;
        loop {
            if let Err(error) = socket.next().await? {
                Close::violation(&error)?;
                tokio::time::sleep(LAST_WORDS).await;
                return None::<()>;
            }
        }
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, goodbye).await;
}

async fn serve_halves(
    sink: SplitSink<WebSocket, Message>,
    stream: SplitStream<WebSocket>,
    cuts: Cuts,
    heard: Box<Heard>,
    outbox: &Outbox,
    liveness: Liveness,
    on_message: impl FnMut(Received) -> Work + Send,
) -> Close {
    // Both halves make progress concurrently, in one task.
    let ended = {
        let mut reader = std::pin::pin!(read(stream, cuts, outbox, &heard, on_message));
        let mut writer = std::pin::pin!(write(sink, outbox, &heard, liveness));
        tokio::select! {
            // The reader is polled first. Messages that a peer sent before it left are still
            // processed, although nothing can be written to it any more.
            biased;
            // The peer has closed or disconnected.
            (ended, unanswered) = &mut reader => {
                if let Some(mut stream) = unanswered {
                    // The library has queued the answer to the close. It is sent when the stream is
                    // read again, and then the stream ends.
                    let answered = async move { while let Some(Ok(_)) = stream.next().await {} };
                    let _ = Box::pin(tokio::time::timeout(CLOSE_TIMEOUT, answered)).await;
                }
                ended
            }
            // The gateway has closed. The peer gets a short time to acknowledge the close.
            ended = &mut writer => {
                if ended.code != 1006 {
                    let timeout = if heard.violated.load(Ordering::Relaxed) { LAST_WORDS } else { CLOSE_TIMEOUT };
                    let _ = Box::pin(tokio::time::timeout(timeout, reader)).await;
                }
                ended
            }
        }
    };
    outbox.shut(ended.clone());
    ended
}

/// Reads messages until the connection ends. Returns the reason, and the stream if the peer's close
/// is still to be answered.
#[expect(clippy::manual_async_fn, reason = "an async fn has room for its arguments twice")]
fn read(
    mut stream: SplitStream<WebSocket>,
    cuts: Cuts,
    outbox: &Outbox,
    heard: &Heard,
    mut on_message: impl FnMut(Received) -> Work,
) -> impl Future<Output = (Close, Option<SplitStream<WebSocket>>)> {
    async move {
        let mut refused = false;
        while let Some(message) = stream.next().await {
            heard.now();
            // Immediate work is done by a function, so its state takes no space in this future.
            match one(message, &cuts, outbox, &mut refused, &mut on_message) {
                One::Done => {}
                One::Later(work) => refused = settled(outbox, work.await),
                One::Closed(close) => return (close, Some(stream)),
                One::Lost => break,
                // The stream cannot be read any further. The writer still sends the reason.
                One::Violated => {
                    heard.violated.store(true, Ordering::Relaxed);
                    std::future::pending::<()>().await;
                }
            }
        }
        (Close::lost("the connection broke"), None)
    }
}

/// The result of one message.
enum One {
    Done,
    Later(BoxFuture<'static, Next>),
    Closed(Close),
    Lost,
    Violated,
}

fn one(
    message: Result<Message, Error>,
    cuts: &Cuts,
    outbox: &Outbox,
    refused: &mut bool,
    on_message: &mut impl FnMut(Received) -> Work,
) -> One {
    let received = match message {
        Ok(Message::Text(text)) => match cuts.take() {
            None => Received::Text(text),
            Some(bytes) => Received::Cut { beginning: text, bytes },
        },
        Ok(Message::Binary(bytes)) if cuts.take().is_none() => Received::Binary(bytes),
        // The beginning of a binary message is of no use to any protocol.
        Ok(Message::Binary(_)) => {
            outbox.close(Close::too_large());
            return One::Violated;
        }
        Ok(Message::Close(frame)) => {
            return One::Closed(frame.map_or_else(
                || Close::by_peer(1005, "closed by the peer"),
                |frame| match (u16::from(frame.code), &*frame.reason) {
                    // The library reports this for a code that no frame may have, such as 1005.
                    (1002, "Protocol violation") => Close::new(1002, BAD_CODE),
                    (code, reason) => Close::by_peer(code, reason.to_owned()),
                },
            ));
        }
        Ok(_) => return One::Done,
        Err(error) => {
            let Some(close) = Close::violation(&error) else { return One::Lost };
            outbox.close(close);
            return One::Violated;
        }
    };
    if *refused {
        return One::Done;
    }
    match offload::run_if_free(received.len(), || on_message(received)) {
        Work::Later(work) => One::Later(work),
        Work::Done(next) => {
            *refused = settled(outbox, next);
            One::Done
        }
    }
}

/// Closes the connection if the message asks for it, and returns whether it did.
///
/// The reader continues, so that the close handshake can complete.
fn settled(outbox: &Outbox, next: Next) -> bool {
    next.break_value().map(|close| outbox.close(close)).is_some()
}

async fn write(
    mut sink: SplitSink<WebSocket, Message>,
    outbox: &Outbox,
    heard: &Heard,
    liveness: Liveness,
) -> Close {
    let mut tick = tokio::time::interval(liveness.ping_every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.reset();
    let mut crowds = 0_u8;
    loop {
        let Taken { frames, close, large } = tokio::select! {
            biased;
            work = batch(outbox, crowds > 0) => work,
            _ = tick.tick() => {
                let silence = heard.silence();
                if silence >= liveness.dead_after {
                    return Close::lost(SILENT);
                }
                if silence < liveness.ping_every {
                    continue;
                }
                // A peer that reads nothing would also block the ping. The timeout of the ping then
                // ends the connection.
                let ping = sink.send(Message::Ping(Bytes::new()));
                match Box::pin(tokio::time::timeout(liveness.dead_after, ping)).await {
                    Ok(Ok(())) => continue,
                    _ => return Close::lost(SILENT),
                }
            }
        };
        crowds = if frames.len() > 1 { CROWD_MEMORY } else { crowds.saturating_sub(1) };
        let write = async {
            let mut before = 0;
            for frame in frames {
                let bytes = size(&frame);
                sink.feed(frame).await?;
                // The library takes a frame only after it has written most of the previous one.
                if large {
                    outbox.written(std::mem::replace(&mut before, bytes));
                }
            }
            if let Some(close) = &close {
                sink.feed(close.message()).await?;
            }
            sink.flush().await?;
            if large {
                outbox.written(usize::MAX);
            }
            Ok::<_, Error>(())
        };
        // A peer that reads nothing can delay the writes, but not the close of its connection.
        let write = async {
            tokio::select! {
                biased;
                written = tokio::time::timeout(liveness.dead_after, write) => Ok(written),
                close = given_up(outbox) => Err(close),
            }
        };
        // Boxed, because it exists only during a write, and a connection is idle most of the time.
        let written = match Box::pin(write).await {
            Ok(written) => written,
            Err(close) => return close,
        };
        match written {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return close.unwrap_or(Close::lost("the connection broke")),
            Err(_) => return Close::lost(READS_NOTHING),
        }
        if let Some(close) = close {
            return close;
        }
    }
}

/// Completes when the peer has had its time to read the data before a close.
async fn given_up(outbox: &Outbox) -> Close {
    let close = outbox.closing().await;
    tokio::time::sleep(READ_TIMEOUT).await;
    close
}

/// Takes the next frames to write.
///
/// If frames arrive in groups, all tasks that are ready run first and may add frames. Calls that
/// arrive together are then answered together. Waiting for the ready tasks costs almost nothing,
/// while a write per frame costs a system call each.
///
/// A full load is written at once, so that the peer can process it while the rest is produced.
/// Otherwise both sides would be idle by turns. A single frame is sent at once.
async fn batch(outbox: &Outbox, crowded: bool) -> Taken {
    outbox.ready().await;
    if crowded {
        let enough = async {
            tokio::select! {
                biased;
                () = outbox.loaded() => {}
                // Completes when the runtime has no other task to run.
                () = tokio::task::yield_now() => {}
            }
        };
        // Boxed, like everything that an idle connection does not need.
        Box::pin(enough).await;
    }
    outbox.take()
}

/// When data from the peer last arrived. Both halves share this value.
struct Heard {
    base: Instant,
    at_ms: AtomicU64,
    /// The bytes that have arrived, including incomplete messages, and the count at the last check.
    came: Came,
    known: AtomicU64,
    /// Whether the peer has violated the protocol, so that nothing more is read.
    violated: AtomicBool,
}

impl Heard {
    fn new(came: Came) -> Self {
        let known = came.bytes().into();
        Self {
            base: Instant::now(),
            at_ms: AtomicU64::new(0),
            came,
            known,
            violated: AtomicBool::new(false),
        }
    }

    fn now(&self) {
        self.at_ms.store(self.base.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        // A peer that sends a long message slowly is not silent. It cannot answer a ping before the
        // message ends.
        let came = self.came.bytes();
        if self.known.swap(came, Ordering::Relaxed) != came {
            self.now();
        }
        self.base
            .elapsed()
            .saturating_sub(Duration::from_millis(self.at_ms.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_sends_a_long_message_slowly_is_not_silent() {
        use tokio::io::AsyncReadExt as _;
        // The header announces more bytes than follow.
        let bytes = [0x81, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3, 4, b'x'];
        let mut stream = crate::watched::Watched::new(&bytes[..], 1 << 20, false, None);
        let (heard, second) = (Heard::new(stream.came().clone()), Duration::from_secs(1));
        tokio::time::advance(second).await;
        assert_eq!(heard.silence(), second);
        stream.read_to_end(&mut Vec::new()).await.unwrap();
        assert_eq!(heard.silence(), Duration::ZERO);
        tokio::time::advance(second).await;
        assert_eq!(heard.silence(), second, "nothing more has come");
    }

    #[test]
    fn only_a_peer_that_did_wrong_is_at_fault() {
        assert_eq!(Close::new(1009, "too large").fault(), Some("too_large"));
        assert_eq!(Close::by_peer(1009, "you sent too much").fault(), None);
        assert_eq!(Close::new(1002, BAD_CODE).fault(), Some("protocol"));
        assert_eq!(Close::lost(SILENT).fault(), Some("silent"));
        assert_eq!(Close::lost("the connection broke").fault(), None);
    }
}
