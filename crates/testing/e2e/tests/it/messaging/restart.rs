//! The gateway's knowledge about calls and messages survives a kill: the caller, the provider, the
//! owner and the end of a call.

use sa_gateway_kit::messaging::{call, result};
use sa_gateway_kit::{Gateway, Participant, Setup, soon};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

struct Tokens {
    ann: String,
    eve: String,
    worker: String,
}

impl Tokens {
    async fn new(gateway: &Gateway) -> Self {
        let token = async |name: &str| Participant::token(gateway, name).await;
        Self { ann: token("ann").await, eve: token("eve").await, worker: token("worker").await }
    }
}

fn setup() -> Setup {
    Setup::new().config("[nodes]\nping_interval_ms = 300\ndead_after_ms = 1500")
}

async fn killed(mut gateway: Gateway) -> Gateway {
    gateway.kill().await;
    setup().on(&gateway).spawn(SWITCHBOARD).await
}

async fn results(gateway: &Gateway) -> Vec<Value> {
    let history = gateway.operator().get("/v1/channels/room/messages").await.body;
    let all = history["messages"].as_array().unwrap().iter();
    all.filter(|message| message["type"] == "method-result")
        .map(|message| message["payload"].clone())
        .collect()
}

#[tokio::test]
async fn a_call_that_has_ended_stays_ended() {
    let gateway = setup().spawn(SWITCHBOARD).await;
    let tokens = Tokens::new(&gateway).await;
    let (mut provider, mut ann) = (
        Participant::worker(&gateway, &Participant::room(&tokens.worker)).await,
        Participant::connect(&gateway, &Participant::room(&tokens.ann)).await,
    );
    let first = ann.say("method-call", call("c1")).await;
    provider.say("method-result", result("c1", "once")).await;
    let lost = json!({ "callId": "c2", "methodName": "work", "providerId": "nobody" });
    ann.say("method-call", lost.clone()).await;
    ann.until(|frame| frame["payload"]["isError"] == true).await;

    let gateway = killed(gateway).await;
    let (mut provider, mut ann) = (
        Participant::worker(&gateway, &Participant::room(&tokens.worker)).await,
        Participant::connect(&gateway, &Participant::room(&tokens.ann)).await,
    );
    // Sent again, because the answer was lost.
    let again = ann.say("method-call", call("c1")).await;
    assert_eq!((&again["duplicate"], &again["id"]), (&json!(true), &first["id"]));
    ann.say("method-call", lost).await;
    ann.until(|frame| frame["payload"]["callId"] == "c2" && frame["payload"]["isError"] == true)
        .await;
    assert_eq!(provider.say("method-result", result("c1", "twice")).await["code"], "conflict");
    drop(provider);
    ann.until(|frame| frame["payload"]["action"] == "leave" && frame["senderId"] == "worker").await;
    assert_eq!(ann.say("method-call", call("c1")).await["duplicate"], true);
    ann.say("note", json!("whatever was caused by this is before it")).await;
    let results = results(&gateway).await;
    let ends: Vec<_> =
        results.iter().map(|payload| (&payload["callId"], &payload["content"])).collect();
    assert_eq!(
        ends,
        [(&json!("c1"), &json!("once"))],
        "no second end, and none of a call that was refused"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn what_is_somebodys_stays_theirs() {
    let gateway = setup().spawn(SWITCHBOARD).await;
    let tokens = Tokens::new(&gateway).await;
    let (_provider, mut ann) = (
        Participant::worker(&gateway, &Participant::room(&tokens.worker)).await,
        Participant::connect(&gateway, &Participant::room(&tokens.ann)).await,
    );
    ann.say("message", json!({ "id": "00000000-0000-4000-8000-000000000001", "content": "mine" }))
        .await;
    ann.say("method-call", call("c1")).await;
    ann.say("method-call", call("c2")).await;

    let gateway = killed(gateway).await;
    let mut eve = Participant::connect(&gateway, &Participant::room(&tokens.eve)).await;
    let passing = json!({ "type": "message", "payload": { "id": "00000000-0000-4000-8000-000000000001", "content": "eve's" }, "persist": false });
    let passing = eve.publish_as(passing).await;
    assert_eq!(eve.answer(passing).await["code"], "conflict");
    assert_eq!(
        eve.say(
            "update-message",
            json!({ "id": "00000000-0000-4000-8000-000000000001", "content": "forged" })
        )
        .await["code"],
        "not-allowed"
    );
    let mut provider = Participant::worker(&gateway, &Participant::room(&tokens.worker)).await;
    assert_eq!(eve.say("method-cancel", json!({ "callId": "c1" })).await["code"], "not-allowed");
    assert_eq!(eve.say("method-result", result("c1", "forged")).await["code"], "not-allowed");
    assert_eq!(eve.say("method-call", call("c2")).await["code"], "conflict");
    let mut ann = Participant::connect(&gateway, &Participant::room(&tokens.ann)).await;
    assert_eq!(
        ann.say(
            "update-message",
            json!({ "id": "00000000-0000-4000-8000-000000000001", "content": " still" })
        )
        .await["kind"],
        "persisted"
    );
    assert_eq!(ann.say("method-cancel", json!({ "callId": "c2" })).await["kind"], "persisted");
    assert_eq!(provider.message("method-cancel").await["senderId"], "ann");
    provider.say("method-result", result("c1", "real")).await;
    assert_eq!(ann.message("method-result").await["payload"]["content"], "real");
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_whose_provider_does_not_come_back_ends() {
    let gateway = setup().spawn(SWITCHBOARD).await;
    let tokens = Tokens::new(&gateway).await;
    let (provider, mut ann) = (
        Participant::worker(&gateway, &Participant::room(&tokens.worker)).await,
        Participant::connect(&gateway, &Participant::room(&tokens.ann)).await,
    );
    let made = ann.say("method-call", call("c1")).await;
    ann.say("method-call", call("given up")).await;
    ann.say("method-cancel", json!({ "callId": "given up" })).await;
    let gateway = killed(gateway).await;
    drop(provider);
    let mut ann = Participant::connect(
        &gateway,
        &format!("{}&sinceId={}", Participant::room(&tokens.ann), made["id"]),
    )
    .await;
    let end = soon(ann.message("method-result")).await["payload"].clone();
    assert_eq!(
        (&end["callId"], &end["content"]["code"]),
        (&json!("c1"), &json!("provider-offline"))
    );
    assert_eq!(results(&gateway).await.len(), 1);
    gateway.stop().await;
}
