//! Messages over NATS: one client for each 64 in flight, as on the call socket.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::StreamExt as _;

use super::{Latencies, PER_SOCKET, Sample};

#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) server: SocketAddr,
    pub(crate) subject: String,
    pub(crate) payload: Bytes,
    pub(crate) done: Done,
}

/// The event that completes a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// The message is answered.
    Answered,
    /// The sender receives its own message, because it is subscribed.
    Back,
}

impl Target {
    pub(super) async fn load(&self, in_flight: usize, length: Duration) -> anyhow::Result<Sample> {
        let mut lanes = Vec::new();
        for first in (0..in_flight).step_by(PER_SOCKET) {
            let client = crate::nats::connect(self.server).await?;
            lanes.extend((first..in_flight.min(first + PER_SOCKET)).map(|_| client.clone()));
        }
        let lanes = lanes.into_iter().enumerate().collect();
        super::run(lanes, length, |(lane, client), end| drive(self.clone(), lane, client, end))
            .await
    }
}

async fn drive(
    target: Target,
    lane: usize,
    client: async_nats::Client,
    end: Instant,
) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::new();
    let own = format!("{}.{lane}", target.subject);
    let mut back = match target.done {
        Done::Answered => None,
        Done::Back => Some(client.subscribe(own.clone()).await?),
    };
    while Instant::now() < end {
        let start = Instant::now();
        if let Some(back) = &mut back {
            client.publish(own.clone(), target.payload.clone()).await?;
            back.next().await.context("nats-server closed the connection")?;
        } else {
            client.request(target.subject.clone(), target.payload.clone()).await?;
        }
        latencies.record(start);
    }
    Ok(latencies)
}
