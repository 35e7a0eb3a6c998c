//! Long-running work: its progress and its cancellation.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sa_node_sdk::{ToolContext, ToolError};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// The interval of progress reports.
const PROGRESS: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct Watch {
    stop: AtomicBool,
    seen: AtomicU64,
}

impl Watch {
    pub(super) fn count_file(&self) {
        self.seen.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Runs long work on the blocking thread pool. It is stopped when the caller no longer waits.
pub(super) async fn watched<T: Send + 'static>(
    ctx: &ToolContext,
    work: impl FnOnce(Arc<Watch>) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let stopper = StopOnDrop(Arc::default());
    let watch = Arc::clone(&stopper.0);
    let mut working = tokio::task::spawn_blocking(move || work(watch));
    let mut progress = interval_at(Instant::now() + PROGRESS, PROGRESS);
    progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            done = &mut working => return done?,
            () = ctx.cancel.cancelled() => {
                stopper.0.stop();
                let _ = working.await;
                return Err(ToolError::Cancelled("the search was cancelled".into()));
            }
            _ = progress.tick() => {
                let seen = stopper.0.seen.load(Ordering::Relaxed);
                ctx.progress(seen as f64, None, Some(&format!("{seen} files checked")));
            }
        }
    }
}

struct StopOnDrop(Arc<Watch>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A file that stops reading when the work is stopped.
pub(super) struct Watched<'a> {
    pub(super) file: &'a File,
    pub(super) watch: &'a Watch,
}

impl io::Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.watch.is_stopped() {
            return Err(io::Error::other("stopped"));
        }
        self.file.read(buffer)
    }
}
