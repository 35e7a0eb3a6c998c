//! Messages in a channel: one connection for each 64 in flight, as on the call socket. A frame with
//! a reference is the acknowledgement. For a stored message it means that the message is on disk.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::{ARGS, Latencies, PER_SOCKET, Sample};

pub(crate) type Socket = WebSocketStream<TcpStream>;

/// The kind of each message.
#[derive(Debug, Clone)]
pub(crate) enum What {
    Note {
        persist: bool,
    },
    /// A call of the method `echo` of this participant, which ends when its result arrives.
    Call {
        provider: String,
        persist: bool,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) gateway: SocketAddr,
    pub(crate) token: String,
    pub(crate) channel: String,
    pub(crate) what: What,
}

impl Target {
    pub(super) async fn load(&self, in_flight: usize, length: Duration) -> anyhow::Result<Sample> {
        let mut lanes = Vec::new();
        for first in (0..in_flight).step_by(PER_SOCKET) {
            let socket = connect(self.gateway, &self.token, &self.channel, "").await?;
            lanes.push((socket, PER_SOCKET.min(in_flight - first)));
        }
        super::run(lanes, length, |(socket, share), end| {
            drive(socket, self.what.clone(), share, end)
        })
        .await
    }
}

/// Opens a connection and waits until it is ready; `more` is the rest of the query.
pub(crate) async fn connect(
    gateway: SocketAddr,
    token: &str,
    channel: &str,
    more: &str,
) -> anyhow::Result<Socket> {
    let mut socket = open(gateway, token, channel, more).await?;
    loop {
        let message = socket.next().await.context("the gateway closed the connection")??;
        if message.to_text().is_ok_and(|text| text.starts_with("{\"kind\":\"ready\"")) {
            return Ok(socket);
        }
    }
}

/// Opens a connection and reads nothing from it.
pub(crate) async fn open(
    gateway: SocketAddr,
    token: &str,
    channel: &str,
    more: &str,
) -> anyhow::Result<Socket> {
    let stream = TcpStream::connect(gateway).await?;
    stream.set_nodelay(true)?;
    let url = format!(
        "ws://{gateway}/v1/channels/ws?token={token}&channel={channel}&roster=snapshot{more}"
    );
    // Small buffers, because there are thousands of connections.
    let limits = WebSocketConfig::default().read_buffer_size(4 * 1024).write_buffer_size(4 * 1024);
    let (socket, _) = client_async_with_config(url, stream, Some(limits)).await?;
    Ok(socket)
}

pub(crate) fn publish(kind: &str, payload: &str, persist: bool, reference: usize) -> Message {
    Message::text(format!(
        r#"{{"action":"publish","type":"{kind}","payload":{payload},"persist":{persist},"ref":{reference}}}"#
    ))
}

/// Returns the number that follows this text.
pub(crate) fn number_after(frame: &str, text: &str) -> Option<usize> {
    let rest = &frame[frame.find(text)? + text.len()..];
    rest[..rest.bytes().take_while(u8::is_ascii_digit).count()].parse().ok()
}

/// Makes ids unique, so that calls of other rounds and lanes are not confused with this one's.
static LANES: AtomicUsize = AtomicUsize::new(0);

async fn drive(
    mut socket: Socket,
    what: What,
    share: usize,
    end: Instant,
) -> anyhow::Result<Latencies> {
    let lane = LANES.fetch_add(1, Ordering::Relaxed);
    let mut latencies = Latencies::new();
    let mut started = vec![Instant::now(); share];
    let (mut running, mut count) = (share, 0_usize);
    for (slot, start) in started.iter_mut().enumerate() {
        *start = Instant::now();
        socket.feed(message(&what, slot, lane, &mut count)).await?;
    }
    socket.flush().await?;
    while running > 0 {
        let mut next = Some(socket.next().await);
        while let Some(received) = next {
            let received = received.context("the gateway closed the connection")??;
            if let Some(slot) = answered(&received, &what, lane)? {
                latencies.record(*started.get(slot).context("an unexpected answer")?);
                if Instant::now() < end {
                    started[slot] = Instant::now();
                    socket.feed(message(&what, slot, lane, &mut count)).await?;
                } else {
                    running -= 1;
                }
            }
            next = if running > 0 { socket.next().now_or_never() } else { None };
        }
        socket.flush().await?;
    }
    socket.close(None).await?;
    Ok(latencies)
}

fn message(what: &What, slot: usize, lane: usize, count: &mut usize) -> Message {
    *count += 1;
    match what {
        What::Note { persist } => publish("note", ARGS, *persist, slot),
        What::Call { provider, persist } => {
            let payload = format!(
                r#"{{"callId":"{lane}-{slot}-{count}","methodName":"echo","providerId":"{provider}","args":{ARGS}}}"#
            );
            publish("method-call", &payload, *persist, slot)
        }
    }
}

/// Returns the number of this lane's message that the frame completes, if it completes one.
fn answered(message: &Message, what: &What, lane: usize) -> anyhow::Result<Option<usize>> {
    let Message::Text(text) = message else { return Ok(None) };
    anyhow::ensure!(
        !text.starts_with("{\"kind\":\"error\""),
        "the gateway rejected the message: {text}"
    );
    match what {
        What::Note { .. } => Ok(number_after(text, ",\"ref\":")),
        What::Call { .. } if text.contains("\"type\":\"method-result\"") => {
            anyhow::ensure!(!text.contains("\"isError\":true"), "the call failed: {text}");
            Ok(number_after(text, &format!("\"callId\":\"{lane}-")))
        }
        What::Call { .. } => Ok(None),
    }
}
