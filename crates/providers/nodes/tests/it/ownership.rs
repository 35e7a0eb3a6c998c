//! A node gets no traffic for names that another node holds, unless both share a token. A
//! reconnecting node replaces itself, and no node can take another one's id.

use sa_testkit::{Hello, Message, Setup, eventually, soon};
use serde_json::json;

const TOKENS: (&str, &str) = ("SA_NODE_TOKENS", "one:t1,two:t2");

#[tokio::test]
async fn a_second_node_with_another_token_gets_nothing_and_is_shown() {
    let gateway = Setup::new()
        .env(TOKENS.0, TOKENS.1)
        .config("[limits]\nreconnect_wait_ms = 1")
        .start()
        .await;
    let mut first =
        Hello::new("one").capability("mail").tool("mail.send").token("t1").connect(&gateway).await;
    let mut second = Hello::new("two")
        .capability("mail.inbox")
        .tool("mail.send")
        .token("t2")
        .connect(&gateway)
        .await;
    let operator = gateway.operator();
    for name in ["mail.send", "mail_send", "mail.inbox.read"] {
        let call = operator.call_later(name, json!({}));
        let request = first.request().await;
        first.answer(&request.id, json!(1)).await;
        assert_eq!(call.await.unwrap().result(), 1, "{name}");
    }
    second.settle().await;
    let nodes = operator.get("/v1/nodes").await.body;
    let blocked =
        nodes["nodes"].as_array().unwrap().iter().find(|node| node["id"] == "two").unwrap();
    assert!(
        blocked["blocked"].as_array().unwrap().iter().all(|entry| entry["held_by"] == "one"),
        "{blocked}"
    );
    assert!(!blocked["blocked"].as_array().unwrap().is_empty());

    // Not even while the first one is away.
    drop(first);
    eventually("it gone", || async {
        let nodes = operator.get("/v1/nodes").await.body;
        (nodes["nodes"][0]["online"] == false).then_some(())
    })
    .await;
    operator.call("mail.send", json!({})).await.assert_problem(503, "offline");
    second.settle().await;
}

#[tokio::test]
async fn nodes_with_the_same_token_stand_in_for_each_other() {
    let gateway = Setup::new().env("SA_NODE_TOKEN", "shared").start().await;
    let mut first = Hello::new("one").capability("mail").token("shared").connect(&gateway).await;
    let mut second = Hello::new("two").capability("mail").token("shared").connect(&gateway).await;
    let operator = gateway.operator();
    let call = operator.call_later("mail.send", json!({}));
    let request = first.request().await;
    first.answer(&request.id, json!("first")).await;
    assert_eq!(call.await.unwrap().result(), "first");
    second.settle().await;
    first.send_raw(Message::Close(None)).await;
    first.closed().await;
    let call = operator.call_later("mail.send", json!({}));
    let request = second.request().await;
    second.answer(&request.id, json!("second")).await;
    assert_eq!(call.await.unwrap().result(), "second");
}

#[tokio::test]
async fn the_same_id_with_the_same_token_replaces_the_old_connection() {
    let gateway = Setup::new().start().await;
    let mut old = Hello::new("n").capability("a").connect(&gateway).await;
    let call = gateway.operator().call_later("a.b", json!({}));
    old.request().await;
    let mut new = Hello::new("n").capability("a").connect(&gateway).await;
    call.await.unwrap().assert_problem(503, "offline");
    assert_eq!(old.closed().await.0, 4410);
    drop(old);
    // The clean-up of the old connection does not affect the new one.
    for _ in 0..5 {
        let call = gateway.operator().call_later("a.b", json!({}));
        let request = new.request().await;
        new.answer(&request.id, json!("new")).await;
        assert_eq!(call.await.unwrap().result(), "new");
        new.settle().await;
    }
}

#[tokio::test]
async fn another_token_cannot_take_an_id() {
    let gateway = Setup::new().env(TOKENS.0, TOKENS.1).env("SA_NODE_TOKEN", "shared").start().await;
    let mut node = Hello::new("one").capability("a").token("t1").connect(&gateway).await;
    // The token is bound to another id.
    let mut impostor = Hello::new("one").capability("a").token("t2").greet(&gateway).await.unwrap();
    let (code, why) = impostor.closed().await;
    assert_eq!((code, why.contains("for the node id \"two\", not \"one\"")), (4409, true), "{why}");
    // The token is not bound, but the id belongs to another token.
    let mut impostor =
        Hello::new("one").capability("a").token("shared").greet(&gateway).await.unwrap();
    let (code, why) = impostor.closed().await;
    assert_eq!((code, why.contains("\"one\" belongs to another token")), (4409, true), "{why}");
    // The space in a close frame is small; the advice must fit beside any id.
    let long = "é".repeat(60);
    let mut impostor = Hello::new(&long).capability("a").token("t2").greet(&gateway).await.unwrap();
    let (_, why) = impostor.closed().await;
    assert!(why.ends_with("or use another token") && why.len() <= 123, "{why}");
    let call = gateway.operator().call_later("a.b", json!({}));
    let request = soon(node.request()).await;
    node.answer(&request.id, json!("mine")).await;
    assert_eq!(call.await.unwrap().result(), "mine");
    let audit = eventually("the audit", || async {
        let events = gateway.inner().journal.events();
        let impostors = events.iter().filter(|event| event.name == "node.impostor").count();
        (impostors == 3).then_some(())
    });
    audit.await;
}

#[tokio::test]
async fn a_node_whose_token_is_rotated_keeps_its_tools_from_one_that_waits_for_them() {
    let gateway = Setup::new().start().await;
    let operator = gateway.operator();
    let bound = async |name: &str, id: &str| {
        gateway.token(json!({ "name": name, "role": "node", "node_id": id })).await
    };
    let ((old_id, old), (_, new), (_, rival)) =
        (bound("old", "one").await, bound("new", "one").await, bound("rival", "two").await);
    let mac =
        |id: &str, token: &str| Hello::new(id).capability("mac").tool("mac.notes").token(token);
    let mut first = mac("one", &old).connect(&gateway).await;
    let mut waiting = mac("two", &rival).connect(&gateway).await;
    let mut rotated = mac("one", &new).connect(&gateway).await;
    assert_eq!(first.closed().await.0, 4410);
    for revoked in [false, true] {
        if revoked {
            assert_eq!(operator.delete(&format!("/v1/tokens/{old_id}")).await.status, 200);
        }
        for name in ["mac_notes", "mac.notes", "mac.other"] {
            let call = operator.call_later(name, json!({}));
            let request = rotated.request().await;
            rotated.answer(&request.id, json!(1)).await;
            assert_eq!(call.await.unwrap().result(), 1, "{name}, the old token revoked: {revoked}");
        }
        let tools = operator.get("/v1/tools?limit=1000").await.body;
        let tools = tools["tools"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|tool| tool["provider"]["kind"] == "node");
        let tools: Vec<_> =
            tools.map(|tool| (tool["name"].clone(), tool["provider"]["id"].clone())).collect();
        assert_eq!(tools, [(json!("mac_notes"), json!("one"))]);
    }
    waiting.settle().await;
}
