//! A reader that stops reading costs the gateway no more than its queue. It is closed with a reason
//! and a position to resume from, and other readers are not affected.

use futures_util::StreamExt as _;
use sa_gateway_kit::{Message, Participant, Setup, count, raise_file_limit, resident, soon};
use tokio::sync::mpsc;

use crate::SWITCHBOARD;

const QUEUE: usize = 2_000_000;
const FILLER: usize = 50_000;
/// Messages that are sent before all active readers have them: fewer than a queue holds, even on a
/// slow machine.
const BATCH: u64 = 20;
/// Far more than kernel and queue buffer for one connection.
const ENOUGH: u64 = 80_000_000;
/// Allowance for other memory: buffers of all connections, and pages that the allocator retains.
const SLACK: u64 = 8 << 20;
const SLACK_OF_ONE: u64 = 16 << 10;

/// Reads a number near the beginning of a frame. The frame is too large for a thousand readers to
/// parse it.
fn number(frame: &str, name: &str) -> Option<u64> {
    let from = frame.find(name)? + name.len();
    let digits = frame[from..].bytes().take_while(u8::is_ascii_digit).count();
    frame[from..from + digits].parse().ok()
}

/// Reads notes from `next` on, checks that all are there and in order, and reports each batch.
async fn read(mut reader: Participant, mut next: u64, batches: mpsc::UnboundedSender<()>) {
    while let Some(Ok(message)) = reader.socket.next().await {
        let Message::Text(text) = message else { continue };
        let Some(n) = number(&text, "\"n\":") else { continue };
        assert_eq!(n, next);
        next += 1;
        if next.is_multiple_of(BATCH) && batches.send(()).is_err() {
            return;
        }
    }
}

struct Writer {
    participant: Participant,
    sent: u64,
    filler: String,
}

impl Writer {
    /// Publishes a batch, and waits until all readers have it.
    async fn batch(&mut self, readers: usize, batches: &mut mpsc::UnboundedReceiver<()>) {
        for _ in 0..BATCH {
            let (n, filler) = (self.sent, &self.filler);
            let frame = format!(
                r#"{{"action":"publish","type":"note","payload":{{"n":{n},"filler":"{filler}"}},"persist":true,"ref":1}}"#
            );
            futures_util::SinkExt::send(&mut self.participant.socket, Message::text(frame))
                .await
                .unwrap();
            loop {
                let Some(Ok(Message::Text(text))) = soon(self.participant.socket.next()).await
                else {
                    continue;
                };
                if number(&text, "\"n\":") == Some(n) {
                    break;
                }
            }
            self.sent += 1;
        }
        for _ in 0..readers {
            soon(batches.recv()).await.expect("a reader");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_reader_that_stops_costs_its_queue_and_nobody_notices() {
    let readers = count("SWITCHBOARD_CHANNEL_READERS", 100);
    raise_file_limit();
    let gateway = Setup::new()
        .config(&format!("[channels]\nmax_queue_bytes = {QUEUE}"))
        .spawn(SWITCHBOARD)
        .await;
    let mut slow = Participant::join(&gateway, "room", "slow").await;
    let token = Participant::token(&gateway, "reader").await;
    let (done, mut batches) = mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    for _ in 0..readers {
        let mut reader =
            Participant::connect(&gateway, &format!("/v1/channels/ws?token={token}&channel=room"))
                .await;
        reader.here("reader").await;
        tasks.push(tokio::spawn(read(reader, 0, done.clone())));
    }
    let participant = Participant::join(&gateway, "room", "writer").await;
    let mut writer = Writer { participant, sent: 0, filler: "x".repeat(FILLER) };
    // After this batch all buffers have their final size, and the kernel still buffers everything
    // for the slow reader.
    writer.batch(readers, &mut batches).await;
    let before = resident(gateway.pid());
    let mut peak = before;
    while gateway.refused("channel", "too_slow").await == 0 {
        assert!(writer.sent * (FILLER as u64) < ENOUGH, "a connection takes no end of data");
        writer.batch(readers, &mut batches).await;
        peak = peak.max(resident(gateway.pid()));
    }
    let (grown, sent) = (peak - before, writer.sent);
    // The queue, plus the same amount that was taken from it to be written.
    let bound = 2 * QUEUE as u64 + SLACK + SLACK_OF_ONE * readers as u64;
    eprintln!(
        "closed after {sent} messages; the gateway grew by {} KB of at most {} KB",
        grown >> 10,
        bound >> 10
    );
    assert!(grown < bound, "{grown} bytes more, and {bound} were expected at most");

    // The slow reader can still read the data that was sent. Then it receives the position to
    // resume from, which is after the last message.
    let (mut next, mut last) = (0, 0);
    let reason = loop {
        match soon(slow.socket.next()).await {
            Some(Ok(Message::Text(text))) => {
                last = number(&text, "\"id\":").unwrap_or(last);
                if let Some(n) = number(&text, "\"n\":") {
                    assert_eq!(n, next);
                    next += 1;
                }
            }
            Some(Ok(Message::Close(Some(frame)))) => {
                assert_eq!(u16::from(frame.code), 4429);
                break frame.reason.to_string();
            }
            Some(Ok(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(reason, format!("read too slowly; reconnect with sinceId={last}"));
    assert!(next < sent);
    writer.batch(readers, &mut batches).await;
    let token = Participant::token(&gateway, "slow-again").await;
    let path = format!("/v1/channels/ws?token={token}&channel=room&sinceId={last}");
    let resumed = Participant::connect(&gateway, &path).await;
    let (done, mut batches) = mpsc::unbounded_channel();
    let missed = (writer.sent / BATCH) - (next / BATCH);
    tasks.push(tokio::spawn(read(resumed, next, done)));
    for _ in 0..missed {
        soon(batches.recv()).await.expect("the one that resumed");
    }
    assert!(tasks.iter().all(|task| !task.is_finished()), "a reader was disturbed");
    for task in &tasks {
        task.abort();
    }
    gateway.stop().await;
}
