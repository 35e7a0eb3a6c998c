//! Rule: however fast a session writes, its events use at most about 1.25 times
//! `keep_event_bytes` on disk, and the newest of them are kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sa_core::store::Log as _;
use sa_store::Store;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kit::{Agent, Kit, SOON, principal};

const LIMIT: u64 = 256 * 1024;
const MESSAGE: usize = 20_000;

async fn limited(script: &str) -> (Kit, Arc<Store>) {
    let mut found = None;
    let log = |store: Arc<Store>| {
        found = Some(Arc::clone(&store));
        store as _
    };
    let kit =
        Kit::with(script, Duration::ZERO, log, |options| options.keep_event_bytes = LIMIT).await;
    (kit, found.unwrap())
}

/// Returns the size of each stream that is not empty.
async fn streams(store: &Store) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for number in 0..16 {
        let stream = format!("session:{number}");
        let entries = store.read(&stream, 0, 10_000).await.unwrap();
        if !entries.is_empty() {
            found.insert(stream, entries.iter().map(|entry| entry.body.len() as u64).sum());
        }
    }
    found
}

/// Opens a busy session and an idle one. Returns also the stream of the idle one.
async fn two_sessions(kit: &Kit, store: &Store) -> ((String, Agent), String, (String, u64)) {
    let busy = kit.session(&principal("busy")).await;
    let before = streams(store).await;
    let (session, _agent) = kit.session(&principal("idle")).await;
    let new = streams(store).await.into_iter().find(|(stream, _)| !before.contains_key(stream));
    (busy, session, new.expect("each session has its own stream"))
}

async fn events(kit: &Kit, name: &str, session: &str) -> Vec<Value> {
    let query = json!({ "session_id": session, "limit": 1_000 });
    let found = kit.call(&principal(name), "session_events", query).await.unwrap();
    found["events"].as_array().unwrap().clone()
}

#[tokio::test]
async fn large_messages_leave_the_newest_and_another_session_keeps_its_events() {
    let (kit, store) = limited("exec cat > /dev/null").await;
    let ((session, _agent), idle, (stream, bytes)) = two_sessions(&kit, &store).await;
    for number in 0..60 {
        let text = format!("{number}{}", "x".repeat(MESSAGE));
        let args = json!({ "session_id": session, "message": text });
        kit.call(&principal("busy"), "session_message", args).await.unwrap();
        if number % 20 == 19 {
            let all: u64 = streams(&store).await.into_values().sum();
            assert!(all <= LIMIT * 5 / 4 + bytes * 4, "{all} bytes after {number} messages");
        }
    }
    let kept = events(&kit, "busy", &session).await;
    let message =
        |event: &Value| event["message"].as_str().map(|text| text.trim_end_matches('x').to_owned());
    let kept: Vec<String> = kept.iter().filter_map(message).collect();
    let newest: Vec<String> = (60 - kept.len()..60).map(|number| number.to_string()).collect();
    assert_eq!(kept, newest);
    assert!(kept.len() as u64 >= LIMIT / MESSAGE as u64 - 1, "{kept:?}");
    assert_eq!(streams(&store).await.get(&stream), Some(&bytes));
    assert_eq!(events(&kit, "idle", &idle).await[0]["type"], "session_started");
}

#[tokio::test]
async fn large_requests_for_callers_and_lines_of_agents_count_as_well() {
    // 100 lines of 10,000 characters each.
    let line = "l=$(head -c 10000 /dev/zero | tr '\\0' x); for _ in $(seq 100); do echo $l; done; exec cat > /dev/null";
    let (kit, store) = limited(line).await;
    let owner = principal("busy");
    let (session, mut agent) = kit.session(&owner).await;
    for _ in 0..60 {
        let arguments = json!({ "text": "x".repeat(MESSAGE) });
        agent
            .ask("caller_tool", json!({ "tool": "send", "arguments": arguments, "timeout_ms": 1 }))
            .await;
        assert!(agent.answer().await["error"].is_object());
    }
    wait_for_store(&store).await;
    let args = json!({ "session_id": session, "message": "go" });
    kit.call(&owner, "session_message", args).await.unwrap();
    let deadline = Instant::now() + SOON;
    while store.stats().entries < 120 + 100 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    wait_for_store(&store).await;
}

#[tokio::test]
async fn an_answer_that_waits_for_the_agent_has_the_newest_events() {
    // 300 lines of 10,000 characters each.
    let line =
        "l=$(head -c 10000 /dev/zero | tr '\\0' x); for n in $(seq 300); do echo $n $l; done";
    let (kit, _store) = limited(line).await;
    let args = json!({ "agent": "helper", "message": "go", "wait_ms": 60_000 });
    let answer = kit.call(&principal("owner"), "session_message", args).await.unwrap();
    let events = answer["events"].as_array().unwrap();
    assert!(answer["events"].to_string().len() < 1_100_000, "{}", events.len());
    let texts = events.iter().filter_map(|event| event["text"].as_str());
    let numbers: Vec<usize> =
        texts.map(|text| text.split(' ').next().unwrap().parse().unwrap()).collect();
    let newest: Vec<usize> = (301 - numbers.len()..=300).collect();
    assert_eq!(numbers, newest);
    assert_eq!(events.last().unwrap()["type"], "agent_exited");
}

/// Waits until the streams are within the limit that applies between two trims.
async fn wait_for_store(store: &Store) {
    let deadline = Instant::now() + SOON;
    loop {
        let all: u64 = streams(store).await.into_values().sum();
        if all <= LIMIT * 5 / 4 + MESSAGE as u64 {
            return;
        }
        assert!(Instant::now() < deadline, "{all} bytes stay");
    }
}
