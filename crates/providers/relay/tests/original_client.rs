//! Rule: the `session_message` and `session_events` of the original protocol's client work on the
//! socket. Such a client starts a session, polls until it is completed or failed, and looks for
//! the assistant's message.

mod kit;

use serde_json::{Value, json};

use self::kit::{Agent, Kit, SOON, principal};

/// Sends a message and polls as that client does. Returns the last answer and all events.
async fn converse(agent: &mut Agent, message: Value) -> (Value, Vec<Value>) {
    let sent = agent.request("session_message", message).await;
    let session = sent["session_id"].as_str().unwrap().to_owned();
    let (mut index, mut events) = (json!(-1), Vec::new());
    let poll = async {
        loop {
            let params = json!({ "session_id": session, "since_index": index, "wait_ms": 100 });
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

fn assistant(events: &[Value]) -> Vec<&str> {
    let said =
        events.iter().filter(|event| event["type"] == "message" && event["role"] == "assistant");
    said.map(|event| event["text"].as_str().unwrap()).collect()
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
    assert!(polled["completed"] == true || polled["failed"] == true, "{polled}");
    kit.sessions.shut_down().await;
}
