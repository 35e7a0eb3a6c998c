//! Rule: a call continues the trace of its message (`_meta.traceparent`). If that is missing or
//! malformed, it continues that of its HTTP request.

use serde_json::{Value, json};

use crate::surface::{NEWER, Surface, call};

const OF_MESSAGE: &str = "0af7651916cd43dd8448eb211c80319c";
const OF_HEADER: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn traceparent(trace: &str) -> String {
    format!("00-{trace}-b7ad6b7169203331-01")
}

/// Returns a call of the newer era, optionally with a progress token that excludes it from the
/// short path.
fn newer(progress: bool) -> Value {
    let mut call = call("text", &json!({}));
    call["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": NEWER, "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "0" },
    });
    if progress {
        call["params"]["_meta"]["progressToken"] = json!(7);
    }
    call
}

#[tokio::test]
async fn the_message_comes_before_the_header() {
    let surface = Surface::new();
    let (session, _) = surface.open("2025-06-18").await;
    let header = traceparent(OF_HEADER);
    let header = ("traceparent", &*header);
    let stateless = [
        header,
        ("mcp-protocol-version", NEWER),
        ("mcp-method", "tools/call"),
        ("mcp-name", "text"),
    ];
    let ways: [(&[_], Value); 3] = [
        (&[header, ("mcp-session-id", &*session)], call("text", &json!({}))),
        (&stateless, newer(false)),
        (&stateless, newer(true)),
    ];
    for (headers, mut message) in ways {
        assert_eq!(surface.send("POST", headers, &message).await.status(), 200);
        message["params"]["_meta"]["traceparent"] = json!(traceparent(OF_MESSAGE));
        message["params"]["_meta"]["tracestate"] = json!("a=b");
        assert_eq!(surface.send("POST", headers, &message).await.status(), 200);
        message["params"]["_meta"]["traceparent"] = json!("00-malformed");
        assert_eq!(surface.send("POST", headers, &message).await.status(), 200);
        let traces = surface.traces();
        let [.., without, with, malformed] = &*traces else { panic!("{traces:?}") };
        assert!(without.contains(OF_HEADER) && with.contains(OF_MESSAGE), "{message}: {traces:?}");
        assert!(malformed.contains(OF_HEADER), "{message}: {traces:?}");
    }
    assert_eq!(surface.traces().len(), 9);
}
