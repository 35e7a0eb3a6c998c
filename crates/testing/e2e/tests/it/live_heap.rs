//! Reads the number of live bytes on the gateway's heap, which the tested program counts.

use std::path::Path;

use sa_testkit::{Gateway, Setup, eventually};
use tempfile::TempDir;

use crate::SWITCHBOARD;

/// The number of reports for one measurement. Memory of a finished request may be freed a moment
/// later.
const REPORTS: u64 = 10;

pub(crate) struct LiveHeap(TempDir);

impl LiveHeap {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Starts a gateway that reports here.
    pub(crate) async fn spawn(&self, setup: Setup) -> Gateway {
        setup.env("E2E_LIVE_BYTES", self.0.path().to_str().unwrap()).spawn(SWITCHBOARD).await
    }

    /// Returns the live bytes of an idle gateway: the smallest count of several reports.
    pub(crate) async fn bytes(&self, gateway: &Gateway) -> u64 {
        let file = self.0.path().join(gateway.pid().to_string());
        let (mut last, _) = report(&file).await;
        let mut smallest = u64::MAX;
        for _ in 0..REPORTS {
            let newer = || async { Some(report(&file).await).filter(|(number, _)| *number > last) };
            let (number, bytes) = eventually("the next report", newer).await;
            last = number;
            smallest = smallest.min(bytes);
        }
        smallest
    }
}

/// Returns the number of the latest report, and its count.
async fn report(file: &Path) -> (u64, u64) {
    eventually("a report of live bytes", || async {
        let text = std::fs::read_to_string(file).ok()?;
        let (number, bytes) = text.trim().split_once(' ')?;
        Some((number.parse().ok()?, bytes.parse().ok()?))
    })
    .await
}
