//! Clients that are disconnected at random and resume miss no message and receive none twice.

use std::time::Duration;

use sa_gateway_kit::{Dice, Participant, Setup, count, raise_file_limit};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::SWITCHBOARD;
use crate::channels::reader::{OPEN, Reader};

/// Several clients share a participant, because every presence event costs time for every reader.
const CLIENTS_OF_ONE: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_are_cut_miss_nothing_and_get_nothing_twice() {
    let clients = count("SWITCHBOARD_CHANNEL_CLIENTS", 40);
    let seconds = count("SWITCHBOARD_CHANNEL_CUT_SECONDS", 3) as u64;
    let longest = count("SWITCHBOARD_CHANNEL_CUT_MS", 500) as u64;
    raise_file_limit();
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut writer = Participant::join(&gateway, "room", "writer").await;
    let (end, ended) = watch::channel(OPEN);
    let (mut tasks, mut token) = (Vec::new(), String::new());
    for client in 0..clients {
        if client % CLIENTS_OF_ONE == 0 {
            token = Participant::token(&gateway, &format!("p{client}")).await;
        }
        let mut dice = Dice(client as u64);
        let stay = move || Duration::from_millis(longest / 25 + dice.roll(longest));
        tasks
            .push(tokio::spawn(Reader::new(gateway.address(), &token).follow(ended.clone(), stay)));
    }

    // With more readers there are fewer messages, so that the disconnects dominate the load.
    let mut pace = tokio::time::interval(Duration::from_millis(10 * clients.div_ceil(100) as u64));
    let (until, mut written) = (Instant::now() + Duration::from_secs(seconds), Vec::new());
    while Instant::now() < until {
        pace.tick().await;
        let n = written.len() as u64;
        let answer = writer.say("note", json!({ "n": n })).await;
        written.push((answer["id"].as_u64().unwrap(), "writer".to_owned(), n));
    }
    end.send_replace(written.last().unwrap().0);
    let mut visits = 0;
    for (client, task) in tasks.into_iter().enumerate() {
        let reader = task.await.unwrap();
        assert!(
            reader.seen == written,
            "client {client} saw {} of {}",
            reader.seen.len(),
            written.len()
        );
        visits += reader.visits;
    }
    assert!(visits > clients, "{clients} clients came {visits} times");
    eprintln!("{clients} clients came {visits} times, for {} messages each", written.len());
    gateway.stop().await;
}
