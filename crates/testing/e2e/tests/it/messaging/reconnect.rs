//! A kill of the gateway costs a client only time: no message is missed, and calls continue.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use sa_gateway_kit::messaging::{client, join, read, stored, write};
use sa_gateway_kit::{Proxy, Setup, eventually, soon};
use sa_messaging::{CallOptions, ConnectionState, EventFilter, Method, MethodContext};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::SWITCHBOARD;

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
