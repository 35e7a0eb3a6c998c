//! Rule: for any input, a decoder returns a frame or an error; it never panics and never overflows
//! the stack.

use proptest::prelude::*;
use sa_protocol::calls::{AgentFrame, GatewayFrame};
use sa_protocol::channel::{ClientFrame, ServerFrame};
use sa_protocol::node::Incoming;
use sa_protocol::{FrameErrorKind, WsMessage};

fn decode_with_all(text: &str) {
    let mut out = String::new();
    if let Ok(frame) = Incoming::decode(text) {
        frame.encode(&mut out);
    }
    if let Ok(frame) = AgentFrame::decode(text) {
        frame.encode(&mut out);
    }
    if let Ok(frame) = GatewayFrame::decode(text) {
        frame.encode(&mut out);
    }
    let _ = serde_json::from_str::<WsMessage>(text);
}

const KINDS: [&str; 17] = [
    "node_hello",
    "gateway_welcome",
    "tool_request",
    "tool_response",
    "tool_cancel",
    "tool_progress",
    "tool_chunk",
    "ping",
    "bin_probe",
    "bin_probe_result",
    "node_event",
    "call",
    "cancel",
    "done",
    "error",
    "ready",
    "other",
];
const FIELDS: [&str; 23] = [
    "request_id",
    "tool",
    "args",
    "ok",
    "result",
    "error",
    "attachments",
    "progress",
    "total",
    "message",
    "timestamp",
    "node",
    "tools",
    "features",
    "host",
    "max_request_bytes",
    "max_frame_bytes",
    "bins",
    "id",
    "deadline_ms",
    "event",
    "data",
    "at_ms",
];
const VALUES: [&str; 14] = [
    "null",
    "true",
    "0",
    "-1",
    "1e400",
    "18446744073709551616",
    "\"\"",
    "\"\\ud800\"",
    "\"x\"",
    "[]",
    "{}",
    "[1]",
    "{\"id\":1}",
    "{\"kind\":\"failed\"}",
];

proptest! {
    #[test]
    fn any_text(text: String) {
        decode_with_all(&text);
    }

    #[test]
    fn any_json_like_text(text in "[\\[\\]{}:,\"\\\\a-z0-9 .eu-]{0,80}") {
        decode_with_all(&text);
    }

    #[test]
    fn known_fields_with_odd_values(
        kind in prop::sample::select(&KINDS[..]),
        fields in prop::collection::vec((prop::sample::select(&FIELDS[..]), prop::sample::select(&VALUES[..])), 0..8),
    ) {
        let mut text = format!("{{\"type\":\"{kind}\"");
        for (field, value) in fields {
            text.extend([",\"", field, "\":", value]);
        }
        text.push('}');
        decode_with_all(&text);
    }

    #[test]
    fn a_list_is_no_frame(list in sa_hostile::list(&KINDS)) {
        prop_assert!(Incoming::decode(&list).is_err());
        prop_assert!(AgentFrame::decode(&list).is_err());
        prop_assert!(GatewayFrame::decode(&list).is_err());
        prop_assert!(ClientFrame::decode(&list).is_err());
        prop_assert!(ServerFrame::decode(&list).is_err());
    }

    #[test]
    fn a_list_is_no_part_of_a_frame(list in sa_hostile::list(&["failed", "n1", "a/b", "a.b", "AA=="])) {
        for (kind, field, value) in [
            ("tool_response", "error", list.clone()),
            ("tool_response", "attachments", format!("[{list}]")),
            ("tool_chunk", "attachments", format!("[{list}]")),
            ("node_hello", "node", list.clone()),
        ] {
            let text = format!(r#"{{"type":"{kind}","request_id":"r","ok":false,"{field}":{value}}}"#);
            prop_assert!(Incoming::decode(&text).is_err(), "{}", text);
        }
        let hello = format!(r#"{{"type":"node_hello","node":{{"id":"n"}},"tools":[{list}]}}"#);
        prop_assert!(Incoming::decode(&hello).is_err(), "{}", hello);
    }
}

#[test]
fn deep_nesting_is_refused() {
    for part in ["[", "{\"a\":"] {
        let bomb = part.repeat(100_000);
        decode_with_all(&bomb);
        for field in ["args", "result", "content", "host", "unknown"] {
            let text = format!(
                "{{\"type\":\"tool_request\",\"request_id\":\"r\",\"tool\":\"t\",\"{field}\":{bomb}"
            );
            let error = Incoming::decode(&text).unwrap_err();
            assert_eq!(error.kind(), FrameErrorKind::TooDeep);
            decode_with_all(&text);
        }
    }
    let closed = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let text = format!(
        "{{\"type\":\"tool_response\",\"request_id\":\"r\",\"ok\":true,\"result\":{closed}}}"
    );
    assert_eq!(Incoming::decode(&text).unwrap_err().kind(), FrameErrorKind::TooDeep);
    assert!(serde_json::from_str::<WsMessage>(&text).is_err());
}

#[test]
fn a_repeated_field_makes_a_frame_invalid() {
    let text = r#"{"type":"tool_request","request_id":"a","tool":"t","tool":"u"}"#;
    let error = Incoming::decode(text).unwrap_err();
    assert_eq!(error.kind(), FrameErrorKind::Malformed);
    assert_eq!((error.frame_type(), error.id()), (Some("tool_request"), Some("a")));
    assert!(serde_json::from_str::<WsMessage>(text).is_err());
}

#[test]
fn a_frame_that_cannot_be_read_says_whose_it_was() {
    let check = |rest: &str, id: Option<&str>| {
        let text = format!(r#"{{"type":"tool_response",{rest}"#);
        let error = Incoming::decode(&text).unwrap_err();
        assert_eq!((error.kind(), error.id()), (FrameErrorKind::Malformed, id), "{text}");
        assert_eq!(error.frame_type(), Some("tool_response"), "{text}");
    };
    // Of two ids the last one counts, as for most readers.
    check(r#""request_id":"a","request_id":"b","ok":true}"#, Some("b"));
    check(r#""request_id":"a","\u0072equest_id":"a","ok":true}"#, Some("a"));
    check(r#""type":"tool_response","request_id":"a","ok":true}"#, Some("a"));
    check(r#""request_id":"a","ok":true,"ok":true,"result":1}"#, Some("a"));
    // Some programs write NaN as a number, and some frames are cut off.
    check(r#""request_id":"a","ok":true,"result":{"x":NaN}}"#, Some("a"));
    check(r#""request_id":"a","ok":true,"result":[1,"#, Some("a"));
    check(r#""request_id":"a","ok":true} {"#, Some("a"));
    check(r#""request_id":"a"#, None);
    check(r#""ok":NaN,"request_id":"a"}"#, None);
    // An unknown type does not excuse another error.
    for text in [
        r#"{"type":"teleport","x":NaN}"#,
        r#"{"type":"ping","type":"teleport"}"#,
        r#"["teleport"]"#,
    ] {
        assert_eq!(Incoming::decode(text).unwrap_err().kind(), FrameErrorKind::Malformed, "{text}");
    }
}

#[test]
fn an_unknown_type_may_use_our_field_names_otherwise() {
    let text = r#"{"type":"teleport","request_id":{"x":1},"ok":"maybe"}"#;
    assert!(matches!(Incoming::decode(text), Ok(Incoming::Unknown(kind)) if kind == "teleport"));
    assert!(matches!(
        AgentFrame::decode(r#"{"type":"x","id":[]}"#),
        Ok(AgentFrame::Unknown { id: None, .. })
    ));
}

#[test]
fn an_event_needs_a_name_and_a_time_that_is_one() {
    let kind = |text: &str| Incoming::decode(text).unwrap_err().kind();
    assert_eq!(kind(r#"{"type":"node_event","data":{}}"#), FrameErrorKind::MissingField("event"));
    assert_eq!(
        kind(r#"{"type":"node_event","event":["a"]}"#),
        FrameErrorKind::InvalidField("event")
    );
    for time in ["\"now\"", "1e400", "1.5", "18446744073709551616"] {
        let text = format!(r#"{{"type":"node_event","event":"a","at_ms":{time}}}"#);
        assert_eq!(kind(&text), FrameErrorKind::InvalidField("at_ms"), "{time}");
    }
}

#[test]
fn a_timestamp_is_a_number_that_can_be_read() {
    let read =
        |time: &str| Incoming::decode(&format!(r#"{{"type":"ping","timestamp":{time}}}"#)).is_ok();
    assert!(["0", "-1.5e3", "18446744073709551616", "null"].into_iter().all(read));
    assert!(!["1e999", "\"now\"", "[1]", "true"].into_iter().any(read));
}

#[test]
fn an_error_names_the_frame_the_call_and_the_field() {
    let error = Incoming::decode(r#"{"type":"tool_response","request_id":"r-7"}"#).unwrap_err();
    assert_eq!(error.kind(), FrameErrorKind::MissingField("ok"));
    assert_eq!((error.frame_type(), error.id()), (Some("tool_response"), Some("r-7")));
    assert_eq!(
        error.to_string(),
        "the frame `tool_response` is invalid: the field `ok` is missing"
    );
}
