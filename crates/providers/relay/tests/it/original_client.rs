//! Rule: the `session_message` and `session_events` of the original protocol's client work on the
//! socket. Such a client starts a session, polls until it is completed or failed, and looks for
//! the assistant's message.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{Agent, Kit, SOON, principal};

/// Sends a message and polls as that client does. Returns the last answer and all events.
async fn converse(agent: &mut Agent, message: Value) -> (Value, Vec<Value>) {
    let sent = agent.request("session_message", message).await;
    poll(agent, &sent["session_id"]).await
}

async fn poll(agent: &mut Agent, session: &Value) -> (Value, Vec<Value>) {
    let (mut index, mut events) = (json!(0), Vec::new());
    let poll = async {
        loop {
            let mut params = json!({ "session_id": session, "wait_ms": 100 });
            // A zero is omitted.
            if index != 0 {
                params["since_index"] = index;
            }
            let polled = agent.request("session_events", params).await;
            index = polled["last_index"].clone();
            events.extend(polled["events"].as_array().unwrap().clone());
            if polled["completed"] == true || polled["failed"] == true {
                return polled;
            }
            assert_eq!(polled["status"], "running", "{polled}");
        }
    };
    let polled = tokio::time::timeout(SOON, poll).await.unwrap();
    (polled, events)
}

/// Waits until the agent is done.
async fn done(kit: &Kit, owner: &Arc<sa_core::Principal>, session: &Value) {
    let mut since = json!(0);
    let wait = async {
        loop {
            let query = json!({ "session_id": session, "since": since, "wait_ms": 50 });
            let polled = kit.call(owner, "session_events", query).await.unwrap();
            if polled["status"] != "running" {
                return;
            }
            since = polled["next"].clone();
        }
    };
    tokio::time::timeout(SOON, wait).await.unwrap();
}

fn assistant(events: &[Value]) -> Vec<&str> {
    let text =
        events.iter().filter(|event| event["type"] == "message" && event["role"] == "assistant");
    text.map(|event| event["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_agent_that_ends_has_completed_and_its_output_is_the_answer() {
    let kit = Kit::new("echo one; echo two; echo noise >&2").await;
    let (session, mut agent) = kit.session(&principal("owner")).await;
    let (polled, events) =
        converse(&mut agent, json!({ "message": "hi", "agent": "helper" })).await;
    assert_eq!(
        (&polled["status"], &polled["completed"], &polled["failed"]),
        (&json!("completed"), &json!(true), &json!(false))
    );
    assert_eq!(assistant(&events), ["one\ntwo"], "{events:?}");
    // The gateway's own fields are still present.
    assert_eq!((&polled["state"], &polled["next"]), (&json!("idle"), &polled["last_index"]));
    let sent =
        agent.request("session_message", json!({ "message": "hi", "agent": "helper" })).await;
    assert_eq!((&sent["spawned"], &sent["parent"]), (&json!(true), &json!(session)), "{sent}");
    kit.sessions.shut_down().await;
}

#[tokio::test]
async fn an_agent_that_fails_has_failed() {
    let kit = Kit::new("exit 3").await;
    let (_, mut agent) = kit.session(&principal("owner")).await;
    let (polled, _) = converse(&mut agent, json!({ "message": "hi", "agent": "helper" })).await;
    assert_eq!(
        (&polled["status"], &polled["failed"]),
        (&json!("failed"), &json!(true)),
        "{polled}"
    );
    kit.sessions.shut_down().await;
}

#[tokio::test]
async fn an_agent_that_stays_has_completed_when_it_sends_a_message() {
    let kit = Kit::new("cat").await;
    let owner = principal("owner");
    let (_, mut agent) = kit.session(&owner).await;
    let sent =
        agent.request("session_message", json!({ "message": "hi", "agent": "helper" })).await;
    let session = sent["session_id"].as_str().unwrap().to_owned();
    let mut other = Agent::connect(&kit.socket(&owner, &session).await).await;
    let task = json!({ "message": "hi", "session_id": session });
    let sent = agent.request("session_message", task.clone()).await;
    assert_eq!(sent["spawned"], false, "{sent}");
    let polled =
        agent.request("session_events", json!({ "session_id": session, "since_index": 0 })).await;
    assert_eq!(
        (&polled["completed"], &polled["failed"]),
        (&json!(false), &json!(false)),
        "{polled}"
    );
    other.request("session_message", json!({ "session_id": session, "message": "done" })).await;
    let polled =
        agent.request("session_events", json!({ "session_id": session, "since_index": 0 })).await;
    assert_eq!(polled["completed"], true, "{polled}");
    assert_eq!(assistant(polled["events"].as_array().unwrap()), ["done"]);
    // A client of the current protocol receives the event unchanged.
    let polled =
        agent.request("session_events", json!({ "session_id": session, "since": 0 })).await;
    assert!(assistant(polled["events"].as_array().unwrap()).is_empty(), "{polled}");
    // The next message begins the next turn.
    agent.request("session_message", task).await;
    let polled =
        agent.request("session_events", json!({ "session_id": session, "since_index": 0 })).await;
    assert_eq!(polled["status"], "running", "{polled}");
    kit.call(&owner, "session_end", json!({ "session_id": session })).await.unwrap();
    let polled =
        agent.request("session_events", json!({ "session_id": session, "since_index": 0 })).await;
    assert_eq!(
        (&polled["status"], &polled["failed"]),
        (&json!("failed"), &json!(true)),
        "the session ended during the turn: {polled}"
    );
    kit.sessions.shut_down().await;
}

#[tokio::test]
async fn a_long_answer_is_complete_before_the_agent_counts_as_done() {
    let kit = Kit::new("seq 250").await;
    let owner = principal("owner");
    let (_, mut agent) = kit.session(&owner).await;
    let message = json!({ "message": "hi", "agent": "helper" });
    let session = agent.request("session_message", message).await["session_id"].clone();
    done(&kit, &owner, &session).await;
    let (polled, events) = poll(&mut agent, &session).await;
    let whole = (1..=250).map(|n| n.to_string()).collect::<Vec<_>>().join("\n");
    assert_eq!((&polled["completed"], assistant(&events)), (&json!(true), vec![&*whole]));
    kit.sessions.shut_down().await;
}

#[tokio::test]
async fn an_ended_session_keeps_its_progress_and_its_answer() {
    for (script, status, answer) in [
        ("echo done", "completed", Some("done")),
        ("echo broken; exit 3", "failed", Some("broken")),
        ("exec cat", "failed", None),
    ] {
        let kit = Kit::new(script).await;
        let owner = principal("owner");
        let (own, mut agent) = kit.session(&owner).await;
        let message = json!({ "message": "hi", "agent": "helper" });
        let session = agent.request("session_message", message).await["session_id"].clone();
        if answer.is_some() {
            poll(&mut agent, &session).await;
        }
        kit.call(&owner, "session_end", json!({ "session_id": session })).await.unwrap();
        let (polled, events) = poll(&mut agent, &session).await;
        assert_eq!((&polled["status"], &polled["state"]), (&json!(status), &json!("ended")));
        let expected: Vec<&str> = answer.into_iter().collect();
        assert!(assistant(&events).starts_with(&expected), "{script}: {events:?}");
        // Also for the next gateway.
        let next = kit.after_crash().await;
        let query = json!({ "session_id": session });
        let polled = next.call(&owner, "session_events", query).await.unwrap();
        assert_eq!(polled["status"], status, "{script}");
        // This session was open when the gateway crashed, and got no message.
        let query = json!({ "session_id": own });
        let polled = next.call(&owner, "session_events", query).await.unwrap();
        assert_eq!((&polled["status"], &polled["state"]), (&json!("completed"), &json!("ended")));
        kit.sessions.shut_down().await;
    }
}

#[tokio::test]
async fn a_crash_of_the_gateway_fails_only_what_was_running() {
    for (script, status) in [("echo done", "completed"), ("exit 3", "failed"), ("cat", "failed")] {
        let kit = Kit::new(script).await;
        let owner = principal("owner");
        let args = json!({ "agent": "helper", "message": "hi" });
        let session =
            kit.call(&owner, "session_message", args).await.unwrap()["session_id"].clone();
        if script != "cat" {
            done(&kit, &owner, &session).await;
        }
        let next = kit.after_crash().await;
        let query = json!({ "session_id": session });
        let polled = next.call(&owner, "session_events", query).await.unwrap();
        assert_eq!((&polled["status"], &polled["state"]), (&json!(status), &json!("ended")));
        kit.sessions.shut_down().await;
    }
}

#[tokio::test]
async fn a_message_without_an_agent_has_a_hint_and_fails_until_one_connects() {
    let agentless = |options: &mut sa_relay::Options| {
        options.agents.clear();
        options.agent_timeout = Duration::from_millis(300);
    };
    let kit = Kit::with("", Duration::ZERO, |store| store, agentless).await;
    let owner = principal("owner");
    let (_, mut agent) = kit.session(&owner).await;
    let sent = agent.request("session_message", json!({ "message": "hi" })).await;
    let hint = sent["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains("no agent is configured"), "{hint}");
    let query = json!({ "session_id": sent["session_id"] });
    let polled = agent.request("session_events", query.clone()).await;
    assert_eq!(polled["status"], "running", "an agent may connect by itself: {polled}");
    let (polled, events) = poll(&mut agent, &sent["session_id"]).await;
    assert_eq!(
        (&polled["status"], assistant(&events)),
        (&json!("failed"), vec![&*hint]),
        "{polled}"
    );
    let mut late = Agent::connect(sent["socket"].as_str().unwrap()).await;
    late.request("session_events", json!({})).await;
    let polled = agent.request("session_events", query.clone()).await;
    assert_eq!(polled["status"], "running", "{polled}");
    let answer = json!({ "session_id": sent["session_id"], "message": "done" });
    late.request("session_message", answer).await;
    let (polled, events) = poll(&mut agent, &sent["session_id"]).await;
    assert_eq!((&polled["status"], assistant(&events)), (&json!("completed"), vec!["done"]));
}

#[tokio::test]
async fn an_agent_may_send_the_first_message() {
    let kit = Kit::new("").await;
    let owner = principal("owner");
    let (session, mut agent) = kit.session(&owner).await;
    agent.request("session_message", json!({ "session_id": session, "message": "done" })).await;
    let (polled, events) = poll(&mut agent, &json!(session)).await;
    assert_eq!((&polled["status"], assistant(&events)), (&json!("completed"), vec!["done"]));
}

#[tokio::test]
async fn a_new_session_whose_agent_cannot_start_has_ended() {
    let missing = |options: &mut sa_relay::Options| {
        options.agents.get_mut("helper").unwrap().dir = "/nonexistent".into();
    };
    let kit = Kit::with("", Duration::ZERO, |store| store, missing).await;
    let owner = principal("owner");
    for id in [json!(null), json!("")] {
        let args = json!({ "session_id": id, "message": "hi", "agent": "helper" });
        let error = kit.call(&owner, "session_message", args).await.unwrap_err();
        assert!(error.message.contains("cannot be started"), "{}", error.message);
    }
    let listed = kit.sessions.list(&owner).await.unwrap();
    let states: Vec<&str> = listed.iter().map(|session| session.state.as_str()).collect();
    assert_eq!(states, ["ended", "ended"]);
}
