//! A lost connection costs only time. No message is missed or repeated, unacknowledged messages are
//! stored once, and calls continue. Where that is impossible, the client gets an error.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use sa_messaging::{CallOptions, EventFilter, Method, MethodContext, SendOptions};
use sa_testkit::messaging::{client, join, read, said, stored, write};
use sa_testkit::{Participant, Proxy, Setup, eventually, soon};
use serde_json::{Value, json};

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
