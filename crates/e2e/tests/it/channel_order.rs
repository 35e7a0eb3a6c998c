//! A channel has one order for everybody, and an answer to a publish means that it is on disk, once.

use sa_testkit::{Participant, Setup};
use serde_json::json;

use crate::SWITCHBOARD;

#[tokio::test]
async fn everybody_sees_the_same_messages_in_the_same_order() {
    let gateway = Setup::new().start().await;
    let mut writers = Vec::new();
    for name in ["ann", "bob", "cid", "dan"] {
        writers.push(Participant::join(&gateway, "room", name).await);
    }
    let mut readers =
        vec![Participant::join(&gateway, "room", "r1").await, Participant::join(&gateway, "room", "r2").await];
    let tasks: Vec<_> = writers
        .into_iter()
        .map(|mut writer| {
            tokio::spawn(async move {
                for n in 0..50 {
                    // Some are stored and some are not; the order is one for both.
                    writer.publish_as(json!({ "type": "note", "payload": n, "persist": n % 3 != 0 })).await;
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
        (frame["kind"].clone(), frame["id"].clone(), frame["senderId"].clone(), frame["payload"].clone())
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

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill_and_what_is_resent_is_stored_once() {
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let token = Participant::token(&gateway, "ann").await;
    let path = format!("/v1/channels/ws?token={token}&channel=room");
    let mut ann = Participant::connect(&gateway, &path).await;
    ann.here("ann").await;
    let frame = |n: usize| json!({ "type": "note", "payload": { "n": n }, "persist": true, "clientMessageId": format!("k{n}") });
    let mut ids = Vec::new();
    for n in 0..20 {
        let reference = ann.publish_as(frame(n)).await;
        ids.push(ann.answer(reference).await["id"].as_u64().unwrap());
    }
    gateway.kill().await;

    let gateway = Setup::new().on(&gateway).spawn(SWITCHBOARD).await;
    let mut ann = Participant::connect(&gateway, &format!("{path}&sinceId=0")).await;
    let mut replayed = Vec::new();
    while replayed.len() < 20 {
        let frame = ann.message("note").await;
        assert_eq!(frame["kind"], "replay");
        replayed.push(frame["id"].as_u64().unwrap());
    }
    assert_eq!(replayed, ids);
    ann.here("ann").await;
    for (n, id) in ids.iter().enumerate() {
        let reference = ann.publish_as(frame(n)).await;
        let answer = ann.answer(reference).await;
        assert_eq!((answer["id"].as_u64(), &answer["duplicate"]), (Some(*id), &json!(true)), "the first one's id");
    }
    let history = gateway.operator().get("/v1/channels/room/messages?limit=500").await.body;
    let notes = history["messages"].as_array().unwrap().iter().filter(|message| message["type"] == "note").count();
    assert_eq!(notes, 20);
    gateway.stop().await;
}

#[tokio::test]
async fn the_gateways_own_address_is_a_channels_socket_too() {
    let gateway = Setup::new().start().await;
    let token = Participant::token(&gateway, "ann").await;
    let mut ann = Participant::connect(&gateway, &format!("/?token={token}&channel=room")).await;
    let ready = ann.recv().await;
    assert_eq!((&ready["kind"], &ready["participantId"]), (&json!("ready"), &json!("ann")));
    let join = ann.recv().await;
    assert_eq!(join["payload"], json!({ "action": "join", "metadata": {} }));
    let sent = ann.say("message", json!({ "id": "m1", "content": "hello" })).await;
    assert_eq!((&sent["kind"], &sent["senderId"]), (&json!("persisted"), &json!("ann")));
    assert!(sent["ts"].as_i64().unwrap() > 1_700_000_000_000);
    let page = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let page = page.get(&gateway.url).send().await.unwrap();
    assert_eq!(page.headers()["location"], "/console/", "people are shown the console");
    gateway.stop().await;
}
