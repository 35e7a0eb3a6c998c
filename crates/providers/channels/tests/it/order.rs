//! All participants see one message order in a channel, and the answer to a publish means that the
//! message is on disk, once.

use sa_testkit::{Participant, Setup};
use serde_json::json;

#[tokio::test]
async fn everybody_sees_the_same_messages_in_the_same_order() {
    let gateway = Setup::new().start().await;
    let mut writers = Vec::new();
    for name in ["ann", "bob", "cid", "dan"] {
        writers.push(Participant::join(&gateway, "room", name).await);
    }
    let mut readers = vec![
        Participant::join(&gateway, "room", "r1").await,
        Participant::join(&gateway, "room", "r2").await,
    ];
    let tasks: Vec<_> = writers
        .into_iter()
        .map(|mut writer| {
            tokio::spawn(async move {
                for n in 0..50 {
                    // Some messages are stored and some are not; both share one order.
                    writer
                        .publish_as(json!({ "type": "note", "payload": n, "persist": n % 3 != 0 }))
                        .await;
                }
                let mut seen = Vec::new();
                while seen.len() < 200 {
                    seen.push(writer.message("note").await);
                }
                seen
            })
        })
        .collect();
    let essence = |frame: &serde_json::Value| {
        (
            frame["kind"].clone(),
            frame["id"].clone(),
            frame["senderId"].clone(),
            frame["payload"].clone(),
        )
    };
    let mut orders = Vec::new();
    for task in tasks {
        orders.push(task.await.unwrap().iter().map(essence).collect::<Vec<_>>());
    }
    for reader in &mut readers {
        let mut seen = Vec::new();
        while seen.len() < 200 {
            seen.push(essence(&reader.message("note").await));
        }
        orders.push(seen);
    }
    for order in &orders[1..] {
        assert_eq!(order, &orders[0]);
    }
    let ids: Vec<u64> = orders[0].iter().filter_map(|(_, id, _, _)| id.as_u64()).collect();
    assert!(ids.is_sorted() && ids.len() > 100, "{ids:?}");
    for name in ["ann", "bob"] {
        let own: Vec<_> = orders[0]
            .iter()
            .filter(|(_, _, sender, _)| sender == name)
            .map(|(_, _, _, n)| n.as_u64().unwrap())
            .collect();
        assert_eq!(own, (0..50).collect::<Vec<_>>(), "each sender's own order is kept");
    }
    gateway.stop().await;
}
