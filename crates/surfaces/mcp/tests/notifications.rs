//! Rule: `caller_tool_response` takes effect without an `id`, as the original relay protocol sends
//! it. No other tool does.

mod surface;

use serde_json::json;

use self::surface::{Surface, call};

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
    let mut message = call("caller_tool_response", &args);
    message.as_object_mut().unwrap().remove("id");
    assert_eq!(surface.send("POST", &[("mcp-session-id", "other")], &message).await.status(), 404);
    assert_eq!(surface.traces().len(), ways.len());
}
