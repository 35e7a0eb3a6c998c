//! Rule: an agent reaches only its own session and the sessions that it started. Its reads do not
//! count as its caller's presence.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{Agent, Kit, SOON, principal};

/// Returns the error's kind, or null.
async fn kind(agent: &mut Agent, method: &str, params: Value) -> Value {
    agent.ask(method, params).await;
    agent.answer().await["error"]["data"]["kind"].clone()
}

#[tokio::test]
async fn an_agent_reaches_its_own_session_and_those_it_started() {
    let kit = Kit::new("cat").await;
    let owner = principal("owner");
    let (own, mut agent) = kit.session(&owner).await;
    let (other, mut other_agent) = kit.session(&owner).await;
    let sent =
        agent.request("session_message", json!({ "message": "hi", "agent": "helper" })).await;
    let started = sent["session_id"].as_str().unwrap().to_owned();
    for session in [&own, &started] {
        agent.request("session_events", json!({ "session_id": session })).await;
        agent.request("session_message", json!({ "session_id": session, "message": "more" })).await;
    }
    // Also after the end of that session.
    kit.call(&owner, "session_end", json!({ "session_id": started })).await.unwrap();
    agent.request("session_events", json!({ "session_id": started })).await;
    for (is_own, session) in [(true, &other), (false, &own), (false, &started)] {
        let agent = if is_own { &mut agent } else { &mut other_agent };
        assert_eq!(
            kind(agent, "session_events", json!({ "session_id": session })).await,
            "not_found"
        );
        let message = json!({ "session_id": session, "message": "hi" });
        assert_eq!(kind(agent, "session_message", message).await, "not_found");
    }
    // The owner reads all of them.
    for session in [&own, &other, &started] {
        kit.call(&owner, "session_events", json!({ "session_id": session })).await.unwrap();
    }
    kit.sessions.shut_down().await;
}

#[tokio::test]
async fn an_agent_that_reads_its_session_keeps_no_caller_there() {
    let kit = Kit::with_grace("", Duration::from_millis(1)).await;
    let owner = principal("owner");
    let (session, mut agent) = kit.session(&owner).await;
    let mut reader = Agent::connect(&kit.socket(&owner, &session).await).await;
    let mut stream = kit.sessions.follow(&owner, &session, None, false).await.unwrap();
    agent.ask("caller_tool", json!({ "tool": "send" })).await;
    tokio::time::timeout(SOON, stream.next()).await.unwrap().unwrap().unwrap();
    // The caller's only stream closes; from here on only the agent is connected.
    drop(stream);
    let polling = async {
        loop {
            reader.request("session_events", json!({ "wait_ms": 1 })).await;
        }
    };
    let answer = tokio::select! {
        answer = agent.answer() => answer,
        () = polling => unreachable!(),
    };
    assert_eq!(answer["error"]["data"]["kind"], "offline", "{answer}");
}
