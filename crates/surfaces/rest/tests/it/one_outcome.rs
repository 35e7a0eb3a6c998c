//! A call ends once, by the node that received it. Late, repeated and foreign answers are ignored,
//! and forged ones are recorded.

use sa_core::AuditEvent;
use sa_testkit::{Gateway, Hello, Setup};
use serde_json::json;

fn audit(gateway: &Gateway, what: &str) -> Vec<AuditEvent> {
    let events = gateway.inner().journal.events();
    events.into_iter().filter(|event| event.name == what).collect()
}

#[tokio::test]
async fn the_first_answer_counts() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let mut socket = gateway.operator().socket().await;
    socket.call("1", "a.b", json!({})).await;
    let request = node.request().await;
    node.answer(&request.id, json!("first")).await;
    node.answer(&request.id, json!("second")).await;
    node.fail(&request.id, "failed", "third").await;
    node.progress(&request.id, 1.0).await;
    node.settle().await;
    assert_eq!(socket.recv().await["result"], "first");
    socket.send(json!({ "type": "ping", "timestamp": 5 })).await;
    assert_eq!(socket.recv().await["type"], "pong", "nothing came after the outcome");
    assert_eq!(gateway.refused("node", "stray_reply").await, 3);
    assert_eq!(audit(&gateway, "reply.forged").len(), 0, "late is not forged");
}

#[tokio::test]
async fn an_answer_after_the_deadline_is_too_late() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let reply = gateway.operator().call_with("a.b", json!({ "timeout_ms": 50 })).await;
    reply.assert_problem(504, "timeout");
    let request = node.request().await;
    node.cancelled(&request).await;
    node.answer(&request.id, json!("late")).await;
    node.settle().await;
    let path = format!("/v1/calls/{}", reply.body["call_id"].as_str().unwrap());
    let record = sa_testkit::eventually("the record", || async {
        Some(gateway.operator().get(&path).await).filter(|reply| reply.status == 200)
    })
    .await;
    assert_eq!(record.body["error"]["kind"], "timeout");
}

#[tokio::test]
async fn nobody_answers_for_another_node() {
    let gateway = Setup::new().start().await;
    let mut real = Hello::new("real").capability("a").connect(&gateway).await;
    let mut forger = Hello::new("forger").capability("f").connect(&gateway).await;
    let call = gateway.operator().call_later("a.b", json!({}));
    let request = real.request().await;
    forger.answer(&request.id, json!("forged")).await;
    forger.chunk(&request.id, json!("forged")).await;
    forger.fail(&request.id, "failed", "forged").await;
    forger.settle().await;
    real.answer(&request.id, json!("real")).await;
    assert_eq!(call.await.unwrap().result(), "real");
    let forged = sa_testkit::eventually("the forgeries", || async {
        Some(audit(&gateway, "reply.forged")).filter(|events| events.len() == 3)
    })
    .await;
    assert!(forged.iter().all(|event| event.actor == "node forger" && event.subject == request.id));
    assert_eq!(gateway.refused("node", "forged_reply").await, 3);
}
