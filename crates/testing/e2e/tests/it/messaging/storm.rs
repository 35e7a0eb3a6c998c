//! Many clients are disconnected at random. None misses a message, none receives one twice, and all
//! see one order.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use sa_gateway_kit::messaging::{backoff, client};
use sa_gateway_kit::{Participant, Proxy, Setup, count, raise_file_limit};
use sa_messaging::{Client, Event, EventFilter, ReplayMode, SendOptions};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_misses_or_doubles_a_message() {
    // `cargo xtask prove` uses more clients, for longer.
    let clients = count("SWITCHBOARD_STORM_CLIENTS", 50);
    let messages = count("SWITCHBOARD_STORM_MESSAGES", 150);
    raise_file_limit();
    let gateway = Setup::new().config(Proxy::CONFIG).start().await;
    let token = Participant::token(&gateway, "reader").await;
    // Each proxy has a share of the clients, so that they are not all cut at once.
    let proxies = join_all((0..clients.div_ceil(8)).map(|_| Proxy::start(gateway.address()))).await;
    let mut readers = Vec::new();
    for n in 0..clients {
        let builder = Client::builder()
            .server(proxies[n % proxies.len()].url())
            .token(&token)
            .channel("room");
        let client = builder.replay(ReplayMode::Skip).reconnect(backoff()).connect().await.unwrap();
        readers.push(tokio::spawn(async move {
            let mut events = client.events(EventFilter::default());
            let mut heard = Vec::new();
            while heard.len() < messages {
                let event = tokio::time::timeout(Duration::from_secs(300), events.next()).await;
                let event = event.unwrap_or_else(|_| {
                    panic!("client {n} misses messages, and has {}", heard.len())
                });
                match event.expect("the client gave up") {
                    Event::Message(message) => {
                        heard.push((message.envelope.pubsub_id, message.payload.content));
                    }
                    Event::Lagged(missed) => panic!("{missed} were dropped"),
                    _ => {}
                }
            }
            heard
        }));
    }
    let writer = client(&gateway, "writer").await.connect().await.unwrap();
    let writing = async {
        let mut said = Vec::new();
        for n in 0..messages {
            let sent = writer.send(format!("{n}"), SendOptions::default()).await.unwrap();
            said.push((sent.pubsub_id, format!("{n}")));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        said
    };
    let cutting = async {
        loop {
            tokio::time::sleep(Duration::from_millis(rand::random_range(5..100))).await;
            proxies[rand::random_range(0..proxies.len())].cut();
        }
    };
    let said = tokio::select! {
        said = writing => said,
        () = cutting => unreachable!("it goes on for ever"),
    };
    for (n, reader) in readers.into_iter().enumerate() {
        assert_eq!(reader.await.unwrap(), said, "client {n}");
    }
    let connections: usize = proxies.iter().map(Proxy::connections).sum();
    assert!(connections > clients, "only {connections} connections: nobody was cut off");
    eprintln!("{clients} clients connected {connections} times, for {messages} messages each");
    gateway.stop().await;
}
