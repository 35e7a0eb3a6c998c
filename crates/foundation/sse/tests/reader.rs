//! Rule: events match the specification wherever a stream is split, and no event exceeds the limit.

use proptest::prelude::*;
use sa_sse::{Event, Reader, TooLong};

/// Returns the events of a stream given in pieces, and the error if one was too long.
fn read<'a>(
    most: usize,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Event>, Option<TooLong>) {
    let mut reader = Reader::new(most);
    let mut events = Vec::new();
    for piece in pieces {
        reader.push(piece);
        loop {
            match reader.next_event() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(too_long) => return (events, Some(too_long)),
            }
        }
    }
    (events, None)
}

#[track_caller]
fn check(stream: &str, expected: &[(&str, &str, Option<&str>)]) {
    let (events, too_long) = read(1_000, [stream.as_bytes()]);
    let found: Vec<_> =
        events.iter().map(|it| (it.name.as_str(), it.data.as_str(), it.id.as_deref())).collect();
    assert_eq!((found.as_slice(), too_long), (expected, None), "{stream:?}");
}

#[track_caller]
fn check_data(stream: &str, expected: &[&str]) {
    check(stream, &expected.iter().map(|data| ("message", *data, None)).collect::<Vec<_>>());
}

#[test]
fn lines_end_in_any_way() {
    for end in ["\n", "\r", "\r\n"] {
        check_data(&"data: a|data: b||data: c||".replace('|', end), &["a\nb", "c"]);
    }
    check_data("data: a\r\n\rdata: b\n\r\ndata: c\r\r", &["a", "b", "c"]);
}

#[test]
fn data_is_what_was_written() {
    check_data("data: YHOO\ndata: +2\ndata: 10\n\n", &["YHOO\n+2\n10"]);
    check_data("data:test\n\ndata: test\n\ndata:  test\n\n", &["test", "test", " test"]);
    // An empty data line counts as data. An event is not complete without its final empty line.
    check_data("data\n\ndata\ndata\n\ndata:", &["", "\n"]);
    check_data("data:\ndata: x\n\n", &["\nx"]);
    check_data("data: a:b\n\n", &["a:b"]);
    check_data("data: \u{fffd}\n\n", &["\u{fffd}"]);
}

#[test]
fn other_lines_are_no_data() {
    check_data(": still here\n\n:\n\ndata: x\n: still here\ndata: y\n\n", &["x\ny"]);
    check_data("retry: 5\nnonsense\nDATA: x\n data: x\ndatum: x\n\n", &[]);
    check_data("\n\n\n", &[]);
}

#[test]
fn only_the_first_line_may_begin_with_a_mark() {
    check_data("\u{feff}data: a\n\n\u{feff}data: b\n\ndata: c\n\n", &["a", "c"]);
    check_data("\u{feff}\u{feff}data: a\n\n", &[]);
    check_data("\u{feff}", &[]);
}

#[test]
fn names_are_of_one_event_and_ids_of_all_that_follow() {
    check("event: a\ndata: 1\n\ndata: 2\n\n", &[("a", "1", None), ("message", "2", None)]);
    check("event: a\nevent:b\ndata: 1\n\n", &[("b", "1", None)]);
    check("event: a\n\ndata: 1\n\n", &[("message", "1", None)]);
    check(
        "id: 7\ndata: 1\n\ndata: 2\n\n",
        &[("message", "1", Some("7")), ("message", "2", Some("7"))],
    );
    check(
        "id: 7\n\ndata: 1\n\nid\ndata: 2\n\n",
        &[("message", "1", Some("7")), ("message", "2", Some(""))],
    );
    check("id: 7\nid: 8\0\ndata: 1\n\n", &[("message", "1", Some("7"))]);
}

#[test]
fn what_is_no_text_is_replaced() {
    let (events, _) = read(100, [&b"data: a\xff\xc3\ndata: \xa9\n\n"[..]]);
    assert_eq!(events[0].data, "a\u{fffd}\u{fffd}\n\u{fffd}");
}

#[test]
fn a_stream_may_be_completed_that_forgot_to_be() {
    for (stream, expected) in
        [("data: x", Some("x")), ("data: x\r", Some("x")), ("data: x\n\n", None), ("", None)]
    {
        let mut reader = Reader::new(100);
        reader.push(stream.as_bytes());
        while reader.next_event().unwrap().is_some() {}
        reader.end();
        assert_eq!(
            reader.next_event().unwrap().map(|event| event.data).as_deref(),
            expected,
            "{stream:?}"
        );
    }
}

#[test]
fn no_event_is_longer_than_agreed_in_one_line_or_many() {
    for endless in ["x", ":", "data: 0123456789\n", "event: 0123456789", "data\n"] {
        let stream = endless.repeat(1_000);
        let (events, too_long) = read(100, [b"data: first\n\n", stream.as_bytes()]);
        assert_eq!((events.len(), too_long), (1, Some(TooLong { most: 100 })), "{endless:?}");
    }
    // Discarded text does not count towards the limit: comments and completed events.
    let stream = ": still here\ndata: x\n\nevent: y\n\n".repeat(1_000);
    let (events, too_long) = read(100, [stream.as_bytes()]);
    assert_eq!((events.len(), too_long), (1_000, None));
}

#[test]
fn after_an_event_that_is_too_long_there_is_nothing() {
    let mut reader = Reader::new(10);
    reader.push(b"data: 0123456789\n\ndata: x\n\n");
    reader.push(b"\n\ndata: x\n\n");
    reader.end();
    assert_eq!(reader.next_event(), Err(TooLong { most: 10 }));
    assert_eq!(reader.next_event(), Err(TooLong { most: 10 }));
}

/// Streams that contain many significant words and characters.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: &[&str] = &[
        "data",
        "event",
        "id",
        "retry",
        ":",
        " ",
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        "\u{feff}",
        "é",
        "\0",
        "x",
        "data: y\n\n",
    ];
    let word = prop_oneof![
        8 => proptest::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(word, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn events_are_the_same_wherever_a_stream_is_cut(
        stream in streams(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
        most in 1_usize..80,
    ) {
        let whole = read(most, [stream.as_slice()]);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).chain([0, stream.len()]).collect();
        cuts.sort_unstable();
        prop_assert_eq!(&whole, &read(most, cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]])));
        prop_assert_eq!(&whole, &read(most, stream.chunks(1)));
    }

    #[test]
    fn what_is_written_as_the_specification_says_is_read(
        events in proptest::collection::vec(("[a-z]{1,8}", proptest::collection::vec("[^\r\n]{0,20}", 1..4)), 0..8),
        end in proptest::sample::select(&["\n", "\r", "\r\n"][..]),
    ) {
        let lines = |data: &[String]| data.iter().map(|line| format!("data: {line}{end}")).collect::<Vec<_>>().concat();
        let event = |(name, data): &(String, Vec<String>)| format!("event: {name}{end}{}{end}", lines(data));
        let stream = events.iter().map(event).collect::<Vec<_>>().concat();
        let (read, _) = read(10_000, [stream.as_bytes()]);
        let read: Vec<_> = read.into_iter().map(|event| (event.name, event.data)).collect();
        let written: Vec<_> = events.into_iter().map(|(name, data)| (name, data.join("\n"))).collect();
        prop_assert_eq!(read, written);
    }
}
