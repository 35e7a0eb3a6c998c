//! The life of one connection.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use sa_core::aside;
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

/// How long a peer may take to acknowledge a close before the connection is dropped.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// How long a peer that broke the protocol has to read why. Nothing more of what it says is read, so that it cannot even
/// say that it knows; to hang up at once could take the reason from it.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// How long a peer may take to read what was written before a close.
const READ_PATIENCE: Duration = Duration::from_secs(8);

/// After so many lone frames in a row no crowd is expected any more.
const CROWD_MEMORY: u8 = 8;

const SILENT: &str = "the peer went silent";
const READS_NOTHING: &str = "the peer reads nothing";
const BAD_CODE: &str = "the peer closed with a code that no close frame may have";

/// Why and how a connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    pub code: u16,
    pub reason: Cow<'static, str>,
    /// Whether these are the peer's own words.
    by_peer: bool,
}

impl Close {
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>) -> Self {
        let mut reason = reason.into();
        // A close frame has 125 bytes, two of which are the code.
        if reason.len() > 123 {
            let cut = reason.floor_char_boundary(120);
            reason = format!("{}...", &reason[..cut]).into();
        }
        Self { code, reason, by_peer: false }
    }

    /// The same as the peer has said it.
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

    /// The answer to what the peer did wrong, when it was the peer.
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

    /// What the peer did wrong, in one word for the metrics; `None` for an end as any other.
    pub fn fault(&self) -> Option<&'static str> {
        match self.code {
            // It is us whom it finds fault with.
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
        Message::Close(Some(CloseFrame { code: self.code.into(), reason: self.reason.as_ref().into() }))
    }
}

/// When a silent peer is asked for a sign of life, and when it counts as dead.
#[derive(Debug, Clone, Copy)]
pub struct Liveness {
    pub ping_every: Duration,
    pub dead_after: Duration,
}

/// Whether a connection goes on after a message.
pub type Next = ControlFlow<Close>;

/// Serves a connection until either side closes it, and says why it ended. `on_text` gets every text message; it must
/// not block, and answers by way of the outbox.
///
/// Not an `async fn`, and the socket in a box, so that it is no part of any future: an idle connection is hardly more
/// than its futures, and each one that a socket is passed through would have room for it once more.
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

/// A message that came in.
#[derive(Debug, Clone)]
pub enum Received {
    Text(Utf8Bytes),
    Binary(Bytes),
    /// The beginning of a text that is larger than it may be, and how many bytes it had. It comes only where
    /// [`SocketLimits::cuts`](crate::SocketLimits::cuts) says so.
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

/// What a message takes. What is done at once has no room in the connection's future.
pub enum Work {
    Done(Next),
    Later(BoxFuture<'static, Next>),
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Done(_)) { "Done" } else { "Later" })
    }
}

/// As [`serve`], for protocols with binary frames, and with work that takes a while: no further message is read before
/// the last one's work is done, which is what slows a peer down that sends more than can be worked on.
pub fn serve_messages<'a>(
    socket: Box<WebSocket>,
    outbox: &'a Outbox,
    liveness: Liveness,
    on_message: impl FnMut(Received) -> Work + Send + 'a,
) -> impl Future<Output = Close> + Send + 'a {
    // In a box: a future has room for what it is given twice.
    let (cuts, heard) = (socket.get_ref().cuts().clone(), Box::new(Heard::new(socket.get_ref().came().clone())));
    let (sink, stream) = (*socket).split();
    serve_halves(sink, stream, cuts, heard, outbox, liveness, on_message)
}

/// Closes a connection that is not to be served at all.
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
    let _ = tokio::time::timeout(CLOSE_PATIENCE, goodbye).await;
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
    // Both halves make progress at the same time, in one task.
    let ended = {
        let mut reader = std::pin::pin!(read(stream, cuts, outbox, &heard, on_message));
        let mut writer = std::pin::pin!(write(sink, outbox, &heard, liveness));
        tokio::select! {
            // Reading first: what a peer said before it left counts, though nothing can be written to it any more.
            biased;
            // The peer has closed, or is gone.
            (ended, unanswered) = &mut reader => {
                if let Some(mut stream) = unanswered {
                    // The answer to a close is ready by itself, and leaves when the stream is read again, which then ends.
                    let answered = async move { while let Some(Ok(_)) = stream.next().await {} };
                    let _ = Box::pin(tokio::time::timeout(CLOSE_PATIENCE, answered)).await;
                }
                ended
            }
            // We have closed; the peer gets a moment to say that it knows.
            ended = &mut writer => {
                if ended.code != 1006 {
                    let patience = if heard.violated.load(Ordering::Relaxed) { LAST_WORDS } else { CLOSE_PATIENCE };
                    let _ = Box::pin(tokio::time::timeout(patience, reader)).await;
                }
                ended
            }
        }
    };
    outbox.shut(ended.clone());
    ended
}

/// Why it ended, and the stream if the peer has closed it and not been answered yet.
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
            // What takes no time is done by a function, so that nothing of it has room in this future.
            match one(message, &cuts, outbox, &mut refused, &mut on_message) {
                One::Done => {}
                One::Later(work) => refused = settled(outbox, work.await),
                One::Closed(close) => return (close, Some(stream)),
                One::Lost => break,
                // The stream cannot be read any further; the writer still says why.
                One::Violated => {
                    heard.violated.store(true, Ordering::Relaxed);
                    std::future::pending::<()>().await;
                }
            }
        }
        (Close::lost("the connection broke"), None)
    }
}

/// What came of one message.
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
        // What a part of it would be worth nobody could say.
        Ok(Message::Binary(_)) => {
            outbox.close(Close::too_large());
            return One::Violated;
        }
        Ok(Message::Close(frame)) => {
            return One::Closed(frame.map_or_else(
                || Close::by_peer(1005, "closed by the peer"),
                |frame| match (u16::from(frame.code), &*frame.reason) {
                    // What the library puts in the place of a code that no frame may have, such as 1005.
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
    match aside::if_free(received.len(), || on_message(received)) {
        Work::Later(work) => One::Later(work),
        Work::Done(next) => {
            *refused = settled(outbox, next);
            One::Done
        }
    }
}

/// Closes the connection if that is what came of a message. Its reader goes on, so that the close handshake can be
/// completed.
fn settled(outbox: &Outbox, next: Next) -> bool {
    next.break_value().map(|close| outbox.close(close)).is_some()
}

async fn write(mut sink: SplitSink<WebSocket, Message>, outbox: &Outbox, heard: &Heard, liveness: Liveness) -> Close {
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
                // A peer that reads nothing would block the ping, too; that is then what ends the connection.
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
                // The library takes a frame once it has written the last one, but for a little.
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
        // A peer that reads nothing holds up what is written; it does not hold up the end of its connection.
        let write = async {
            tokio::select! {
                biased;
                written = tokio::time::timeout(liveness.dead_after, write) => Ok(written),
                close = given_up(outbox) => Err(close),
            }
        };
        // In a box, for it is there only while something is written, and a connection is idle most of its life.
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

/// Resolves when a peer has had its time to read what came before a close.
async fn given_up(outbox: &Outbox) -> Close {
    let close = outbox.closing().await;
    tokio::time::sleep(READ_PATIENCE).await;
    close
}

/// What is to be written. While frames come in crowds, everybody who is about to add one gets a turn first: calls that
/// arrive together are answered together, and to wait until nothing else is ready to run costs next to nothing, while to
/// write each frame by itself costs a system call. A load is enough, though: the peer is to work on it while the rest is
/// made, or the two would take turns at being idle. A lone frame leaves at once.
async fn batch(outbox: &Outbox, crowded: bool) -> Taken {
    outbox.ready().await;
    if crowded {
        let enough = async {
            tokio::select! {
                biased;
                () = outbox.loaded() => {}
                // Comes back when the runtime has no other task to run.
                () = tokio::task::yield_now() => {}
            }
        };
        // In a box, as all that an idle connection has no use for.
        Box::pin(enough).await;
    }
    outbox.take()
}

/// When the peer was last heard of. Shared by the two halves.
struct Heard {
    base: Instant,
    at_ms: AtomicU64,
    /// What has come of messages that are not all there yet, and how much of it was known of before.
    came: Came,
    known: AtomicU64,
    /// Whether it has broken the protocol, so that nothing more is heard.
    violated: AtomicBool,
}

impl Heard {
    fn new(came: Came) -> Self {
        let known = came.bytes().into();
        Self { base: Instant::now(), at_ms: AtomicU64::new(0), came, known, violated: AtomicBool::new(false) }
    }

    fn now(&self) {
        self.at_ms.store(self.base.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        // Who sends a long message slowly is not silent, and cannot answer a ping before its end.
        let came = self.came.bytes();
        if self.known.swap(came, Ordering::Relaxed) != came {
            self.now();
        }
        self.base.elapsed().saturating_sub(Duration::from_millis(self.at_ms.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_sends_a_long_message_slowly_is_not_silent() {
        use tokio::io::AsyncReadExt as _;
        // A header that promises more than what follows.
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
