//! What a stream's messages may cost beyond what the library bounds.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::cut::{Cuts, Cutting, Step, TooLarge};
use crate::frames::{Frames, Header, Seen};
use crate::source::Source;
use crate::split::Splitting;

/// A stream whose frames are looked at before the library gets them, by their headers.
///
/// A message is bounded in bytes, but a fragment may be empty, and the library puts messages together without saying of
/// how many: a peer could keep it busy for ever with one that never ends. So a stream is read no further once a message has
/// more fragments than any needs.
///
/// The library gives a connection up for a message that is larger than it may be, though many calls may share the connection
/// and the message be one's. So a message can be cut instead: the library gets its beginning for a message of its own, and
/// [`Cuts`] says that it is one. And large frames are split, see [`Splitting`].
#[derive(Debug)]
pub struct Watched<S> {
    /// What is unread of it begins with a header, or with a part of one, unless there is something under way.
    source: Source<S>,
    frames: Frames,
    cuts: Cuts,
    under_way: UnderWay,
    /// What is to be passed on before anything else.
    out: Vec<u8>,
}

/// What is not just passed on.
#[derive(Debug)]
enum UnderWay {
    Nothing,
    Splitting(Splitting),
    Cutting(Box<Cutting>),
}

impl<S> Watched<S> {
    /// For messages of at most so many bytes. A larger one is cut, or ends the stream.
    pub(crate) fn new(stream: S, max_message: usize, cuts: bool) -> Self {
        Self {
            source: Source { stream, unread: Vec::new() },
            frames: Frames::new(max_message as u64),
            cuts: if cuts { Cuts::told() } else { Cuts::default() },
            under_way: UnderWay::Nothing,
            out: Vec::new(),
        }
    }

    pub(crate) fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// How many bytes the message had that was read last, if it was cut. For who reads a socket that is not served yet.
    pub fn take_cut(&self) -> Option<u64> {
        self.cuts.take()
    }

    /// Begins to cut a message, of which so many bytes were passed on.
    fn cut(&mut self, passed: u64) -> io::Result<()> {
        if !self.cuts.are_told() {
            return Err(io::Error::other(TooLarge));
        }
        let mut cutting = Box::new(Cutting::new(self.frames.max_message, passed));
        if let Some(header) = next_header(&mut self.source, &mut self.frames)? {
            cutting.enter(header, &mut self.out).map_err(io::Error::other)?;
            self.under_way = UnderWay::Cutting(cutting);
        }
        Ok(())
    }

    /// Looks at what has been read.
    fn look(&mut self) -> io::Result<Looked> {
        match self.frames.pass(&self.source.unread).map_err(io::Error::other)? {
            Seen::All => self.out = std::mem::take(&mut self.source.unread),
            Seen::Header(0) => return Ok(Looked::TooLittle),
            Seen::Large(0) => {
                if let Some(header) = next_header(&mut self.source, &mut self.frames)? {
                    self.under_way = UnderWay::Splitting(Splitting::new(header));
                }
            }
            Seen::TooLarge(0) => self.cut(self.frames.message)?,
            Seen::Header(at) | Seen::Large(at) | Seen::TooLarge(at) => self.out.extend(self.source.unread.drain(..at)),
        }
        Ok(Looked::Enough)
    }
}

/// Takes the header of a frame whose payload is not just passed on, if all of it is there.
fn next_header<S>(source: &mut Source<S>, frames: &mut Frames) -> io::Result<Option<Header>> {
    let Some((header, length)) = Header::read(&source.unread) else { return Ok(None) };
    source.unread.drain(..length);
    frames.enter_other(&header).map_err(io::Error::other)?;
    Ok(Some(header))
}

/// Whether there is enough to go on with.
enum Looked {
    Enough,
    TooLittle,
}

impl<S: AsyncRead + Unpin> Watched<S> {
    /// Takes a step with what comes next; `false` at the end of the stream.
    fn poll_step(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        if !self.out.is_empty() {
            let passed = self.out.len().min(buffer.remaining());
            buffer.put_slice(&self.out[..passed]);
            self.out.drain(..passed);
            return Poll::Ready(Ok(true));
        }
        match &mut self.under_way {
            UnderWay::Splitting(splitting) => {
                let goes_on = ready!(splitting.poll(cx, &mut self.source, buffer, &mut self.out))?;
                if splitting.is_done() {
                    self.under_way = UnderWay::Nothing;
                }
                Poll::Ready(Ok(goes_on))
            }
            UnderWay::Cutting(_) => self.poll_cut(cx, buffer),
            UnderWay::Nothing if self.source.unread.is_empty() => self.poll_pass(cx, buffer),
            UnderWay::Nothing => match self.look()? {
                Looked::Enough => Poll::Ready(Ok(true)),
                Looked::TooLittle => self.source.poll_more(cx),
            },
        }
    }

    fn poll_cut(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        let UnderWay::Cutting(cutting) = &mut self.under_way else { return Poll::Ready(Ok(true)) };
        match ready!(cutting.poll(cx, &mut self.source, buffer, &mut self.out))? {
            Step::On => {}
            Step::Frame => {
                let Some(header) = next_header(&mut self.source, &mut self.frames)? else {
                    return self.source.poll_more(cx);
                };
                cutting.enter(header, &mut self.out).map_err(io::Error::other)?;
            }
            Step::Message => {
                self.cuts.set(cutting.bytes);
                self.under_way = UnderWay::Nothing;
                Header::more(0).last().write(&mut self.out);
            }
            Step::Stream => return Poll::Ready(Ok(false)),
        }
        Poll::Ready(Ok(true))
    }

    /// Passes on what comes as it is, which nearly everything does.
    fn poll_pass(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        // An idle connection keeps nothing of what it once had.
        self.out = Vec::new();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.source.stream).poll_read(cx, buffer))?;
        let came = &buffer.filled()[before..];
        let (passed, is_end) = match self.frames.pass(came).map_err(io::Error::other) {
            Ok(Seen::All) => (came.len(), came.is_empty()),
            Ok(Seen::Header(at) | Seen::Large(at) | Seen::TooLarge(at)) => (at, false),
            Err(error) => {
                buffer.set_filled(before);
                return Poll::Ready(Err(error));
            }
        };
        self.source.unread = came[passed..].to_vec();
        buffer.set_filled(before + passed);
        Poll::Ready(Ok(!is_end))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        // To pass on nothing would say that the stream has ended. Not more than one step's worth, though: what tells of a
        // cut must reach the library by itself.
        while buffer.filled().len() == before && buffer.remaining() > 0 {
            if !ready!(this.poll_step(cx, buffer))? {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.source.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.source.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.source.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    //! Rule: a message that is not too large arrives as it is; of one that is too large arrives the beginning, which is said;
    //! and neither it nor the place where the stream is cut in pieces changes anything about the others.

    use std::collections::VecDeque;

    use futures_util::{FutureExt as _, StreamExt as _};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::protocol::Role;
    use tokio_tungstenite::tungstenite::{Error, Message};

    use super::*;
    use crate::cut::MAX_TIMES;
    use crate::frames::TooManyFragments;
    use crate::frames::tests::{PING, TEXT, frame};
    use crate::split::PIECE;
    use crate::upgrade::SocketLimits;

    const MAX: usize = 40;
    const LIMITS: SocketLimits = SocketLimits { max_message_bytes: MAX, cuts: true };

    /// A stream that comes in pieces.
    struct Pieces(VecDeque<Vec<u8>>);

    impl AsyncRead for Pieces {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            while let Some(piece) = self.0.front_mut() {
                let read = piece.len().min(buffer.remaining());
                buffer.put_slice(&piece[..read]);
                piece.drain(..read);
                if read > 0 {
                    break;
                }
                self.0.pop_front();
            }
            Poll::Ready(Ok(()))
        }
    }

    /// What arrives: texts, each with the size that it had if it was cut, and what pings said.
    fn arrived(pieces: Vec<Vec<u8>>) -> (Vec<(String, Option<u64>)>, Option<Error>) {
        arrived_within(LIMITS, pieces)
    }

    fn arrived_within(limits: SocketLimits, pieces: Vec<Vec<u8>>) -> (Vec<(String, Option<u64>)>, Option<Error>) {
        let reading = async {
            let stream = tokio::io::join(limits.watch(Pieces(pieces.into())), tokio::io::sink());
            let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits.config())).await;
            let mut arrived = Vec::new();
            loop {
                match socket.next().await {
                    Some(Ok(message @ Message::Text(_))) => {
                        arrived.push((message.to_text().unwrap().to_owned(), socket.get_ref().reader().take_cut()));
                    }
                    Some(Ok(other)) => arrived.push((format!("{other:?}"), None)),
                    Some(Err(error)) => return (arrived, Some(error)),
                    None => return (arrived, None),
                }
            }
        };
        reading.now_or_never().unwrap()
    }

    /// Frames of one message, with a ping between each two.
    fn frames(text: &str, cuts: &[prop::sample::Index]) -> Vec<u8> {
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.sort_unstable();
        places.push(text.len());
        let (mut bytes, mut start) = (Vec::new(), 0);
        for (number, end) in places.iter().enumerate() {
            let is_last = number + 1 == places.len();
            bytes.extend(frame(if number == 0 { TEXT } else { 0 }, is_last, &text.as_bytes()[start..*end]));
            if !is_last {
                bytes.extend(frame(PING, true, b"there?"));
            }
            start = *end;
        }
        bytes
    }

    fn messages() -> impl Strategy<Value = Vec<(String, Vec<prop::sample::Index>)>> {
        let text = prop_oneof!["[a-z]{0,45}", "[é🙂a]{0,40}", "[é🙂a]{30,150}"];
        vec((text, vec(any::<prop::sample::Index>(), 0..4)), 1..6)
    }

    proptest! {
        #[test]
        fn only_what_is_too_large_is_cut(
            (messages, pieces) in messages().prop_flat_map(|messages| {
                let bytes: Vec<u8> = messages.iter().flat_map(|(text, cuts)| frames(text, cuts)).collect();
                (Just(messages), sa_hostile::pieces(Just(bytes)).prop_map(|(_, pieces)| pieces))
            })
        ) {
            let (arrived, end) = arrived(pieces);
            prop_assert!(matches!(end, Some(Error::Protocol(_))), "it is cut off without a close: {end:?}");
            let pings: usize = messages.iter().map(|(_, cuts)| cuts.len()).sum();
            let (texts, others): (Vec<_>, Vec<_>) = arrived.into_iter().partition(|(text, _)| !text.starts_with("Ping"));
            prop_assert_eq!(others.len(), pings);
            prop_assert_eq!(texts.len(), messages.len());
            for ((arrived, cut), (sent, _)) in texts.iter().zip(&messages) {
                if sent.len() <= MAX {
                    prop_assert_eq!((arrived, cut), (sent, &None));
                } else {
                    prop_assert_eq!(*cut, Some(sent.len() as u64));
                    prop_assert!(sent.starts_with(&**arrived) && arrived.len() <= MAX + 3, "{arrived}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn what_is_large_arrives_as_it_was_sent(
            lengths in vec(0..3 * PIECE as usize, 1..4),
            cuts in vec(any::<prop::sample::Index>(), 0..2),
            at_once in 1..40_000_usize,
        ) {
            let limits = SocketLimits { max_message_bytes: 6 * PIECE as usize, cuts: false };
            let texts: Vec<String> = lengths.iter().map(|length| "aé".repeat(*length / 2)).collect();
            let bytes: Vec<u8> = texts.iter().flat_map(|text| frames(text, &cuts)).collect();
            let (arrived, _) = arrived_within(limits, bytes.chunks(at_once).map(<[u8]>::to_vec).collect());
            let arrived: Vec<_> = arrived.into_iter().filter(|(text, _)| !text.starts_with("Ping")).collect();
            prop_assert!(arrived == texts.into_iter().map(|text| (text, None)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_library_gets_no_frame_that_is_large() {
        let mut passed = Vec::new();
        let bytes = frame(TEXT, true, &vec![b'x'; 2 * PIECE as usize + 1]);
        let mut stream = Watched::new(&*bytes, bytes.len(), false);
        stream.read_to_end(&mut passed).now_or_never().unwrap().unwrap();
        let (mut rest, mut lengths) = (&passed[..], Vec::new());
        while let Some((header, length)) = Header::read(rest) {
            lengths.push((header.payload, header.first));
            rest = &rest[length + header.payload as usize..];
        }
        assert_eq!(lengths, [(PIECE, TEXT), (PIECE, 0), (1, 0x80)]);
    }

    #[test]
    fn what_is_too_large_ends_a_stream_whose_messages_are_not_cut_before_it_is_read() {
        let limits = SocketLimits { cuts: false, ..LIMITS };
        let mut bytes = Vec::new();
        Header { first: TEXT, mask: Some([0; 4]), payload: MAX as u64 + 1 }.last().write(&mut bytes);
        let (_, error) = arrived_within(limits, vec![bytes]);
        assert!(matches!(error, Some(Error::Io(error)) if error.get_ref().is_some_and(|why| why.is::<TooLarge>())));
    }

    #[track_caller]
    fn check_refused<E: std::error::Error + Send + Sync + 'static>(bytes: Vec<u8>) {
        let (arrived, error) = arrived(vec![bytes]);
        let Some(Error::Io(error)) = error else { panic!("{arrived:?}, {error:?}") };
        assert!(error.get_ref().is_some_and(|why| why.is::<E>()), "{error}");
    }

    #[test]
    fn what_is_too_large_many_times_is_not_read_to_its_end() {
        let most = MAX * MAX_TIMES as usize;
        let (arrived, _) = arrived(vec![frame(TEXT, true, &vec![b'x'; most])]);
        assert_eq!(arrived, [("x".repeat(MAX), Some(most as u64))]);
        check_refused::<TooLarge>(frame(TEXT, true, &vec![b'x'; most + 1]));
        let mut endless = Vec::new();
        Header { first: TEXT, mask: Some([0; 4]), payload: u64::MAX }.last().write(&mut endless);
        check_refused::<TooLarge>(endless);
        check_refused::<TooLarge>([frame(TEXT, false, &[b'x'; MAX]), frame(0, false, &vec![b'x'; most])].concat());
    }

    #[test]
    fn what_is_wrong_with_a_message_that_is_cut_is_seen() {
        let long = [b'x'; MAX + 1];
        let bad_text = [&long[..], b"\xff"].concat();
        let cases = [
            (frame(TEXT | 0x40, true, &long), "Reserved"),
            (frame(0, true, &long), "Continue"),
            (frame(3, true, &long), "opcode"),
            ([frame(TEXT, false, &long), frame(TEXT, true, b"x")].concat(), "fragment"),
            (frame(TEXT, true, &[b"\xff", &bad_text[..]].concat()), "Utf8"),
        ];
        for (bytes, expected) in cases {
            let (arrived, error) = arrived(vec![bytes]);
            let told = error.map(|error| format!("{error:?} {error}"));
            assert!(told.as_ref().is_some_and(|told| told.contains(expected)), "{expected}: {arrived:?}, {told:?}");
        }
    }

    #[test]
    fn nothing_is_read_after_one_fragment_too_many() {
        let fragment = frame(0, false, b"");
        let enough = fragment.repeat(100_000);
        let mut read = Vec::new();
        let mut stream = Watched::new(&*enough, MAX, false);
        assert_eq!(stream.read_to_end(&mut read).now_or_never().unwrap().unwrap(), enough.len());
        let too_many = [enough, fragment].concat();
        let mut stream = Watched::new(&*too_many, MAX, false);
        for _ in 0..2 {
            let error = stream.read_to_end(&mut read).now_or_never().unwrap().unwrap_err();
            assert!(error.get_ref().is_some_and(|why| why.is::<TooManyFragments>()), "{error}");
        }
        let mut cut = frame(TEXT, false, &[b'x'; MAX + 1]);
        cut.extend(frame(0, false, b"").repeat(100_000));
        check_refused::<TooManyFragments>(cut);
    }
}
