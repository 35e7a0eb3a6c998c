//! The names of tools from old and new nodes, and the node that each name resolves to.

use sa_testkit::{FakeNode, Gateway, Hello, Setup};
use serde_json::json;

/// Calls a tool, checks that this node got the request, and returns the requested tool name.
async fn reaches(gateway: &Gateway, name: &str, node: &mut FakeNode) -> String {
    let call = gateway.operator().call_later(name, json!({}));
    let request = node.request().await;
    node.answer(&request.id, json!("ok")).await;
    assert_eq!(call.await.unwrap().result(), "ok");
    request.tool
}

#[tokio::test]
async fn an_old_node_gets_exactly_the_frames_it_was_written_for() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::old("mac").capability("macos.notes").greet(&gateway).await.unwrap();
    let welcome = node.recv().await;
    assert_eq!(
        (&welcome["type"], &welcome["protocol_version"]),
        (&json!("gateway_welcome"), &json!(1))
    );
    assert!(welcome["gateway_version"].is_string());

    let body = json!({ "args": { "q": 1 }, "timeout_ms": 100, "session_key": "s" });
    let call = gateway.operator().call_later("macos.notes.search", body);
    let request = node.request().await;
    let mut names: Vec<_> = request.frame.as_object().unwrap().keys().cloned().collect();
    names.sort();
    assert_eq!(names, ["args", "request_id", "session_key", "tool", "type"]);
    assert_eq!(request.tool, "macos.notes.search");
    call.await.unwrap().assert_problem(504, "timeout");
    // The old node gets no cancel at the timeout: its next frame is the pong.
    node.settle().await;
    let call = gateway.operator().call_later("macos.notes.search", json!({}));
    let request = node.request().await;
    assert!(request.frame.get("session_key").is_none(), "absent, not null");
    node.answer(&request.id, json!("still here")).await;
    assert_eq!(call.await.unwrap().result(), "still here");
}

#[tokio::test]
async fn a_node_may_say_very_little() {
    let gateway = Setup::new().start().await;
    let node = json!({ "id": "n", "name": "n", "node_type": "t", "version": "1" });
    let mut sparse = FakeNode::upgrade(&gateway, "").await.unwrap();
    sparse.send(json!({ "type": "node_hello", "node": node, "capabilities": ["a"] })).await;
    assert_eq!(sparse.recv().await["type"], "gateway_welcome");
    let call = gateway.operator().call_later("a.b", json!({}));
    let request = sparse.request().await;
    // A missing result is a result of null.
    sparse.send(json!({ "type": "tool_response", "request_id": request.id, "ok": true })).await;
    assert_eq!(call.await.unwrap().result(), json!(null));
}

#[tokio::test]
async fn every_tool_answers_to_its_exposed_name_and_its_own() {
    let gateway = Setup::new().start().await;
    let mut node =
        Hello::new("mac-01").tool("macos.notes.search").tool("Bash").connect(&gateway).await;
    assert_eq!(gateway.operator().tool_names().await, ["mac-01__Bash", "macos_notes_search"]);
    for name in ["macos_notes_search", "macos.notes.search"] {
        assert_eq!(reaches(&gateway, name, &mut node).await, "macos.notes.search");
    }
    for name in ["mac-01__Bash", "Bash"] {
        assert_eq!(reaches(&gateway, name, &mut node).await, "Bash");
    }
}

#[tokio::test]
async fn the_longest_prefix_wins_and_prefixes_end_at_dots() {
    let gateway = Setup::new().start().await;
    let mut wide = Hello::new("wide").capability("macos").connect(&gateway).await;
    let mut narrow = Hello::new("narrow").capability("macos.notes").connect(&gateway).await;
    assert_eq!(reaches(&gateway, "macos.notes.search", &mut narrow).await, "macos.notes.search");
    assert_eq!(reaches(&gateway, "macos.notes", &mut narrow).await, "macos.notes");
    assert_eq!(reaches(&gateway, "macos.notesapp.open", &mut wide).await, "macos.notesapp.open");
    assert_eq!(reaches(&gateway, "macos.clipboard.get", &mut wide).await, "macos.clipboard.get");
    gateway.operator().call("macosx.y", json!({})).await.assert_problem(404, "not_found");
}

#[tokio::test]
async fn a_tool_that_is_not_listed_is_reached_below_an_open_prefix() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").tool("a.listed").connect(&gateway).await;
    assert_eq!(gateway.operator().tool_names().await, ["a_listed"]);
    assert_eq!(reaches(&gateway, "a.unlisted.deep", &mut node).await, "a.unlisted.deep");
    // Without a prefix, only listed tools can be called.
    let _closed = Hello::new("closed").tool("b.listed").connect(&gateway).await;
    gateway.operator().call("b.other", json!({})).await.assert_problem(404, "not_found");
}

#[tokio::test]
async fn a_bare_name_goes_to_the_first_host_and_the_second_has_its_own() {
    let gateway = Setup::new().start().await;
    let mut first = Hello::new("one").tool("Bash").connect(&gateway).await;
    let mut second = Hello::new("two").tool("Bash").connect(&gateway).await;
    assert_eq!(gateway.operator().tool_names().await, ["one__Bash", "two__Bash"]);
    assert_eq!(reaches(&gateway, "Bash", &mut first).await, "Bash");
    assert_eq!(reaches(&gateway, "two__Bash", &mut second).await, "Bash");
}

#[tokio::test]
async fn names_that_collide_or_are_too_long_stay_apart_and_callable() {
    let gateway = Setup::new().start().await;
    let long = format!("a.{}", "x".repeat(100));
    let mut node = Hello::new("n").tool("a.b").tool("a_b").tool(&long).connect(&gateway).await;
    let names = gateway.operator().tool_names().await;
    assert_eq!(names.len(), 3);
    let mut own = Vec::new();
    for name in &names {
        assert!(
            name.len() <= 64
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'),
            "{name}"
        );
        own.push(reaches(&gateway, name, &mut node).await);
    }
    own.sort();
    assert_eq!(own, ["a.b".to_owned(), long, "a_b".to_owned()]);
}
