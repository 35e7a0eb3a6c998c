//! A lost connection costs only time. No message is missed or repeated, unacknowledged messages are
//! stored once, and calls continue. Where that is impossible, the client gets an error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use sa_messaging::{
    CallOptions, Client, ConnectionState, Event, EventFilter, Events, Method, MethodContext,
    SendOptions,
};
use sa_testkit::{Gateway, Participant, Proxy, Setup, eventually, soon};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::SWITCHBOARD;
use crate::messaging_support::{client, join, said};

/// Sends numbered messages, several at a time, and returns the acknowledged id of each.
async fn write(client: Client, count: usize) -> BTreeMap<String, u64> {
    let says = (0..count).map(|n| {
        let client = client.clone();
        async move {
            let text = format!("{}:{n}", client.client_id());
            let sent = client.send(text.clone(), SendOptions::default()).await.unwrap();
            (text, sent.pubsub_id.unwrap())
        }
    });
    futures_util::stream::iter(says).buffer_unordered(8).collect().await
}

/// Reads messages until this number has arrived, and checks that each comes once and in the
/// channel's order.
async fn read(mut events: Events, count: usize) -> BTreeMap<String, u64> {
    let (mut seen, mut last) = (BTreeMap::new(), 0);
    while seen.len() < count {
        let event = tokio::time::timeout(Duration::from_secs(120), events.next())
            .await
            .expect("messages are missing");
        let Event::Message(message) = event.unwrap() else { continue };
        let id = message.envelope.pubsub_id.unwrap();
        assert!(id > last, "{id} came after {last}");
        last = id;
        let double = seen.insert(message.payload.content.clone(), id);
        assert_eq!(double, None, "{} came twice", message.content);
    }
    seen
}

async fn stored(gateway: &Gateway) -> BTreeMap<String, u64> {
    let (mut before, mut all) = (u64::MAX >> 1, BTreeMap::new());
    loop {
        let page = gateway
            .operator()
            .get(&format!("/v1/channels/room/messages?limit=500&before={before}"))
            .await
            .body;
        let messages = page["messages"].as_array().unwrap();
        before = messages.first().map_or(0, |first| first["id"].as_u64().unwrap());
        for message in messages.iter().filter(|message| message["type"] == "message") {
            let text = message["payload"]["content"].as_str().unwrap().to_owned();
            assert_eq!(all.insert(text, message["id"].as_u64().unwrap()), None, "stored twice");
        }
        if page["has_more"] == false {
            return all;
        }
    }
}

#[tokio::test]
async fn a_gateway_that_is_killed_and_comes_back() {
    const MESSAGES: usize = 400;
    let mut gateway = Setup::new().spawn(SWITCHBOARD).await;
    let address = gateway.address().to_owned();
    let (ann, bob) = (join(&gateway, "ann").await, join(&gateway, "bob").await);
    let reader = join(&gateway, "reader").await;
    let back = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&back);
    reader.on_reconnect(move |reconnected| seen.lock().push(reconnected.recovered)).forget();
    let lost = Arc::new(Mutex::new(0));
    let count = Arc::clone(&lost);
    reader.on_disconnect(move |_| *count.lock() += 1).forget();

    let reading = tokio::spawn(read(reader.events(EventFilter::default()), 2 * MESSAGES));
    let writers = [tokio::spawn(write(ann, MESSAGES)), tokio::spawn(write(bob, MESSAGES))];
    for _ in 0..3 {
        let before = reader.position().unwrap().last_id;
        eventually("messages", || async {
            (reader.position().unwrap().last_id > before + 60).then_some(())
        })
        .await;
        gateway.kill().await;
        let mut states = reader.states();
        soon(states.wait_for(|state| *state != ConnectionState::Connected)).await.unwrap();
        gateway = Setup::new().on(&gateway).at(&address).spawn(SWITCHBOARD).await;
        soon(states.wait_for(|state| *state == ConnectionState::Connected)).await.unwrap();
    }
    let mut acknowledged = BTreeMap::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    let heard = reading.await.unwrap();
    assert_eq!(heard, acknowledged, "everybody has the same, under the same ids");
    assert_eq!(stored(&gateway).await, acknowledged);
    assert_eq!(*back.lock(), [Some(true); 3]);
    assert_eq!(*lost.lock(), 3);
    drop(reader);
    gateway.stop().await;
}

#[tokio::test]
async fn a_connection_that_is_cut_again_and_again() {
    // Enough that even a fast machine is disconnected several times before all are sent.
    const MESSAGES: usize = 2_000;
    let gateway = Setup::new().config(Proxy::CONFIG).start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let through = async |name: &str| {
        client(&gateway, name).await.server(proxy.url()).connect().await.unwrap()
    };
    let (ann, reader) = (through("ann").await, through("reader").await);
    let reading = tokio::spawn(read(reader.events(EventFilter::default()), MESSAGES));
    let writing = tokio::spawn(write(ann, MESSAGES));
    let mut cuts = 0;
    while !reading.is_finished() {
        tokio::time::sleep(Duration::from_millis(30)).await;
        proxy.cut();
        cuts += 1;
        assert!(cuts < 4_000, "it never ends");
    }
    let (heard, acknowledged) = (reading.await.unwrap(), writing.await.unwrap());
    assert_eq!(heard, acknowledged);
    assert_eq!(stored(&gateway).await, acknowledged);
    assert!(proxy.connections() > 4, "{} connections, {cuts} cuts", proxy.connections());
    gateway.stop().await;
}

#[tokio::test]
async fn calls_go_on_over_a_lost_connection() {
    let mut gateway = Setup::new().config(Proxy::CONFIG).spawn(SWITCHBOARD).await;
    let address = gateway.address().to_owned();
    let proxy = Proxy::start(&address).await;
    let (open, runs) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(0)));
    let (gate, count) = (Arc::clone(&open), Arc::clone(&runs));
    let wait = Method::raw(
        "wait",
        json!({ "type": "object" }),
        move |args: Value, context: MethodContext| {
            *count.lock() += 1;
            let gate = Arc::clone(&gate);
            async move {
                context.stream("begun").await?;
                gate.acquire().await.unwrap().forget();
                Ok::<_, sa_messaging::Error>(args)
            }
        },
    );
    let _worker = client(&gateway, "worker").await.method(wait).connect().await.unwrap();
    let ann = client(&gateway, "ann").await.server(proxy.url()).connect().await.unwrap();
    let call = |n: usize| ann.call_method("worker", "wait", json!({ "n": n }), CallOptions::new());
    let begun = async |call: &sa_messaging::MethodCall| {
        assert_eq!(soon(call.stream().next()).await.unwrap().content, Some(json!("begun")));
    };

    // The caller's connection is cut, and the answer arrives meanwhile.
    let first = call(1);
    begun(&first).await;
    let mut states = ann.states();
    proxy.cut();
    open.add_permits(1);
    assert_eq!(soon(first.result()).await.unwrap().content, json!({ "n": 1 }));
    soon(states.wait_for(|state| *state == ConnectionState::Connected)).await.unwrap();

    // The gateway is killed while the method runs.
    let second = call(2);
    begun(&second).await;
    gateway.kill().await;
    open.add_permits(1);
    gateway = Setup::new().config(Proxy::CONFIG).on(&gateway).at(&address).spawn(SWITCHBOARD).await;
    assert_eq!(soon(second.result()).await.unwrap().content, json!({ "n": 2 }));
    assert_eq!(*runs.lock(), 2, "each ran once");
    gateway.stop().await;
}

#[tokio::test]
async fn no_call_is_lost_between_a_providers_arrival_and_its_metadata() {
    let gateway = Setup::new().config(Proxy::CONFIG).start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let work =
        Method::raw("work", json!({ "type": "object" }), |_: Value, _: MethodContext| async {
            Ok::<_, String>("done")
        });
    let _worker =
        client(&gateway, "worker").await.server(proxy.url()).method(work).connect().await.unwrap();
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    for round in 0..15 {
        proxy.cut();
        ann.until(|frame| frame["senderId"] == "worker" && frame["payload"]["action"] == "join")
            .await;
        let call = json!({ "callId": format!("c{round}"), "methodName": "work", "providerId": "worker", "args": {} });
        ann.publish("method-call", call.clone()).await;
        let wanted = |frame: &Value| {
            frame["type"] == "method-result" && frame["payload"]["callId"] == call["callId"]
        };
        let result = ann.until(wanted).await;
        assert_eq!(result["payload"]["content"], "done", "{result}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_channel_that_is_another_one_now_is_said_to_be() {
    let gateway = Setup::new().config(Proxy::CONFIG).start().await;
    let proxy = Proxy::start(gateway.address()).await;
    let ann = client(&gateway, "ann").await.server(proxy.url()).connect().await.unwrap();
    ann.send("old", SendOptions::default()).await.unwrap();
    let back = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&back);
    ann.on_reconnect(move |reconnected| seen.lock().push(reconnected.recovered)).forget();
    let mut heard = ann.events(EventFilter::default());
    let epoch = ann.position().unwrap().epoch;
    assert!(epoch.is_some());
    proxy.down();
    eventually("an empty channel", || async {
        (gateway.operator().delete("/v1/channels/room").await.status < 300).then_some(())
    })
    .await;
    let mut bob = Participant::join(&gateway, "room", "bob").await;
    bob.say("message", json!({ "id": "00000000-0000-4000-8000-000000000001", "content": "new" }))
        .await;
    proxy.up();
    assert_eq!(said(&mut heard).await, "old");
    assert_eq!(said(&mut heard).await, "new", "all of it is news");
    eventually("the connection", || async { (!back.lock().is_empty()).then_some(()) }).await;
    assert_ne!(ann.position().unwrap().epoch, epoch);
    assert_eq!(*back.lock(), [Some(false)]);
    gateway.stop().await;
}

#[tokio::test]
async fn nothing_is_left_of_a_client_that_is_gone() {
    let gateway = Setup::new().start().await;
    let ann = join(&gateway, "ann").await;
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for round in 0..3 {
        let method = Method::raw("wait", json!({}), async |_: Value, context: MethodContext| {
            context.stream("begun").await?;
            std::future::pending::<()>().await;
            Ok::<_, sa_messaging::Error>(())
        });
        let worker = client(&gateway, "worker").await.method(method).cancel_grace(Duration::ZERO);
        let worker = worker.connect().await.unwrap();
        eventually("the worker", || async { ann.discover_methods().first().cloned() }).await;
        let call = ann.call_method("worker", "wait", json!({}), CallOptions::new());
        soon(call.stream().next()).await.unwrap();
        let events = worker.events(EventFilter::default());
        if round == 0 {
            worker.close().await;
        }
        drop((worker, call));
        let _: Vec<_> = soon(events.collect()).await;
        eventually("the worker's leaving", || async { (ann.roster().len() == 1).then_some(()) })
            .await;
    }
    eventually("the tasks' end", || async {
        (tokio::runtime::Handle::current().metrics().num_alive_tasks() <= before).then_some(())
    })
    .await;
    gateway.stop().await;
}
