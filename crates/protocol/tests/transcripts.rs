//! Rule: both views of the protocol read every frame of the transcripts in the same way, and write
//! it again as equal JSON.
//!
//! The transcripts include frames of peers of other versions and languages. The TypeScript packages
//! replay the same files.

use std::path::Path;

use sa_protocol::calls::{AgentFrame, GatewayFrame};
use sa_protocol::node::{Incoming, NodeFrame};
use sa_protocol::{NodeInfo, ToolResponseError, WsMessage};
use serde_json::Value;

#[test]
fn replay() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    let mut files = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for (number, line) in std::fs::read_to_string(&path).unwrap().lines().enumerate() {
            let place = format!("{name}:{}", number + 1);
            let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{place}: {e}"));
            check(&place, &line);
        }
        files += 1;
    }
    assert!(files >= 4, "the transcripts are gone");
}

#[track_caller]
fn check(place: &str, line: &Value) {
    let text = line["frame"].to_string();
    let expected = line.get("reads_as").unwrap_or(&line["frame"]);
    let mut again = String::new();
    match line["direction"].as_str().unwrap() {
        "agent->gateway" => AgentFrame::decode(&text).unwrap().encode(&mut again),
        "gateway->agent" => GatewayFrame::decode(&text).unwrap().encode(&mut again),
        "node->gateway" | "gateway->node" => {
            let incoming = Incoming::from_frame(NodeFrame::decode(&text).unwrap());
            let incoming = incoming.unwrap_or_else(|e| panic!("{place}: {e}"));
            incoming.encode(&mut again);
            agrees_with_the_plain_view(place, &text, &incoming);
        }
        other => panic!("{place}: unknown direction {other}"),
    }
    let again: Value =
        serde_json::from_str(&again).unwrap_or_else(|e| panic!("{place}: {e}: {again}"));
    assert_eq!(&again, expected, "{place}");
}

fn agrees_with_the_plain_view(place: &str, text: &str, incoming: &Incoming<'_>) {
    let plain = serde_json::from_str::<WsMessage>(text);
    let parse = |raw: &str| serde_json::from_str::<Value>(raw).unwrap();
    let same = match (plain, incoming) {
        (
            Ok(WsMessage::NodeHello { protocol_version, node, capabilities }),
            Incoming::Hello(hello),
        ) => {
            let node: NodeInfo = node;
            (protocol_version, &node, &capabilities)
                == (hello.protocol_version, &hello.node, &hello.capabilities)
        }
        (
            Ok(WsMessage::GatewayWelcome { protocol_version, gateway_version }),
            Incoming::Welcome(welcome),
        ) => {
            (protocol_version, &*gateway_version)
                == (welcome.protocol_version, &*welcome.gateway_version)
        }
        (
            Ok(WsMessage::ToolRequest { request_id, tool, args, session_key }),
            Incoming::Request(request),
        ) => {
            (&*request_id, &*tool, args)
                == (&*request.request_id, &*request.tool, parse(request.args.unwrap_or("null")))
                && session_key.as_deref() == request.session_key.as_deref()
        }
        (
            Ok(WsMessage::ToolResponse { request_id, ok, result, error }),
            Incoming::Response(response),
        ) => {
            let outcome = match response.outcome.clone() {
                Ok(raw) => (true, raw.map(parse), None),
                Err(failure) => (false, None, Some(ToolResponseError::from(failure))),
            };
            request_id == response.request_id && (ok, result, error) == outcome
        }
        (Ok(WsMessage::Ping { timestamp }), Incoming::Ping(raw))
        | (Ok(WsMessage::Pong { timestamp }), Incoming::Pong(raw)) => timestamp.to_string() == *raw,
        // The plain view does not have the extensions: to an old peer they are unknown frames.
        (
            Err(error),
            Incoming::Cancel(_)
            | Incoming::Progress(_)
            | Incoming::Chunk(_)
            | Incoming::BinProbe(_)
            | Incoming::BinProbeResult(_)
            | Incoming::Event(_),
        ) => error.to_string().contains("unknown variant"),
        (plain, incoming) => panic!("{place}: {plain:?} is not {incoming:?}"),
    };
    assert!(same, "{place}: the views differ: {incoming:?}");
}
