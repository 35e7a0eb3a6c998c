//! A client that reconnects receives all missed messages, once and in order, or an error that this
//! is impossible.

use sa_testkit::{Participant, Setup};
use serde_json::json;

#[tokio::test]
async fn a_gap_is_closed_without_a_miss_or_a_double() {
    let gateway = Setup::new().start().await;
    let mut writer = Participant::join(&gateway, "room", "writer").await;
    let writing = tokio::spawn(async move {
        for n in 0..600 {
            writer.say("note", json!(n)).await;
        }
        writer
    });
    let token = Participant::token(&gateway, "reader").await;
    let (mut last, mut epoch, mut seen) = (0, String::new(), Vec::new());
    while seen.len() < 600 {
        let path =
            format!("/v1/channels/ws?token={token}&channel=room&sinceId={last}&epoch={epoch}");
        let path = if epoch.is_empty() {
            format!("/v1/channels/ws?token={token}&channel=room&sinceId=0")
        } else {
            path
        };
        let mut reader = Participant::connect(&gateway, &path).await;
        // Disconnects again and again, while catching up and afterwards.
        for _ in 0..97 {
            if seen.len() == 600 {
                break;
            }
            let frame = reader.recv().await;
            if frame["kind"] == "ready" {
                assert_eq!(frame["recovered"], true);
                epoch = frame["epoch"].as_str().unwrap().to_owned();
            }
            if let Some(id) = frame["id"].as_u64() {
                assert!(id > last, "{id} came after {last}");
                last = id;
            }
            if frame["type"] == "note" {
                seen.push(frame["payload"].as_u64().unwrap());
            }
        }
    }
    assert_eq!(seen, (0..600).collect::<Vec<_>>());
    writing.await.unwrap();
    gateway.stop().await;
}

#[tokio::test]
async fn who_cannot_resume_is_told() {
    let gateway = Setup::new().config("[channels]\nkeep_messages = 5").start().await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    for n in 0..20 {
        ann.say("note", json!(n)).await;
    }
    gateway.channels().keep_house().await;
    let token = Participant::token(&gateway, "bob").await;
    let ready = async |query: &str| {
        let mut bob = Participant::connect(
            &gateway,
            &format!("/v1/channels/ws?token={token}&channel=room{query}"),
        )
        .await;
        let mut replayed = 0;
        loop {
            let frame = bob.recv().await;
            if frame["kind"] == "ready" {
                return (
                    frame["recovered"].as_bool(),
                    replayed,
                    frame["epoch"].as_str().unwrap().to_owned(),
                    frame["lastId"].as_u64().unwrap(),
                );
            }
            replayed += usize::from(frame["type"] == "note");
        }
    };
    let (recovered, replayed, epoch, _) = ready("").await;
    assert_eq!((recovered, replayed), (None, 0), "who does not resume has nothing to be told");
    let (recovered, replayed, ..) = ready("&sinceId=3").await;
    assert_eq!(recovered, Some(false), "what lay between was deleted");
    assert!((1..=5).contains(&replayed), "what is left comes all the same: {replayed}");
    let (recovered, replayed, ..) = ready("&sinceId=3&epoch=another").await;
    assert_eq!((recovered, replayed), (Some(false), 0));
    let (.., last) = ready("").await;
    assert_eq!(ready(&format!("&sinceId={last}&epoch={epoch}")).await.0, Some(true));
    assert_eq!(ready("&sinceId=99999").await.0, Some(false), "nobody can have what never was");
    gateway.stop().await;
}

#[tokio::test]
async fn history_comes_in_pages() {
    let gateway = Setup::new().start().await;
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    for n in 0..25 {
        ann.say("note", json!(n)).await;
    }
    let (mut before, mut seen) = (None, Vec::new());
    loop {
        ann.send(
            json!({ "action": "get-messages-before", "before": before, "limit": 10, "ref": 99 }),
        )
        .await;
        let page = ann.answer(99).await;
        assert_eq!(page["kind"], "history");
        let messages = page["messages"].as_array().unwrap();
        let notes = messages.iter().filter(|message| message["type"] == "note");
        seen.splice(0..0, notes.map(|message| message["payload"].as_u64().unwrap()));
        before = messages[0]["id"].as_u64();
        if page["hasMore"] == false {
            break;
        }
    }
    assert_eq!(seen, (0..25).collect::<Vec<_>>());
    gateway.stop().await;
}
