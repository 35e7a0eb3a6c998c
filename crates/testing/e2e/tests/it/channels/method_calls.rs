//! A call of a method is not repeated after a kill of the gateway.

use sa_gateway_kit::{Hello, Participant, Setup};
use serde_json::json;

use crate::SWITCHBOARD;

#[tokio::test]
async fn a_tool_is_not_run_again_for_a_call_that_is_sent_again() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("laptop").capability("demo").connect(&gateway).await;
    let token = Participant::token_with_tools(&gateway, "ann", &["demo.*"]).await;
    let path = format!("/v1/channels/ws?token={token}&channel=room");
    let mut ann = Participant::connect(&gateway, &path).await;
    let call = json!({ "callId": "c1", "methodName": "demo.echo", "providerId": "switchboard", "args": {} });
    let first = ann.say("method-call", call.clone()).await;
    let request = node.request().await;
    assert_eq!(ann.say("method-call", call.clone()).await["duplicate"], true);
    let unstored =
        ann.publish_as(json!({ "type": "method-call", "payload": call, "persist": false })).await;
    assert_eq!(ann.answer(unstored).await["code"], "conflict", "the answer is the first one's");
    node.answer(&request.id, json!("once")).await;
    assert_eq!(ann.message("method-result").await["payload"]["content"], "once");

    // A call that was still running when the gateway ended.
    ann.say(
        "method-call",
        json!({ "callId": "c2", "methodName": "demo.echo", "providerId": "switchboard" }),
    )
    .await;
    node.request().await;
    gateway.kill().await;
    gateway = Setup::new().on(&gateway).spawn(SWITCHBOARD).await;
    let mut node = Hello::new("laptop").capability("demo").connect(&gateway).await;
    let mut ann = Participant::connect(&gateway, &path).await;
    let again = ann.say("method-call", call).await;
    assert_eq!((&again["duplicate"], &again["id"]), (&json!(true), &first["id"]));
    ann.say(
        "method-call",
        json!({ "callId": "c2", "methodName": "demo.echo", "providerId": "switchboard" }),
    )
    .await;
    let failed = ann.message("method-result").await;
    assert_eq!(failed["payload"]["callId"], "c2", "the other one has had its result");
    assert_eq!(failed["payload"]["content"]["code"], "execution-error");
    ann.say(
        "method-call",
        json!({ "callId": "c3", "methodName": "demo.echo", "providerId": "switchboard", "args": { "n": 3 } }),
    )
    .await;
    let request = node.request().await;
    assert_eq!(request.args, json!({ "n": 3 }), "and neither of the others");
    node.answer(&request.id, json!(3)).await;
    assert_eq!(ann.message("method-result").await["payload"]["content"], 3);
    gateway.stop().await;
}
