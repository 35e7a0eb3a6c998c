//! Requests over NATS: one client for each 64 in flight, as on the call socket.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Latencies, PER_SOCKET, Sample};

#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) server: SocketAddr,
    pub(crate) subject: String,
    pub(crate) payload: Bytes,
}

impl Target {
    pub(super) async fn load(&self, in_flight: usize, length: Duration) -> anyhow::Result<Sample> {
        let mut lanes = Vec::new();
        for first in (0..in_flight).step_by(PER_SOCKET) {
            let client = crate::nats::connect(self.server).await?;
            lanes.extend((first..in_flight.min(first + PER_SOCKET)).map(|_| client.clone()));
        }
        super::run(lanes, length, |client, end| drive(self.clone(), client, end)).await
    }
}

async fn drive(target: Target, client: async_nats::Client, end: Instant) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::new();
    while Instant::now() < end {
        let start = Instant::now();
        client.request(target.subject.clone(), target.payload.clone()).await?;
        latencies.record(start);
    }
    Ok(latencies)
}
