//! The token decides the rights to read, publish and call in a channel, and it decides the sender's
//! name.

use sa_testkit::{Participant, Setup};
use serde_json::json;

#[tokio::test]
async fn without_a_token_or_a_channel_there_is_no_way_in() {
    let gateway = Setup::new().start().await;
    let token = Participant::token(&gateway, "ann").await;
    let (_, node) = gateway.token(json!({ "name": "n", "role": "node" })).await;
    let (_, narrow) =
        gateway.token(json!({ "name": "p", "role": "participant", "channels": ["team-*"] })).await;
    let (_, reserved) =
        gateway.token(json!({ "name": "switchboard", "role": "participant" })).await;
    for (query, code) in [
        ("channel=room".to_owned(), 4001),
        ("token=nonsense&channel=room".into(), 4001),
        (format!("token={node}&channel=room"), 4001),
        (format!("token={narrow}&channel=room"), 4001),
        (format!("token={reserved}&channel=room"), 4001),
        (format!("token={token}"), 4002),
        (format!("token={token}&channel="), 4002),
        (format!("token={token}&channel=a%0Ab"), 4002),
        (format!("token={token}&channel=room&sinceId=x"), 4002),
    ] {
        for path in ["/v1/channels/ws", "/"] {
            let mut socket = Participant::connect(&gateway, &format!("{path}?{query}")).await;
            let (closed, reason) = socket.closed().await;
            // Deployed clients look for these words.
            let words = if code == 4001 { "unauthorized" } else { "channel required" };
            assert!(closed == code && reason.contains(words), "{path}?{query}: {closed} {reason}");
        }
    }
    let mut inside =
        Participant::connect(&gateway, &format!("/?token={narrow}&channel=team-1")).await;
    inside.here("p").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_token_may_do_what_it_says() {
    let gateway = Setup::new().start().await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let (_, reader) = gateway
        .token(json!({ "name": "r", "role": "participant", "channel_rights": ["read"] }))
        .await;
    let (_, writer) = gateway
        .token(json!({ "name": "w", "role": "participant", "channel_rights": ["publish"] }))
        .await;
    let mut only_reads =
        Participant::connect(&gateway, &format!("/?token={reader}&channel=room")).await;
    only_reads.here("r").await;
    assert_eq!(only_reads.say("note", json!(1)).await["code"], "not-allowed");
    let mut only_writes =
        Participant::connect(&gateway, &format!("/?token={writer}&channel=room&sinceId=0")).await;
    assert_eq!(only_writes.recv().await["kind"], "ready", "it is not told who is there");
    assert_eq!(only_writes.say("note", json!("secret")).await["kind"], "persisted");
    assert_eq!(only_reads.message("note").await["payload"], "secret");
    ann.say("note", json!("not for the writer")).await;
    only_writes.send(json!({ "action": "get-messages-before", "ref": 50 })).await;
    let next = only_writes.recv().await;
    assert_eq!(
        (&next["ref"], &next["code"]),
        (&json!(50), &json!("not-allowed")),
        "nothing came between"
    );
    let call = json!({ "callId": "c1", "methodName": "m", "providerId": "ann", "args": {} });
    assert_eq!(only_writes.say("method-call", call).await["code"], "not-allowed");

    for (token, read, publish) in [(&reader, 200, 403), (&writer, 403, 201)] {
        let agent = gateway.agent(token);
        assert_eq!(agent.get("/v1/channels/room").await.status, read);
        assert_eq!(agent.get("/v1/channels/room/messages").await.status, read);
        let body = json!({ "type": "note", "payload": {} });
        assert_eq!(agent.post("/v1/channels/room/messages", &body).await.status, publish);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_published_over_rest_is_in_the_channel() {
    let gateway = Setup::new().start().await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let bot = gateway.new_agent("bot").await;
    let body =
        json!({ "type": "note", "payload": { "a": 1 }, "clientMessageId": "k", "senderId": "ann" });
    bot.post("/v1/channels/room/messages", &body).await.assert_problem(400, "bad_request");
    let body = json!({ "type": "note", "payload": { "a": 1 }, "clientMessageId": "k" });
    let first = bot.post("/v1/channels/room/messages", &body).await;
    assert_eq!(first.status, 201);
    let again = bot.post("/v1/channels/room/messages", &body).await;
    assert_eq!((&again.body["id"], &again.body["duplicate"]), (&first.body["id"], &json!(true)));
    let got = ann.message("note").await;
    assert_eq!(
        (&got["senderId"], &got["id"], &got["payload"]),
        (&json!("bot"), &first.body["id"], &json!({ "a": 1 }))
    );
    let list = bot.get("/v1/channels").await.body;
    assert_eq!(
        (&list["channels"][0]["name"], &list["channels"][0]["participants"]),
        (&json!("room"), &json!(1))
    );
    bot.get("/v1/channels/nowhere").await.assert_problem(404, "not_found");
    gateway.stop().await;
}

#[tokio::test]
async fn who_may_administer_a_channel_deletes_it_once_it_is_empty() {
    let gateway = Setup::new().start().await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    ann.say("note", json!("old")).await;
    let plain = gateway.new_agent("plain").await;
    plain.delete("/v1/channels/room").await.assert_problem(403, "not_allowed");
    let rights = ["read", "publish", "admin"];
    let (_, token) =
        gateway.token(json!({ "name": "admin", "role": "agent", "channel_rights": rights })).await;
    let admin = gateway.agent(&token);
    admin.delete("/v1/channels/room").await.assert_problem(409, "conflict");
    ann.send(json!({ "action": "close" })).await;
    ann.closed().await;
    sa_testkit::eventually("an empty channel", || async {
        (admin.delete("/v1/channels/room").await.status == 204).then_some(())
    })
    .await;
    admin.get("/v1/channels/room/messages").await.assert_problem(404, "not_found");
    admin.delete("/v1/channels/room").await.assert_problem(404, "not_found");
    admin.post("/v1/channels/room/messages", &json!({ "type": "note", "payload": "new" })).await;
    let messages = admin.get("/v1/channels/room/messages").await.body;
    assert_eq!(messages["messages"].as_array().unwrap().len(), 1, "{messages}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_revoked_token_is_out_at_once() {
    let gateway = Setup::new().start().await;
    let (id, token) = gateway.token(json!({ "name": "ann", "role": "participant" })).await;
    let mut ann = Participant::connect(&gateway, &format!("/?token={token}&channel=room")).await;
    ann.here("ann").await;
    gateway.operator().delete(&format!("/v1/tokens/{id}")).await;
    assert_eq!(ann.closed().await.0, 4001);
    gateway.stop().await;
}
