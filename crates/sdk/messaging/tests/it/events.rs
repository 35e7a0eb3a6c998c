//! Clients of a channel receive each other's messages and updates, presence changes and history,
//! limited to the events that they requested.

use std::sync::Arc;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use sa_messaging::{
    ConnectionState, Error, Event, EventFilter, PublishOptions, ReplayMode, RosterChange,
    SendOptions, is_message_targeted_at,
};
use sa_testkit::messaging::{client, find, join, said};
use sa_testkit::{Participant, Setup, eventually, soon};
use serde_json::json;

#[tokio::test]
async fn a_message_and_its_updates_reach_the_others() {
    let gateway = Setup::new().start().await;
    let (ann, bob) = (join(&gateway, "ann").await, join(&gateway, "bob").await);
    assert_eq!((ann.client_id().as_str(), bob.client_id().as_str()), ("ann", "bob"));
    let mut heard = bob.events(EventFilter::default());
    let first = ann.send("Hello, world!", SendOptions::default()).await.unwrap();
    assert!(first.pubsub_id.is_some());
    let reply = SendOptions {
        reply_to: Some(first.message_id.clone()),
        at: vec!["bob".into()],
        ..SendOptions::default()
    };
    let handle = ann.begin("Think", reply).await.unwrap();
    handle.update("ing").await.unwrap();
    let id = handle.message_id().to_owned();
    assert!(handle.complete().await.unwrap() > first.pubsub_id);
    ann.error(&first.message_id, "Something went wrong", Some("internal-error")).await.unwrap();

    assert_eq!(said(&mut heard).await, "Hello, world!");
    let second =
        find(
            &mut heard,
            |event| if let Event::Message(message) = event { Some(message) } else { None },
        )
        .await;
    assert_eq!(
        (&second.id, &second.reply_to, &second.envelope.sender_id),
        (&id, &Some(first.message_id), &"ann".into())
    );
    assert!(
        is_message_targeted_at(&second, "x", Some("bob"))
            && !is_message_targeted_at(&second, "ann", None)
    );
    assert_eq!(second.envelope.sender_metadata["handle"], "ann");
    let update =
        |event| if let Event::UpdateMessage(update) = event { Some(update.payload) } else { None };
    let more = find(&mut heard, update).await;
    assert_eq!((more.content.as_deref(), more.complete), (Some("ing"), false));
    assert!(find(&mut heard, update).await.complete);
    let error =
        find(&mut heard, |event| if let Event::Error(error) = event { Some(error) } else { None })
            .await;
    assert_eq!(
        (error.error.as_str(), error.code.as_deref()),
        ("Something went wrong", Some("internal-error"))
    );

    // Only the author may update a message.
    assert_eq!(bob.update(&id, "no").await.unwrap_err().code(), "not-allowed");
    assert_eq!(ann.update("", "no").await.unwrap_err().code(), "validation-error");
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_has_what_its_filter_wants() {
    let gateway = Setup::new().start().await;
    let ann = client(&gateway, "ann").await.skip_own_messages(true).connect().await.unwrap();
    let bob = join(&gateway, "bob").await;
    let filter = EventFilter::default();
    let mut plain = ann.events(filter);
    let mut targeted = ann.events(EventFilter { targeted_only: true, ..filter });
    let mut everything = ann.events(EventFilter { include_ephemeral: true, ..filter });
    ann.send("my own", SendOptions::default()).await.unwrap();
    bob.send("passing", SendOptions { persist: false, ..SendOptions::default() }).await.unwrap();
    bob.send("for all", SendOptions::default()).await.unwrap();
    bob.send("for ann", SendOptions { at: vec!["ann".into()], ..SendOptions::default() })
        .await
        .unwrap();
    assert_eq!(said(&mut plain).await, "for all");
    assert_eq!(said(&mut targeted).await, "for ann");
    assert_eq!(said(&mut everything).await, "passing");
    ann.close().await;
    let rest: Vec<Event> = soon(targeted.collect()).await;
    assert!(rest.is_empty(), "{rest:?}");
    assert_eq!(ann.state(), ConnectionState::Closed);
    assert_eq!(ann.send("x", SendOptions::default()).await.unwrap_err().code(), "connection-error");
    gateway.stop().await;
}

#[tokio::test]
async fn what_was_said_before_comes_as_it_was_asked_for() {
    let gateway = Setup::new().start().await;
    let ann = join(&gateway, "ann").await;
    let first = ann.send("one", SendOptions::default()).await.unwrap();
    let handle = ann.begin("two", SendOptions::default()).await.unwrap();
    handle.update(" and more").await.unwrap();
    handle.complete().await.unwrap();
    let position = ann.position().unwrap();
    ann.send("three", SendOptions::default()).await.unwrap();

    let history = async |name: &str,
                         mode: Option<ReplayMode>,
                         since: Option<u64>,
                         include_replay: bool| {
        let mut builder = client(&gateway, name).await;
        if let Some(mode) = mode {
            builder = builder.replay(mode);
        }
        if let Some(since) = since {
            builder = builder.since_id(since);
        }
        let client = builder.connect().await.unwrap();
        let events = client.events(EventFilter { include_replay, ..EventFilter::default() });
        client.send(name, SendOptions::default()).await.unwrap();
        let mut told = Vec::new();
        let events = events.filter_map(async |event| match event {
            Event::Message(message) if message.complete => Some(format!("{}!", message.content)),
            Event::Message(message) => Some(message.payload.content),
            Event::UpdateMessage(update) => {
                Some(format!("+{}", update.payload.content.unwrap_or_default()))
            }
            _ => None,
        });
        let mut events = std::pin::pin!(events);
        loop {
            match soon(events.next()).await.unwrap() {
                text if text == *name => return told,
                text => told.push(text),
            }
        }
    };
    assert_eq!(history("c1", None, None, true).await, ["one", "two and more!", "three"]);
    let streamed = history("c2", Some(ReplayMode::Stream), None, true).await;
    assert_eq!(streamed, ["one", "two", "+ and more", "+", "three", "c1"]);
    assert_eq!(
        history("c3", Some(ReplayMode::Collect), first.pubsub_id, true).await,
        ["two and more!", "three", "c1", "c2"]
    );
    assert_eq!(history("c4", Some(ReplayMode::Skip), None, true).await, Vec::<String>::new());
    assert_eq!(history("c5", None, None, false).await, Vec::<String>::new());

    // Another program continues at the position of a previous one.
    let next = client(&gateway, "next")
        .await
        .resume(position.clone())
        .replay(ReplayMode::Stream)
        .connect()
        .await
        .unwrap();
    let mut events = next.events(EventFilter { include_replay: true, ..EventFilter::default() });
    assert_eq!(said(&mut events).await, "three");
    assert_eq!(said(&mut events).await, "c1");
    assert_eq!(next.position().unwrap().epoch, position.epoch);

    let page = next.pubsub().messages_before(first.pubsub_id.map(|id| id + 1), 1).await.unwrap();
    assert_eq!((page.messages.len(), page.messages[0].id, page.more), (1, first.pubsub_id, true));
    gateway.stop().await;
}

#[tokio::test]
async fn the_roster_says_who_is_here_and_how_they_left() {
    let gateway = Setup::new().start().await;
    let ann = join(&gateway, "ann").await;
    let mut changes = ann.roster_changes();
    let seen = Arc::new(Mutex::new(0));
    let count = Arc::clone(&seen);
    let subscription = ann.on_roster(move |_| *count.lock() += 1);
    let bob = client(&gateway, "bob")
        .await
        .name("Bob")
        .kind("worker")
        .metadata("team", "red")
        .connect()
        .await
        .unwrap();
    let next =
        async |changes: &mut sa_messaging::RosterChanges| soon(changes.next()).await.unwrap();
    assert_eq!(next(&mut changes).await.change, RosterChange::Joined("bob".into()));
    let update = next(&mut changes).await;
    assert_eq!(update.change, RosterChange::Updated("bob".into()));
    let known = &update.participants["bob"];
    assert_eq!((known.name(), known.kind(), known.handle()), ("Bob", Some("worker"), Some("bob")));
    assert_eq!(known.metadata["team"], "red");
    assert_eq!(bob.roster().keys().collect::<Vec<_>>(), ["ann", "bob"]);

    let error = client(&gateway, "eve").await.handle("bob").connect().await.unwrap_err();
    assert_eq!(error.code(), "handle-conflict");
    eventually("only those who came in", || async { (ann.roster().len() == 2).then_some(()) })
        .await;
    bob.close().await;
    let left = loop {
        if let RosterChange::Left(who, reason) = next(&mut changes).await.change
            && who == "bob"
        {
            break reason;
        }
    };
    assert_eq!(left, sa_messaging::LeaveReason::Graceful);
    assert!(*seen.lock() >= 3);
    subscription.unsubscribe();
    // Dropping a handle leaves the channel too.
    let carl = join(&gateway, "carl").await;
    drop(carl);
    eventually("nobody else", || async { (ann.roster().len() == 1).then_some(()) }).await;
    gateway.stop().await;
}

#[tokio::test]
async fn what_others_get_wrong_is_reported_and_disturbs_nobody() {
    let gateway = Setup::new().start().await;
    let ann = join(&gateway, "ann").await;
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&errors);
    ann.on_error(move |error| seen.lock().push(error.clone())).forget();
    let mut heard = ann.events(EventFilter::default());
    let mut raw = ann.pubsub().messages();
    let mut eve = Participant::join(&gateway, "room", "eve").await;
    eve.say("message", json!({ "id": "00000000-0000-4000-8000-000000000001" })).await;
    eve.say("execution-pause", json!({ "messageId": "m1", "status": "gone" })).await;
    eve.say("method-result", json!({ "callId": "nobody's", "content": 1 })).await;
    eve.say("message", json!({ "id": "00000000-0000-4000-8000-000000000002", "content": "fine" }))
        .await;
    assert_eq!(said(&mut heard).await, "fine");
    let errors = errors.lock().clone();
    assert_eq!(errors.len(), 2, "{errors:?}");
    for error in errors {
        let Error::Validation(error) = error else { panic!("{error:?}") };
        assert_eq!(error.direction, sa_messaging::Direction::Received);
    }

    // Other message types are available only as raw messages.
    ann.pubsub()
        .publish("custom-type", json!({ "data": "raw" }), PublishOptions::default())
        .await
        .unwrap();
    let custom = loop {
        let message = soon(raw.next()).await.unwrap().unwrap();
        if message.kind == "custom-type" {
            break message;
        }
    };
    assert_eq!(custom.parse::<serde_json::Value>().unwrap(), json!({ "data": "raw" }));
    let twice =
        PublishOptions { client_message_id: Some("once".into()), ..PublishOptions::default() };
    let first = ann.pubsub().publish("note", 1, twice.clone()).await.unwrap();
    assert_eq!(ann.pubsub().publish("note", 1, twice).await.unwrap(), first);
    gateway.stop().await;
}

#[tokio::test]
async fn a_token_that_is_not_good_is_said_to_be() {
    let gateway = Setup::new().start().await;
    let error = client(&gateway, "ann").await.token("sb_nonsense").connect().await.unwrap_err();
    assert_eq!(error.code(), "connection-error");
    assert!(!error.to_string().contains("sb_nonsense"), "{error}");
    let (id, token) = gateway.token(json!({ "name": "bob", "role": "participant" })).await;
    let bob = client(&gateway, "x").await.token(token).connect().await.unwrap();
    gateway.operator().delete(&format!("/v1/tokens/{id}")).await;
    // The state is final, because connecting again would not help.
    let mut states = bob.states();
    soon(states.wait_for(|state| *state == ConnectionState::Closed)).await.unwrap();
    gateway.stop().await;
}
