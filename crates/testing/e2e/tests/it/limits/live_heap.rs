//! Reads the number of live bytes on the gateway's heaps, which the tested program counts.

use std::path::Path;

use sa_gateway_kit::{Gateway, Setup, eventually};
use tempfile::TempDir;

use crate::SWITCHBOARD;

/// The number of reports for one measurement. Memory of a finished request may be freed a moment
/// later.
const REPORTS: u64 = 10;

pub(crate) struct LiveHeap(TempDir);

/// The live bytes of an idle gateway.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Live {
    /// The bytes that Rust code has allocated.
    pub(crate) rust: u64,
    /// The bytes that SQLite has allocated, mostly for its page caches.
    pub(crate) sqlite: u64,
}

impl LiveHeap {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Starts a gateway that reports here.
    pub(crate) async fn spawn(&self, setup: Setup) -> Gateway {
        setup.env("E2E_LIVE_BYTES", self.0.path().to_str().unwrap()).spawn(SWITCHBOARD).await
    }

    /// Returns the live bytes of an idle gateway: the smallest counts of several reports.
    pub(crate) async fn live(&self, gateway: &Gateway) -> Live {
        let file = self.0.path().join(gateway.pid().to_string());
        let (mut last, mut smallest) = report(&file).await;
        for _ in 0..REPORTS {
            let newer = || async { Some(report(&file).await).filter(|(number, _)| *number > last) };
            let (number, live) = eventually("the next report", newer).await;
            last = number;
            smallest.rust = smallest.rust.min(live.rust);
            smallest.sqlite = smallest.sqlite.min(live.sqlite);
        }
        smallest
    }
}

/// Returns the number of the latest report, and its counts.
async fn report(file: &Path) -> (u64, Live) {
    eventually("a report of live bytes", || async {
        let text = std::fs::read_to_string(file).ok()?;
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some((next()?, Live { rust: next()?, sqlite: next()? }))
    })
    .await
}
