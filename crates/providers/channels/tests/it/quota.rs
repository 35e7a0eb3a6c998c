//! Rule: join and leave messages are stored within the quotas, and the roster has every
//! participant.

use serde_json::{Value, json};

use crate::kit::{Participant, Server};

const METADATA: usize = 30_000;

fn metadata() -> Value {
    json!({ "methods": [{ "name": "work", "description": "x".repeat(METADATA) }] })
}

/// Returns the bytes that the channel has stored for `worker`.
async fn stored(server: &Server) -> usize {
    let channel = server.channels.existing("room").await.unwrap().unwrap();
    let page = channel.page(None, 500).await.unwrap();
    assert!(!page.more);
    let of_worker =
        page.messages.iter().filter(|message| message.get().contains("\"senderId\":\"worker\""));
    of_worker.map(|message| message.get().len()).sum()
}

async fn left(watcher: &mut Participant) {
    watcher.until(|frame| frame["payload"]["action"] == "leave").await;
}

/// Returns the method of `worker` that a new reader with this query knows.
async fn known(server: &Server, query: &str) -> Value {
    let mut reader = server.connect(query).await;
    let mut methods = Value::Null;
    loop {
        let frame = reader.next().await.unwrap();
        if frame["kind"] == "ready" {
            return methods;
        }
        if frame["type"] == "presence" && frame["senderId"] == "worker" {
            assert_eq!(frame["kind"], "replay");
            methods = frame["payload"]["metadata"]["methods"][0]["name"].clone();
            if frame["payload"]["action"] == "leave" {
                methods = json!("gone");
            }
        }
    }
}

#[tokio::test]
async fn coming_and_going_does_not_store_the_metadata_again() {
    let server = Server::start().await;
    let mut watcher = server.join("token=watcher").await;
    let mut worker = server.join("token=worker&instance=1").await;
    worker.update(metadata()).await;
    for _ in 0..20 {
        drop(worker);
        left(&mut watcher).await;
        worker = server.join("token=worker&instance=1").await;
        let joined = watcher.until(|frame| frame["payload"]["action"] == "join").await;
        assert_eq!(
            joined["payload"]["metadata"]["methods"][0]["name"], "work",
            "readers are sent all of it"
        );
    }
    let bytes = stored(&server).await;
    assert!(bytes < 4 * METADATA, "{bytes} bytes are stored");
    assert_eq!(known(&server, "token=new").await, "work");
    assert_eq!(known(&server, "token=new&sinceId=0").await, "work");
}

#[tokio::test]
async fn presence_is_stored_within_the_quota_and_sent_beyond_it() {
    let quota = 80_000;
    let server = Server::with_quota(quota).await;
    let mut watcher = server.join("token=watcher").await;
    let mut worker = server.join("token=worker&instance=1").await;
    worker.update(metadata()).await;
    for round in 0..150 {
        drop(worker);
        left(&mut watcher).await;
        if round % 50 == 49 {
            assert_eq!(known(&server, "token=reader&sinceId=0").await, "gone");
            left(&mut watcher).await;
        }
        worker = server.join("token=worker&instance=1").await;
    }
    assert_eq!(known(&server, "token=new").await, "work");
    assert_eq!(known(&server, "token=new&sinceId=0").await, "work");
    let held = server.channels.budgets()[1].held_by(&sa_limits::budget::Holder::named("worker"));
    assert!(held <= quota && held > quota - 1_000, "{held} of {quota} are held");
    // A page also has the id of each message.
    let bytes = stored(&server).await;
    assert!(bytes <= quota + quota / 10, "{bytes} are stored, {quota} are allowed");
}
