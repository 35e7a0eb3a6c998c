//! An agent cannot see or end another agent's calls.

use sa_gateway_kit::{Hello, Setup};
use serde_json::json;

#[tokio::test]
async fn calls_belong_to_whoever_made_them() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let (alice, bob) = (gateway.new_agent("alice").await, gateway.new_agent("bob").await);
    let mut feed = bob.follow().await;
    let mut events = alice.stream("a.b", json!({ "args": { "x": "alice's" } })).await;
    let request = node.request().await;
    let path = format!("/v1/calls/{}", events.call_id());

    assert_eq!(bob.get("/v1/calls").await.body["calls"], json!([]));
    bob.get(&path).await.assert_problem(404, "not_found");
    bob.delete(&path).await.assert_problem(404, "not_found");
    let nothing = bob.delete("/v1/calls/01890000-0000-7000-8000-000000000000").await;
    nothing.assert_problem(404, "not_found");

    let mut socket = bob.socket().await;
    socket.send(json!({ "type": "cancel", "id": events.call_id() })).await;
    socket.send(json!({ "type": "cancel", "id": "1" })).await;
    node.settle().await;
    node.answer(&request.id, json!("for alice")).await;
    assert_eq!(events.wait_for("done").await["result"], "for alice");

    bob.get(&path).await.assert_problem(404, "not_found");
    assert_eq!(bob.get("/v1/calls").await.body["calls"], json!([]));
    let seen = sa_gateway_kit::eventually("the record", || async {
        Some(alice.get(&path).await).filter(|reply| reply.status == 200)
    })
    .await;
    assert_eq!(seen.body["args"]["json"]["x"], "alice's");
    assert_eq!(gateway.operator().get(&path).await.status, 200, "an operator sees all");

    // Bob's feed contains his own call and no earlier call of Alice.
    let bobs = bob.call_later("a.b", json!({}));
    let request = node.request().await;
    node.answer(&request.id, json!(1)).await;
    bobs.await.unwrap().result();
    assert_eq!(feed.wait_for("call_started").await["principal"]["name"], "bob");
    assert_eq!(feed.wait_for("call_ended").await["principal"]["name"], "bob");
}

#[tokio::test]
async fn a_key_is_the_callers_own() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let (alice, bob) = (gateway.new_agent("alice").await, gateway.new_agent("bob").await);
    let body = json!({ "args": {}, "idempotency_key": "same" });
    for (agent, result) in [(&alice, "alice's"), (&bob, "bob's")] {
        let call = agent.call_later("a.b", body.clone());
        let request = node.request().await;
        node.answer(&request.id, json!(result)).await;
        assert_eq!(call.await.unwrap().result(), result);
    }
    assert_eq!(alice.call_with("a.b", body).await.result(), "alice's");
}
