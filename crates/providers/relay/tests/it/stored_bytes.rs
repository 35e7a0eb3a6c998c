//! Rule: the stored events of all sessions are bounded, and each principal has its share of the
//! bytes, also after a restart. A principal that stores too much loses its own oldest events.

use std::sync::Arc;
use std::time::Duration;

use sa_core::Principal;
use sa_core::store::Log as _;
use sa_limits::budget::Holder;
use sa_store::Store;
use serde_json::{Value, json};

use crate::kit::{Kit, principal};

const TOTAL: usize = 1 << 20;
const KEEP: usize = TOTAL / 4;
const MESSAGE: usize = 20_000;

async fn limited() -> (Kit, Arc<Store>) {
    let mut found = None;
    let log = |store: Arc<Store>| {
        found = Some(Arc::clone(&store));
        store as _
    };
    let set = |options: &mut sa_relay::Options| {
        options.agents.clear();
        (options.keep_event_bytes, options.max_stored_bytes) = (KEEP as u64, TOTAL);
    };
    let kit = Kit::with("", Duration::ZERO, log, set).await;
    (kit, found.unwrap())
}

/// Opens a session and sends it messages.
async fn converse(kit: &Kit, principal: &Arc<Principal>, messages: usize) -> String {
    let mut session = Value::Null;
    for n in 0..messages {
        let text = format!("{n} {}", "x".repeat(MESSAGE));
        let args = json!({ "session_id": session, "message": text });
        session = kit.call(principal, "session_message", args).await.unwrap()["session_id"].clone();
    }
    session.as_str().unwrap().to_owned()
}

async fn end(kit: &Kit, principal: &Arc<Principal>, session: &str) {
    kit.call(principal, "session_end", json!({ "session_id": session })).await.unwrap();
}

/// Returns the number of stored messages.
async fn messages(kit: &Kit, principal: &Arc<Principal>, session: &str) -> usize {
    let query = json!({ "session_id": session, "since": 0, "limit": 1_000 });
    let found = kit.call(principal, "session_events", query).await.unwrap();
    found["events"].as_array().unwrap().iter().filter(|event| event["type"] == "message").count()
}

async fn on_disk(store: &Store) -> usize {
    let mut bytes = 0;
    for number in 0..64 {
        let entries = store.read(&format!("session:{number}"), 0, 10_000).await.unwrap();
        bytes += entries.iter().map(|entry| entry.body.len()).sum::<usize>();
    }
    bytes
}

fn held(kit: &Kit, principal: &str) -> usize {
    kit.sessions.budgets()[1].held_by(&Holder::named(principal))
}

#[tokio::test]
async fn a_principal_that_ends_many_sessions_keeps_the_newest_within_its_share() {
    let (kit, store) = limited().await;
    let (greedy, other) = (principal("greedy"), principal("other"));
    let kept = converse(&kit, &other, 3).await;
    end(&kit, &other, &kept).await;
    let mut sessions = Vec::new();
    for _ in 0..10 {
        let session = converse(&kit, &greedy, 11).await;
        end(&kit, &greedy, &session).await;
        sessions.push(session);
        assert!(held(&kit, "greedy") <= TOTAL * 3 / 4, "{}", held(&kit, "greedy"));
        let bytes = on_disk(&store).await;
        assert!(bytes <= TOTAL, "{bytes}");
    }
    let known = kit.sessions.list(&greedy).await.unwrap();
    let known: Vec<&str> = known.iter().rev().map(|view| view.session_id.as_str()).collect();
    assert_eq!(known, sessions[sessions.len() - known.len()..]);
    assert!((2..=4).contains(&known.len()), "{known:?}");
    assert_eq!(messages(&kit, &greedy, known[known.len() - 1]).await, 11);
    assert_eq!(messages(&kit, &other, &kept).await, 3);

    // The next gateway process counts the same.
    let open = converse(&kit, &other, 2).await;
    let next = kit.after_crash().await;
    assert!(held(&next, "greedy") == held(&kit, "greedy") && held(&next, "other") > 0);
    assert!(
        held(&next, "other").abs_diff(held(&kit, "other")) <= 2 << 14,
        "{}",
        held(&next, "other")
    );
    assert_eq!(messages(&next, &other, &kept).await, 3);
    assert_eq!(messages(&next, &other, &open).await, 2);
    let session = converse(&next, &greedy, 11).await;
    assert_eq!(messages(&next, &greedy, &session).await, 11);
    assert!(held(&next, "greedy") <= TOTAL * 3 / 4);
}

#[tokio::test]
async fn a_principal_with_many_open_sessions_stays_within_its_share() {
    let (kit, store) = limited().await;
    let (greedy, other) = (principal("greedy"), principal("other"));
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(converse(&kit, &greedy, 15).await);
    }
    assert!(held(&kit, "greedy") <= TOTAL * 3 / 4);
    // The least that each session may use, and what is written between two trims.
    let least = 64 * 1024 + 3 * MESSAGE;
    let bytes = on_disk(&store).await;
    assert!(bytes <= TOTAL * 3 / 4 + 6 * least, "{bytes}");
    for session in &sessions {
        assert!(messages(&kit, &greedy, session).await >= 2);
    }
    let session = converse(&kit, &other, 5).await;
    assert_eq!(messages(&kit, &other, &session).await, 5);
}
