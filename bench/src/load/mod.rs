//! Closed-loop load. A fixed number of requests is in flight, and each finished one is replaced by
//! the next.

pub(crate) mod calls_socket;
pub(crate) mod channel;
pub(crate) mod crowd;
pub(crate) mod http;
pub(crate) mod nats;
pub(crate) mod stdio;

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::task::JoinSet;

/// Calls in flight on one connection, for protocols that allow more than one.
pub(crate) const PER_SOCKET: usize = 64;

/// The arguments to send, about as large as those of a small tool call.
pub(crate) const ARGS: &str =
    r#"{"text":"the quick brown fox jumps over the lazy dog","count":12345}"#;

/// A target for load.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    CallsSocket(calls_socket::Target),
    Channel(channel::Target),
    Http(http::Target),
    Nats(nats::Target),
    Stdio(stdio::Target),
}

impl Target {
    /// Connects, then keeps `in_flight` requests going for this long.
    pub(crate) async fn load(&self, in_flight: usize, length: Duration) -> anyhow::Result<Sample> {
        match self {
            Self::CallsSocket(target) => target.load(in_flight, length).await,
            Self::Channel(target) => target.load(in_flight, length).await,
            Self::Http(target) => target.load(in_flight, length).await,
            Self::Nats(target) => target.load(in_flight, length).await,
            Self::Stdio(target) => target.load(in_flight, length).await,
        }
    }
}

/// The result of one round.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) elapsed: Duration,
    pub(crate) latencies: Latencies,
}

impl Sample {
    pub(crate) fn rate(&self) -> f64 {
        self.latencies.count() as f64 / self.elapsed.as_secs_f64()
    }
}

/// The latency of each request.
#[derive(Debug, Clone)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        // From a nanosecond to a minute, with three digits. These bounds are always valid.
        Self(Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds"))
    }

    pub(crate) fn record(&mut self, since: Instant) {
        self.0.saturating_record(since.elapsed().as_nanos() as u64);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        // Both have the same bounds, so adding cannot fail.
        let _ = self.0.add(&other.0);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn at(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(quantile))
    }
}

/// Runs connected lanes concurrently and merges their results. Each lane receives the time after
/// which it starts no further request.
pub(crate) async fn run<L, F>(
    lanes: Vec<L>,
    length: Duration,
    drive: impl Fn(L, Instant) -> F,
) -> anyhow::Result<Sample>
where
    F: Future<Output = anyhow::Result<Latencies>> + Send + 'static,
{
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for lane in lanes {
        tasks.spawn(drive(lane, start + length));
    }
    let mut latencies = Latencies::new();
    while let Some(lane) = tasks.join_next().await {
        latencies.add(&lane??);
    }
    Ok(Sample { elapsed: start.elapsed(), latencies })
}
