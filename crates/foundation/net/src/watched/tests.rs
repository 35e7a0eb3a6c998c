//! Rule: messages within the limit arrive unchanged, larger ones are cut and reported as cut, and
//! neither cuts nor read boundaries affect other messages.

use std::collections::VecDeque;

use futures_util::{FutureExt as _, StreamExt as _};
use proptest::collection::vec;
use proptest::prelude::*;
use sa_limits::budget::{Holder, Limit, STEP, SharedBudget};
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
const LIMITS: SocketLimits = SocketLimits { max_message_bytes: MAX, cuts: true, budget: None };

/// A stream that returns one piece per read.
struct Pieces(VecDeque<Vec<u8>>);

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
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

/// Returns the received texts, each with its full size if it was cut, and the received pings.
fn arrived(pieces: Vec<Vec<u8>>) -> (Vec<(String, Option<u64>)>, Option<Error>) {
    arrived_within(LIMITS, pieces)
}

fn arrived_within(
    limits: SocketLimits,
    pieces: Vec<Vec<u8>>,
) -> (Vec<(String, Option<u64>)>, Option<Error>) {
    let reading = async {
        let stream = tokio::io::join(limits.watch(Pieces(pieces.into())), tokio::io::sink());
        let mut socket =
            WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits.config())).await;
        let mut arrived = Vec::new();
        loop {
            match socket.next().await {
                Some(Ok(message @ Message::Text(_))) => {
                    arrived.push((
                        message.to_text().unwrap().to_owned(),
                        socket.get_ref().reader().take_cut(),
                    ));
                }
                Some(Ok(other)) => arrived.push((format!("{other:?}"), None)),
                Some(Err(error)) => return (arrived, Some(error)),
                None => return (arrived, None),
            }
        }
    };
    reading.now_or_never().unwrap()
}

/// Returns the frames of one message, with a ping between every two frames.
fn frames(text: &str, cuts: &[prop::sample::Index]) -> Vec<u8> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
    places.sort_unstable();
    places.push(text.len());
    let (mut bytes, mut start) = (Vec::new(), 0);
    for (number, end) in places.iter().enumerate() {
        let is_last = number + 1 == places.len();
        bytes.extend(frame(
            if number == 0 { TEXT } else { 0 },
            is_last,
            &text.as_bytes()[start..*end],
        ));
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
        let limits = SocketLimits { max_message_bytes: 6 * PIECE as usize, ..LIMITS };
        let limits = SocketLimits { cuts: false, ..limits };
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
    let mut stream = Watched::new(&*bytes, bytes.len(), false, None);
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
    assert_is::<TooLarge>(&error.unwrap());
}

#[track_caller]
fn check_refused<E: std::error::Error + Send + Sync + 'static>(bytes: Vec<u8>) {
    let (arrived, error) = arrived(vec![bytes]);
    assert_is::<E>(&error.unwrap_or_else(|| panic!("{arrived:?}")));
}

#[track_caller]
fn assert_is<E: std::error::Error + Send + Sync + 'static>(error: &Error) {
    let why = if let Error::Io(error) = error { error.get_ref() } else { None };
    assert!(matches!(why, Some(why) if why.is::<E>()), "{error:?}");
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
    check_refused::<TooLarge>(
        [frame(TEXT, false, &[b'x'; MAX]), frame(0, false, &vec![b'x'; most])].concat(),
    );
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
        assert!(
            told.as_ref().is_some_and(|told| told.contains(expected)),
            "{expected}: {arrived:?}, {told:?}"
        );
    }
}

#[test]
fn nothing_is_read_after_one_fragment_too_many() {
    let fragment = frame(0, false, b"");
    let enough = fragment.repeat(100_000);
    let mut read = Vec::new();
    let mut stream = Watched::new(&*enough, MAX, false, None);
    assert_eq!(stream.read_to_end(&mut read).now_or_never().unwrap().unwrap(), enough.len());
    let too_many = [enough, fragment].concat();
    let mut stream = Watched::new(&*too_many, MAX, false, None);
    for _ in 0..2 {
        let error = stream.read_to_end(&mut read).now_or_never().unwrap().unwrap_err();
        assert_is::<TooManyFragments>(&Error::Io(error));
    }
    let mut cut = frame(TEXT, false, &[b'x'; MAX + 1]);
    cut.extend(frame(0, false, b"").repeat(100_000));
    check_refused::<TooManyFragments>(cut);
}

#[test]
fn what_has_come_of_large_messages_takes_from_a_shared_budget() {
    let limit = Limit { name: "m", what: "bytes", key: "x.y", remedy: "wait", total: 16 * STEP };
    let budget = SharedBudget::new(limit);
    let share = budget.share(&Holder::named("a"));
    let watched = |bytes: &[u8]| {
        Watched::new(std::io::Cursor::new(bytes.to_vec()), 1 << 20, true, Some(&share))
    };
    let whole = frame(TEXT, true, &vec![b'x'; 8 * STEP + 1]);
    let in_fragments = [frame(TEXT, false, &vec![b'x'; 8 * STEP]), frame(0, false, b"x")].concat();
    // The first part arrives before the message turns out to be too large.
    let cut =
        [frame(TEXT, false, &vec![b'x'; 8 * STEP]), frame(0, true, &vec![b'x'; 1 << 20])].concat();
    let read = |stream: &mut Watched<_>| {
        stream.read_to_end(&mut Vec::new()).now_or_never().unwrap().map(drop)
    };
    for unfinished in [&whole[..whole.len() - 1], &in_fragments, &cut[..cut.len() - 1]] {
        let mut first = watched(unfinished);
        read(&mut first).unwrap();
        assert_eq!(budget.used(), 8 * STEP);
        let mut small = watched(&frame(TEXT, true, &vec![b'x'; STEP]));
        read(&mut small).unwrap();
        assert_eq!(budget.used(), 8 * STEP, "a message that has ended takes no more");
        let error = read(&mut watched(unfinished)).unwrap_err();
        assert!(matches!(error.get_ref(), Some(why) if why.is::<NoRoom>()), "{error}");
        drop(first);
        assert_eq!(budget.used(), 0);
    }
    // The same messages one after another, with other frames between them.
    let many = [
        whole.clone(),
        frame(PING, true, b""),
        cut,
        whole.clone(),
        in_fragments,
        frame(0, true, b""),
        whole,
    ]
    .concat();
    let mut many = watched(&many);
    read(&mut many).unwrap();
    assert_eq!(budget.used(), 0);
}

#[test]
fn what_comes_of_a_message_is_heard_before_its_end() {
    let bytes = frame(TEXT, true, &vec![b'x'; 3 * PIECE as usize]);
    let mut stream = Watched::new(&bytes[..bytes.len() - 1], 1 << 20, false, None);
    stream.read_to_end(&mut Vec::new()).now_or_never().unwrap().unwrap();
    assert_eq!(stream.came().bytes(), bytes.len() as u64 - 1);
}
