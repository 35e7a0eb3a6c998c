//! A participant that forges messages, takes other participants' calls or continues after its
//! removal affects only itself.

use futures_util::StreamExt as _;
use sa_testkit::messaging::{call, result};
use sa_testkit::{Hello, Message, Participant, Setup, soon};
use serde_json::{Value, json};

#[tokio::test]
async fn nobody_takes_over_a_call_that_was_made_from_outside() {
    let gateway = Setup::new().start().await;
    let mut worker = Participant::worker(
        &gateway,
        &Participant::room(&Participant::token(&gateway, "worker").await),
    )
    .await;
    let mut eve = Participant::join(&gateway, "room", "eve").await;
    let agent = gateway.new_agent("agent").await;
    let calling = tokio::spawn(async move {
        agent.post("/v1/tools/pubsub_worker_work/call?channel=room", &json!({ "args": {} })).await
    });
    let asked = worker.message("method-call").await;
    let id = asked["payload"]["callId"].as_str().unwrap();
    assert_eq!(eve.say("method-call", call(id)).await["code"], "conflict");
    worker.say("method-result", result(id, "for the agent")).await;
    assert_eq!(soon(calling).await.unwrap().body["result"], "for the agent");
    gateway.stop().await;
}

#[tokio::test]
async fn an_error_ends_a_call_whether_it_says_so_or_not() {
    let gateway = Setup::new().start().await;
    let mut worker = Participant::worker(
        &gateway,
        &Participant::room(&Participant::token(&gateway, "worker").await),
    )
    .await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    ann.say("method-call", call("c1")).await;
    let failure = json!({ "callId": "c1", "content": { "error": "no" }, "isError": true });
    assert_eq!(worker.say("method-result", failure).await["kind"], "persisted");
    assert_eq!(worker.say("method-result", result("c1", "after all")).await["code"], "conflict");
    drop(worker);
    assert_eq!(ann.message("method-result").await["payload"]["isError"], true);
    ann.until(|frame| frame["payload"]["action"] == "leave").await;
    ann.say("note", json!("end")).await;
    let history = gateway.operator().get("/v1/channels/room/messages").await.text;
    assert_eq!(history.matches("method-result").count(), 1, "{history}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_payload_is_an_object() {
    let gateway = Setup::new().start().await;
    let _worker = Participant::worker(
        &gateway,
        &Participant::room(&Participant::token(&gateway, "worker").await),
    )
    .await;
    let mut eve = Participant::join(&gateway, "room", "eve").await;
    for (kind, payload) in [
        ("message", json!(["m1"])),
        ("update-message", json!(["m1"])),
        ("method-call", json!(["c1", "work", "worker", {}])),
        ("method-result", json!(["c1", 1, true, false, 1])),
        ("method-cancel", json!(["c1"])),
    ] {
        assert_eq!(eve.say(kind, payload).await["code"], "validation-error", "{kind}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn who_cannot_answer_offers_nothing_and_who_may_call_may_cancel() {
    let gateway = Setup::new().start().await;
    let token = async |name: &str, rights: &[&str]| {
        gateway
            .token(json!({ "name": name, "role": "participant", "channel_rights": rights }))
            .await
            .1
    };
    let mut reader =
        Participant::connect(&gateway, &Participant::room(&token("reader", &["read"]).await)).await;
    let methods = json!([{ "name": "work", "description": "Call me." }]);
    assert_eq!(reader.update(json!({ "methods": methods })).await["code"], "not-allowed");
    assert_eq!(
        reader.update(json!({ "name": "Reader", "methods": [] })).await["kind"],
        "persisted"
    );

    let mut worker = Participant::worker(
        &gateway,
        &Participant::room(&Participant::token(&gateway, "worker").await),
    )
    .await;
    let mut caller = Participant::connect(
        &gateway,
        &Participant::room(&token("caller", &["read", "call"]).await),
    )
    .await;
    assert_eq!(caller.say("method-call", call("c1")).await["kind"], "persisted");
    assert_eq!(caller.say("method-cancel", json!({ "callId": "c1" })).await["kind"], "persisted");
    assert_eq!(worker.message("method-cancel").await["senderId"], "caller");
    assert_eq!(caller.say("note", json!(1)).await["code"], "not-allowed");
    gateway.stop().await;
}

#[tokio::test]
async fn a_token_that_is_revoked_during_its_replay_is_out_at_once() {
    let gateway = Setup::new().start().await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    for _ in 0..50 {
        ann.say("note", json!("x".repeat(1_000_000))).await;
    }
    let (id, token) = gateway.token(json!({ "name": "eve", "role": "participant" })).await;
    let mut eve =
        Participant::connect(&gateway, &format!("{}&sinceId=0", Participant::room(&token))).await;
    gateway.operator().delete(&format!("/v1/tokens/{id}")).await;
    let mut notes = 0;
    let code = loop {
        match soon(eve.socket.next()).await {
            Some(Ok(Message::Text(text))) => {
                assert!(!text.contains("\"kind\":\"ready\""), "all of it was read");
                notes += usize::from(text.contains("\"type\":\"note\""));
            }
            Some(Ok(Message::Close(frame))) => break frame.map(|frame| u16::from(frame.code)),
            Some(Ok(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(code, Some(4001));
    assert!(notes < 50, "what was on its way, and no more");
    gateway.stop().await;
}

#[tokio::test]
async fn what_a_tool_counts_is_a_percentage_that_can_be_written() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("laptop").capability("demo").connect(&gateway).await;
    Participant::token_with_tools(&gateway, "ann", &["demo.*"]).await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    let asked = json!({ "callId": "c1", "methodName": "demo.count", "providerId": "switchboard", "args": {} });
    ann.say("method-call", asked).await;
    let request = node.request().await;
    for (progress, total) in [(1e308, json!(1)), (5000.0, Value::Null), (-3.0, json!(4))] {
        let id = &request.id;
        let update = json!({ "type": "tool_progress", "request_id": id, "progress": progress, "total": total });
        node.send(update).await;
    }
    node.answer(&request.id, json!("done")).await;
    for percent in [100.0, 100.0, 0.0] {
        assert_eq!(
            ann.message("method-result").await["payload"]["progress"].as_f64(),
            Some(percent)
        );
    }
    assert_eq!(ann.message("method-result").await["payload"]["content"], "done");
    assert_eq!(
        gateway.operator().get("/v1/channels/room/messages").await.status,
        200,
        "and history can be read"
    );
    gateway.stop().await;
}
