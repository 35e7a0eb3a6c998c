//! Closed-loop load: so many requests in flight, each answered one replaced by the next, for a while.

pub(crate) mod calls_socket;
pub(crate) mod channel;
pub(crate) mod crowd;
pub(crate) mod http;
pub(crate) mod nats;
pub(crate) mod stdio;

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::task::JoinSet;

/// Calls of one connection that are in flight at once, where a connection can have more than one.
pub(crate) const PER_SOCKET: usize = 64;

/// What is sent: about as much as a small tool call has.
pub(crate) const ARGS: &str = r#"{"text":"the quick brown fox jumps over the lazy dog","count":12345}"#;

/// Something that can be put under load.
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

/// What came of one round.
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

/// How long each request took.
#[derive(Debug, Clone)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        // From a nanosecond to a minute, with three digits: bounds that are always valid.
        Self(Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds"))
    }

    pub(crate) fn record(&mut self, since: Instant) {
        self.0.saturating_record(since.elapsed().as_nanos() as u64);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        // Both have the same bounds, so that everything fits.
        let _ = self.0.add(&other.0);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn at(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(quantile))
    }
}

/// Runs lanes that are connected already, side by side, and puts what they measured together. A lane takes the time at
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
