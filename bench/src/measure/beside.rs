//! Compares two targets under the same load, in alternation.

use std::time::Duration;

use super::{Bench, median, ratio};
use crate::gateway::Gateway;
use crate::load::{Latencies, Target};
use crate::report::Row;

/// The result of a comparison: a rate for each round, the latencies of all requests, and the
/// gateway's CPU time per request.
pub(super) struct Compared {
    ours: Vec<f64>,
    theirs: Vec<f64>,
    pub(super) our_times: Latencies,
    pub(super) their_times: Latencies,
    pub(super) cpu_us: f64,
}

impl Bench<'_> {
    /// Loads the gateway and its reference, if there is one, in alternation.
    pub(super) async fn compare(
        &self,
        gateway: &Gateway,
        in_flight: usize,
        ours: &Target,
        theirs: Option<&Target>,
    ) -> anyhow::Result<Compared> {
        let (rounds, length) = self.rounds();
        for target in [Some(ours), theirs].into_iter().flatten() {
            target.load(in_flight, length / 4).await?;
        }
        let (our_times, their_times) = (Latencies::new(), Latencies::new());
        let mut compared =
            Compared { ours: Vec::new(), theirs: Vec::new(), our_times, their_times, cpu_us: 0.0 };
        let mut cpu = Duration::ZERO;
        for _ in 0..rounds {
            let before = gateway.cpu_time()?;
            let sample = ours.load(in_flight, length).await?;
            cpu += gateway.cpu_time()?.saturating_sub(before);
            compared.ours.push(sample.rate());
            compared.our_times.add(&sample.latencies);
            if let Some(theirs) = theirs {
                let sample = theirs.load(in_flight, length).await?;
                compared.theirs.push(sample.rate());
                compared.their_times.add(&sample.latencies);
            }
        }
        compared.cpu_us = cpu.as_secs_f64() * 1e6 / compared.our_times.count() as f64;
        Ok(compared)
    }
}

impl Compared {
    /// Returns a row with the gateway's rate, latencies and CPU time.
    pub(super) fn ours(&self, what: String) -> Row {
        Row::new(what, median(self.ours.clone()), "/s")
            .latencies(&self.our_times)
            .cpu_us(self.cpu_us)
    }

    pub(super) fn theirs(&self, what: String) -> Row {
        Row::new(what, median(self.theirs.clone()), "/s").latencies(&self.their_times)
    }

    pub(super) fn ratio(&self) -> f64 {
        ratio(&self.ours, &self.theirs)
    }
}
