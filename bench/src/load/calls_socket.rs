//! Many calls on `/v1/calls/ws`: one socket for each 64 in flight.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use sa_protocol::calls::{self, GatewayFrame};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::{ARGS, Latencies, PER_SOCKET, Sample};

#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) gateway: SocketAddr,
    pub(crate) token: String,
    pub(crate) tool: String,
}

type Socket = WebSocketStream<TcpStream>;

impl Target {
    pub(super) async fn load(&self, in_flight: usize, length: Duration) -> anyhow::Result<Sample> {
        let mut lanes = Vec::new();
        let mut left = in_flight;
        while left > 0 {
            let share = left.min(PER_SOCKET);
            lanes.push((self.connect().await?, share));
            left -= share;
        }
        super::run(lanes, length, |(socket, share), end| {
            drive(socket, self.tool.clone(), share, end)
        })
        .await
    }

    async fn connect(&self) -> anyhow::Result<Socket> {
        let stream = TcpStream::connect(self.gateway).await?;
        stream.set_nodelay(true)?;
        let mut request = format!("ws://{}/v1/calls/ws", self.gateway).into_client_request()?;
        request.headers_mut().insert("authorization", format!("Bearer {}", self.token).parse()?);
        let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await?;
        let ready = socket.next().await.context("the gateway closed the connection")??;
        anyhow::ensure!(
            matches!(GatewayFrame::decode(ready.to_text()?), Ok(GatewayFrame::Ready(_))),
            "not ready"
        );
        Ok(socket)
    }
}

/// Replaces calls with new ones when their answers arrive; all new calls of a batch leave in one
/// write.
async fn drive(
    mut socket: Socket,
    tool: String,
    share: usize,
    end: Instant,
) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::new();
    let mut started = vec![Instant::now(); share];
    let mut running = share;
    for (slot, start) in started.iter_mut().enumerate() {
        *start = Instant::now();
        socket.feed(call(slot, &tool)).await?;
    }
    socket.flush().await?;
    while running > 0 {
        let mut next = Some(socket.next().await);
        while let Some(message) = next {
            let message = message.context("the gateway closed the connection")??;
            if let Some(slot) = answered(&message)? {
                latencies.record(*started.get(slot).context("an answer without a call")?);
                if Instant::now() < end {
                    started[slot] = Instant::now();
                    socket.feed(call(slot, &tool)).await?;
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

fn call(slot: usize, tool: &str) -> Message {
    let mut frame = String::new();
    let call = calls::Call {
        id: slot.to_string().into(),
        tool: tool.into(),
        args: Some(ARGS),
        ..Default::default()
    };
    calls::encode_call(&mut frame, &call);
    Message::text(frame)
}

/// Returns the id of the finished call, if the message is a result.
fn answered(message: &Message) -> anyhow::Result<Option<usize>> {
    let Message::Text(text) = message else { return Ok(None) };
    match GatewayFrame::decode(text)? {
        GatewayFrame::Done(done) => {
            anyhow::ensure!(done.result.len() == ARGS.len(), "not an echo: {}", done.result);
            Ok(Some(done.id.parse()?))
        }
        GatewayFrame::Error(error) => {
            anyhow::bail!("a call failed: {}: {}", error.kind, error.message)
        }
        _ => Ok(None),
    }
}
