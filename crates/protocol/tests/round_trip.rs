//! Rule: one side reads exactly what the other side writes, for any text, number and JSON value.

use std::borrow::Cow;

use proptest::prelude::*;
use sa_protocol::calls::{self, AgentFrame, GatewayFrame};
use sa_protocol::node::{self, Incoming};
use sa_protocol::{Attachment, ErrorKind, NodeInfo, ToolResponseError, WsMessage};
use serde_json::Value;

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn kind() -> impl Strategy<Value = ErrorKind> {
    use ErrorKind::*;
    prop::sample::select(vec![InvalidArgs, NotAllowed, Timeout, Failed, Cancelled, NotFound])
}

fn message() -> impl Strategy<Value = WsMessage> {
    let info = (any::<[String; 4]>(), prop::collection::vec(any::<String>(), 0..3)).prop_map(
        |([id, name, node_type, version], tags)| NodeInfo { id, name, node_type, version, tags },
    );
    prop_oneof![
        (any::<u32>(), info, prop::collection::vec(any::<String>(), 0..3)).prop_map(
            |(protocol_version, node, capabilities)| WsMessage::NodeHello {
                protocol_version,
                node,
                capabilities
            }
        ),
        (any::<u32>(), any::<String>()).prop_map(|(protocol_version, gateway_version)| {
            WsMessage::GatewayWelcome { protocol_version, gateway_version }
        }),
        (any::<String>(), any::<String>(), json(), any::<Option<String>>()).prop_map(
            |(request_id, tool, args, session_key)| WsMessage::ToolRequest {
                request_id,
                tool,
                args,
                session_key
            }
        ),
        (any::<String>(), json()).prop_map(|(request_id, result)| WsMessage::ToolResponse {
            request_id,
            ok: true,
            result: Some(result).filter(|value| !value.is_null()),
            error: None,
        }),
        (any::<String>(), kind(), any::<String>()).prop_map(|(request_id, kind, message)| {
            let error = Some(ToolResponseError { kind, message });
            WsMessage::ToolResponse { request_id, ok: false, result: None, error }
        }),
        any::<i64>().prop_map(|timestamp| WsMessage::Ping { timestamp }),
        any::<i64>().prop_map(|timestamp| WsMessage::Pong { timestamp }),
    ]
}

fn attachments() -> impl Strategy<Value = Vec<Attachment<'static>>> {
    let one = (any::<String>(), any::<Option<String>>(), any::<Vec<u8>>())
        .prop_map(|(mime, name, bytes)| Attachment::from_bytes(mime, name.as_deref(), &bytes));
    prop::collection::vec(one, 0..3)
}

fn cow(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

proptest! {
    #[test]
    fn plain_messages_survive_both_views(message in message()) {
        let text = serde_json::to_string(&message).unwrap();
        let null_args = matches!(message, WsMessage::ToolRequest { args: Value::Null, .. });
        prop_assert!(null_args || !top_level_null(&text));
        prop_assert_eq!(&serde_json::from_str::<WsMessage>(&text).unwrap(), &message);
        let mut spliced = String::new();
        Incoming::decode(&text).unwrap().encode(&mut spliced);
        prop_assert_eq!(serde_json::from_str::<WsMessage>(&spliced).unwrap(), message);
    }

    #[test]
    fn responses(id: String, result in json(), attachments in attachments()) {
        let raw = result.to_string();
        let frame = node::ToolResponse {
            request_id: cow(&id),
            outcome: Ok(Some(&*raw).filter(|raw| *raw != "null")),
            attachments,
        };
        let mut text = String::new();
        node::encode_response(&mut text, &frame);
        let Incoming::Response(read) = Incoming::decode(&text).unwrap() else { panic!("{text}") };
        prop_assert_eq!(read, frame);
    }

    #[test]
    fn progress(id: String, progress in -1e300f64..1e300, total: Option<u32>, message: Option<String>) {
        let frame = node::ToolProgress {
            request_id: cow(&id),
            progress,
            total: total.map(f64::from),
            message: message.as_deref().map(cow),
        };
        let mut text = String::new();
        node::encode_progress(&mut text, &frame);
        let Incoming::Progress(read) = Incoming::decode(&text).unwrap() else { panic!("{text}") };
        // For speed, `serde_json` may read a number off by one rounding step.
        prop_assert!((read.progress - progress).abs() <= progress.abs() * 1e-15);
        prop_assert_eq!((read.request_id, read.total, read.message), (frame.request_id, frame.total, frame.message));
    }

    #[test]
    fn events(event: String, data in json(), at_ms: Option<i64>) {
        let raw = data.to_string();
        let frame = node::NodeEvent { event: cow(&event), data: Some(&*raw).filter(|raw| *raw != "null"), at_ms };
        let mut text = String::new();
        node::encode_event(&mut text, &frame);
        prop_assert!(!top_level_null(&text));
        let Incoming::Event(read) = Incoming::decode(&text).unwrap() else { panic!("{text}") };
        prop_assert_eq!(read, frame);
    }

    #[test]
    fn call_frames(id: String, tool: String, args in json(), keys: [Option<String>; 3], times: [Option<u64>; 2]) {
        let raw = args.to_string();
        let frame = AgentFrame::Call(calls::Call {
            id: cow(&id),
            tool: cow(&tool),
            args: Some(&*raw).filter(|raw| *raw != "null"),
            session_key: keys[0].as_deref().map(cow),
            timeout_ms: times[0],
            idle_timeout_ms: times[1],
            idempotency_key: keys[1].as_deref().map(cow),
            traceparent: keys[2].as_deref().map(cow),
        });
        let mut text = String::new();
        frame.encode(&mut text);
        prop_assert!(!top_level_null(&text));
        prop_assert_eq!(AgentFrame::decode(&text).unwrap(), frame);
    }

    #[test]
    fn call_replies(id: String, call_id: String, result in json(), attachments in attachments(), duration_ms: u64) {
        let raw = result.to_string();
        let frame = GatewayFrame::Done(calls::Done {
            id: cow(&id), call_id: cow(&call_id), result: &raw, blocks: Some("[]"), attachments, duration_ms,
        });
        let mut text = String::new();
        frame.encode(&mut text);
        prop_assert_eq!(GatewayFrame::decode(&text).unwrap(), frame);
    }

    #[test]
    fn call_errors(texts: [String; 2], optional: [Option<String>; 3], retryable: bool) {
        let frame = GatewayFrame::Error(calls::CallError {
            id: optional[0].as_deref().map(cow),
            call_id: optional[1].as_deref().map(cow),
            kind: cow(&texts[0]),
            message: cow(&texts[1]),
            hint: optional[2].as_deref().map(cow),
            retryable,
        });
        let mut text = String::new();
        frame.encode(&mut text);
        prop_assert!(!top_level_null(&text));
        prop_assert_eq!(GatewayFrame::decode(&text).unwrap(), frame);
    }
}

/// Returns whether a frame writes `null` for a field that it should leave out.
fn top_level_null(text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap();
    value.as_object().unwrap().values().any(Value::is_null)
}

#[test]
fn a_pong_echoes_any_number() {
    for number in ["0", "-1", "9223372036854775808", "18446744073709551615", "1.7080992e12"] {
        let ping = format!("{{\"type\":\"ping\",\"timestamp\":{number}}}");
        let Incoming::Ping(timestamp) = Incoming::decode(&ping).unwrap() else { panic!("{ping}") };
        let mut pong = String::new();
        node::encode_pong(&mut pong, timestamp);
        assert_eq!(pong, format!("{{\"type\":\"pong\",\"timestamp\":{number}}}"));
    }
}

#[test]
fn raw_parts_are_borrowed_and_kept_to_the_letter() {
    let text =
        r#"{"type":"tool_request","request_id":"r","tool":"t","args":{ "b" : 1.0, "a":[ 1e2 ] }}"#;
    let Incoming::Request(request) = Incoming::decode(text).unwrap() else { panic!("{text}") };
    assert_eq!(request.args, Some(r#"{ "b" : 1.0, "a":[ 1e2 ] }"#));
    assert!(matches!((request.request_id, request.tool), (Cow::Borrowed(_), Cow::Borrowed(_))));
}
