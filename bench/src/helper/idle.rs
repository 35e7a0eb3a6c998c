//! Opens thousands of nodes or participants that send a hello and nothing more. They use bare
//! sockets, so that one process can hold them all.

use std::net::SocketAddr;

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Bits in the second byte of a frame: the frame is masked; the length is in the next two bytes.
const MASKED: u8 = 0x80;
const LONG: u8 = 0x7e;

/// The maximum number of concurrent handshakes.
const AT_ONCE: usize = 32;

/// The kind of the idle connections.
pub(super) enum Who {
    Nodes,
    /// Each channel gets one participant for each token.
    Participants {
        tokens: Vec<String>,
    },
}

impl Who {
    /// Returns the request path, and the first message to send.
    fn hello(&self, number: usize) -> (String, Option<String>) {
        match self {
            Self::Nodes => {
                let hello = format!(
                    "{{\"type\":\"node_hello\",\"protocol_version\":1,\"node\":{{\"id\":\"idle-{number}\",\"name\":\"idle-{number}\",\
                     \"node_type\":\"generic\",\"version\":\"0.1.0\",\"tags\":[]}},\"capabilities\":[\"idle{number}\"]}}"
                );
                ("/v1/nodes/ws".into(), Some(hello))
            }
            Self::Participants { tokens } => {
                let (room, token) = (number / tokens.len(), &tokens[number % tokens.len()]);
                (format!("/v1/channels/ws?token={token}&channel=room{room}"), None)
            }
        }
    }
}

pub(super) async fn run(gateway: SocketAddr, who: &Who) -> anyhow::Result<()> {
    let mut lines = stdin_lines();
    let mut connected = 0_usize;
    while let Some(line) = lines.recv().await {
        let wanted: usize = line.trim().parse().context("not a number of connections")?;
        futures_util::stream::iter(connected..wanted)
            .map(|number| Ok::<_, anyhow::Error>(connect(gateway, who, number)))
            .try_buffer_unordered(AT_ONCE)
            .try_for_each(|socket| {
                // A lost connection would make the memory per connection look too small.
                tokio::spawn(async {
                    let ended = stay(socket).await;
                    eprintln!("a connection was lost: {ended:?}");
                    std::process::exit(1);
                });
                std::future::ready(Ok(()))
            })
            .await?;
        connected = wanted;
        println!("ready {connected}");
    }
    std::process::exit(0)
}

/// Reads lines from standard input in a separate thread. A read inside the runtime would prevent
/// the runtime from shutting down.
pub(super) fn stdin_lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            if line.ok().and_then(|line| sender.blocking_send(line).ok()).is_none() {
                return;
            }
        }
    });
    lines
}

async fn connect(
    gateway: SocketAddr,
    who: &Who,
    number: usize,
) -> anyhow::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(gateway).await?;
    stream.set_nodelay(true)?;
    let mut socket = BufReader::with_capacity(512, stream);
    let (path, hello) = who.hello(number);
    let upgrade = format!(
        "GET {path} HTTP/1.1\r\nHost: {gateway}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    socket.write_all(upgrade.as_bytes()).await?;
    let mut line = String::new();
    socket.read_line(&mut line).await?;
    anyhow::ensure!(line.contains(" 101 "), "the gateway answered: {}", line.trim());
    while line != "\r\n" {
        line.clear();
        anyhow::ensure!(
            socket.read_line(&mut line).await? > 0,
            "the gateway closed the connection"
        );
    }
    if let Some(hello) = hello {
        send(&mut socket, 0x1, hello.as_bytes()).await?;
    }
    let (opcode, welcome) = receive(&mut socket).await?;
    anyhow::ensure!(
        opcode == 0x1,
        "expected a welcome, but received {}",
        String::from_utf8_lossy(&welcome)
    );
    Ok(socket)
}

/// Answers pings until the connection ends.
async fn stay(mut socket: BufReader<TcpStream>) -> anyhow::Result<()> {
    loop {
        let (opcode, payload) = receive(&mut socket).await?;
        match opcode {
            0x8 => return Ok(()),
            0x9 => send(&mut socket, 0xa, &payload).await?,
            _ => {}
        }
    }
}

async fn send(socket: &mut BufReader<TcpStream>, opcode: u8, payload: &[u8]) -> anyhow::Result<()> {
    let mut frame = vec![0x80 | opcode];
    if let Ok(length @ ..126) = u8::try_from(payload.len()) {
        frame.push(MASKED | length);
    } else {
        frame.push(MASKED | LONG);
        frame.extend(u16::try_from(payload.len())?.to_be_bytes());
    }
    // A mask of zeros leaves the payload unchanged.
    frame.extend([0; 4]);
    frame.extend(payload);
    socket.write_all(&frame).await?;
    Ok(())
}

async fn receive(socket: &mut BufReader<TcpStream>) -> anyhow::Result<(u8, Vec<u8>)> {
    let opcode = socket.read_u8().await? & 0xf;
    let length = match socket.read_u8().await? {
        LONG => usize::from(socket.read_u16().await?),
        127 => anyhow::bail!("a frame that is too long for this program"),
        length => usize::from(length),
    };
    let mut payload = vec![0; length];
    socket.read_exact(&mut payload).await?;
    Ok((opcode, payload))
}
