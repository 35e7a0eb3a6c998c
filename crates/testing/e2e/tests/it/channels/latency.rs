//! While one of many readers does not read, the others are served as fast as without it.
//!
//! Rounds with and without that reader alternate, so that other load on the machine affects both.
//! `cargo xtask prove` uses enough readers and rounds for a meaningful ratio of latencies, and
//! compares it with its limit.

use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use sa_gateway_kit::{Gateway, Message, Participant, Setup, count, raise_file_limit, soon};
use tokio::sync::mpsc;

use crate::SWITCHBOARD;

const QUEUE: usize = 256 << 10;
/// All messages of a round exceed what kernel and queue buffer for a reader that does not read.
const FILLER: usize = 20_000;
const MESSAGES: usize = 250;
/// The highest allowed ratio of the 99th percentiles.
const MOST: f64 = 1.2;

/// Reads until the connection ends, and reports the latency of each note.
async fn read(mut reader: Participant, base: Instant, arrivals: mpsc::UnboundedSender<Duration>) {
    while let Some(Ok(message)) = reader.socket.next().await {
        let Message::Text(text) = message else { continue };
        if let Some(sent) = sent_at(&text) {
            let _ = arrivals.send(base.elapsed().saturating_sub(sent));
        }
    }
}

fn sent_at(frame: &str) -> Option<Duration> {
    let from = frame.find("\"sent\":")? + 7;
    let digits = frame[from..].bytes().take_while(u8::is_ascii_digit).count();
    frame[from..from + digits].parse().ok().map(Duration::from_nanos)
}

struct Room {
    gateway: Gateway,
    writer: Participant,
    base: Instant,
    readers: usize,
    sender: mpsc::UnboundedSender<Duration>,
    arrivals: mpsc::UnboundedReceiver<Duration>,
}

impl Room {
    /// Sends one message after the other, each when every reader has the last one. Returns the 99th
    /// percentile of the latencies.
    async fn round(&mut self) -> Duration {
        let filler = "x".repeat(FILLER);
        let mut taken = Vec::with_capacity(MESSAGES * self.readers);
        for _ in 0..MESSAGES {
            let sent = self.base.elapsed().as_nanos();
            let frame = format!(
                r#"{{"action":"publish","type":"note","payload":{{"sent":{sent},"filler":"{filler}"}},"persist":false,"ref":1}}"#
            );
            self.writer.socket.send(Message::text(frame)).await.unwrap();
            for _ in 0..self.readers {
                taken.push(soon(self.arrivals.recv()).await.expect("a reader"));
            }
            // Skips other events until its own message arrives.
            while !matches!(soon(self.writer.socket.next()).await, Some(Ok(Message::Text(text))) if sent_at(&text).is_some())
            {
            }
        }
        taken.sort_unstable();
        taken[taken.len() * 99 / 100]
    }

    /// Runs a round with another participant, which either does not read or reads like the others.
    async fn beside(&mut self, reads: bool) -> Duration {
        let token = Participant::token(&self.gateway, "other").await;
        let path = format!("/v1/channels/ws?token={token}&channel=room");
        let mut other = Participant::connect_narrowly(&self.gateway, &path).await;
        other.here("other").await;
        if !reads {
            let taken = self.round().await;
            drop(other);
            return taken;
        }
        let (ignored, _ignores) = mpsc::unbounded_channel();
        let reading = tokio::spawn(read(other, self.base, ignored));
        let taken = self.round().await;
        reading.abort();
        taken
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_others_do_not_notice_one_that_stands_still() {
    let readers = count("SWITCHBOARD_CHANNEL_READERS", 20);
    let pairs = count("SWITCHBOARD_CHANNEL_LATENCY_PAIRS", 1);
    raise_file_limit();
    let gateway = Setup::new()
        .config(&format!("[channels]\nmax_queue_bytes = {QUEUE}"))
        .spawn(SWITCHBOARD)
        .await;
    let token = Participant::token(&gateway, "reader").await;
    let (base, (sender, arrivals)) = (Instant::now(), mpsc::unbounded_channel());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..readers {
        let mut reader =
            Participant::connect(&gateway, &format!("/v1/channels/ws?token={token}&channel=room"))
                .await;
        reader.here("reader").await;
        tasks.spawn(read(reader, base, sender.clone()));
    }
    let writer = Participant::join(&gateway, "room", "writer").await;
    let mut room = Room { gateway, writer, base, readers, sender, arrivals };
    room.round().await;
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        // The order within a pair alternates too.
        let first = room.beside(pair % 2 == 0).await;
        let second = room.beside(pair % 2 != 0).await;
        let (without, with) = if pair % 2 == 0 { (first, second) } else { (second, first) };
        eprintln!(
            "99 of 100 had it within {without:?}, and within {with:?} beside one that stands still"
        );
        ratios.push(with.as_secs_f64() / without.as_secs_f64());
    }
    assert!(
        room.gateway.refused("channel", "too_slow").await >= pairs as u64,
        "it was not closed each time"
    );
    assert_eq!(tasks.len(), readers);
    assert!(tasks.try_join_next().is_none(), "nobody else was");
    ratios.sort_unstable_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    eprintln!("{readers} readers, {pairs} pairs of rounds: {median:.2} times as long");
    // A single pair only shows that the test works; its times prove nothing.
    assert!(pairs == 1 || median <= MOST, "the others wait {median:.2} times as long");
    drop(room.sender);
    tasks.abort_all();
    room.gateway.stop().await;
}
