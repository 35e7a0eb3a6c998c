//! `POST /v1/tokens` creates a token and shows it once. Its rights are those it was created with,
//! until it is revoked.

use sa_gateway_kit::{Setup, find_in_files};
use serde_json::json;

#[tokio::test]
async fn a_token_is_shown_once_and_stored_as_a_hash() {
    let gateway = Setup::new().start().await;
    let operator = gateway.operator();
    let made = operator.post("/v1/tokens", &json!({ "name": "bot", "role": "agent" })).await;
    assert_eq!(made.status, 201);
    assert_eq!((&made.body["name"], &made.body["role"]), (&json!("bot"), &json!("agent")));
    let token = made.body["token"].as_str().unwrap();
    assert!(token.len() >= 43, "256 bits");
    assert_eq!(gateway.agent(token).get("/v1/tools").await.status, 200);

    let list = operator.get("/v1/tokens").await;
    let listed = list.body["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["id"] == made.body["id"])
        .unwrap();
    assert_eq!(listed["name"], "bot");
    assert!(!list.text.contains(token));
    assert_eq!(find_in_files(gateway.dir.path(), token), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn mistakes_are_named() {
    let gateway = Setup::new().start().await;
    let operator = gateway.operator();
    for (body, word) in [
        (json!({}), "name"),
        (json!({ "name": "x" }), "role"),
        (json!({ "name": "x", "role": "king" }), "king"),
        (json!({ "name": "", "role": "agent" }), "name"),
        (json!({ "name": "a\u{1b}b", "role": "agent" }), "control"),
        (json!({ "name": "my bot", "role": "agent" }), "U+0020 at position 3"),
        (json!({ "name": "bot\u{200b}", "role": "agent" }), "U+200B at position 4"),
        (json!({ "name": "\u{430}dmin", "role": "agent" }), "U+0064 at position 2"),
        (json!({ "name": "x", "role": "node", "node_id": "a b" }), "node_id"),
        (json!({ "name": "x", "role": "agent", "node_id": "n" }), "node_id"),
        (json!({ "name": "x", "role": "agent", "colour": "red" }), "colour"),
    ] {
        let reply = operator.post("/v1/tokens", &body).await;
        reply.assert_problem(400, "bad_request");
        assert!(reply.detail().contains(word), "{body}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_token_can_be_narrowed_to_some_tools() {
    let gateway = Setup::new().start().await;
    let hello =
        sa_gateway_kit::Hello::new("n").tool("notes.read").tool("notes.write").tool("mail.send");
    let _node = hello.connect(&gateway).await.echo();
    let (_, token) = gateway
        .token(json!({ "name": "reader", "role": "agent", "tools": ["notes*read", "mail_*"] }))
        .await;
    let agent = gateway.agent(&token);
    assert_eq!(agent.tool_names().await, ["mail_send", "notes_read"]);
    for name in ["notes_read", "notes.read", "mail_send", "mail.send"] {
        assert_eq!(agent.call(name, json!({})).await.status, 200, "{name}");
    }
    for name in ["notes_write", "notes.write"] {
        agent.call(name, json!({})).await.assert_problem(404, "not_found");
    }
    assert_eq!(gateway.operator().call("notes_write", json!({})).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_want_one_name_at_the_same_time_one_gets_it() {
    let gateway = Setup::new().start().await;
    let operator = gateway.operator();
    for (name, roles) in
        [("ann", ["participant", "participant"]), ("bob", ["participant", "agent"])]
    {
        let made = (0..20).map(|number| {
            let body = json!({ "name": name, "role": roles[number % 2] });
            let operator = &operator;
            async move { operator.post("/v1/tokens", &body).await }
        });
        let made = futures_util::future::join_all(made).await;
        let speakers: Vec<_> = made
            .iter()
            .filter(|reply| reply.status == 201)
            .map(|reply| &reply.body["role"])
            .collect();
        // Agents may share a name with each other, but never with a participant.
        assert!(
            speakers == [&json!("participant")]
                || speakers.iter().all(|role| **role == json!("agent")),
            "{name}: {speakers:?}"
        );
        for reply in made.iter().filter(|reply| reply.status != 201) {
            reply.assert_problem(409, "conflict");
        }
    }
}

#[tokio::test]
async fn a_right_in_channels_that_does_not_exist_is_refused() {
    let gateway = Setup::new().start().await;
    gateway
        .operator()
        .post("/v1/tokens", &json!({ "name": "x", "role": "agent", "channel_rights": ["fly"] }))
        .await
        .assert_problem(400, "bad_request");
    gateway.stop().await;
}
