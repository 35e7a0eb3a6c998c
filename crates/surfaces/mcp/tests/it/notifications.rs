//! Rule: `caller_tool_response` takes effect without an `id`, as the original relay protocol sends
//! it. No other tool does.

use serde_json::{Value, json};

use crate::surface::{Surface, call};

/// Returns an answer to an agent as a notification.
fn answer() -> Value {
    let args = json!({ "session_id": "s", "request_id": "r", "result": {}, "error": null });
    let mut message = call("caller_tool_response", &args);
    message.as_object_mut().unwrap().remove("id");
    message
}

#[tokio::test]
async fn an_answer_to_an_agent_needs_no_id() {
    let surface = Surface::new();
    let (session, _) = surface.open("2025-06-18").await;
    let ways = [vec![], vec![("mcp-session-id", &*session)]];
    let args = json!({ "session_id": "s", "request_id": "r", "result": {}, "error": null });
    for (count, headers) in ways.iter().enumerate() {
        for (tool, calls) in [("text", count), ("caller_tool_response", count + 1)] {
            let mut message = call(tool, &args);
            message.as_object_mut().unwrap().remove("id");
            assert_eq!(surface.send("POST", headers, &message).await.status(), 202, "{headers:?}");
            assert_eq!(surface.traces().len(), calls, "{tool} {headers:?}");
        }
    }
    let other = [("mcp-session-id", "other")];
    assert_eq!(surface.send("POST", &other, &answer()).await.status(), 404);
    assert_eq!(surface.traces().len(), ways.len());
}

#[tokio::test]
async fn escapes_in_its_json_change_nothing() {
    let surface = Surface::new();
    for (plain, escaped) in [
        ("tools/call", r"tools\/call"),
        ("caller_tool_response", r"caller\u005ftool\u005fresponse"),
    ] {
        let calls = surface.traces().len();
        let body = answer().to_string().replace(plain, escaped);
        assert!(body.contains(escaped), "{body}");
        assert_eq!(surface.send_text("POST", &[], body).await.status(), 202);
        assert_eq!(surface.traces().len(), calls + 1, "{escaped}");
    }
}

#[tokio::test]
async fn it_continues_the_trace_of_its_message_or_else_that_of_its_request() {
    let surface = Surface::new();
    let [of_message, of_header] =
        ["0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"];
    let parent = |trace: &str| format!("00-{trace}-b7ad6b7169203331-01");
    for (meta, expected) in [
        (json!({ "traceparent": parent(of_message) }), of_message),
        (json!({ "progressToken": 7 }), of_header),
        (json!({ "traceparent": 1 }), of_header),
        (json!({ "traceparent": "00-malformed" }), of_header),
        (Value::Null, of_header),
    ] {
        let mut message = answer();
        message["params"]["_meta"] = meta;
        surface.send("POST", &[("traceparent", &parent(of_header))], &message).await;
        assert!(surface.traces().last().unwrap().contains(expected), "{message}");
    }
    assert_eq!(surface.traces().len(), 5);
}
