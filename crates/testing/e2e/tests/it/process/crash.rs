//! After `kill -9` all acknowledged data is there: history, tokens, the audit trail, and the
//! outcomes of calls with a key.

use sa_gateway_kit::{Gateway, Hello, Setup, eventually};
use serde_json::{Value, json};

use crate::SWITCHBOARD;

async fn again(gateway: &mut Gateway) -> Gateway {
    gateway.kill().await;
    Setup::new().on(gateway).spawn(SWITCHBOARD).await
}

#[tokio::test]
async fn history_and_tokens_survive() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let _node = Hello::new("n").capability("a").connect(&gateway).await.echo();
    let (id, revoked) = gateway.token(json!({ "name": "gone", "role": "agent" })).await;
    gateway.operator().delete(&format!("/v1/tokens/{id}")).await;
    let agent = gateway.new_agent("bot").await;
    let mut made = Vec::new();
    for number in 0..50 {
        made.push(agent.call("a.b", json!({ "number": number })).await.body["call_id"].clone());
    }
    made.reverse();
    // Records that the history shows are on disk.
    eventually("the history", || async {
        let calls = agent.get("/v1/calls?limit=100").await.body["calls"].as_array()?.len();
        (calls == 50).then_some(())
    })
    .await;
    let operator = gateway.operator.clone();
    let gateway = again(&mut gateway).await;
    assert_eq!(gateway.operator, operator);
    let agent = gateway.agent(&agent.token);
    let calls = agent.get("/v1/calls?limit=100").await.body;
    let ids: Vec<Value> =
        calls["calls"].as_array().unwrap().iter().map(|call| call["id"].clone()).collect();
    assert_eq!(ids, made);
    assert_eq!(calls["calls"][0]["args"]["json"]["number"], 49);
    gateway.agent(&revoked).get("/v1/tools").await.assert_problem(401, "unauthorized");
    gateway.stop().await;
}

#[tokio::test]
async fn a_retry_gets_the_first_answer_without_a_second_run() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let agent = gateway.new_agent("bot").await;
    let body = json!({ "args": { "x": 1 }, "idempotency_key": "k" });
    let failing = json!({ "args": {}, "idempotency_key": "f" });
    let call = agent.call_later("a.b", body.clone());
    let request = node.request().await;
    node.answer(&request.id, json!("once")).await;
    let first = call.await.unwrap();
    assert_eq!(first.body["result"], "once");
    let call = agent.call_later("a.b", failing.clone());
    let request = node.request().await;
    node.fail(&request.id, "not_allowed", "never").await;
    let failed = call.await.unwrap();

    for restart in [false, true] {
        if restart {
            gateway = again(&mut gateway).await;
            node = Hello::new("n").capability("a").connect(&gateway).await;
        }
        let agent = gateway.agent(&agent.token);
        let retry = agent.call_with("a.b", body.clone()).await;
        assert_eq!(
            (&retry.body["call_id"], &retry.body["result"]),
            (&first.body["call_id"], &json!("once"))
        );
        let retry = agent.call_with("a.b", failing.clone()).await;
        retry.assert_problem(403, "not_allowed");
        assert_eq!((&retry.body["call_id"], retry.detail()), (&failed.body["call_id"], "never"));
        node.settle().await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_in_the_middle_of_a_crash_is_never_run_again() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let agent = gateway.new_agent("bot").await;
    let body = json!({ "args": {}, "idempotency_key": "k" });
    let request = agent.request(reqwest::Method::POST, "/v1/tools/a.b/call").json(&body);
    let call = tokio::spawn(request.send());
    node.request().await;
    let gateway = again(&mut gateway).await;
    assert!(call.await.unwrap().is_err(), "the connection broke");
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let reply = gateway.agent(&agent.token).call_with("a.b", body).await;
    reply.assert_problem(409, "conflict");
    assert!(reply.detail().contains("may have had an effect"), "{}", reply.text);
    node.settle().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_whose_end_nobody_saw_is_in_the_history_once() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let agent = gateway.new_agent("bot").await;
    let body = json!({ "args": { "what": "everything", "password": "canary" } });
    let request = agent.request(reqwest::Method::POST, "/v1/tools/a.b/call").json(&body);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let call = tokio::spawn(
        request.header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01")).send(),
    );
    node.request().await;
    let ended = agent.call_later("a.b", json!({ "args": {} }));
    let quick = node.request().await;
    let running = agent.get("/v1/calls?state=running").await.body;
    let ids: Vec<&str> = running["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["id"].as_str().unwrap())
        .collect();
    // Both calls take long enough to be noted, and one of them ends.
    let wal = gateway.data_dir().join("switchboard.db-wal");
    eventually("both notes", || async {
        let written = std::fs::read(&wal).ok()?;
        let noted = |id: &&str| written.windows(id.len()).any(|window| window == id.as_bytes());
        ids.iter().all(noted).then_some(())
    })
    .await;
    node.answer(&quick.id, json!("done")).await;
    assert_eq!(ended.await.unwrap().result(), "done");
    eventually("the history", || async {
        let calls = agent.get("/v1/calls?state=ended").await.body["calls"].as_array()?.len();
        (calls == 1).then_some(())
    })
    .await;
    let mut gateway = again(&mut gateway).await;
    assert!(call.await.unwrap().is_err(), "the connection broke");
    for _ in 0..2 {
        let calls = gateway.agent(&agent.token).get("/v1/calls").await;
        let found = calls.body["calls"].as_array().unwrap();
        let [lost, kept] = &found[..] else { panic!("{}", calls.text) };
        assert_eq!(
            (&kept["ok"], &lost["ok"], &lost["state"]),
            (&json!(true), &json!(false), &json!("ended"))
        );
        assert_eq!(
            (&lost["error"]["kind"], &lost["provider"]["id"]),
            (&json!("failed"), &json!("n"))
        );
        assert!(
            lost["error"]["message"].as_str().unwrap().contains("its outcome is unknown"),
            "{lost}"
        );
        assert_eq!(lost["trace_id"], trace, "{lost}");
        assert!(
            lost["duration_us"].is_null() && kept["duration_us"].is_u64(),
            "nobody knows how long it took: {lost}"
        );
        assert_eq!(lost["args"]["json"]["what"], "everything");
        assert!(!calls.text.contains("canary"), "{lost}");
        gateway = again(&mut gateway).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_retry_while_the_first_still_runs_joins_it() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("n").capability("a").connect(&gateway).await;
    let operator = gateway.operator();
    let body = json!({ "args": {}, "idempotency_key": "k" });
    let first = operator.call_later("a.b", body.clone());
    let request = node.request().await;
    let second = operator.call_later("a.b", body.clone());
    node.settle().await;
    node.answer(&request.id, json!("both")).await;
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(first.body["call_id"], second.body["call_id"]);
    assert_eq!((first.result(), second.result()), (json!("both"), json!("both")));
    node.settle().await;
}

#[tokio::test]
async fn what_an_operator_was_told_is_done_is_in_the_audit_trail() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut done: Vec<(&str, String)> = Vec::new();
    for round in 0..12 {
        let (id, _) = gateway.token(json!({ "name": "bot", "role": "agent" })).await;
        done.push(("token.created", id.clone()));
        // Half of the rounds end right after the creation, and half right after the revocation.
        if round % 2 == 1 {
            assert_eq!(gateway.operator().delete(&format!("/v1/tokens/{id}")).await.status, 200);
            done.push(("token.revoked", id));
        }
        gateway = again(&mut gateway).await;
    }
    let audit = gateway.operator().get("/v1/audit?limit=500").await.body;
    let events = audit["events"].as_array().unwrap();
    let is_there = |(what, id): &(&str, String)| {
        events.iter().any(|e| e["what"] == *what && e["subject"] == **id)
    };
    let lost: Vec<_> = done.iter().filter(|event| !is_there(event)).collect();
    assert!(lost.is_empty(), "{lost:?} of {} are lost", done.len());
    gateway.stop().await;
}
