//! Many readers of one message. A fixed number of messages is in flight, and each is done when the
//! last reader has it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::stream::SplitSink;
use futures_util::{SinkExt as _, StreamExt as _, TryStreamExt as _};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

use super::channel::{self, Socket, number_after};
use super::{Latencies, Sample};

/// The number of messages in flight: enough that the publisher is not the bottleneck.
const SLOTS: usize = 4;
/// The maximum number of concurrent handshakes.
const AT_ONCE: usize = 32;
const SUBJECT: &str = "bench.crowd";
const TIMEOUT: Duration = Duration::from_secs(60);

/// The server to which the readers connect.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// Connections of one participant, because join and leave events are not part of the
    /// measurement.
    Channel {
        gateway: SocketAddr,
        token: String,
        channel: String,
    },
    Nats(SocketAddr),
}

enum Publisher {
    Channel(SplitSink<Socket, Message>),
    Nats(async_nats::Client),
}

/// Connected readers and their publisher.
pub(crate) struct Crowd {
    readers: JoinSet<anyhow::Result<()>>,
    publisher: Publisher,
    shared: Arc<Shared>,
    done: mpsc::UnboundedReceiver<usize>,
}

struct Shared {
    size: usize,
    has: [AtomicUsize; SLOTS],
    done: mpsc::UnboundedSender<usize>,
}

impl Shared {
    /// Records that one more reader has this message.
    fn arrived(&self, frame: &str) {
        if let Some(slot) = number_after(frame, "\"slot\":").filter(|slot| *slot < SLOTS)
            && self.has[slot].fetch_add(1, Ordering::AcqRel) + 1 == self.size
        {
            self.has[slot].store(0, Ordering::Release);
            let _ = self.done.send(slot);
        }
    }
}

impl Crowd {
    pub(crate) async fn connect(place: &Place, size: usize) -> anyhow::Result<Self> {
        let (sender, done) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared { size, has: Default::default(), done: sender });
        let mut readers = JoinSet::new();
        let publisher = match place {
            Place::Channel { gateway, token, channel } => {
                let connect = || channel::connect(*gateway, token, channel, "");
                let mut sockets = futures_util::stream::iter(
                    (0..size).map(|_| Ok::<_, anyhow::Error>(connect())),
                )
                .try_buffer_unordered(AT_ONCE);
                while let Some(socket) = sockets.try_next().await? {
                    readers.spawn(listen(socket, Arc::clone(&shared)));
                }
                let (sink, mut own) = connect().await?.split();
                readers.spawn(async move {
                    while own.next().await.is_some_and(|message| message.is_ok()) {}
                    anyhow::bail!("the publisher lost its connection")
                });
                Publisher::Channel(sink)
            }
            Place::Nats(server) => {
                let mut sockets = futures_util::stream::iter(
                    (0..size).map(|_| Ok::<_, anyhow::Error>(subscribe(*server))),
                )
                .try_buffer_unordered(AT_ONCE);
                while let Some(socket) = sockets.try_next().await? {
                    readers.spawn(listen_nats(socket, Arc::clone(&shared)));
                }
                Publisher::Nats(crate::nats::connect(*server).await?)
            }
        };
        Ok(Self { readers, publisher, shared, done })
    }

    /// Publishes for this length of time. Each latency is the time until the last reader has the
    /// message. The rate counts messages, not arrivals.
    pub(crate) async fn load(&mut self, length: Duration) -> anyhow::Result<Sample> {
        let (start, mut latencies) = (Instant::now(), Latencies::new());
        let mut started = [start; SLOTS];
        for (slot, started) in started.iter_mut().enumerate() {
            *started = Instant::now();
            self.publisher.publish(slot).await?;
        }
        let mut running = SLOTS;
        while running > 0 {
            let slot = tokio::select! {
                slot = self.done.recv() => slot.context("no reader is connected")?,
                Some(lost) = self.readers.join_next() => anyhow::bail!("a reader was lost: {lost:?}"),
                () = tokio::time::sleep(TIMEOUT) => anyhow::bail!("a message did not reach all {}", self.shared.size),
            };
            latencies.record(started[slot]);
            if start.elapsed() < length {
                started[slot] = Instant::now();
                self.publisher.publish(slot).await?;
            } else {
                running -= 1;
            }
        }
        Ok(Sample { elapsed: start.elapsed(), latencies })
    }
}

impl Publisher {
    async fn publish(&mut self, slot: usize) -> anyhow::Result<()> {
        let payload =
            format!(r#"{{"slot":{slot},"text":"the quick brown fox jumps over the lazy dog"}}"#);
        match self {
            Self::Channel(sink) => {
                sink.send(channel::publish("note", &payload, false, slot)).await?;
            }
            Self::Nats(client) => {
                client.publish(SUBJECT, payload.into()).await?;
                client.flush().await?;
            }
        }
        Ok(())
    }
}

async fn listen(mut socket: Socket, shared: Arc<Shared>) -> anyhow::Result<()> {
    while let Some(message) = socket.next().await {
        if let Message::Text(text) = message? {
            shared.arrived(&text);
        }
    }
    anyhow::bail!("the gateway closed the connection")
}

/// Opens a bare subscription. A subscription of the client library would need a task and many
/// buffers.
async fn subscribe(server: SocketAddr) -> anyhow::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let mut socket = BufReader::with_capacity(4 * 1024, stream);
    let hello =
        format!("CONNECT {{\"verbose\":false,\"pedantic\":false}}\r\nSUB {SUBJECT} 1\r\nPING\r\n");
    socket.write_all(hello.as_bytes()).await?;
    let mut line = String::new();
    while line != "PONG\r\n" {
        line.clear();
        anyhow::ensure!(
            socket.read_line(&mut line).await? > 0,
            "nats-server closed the connection"
        );
        anyhow::ensure!(
            !line.starts_with("-ERR"),
            "nats-server returned an error: {}",
            line.trim()
        );
    }
    Ok(socket)
}

async fn listen_nats(mut socket: BufReader<TcpStream>, shared: Arc<Shared>) -> anyhow::Result<()> {
    let (mut line, mut payload) = (String::new(), Vec::new());
    loop {
        line.clear();
        anyhow::ensure!(
            socket.read_line(&mut line).await? > 0,
            "nats-server closed the connection"
        );
        if line.starts_with("PING") {
            socket.write_all(b"PONG\r\n").await?;
        } else if line.starts_with("MSG ") {
            let length: usize = line
                .trim_end()
                .rsplit(' ')
                .next()
                .context("a message without a length")?
                .parse()?;
            payload.resize(length + 2, 0);
            socket.read_exact(&mut payload).await?;
            shared.arrived(std::str::from_utf8(&payload)?);
        }
    }
}
