//! Checks whether records can be written. Writes to the disk at most once per second.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sa_core::store::{Expect, Records, StoreError, StoreErrorKind};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tracing::{error, info};

/// The probe overwrites the same document each time.
const BUCKET: &str = "readiness";
const KEY: &str = "probe";

/// The time for which a result is reused.
const FRESH: Duration = Duration::from_secs(1);
/// The timeout of a write. A slower disk does not count as writable.
const TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct WriteProbe {
    records: Arc<dyn Records>,
    last: Mutex<Option<(Instant, Result<(), StoreError>)>>,
    /// The running probe. Its task continues if the request is dropped, so that a hanging disk has
    /// one probe and not one per request.
    running: tokio::sync::Mutex<Option<JoinHandle<Result<u64, StoreError>>>>,
}

impl WriteProbe {
    pub(crate) fn new(records: Arc<dyn Records>) -> Self {
        Self { records, last: Mutex::default(), running: tokio::sync::Mutex::default() }
    }

    /// Writes one document durably. Returns the last result if it is recent or if a probe is
    /// running.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let mut running = match (self.running.try_lock(), self.last()) {
            (_, Some((at, result))) if at.elapsed() < FRESH => return result,
            (Err(_), Some((_, result))) => return result,
            (Ok(running), _) => running,
            (Err(_), None) => self.running.lock().await,
        };
        // Another request may have finished the first probe while this one waited for the lock.
        if let Some((at, result)) = self.last()
            && at.elapsed() < FRESH
        {
            return result;
        }
        let task = running.get_or_insert_with(|| {
            let records = Arc::clone(&self.records);
            tokio::spawn(
                async move { records.put(BUCKET, KEY, "ok".into(), Expect::Anything).await },
            )
        });
        let result = match timeout(TIMEOUT, task).await {
            Ok(written) => {
                *running = None;
                written.unwrap_or_else(|error| {
                    Err(failure(format!("the write probe of the store failed: {error}")))
                })
            }
            Err(_) => Err(failure(format!(
                "the disk has not completed a small write within {} s",
                TIMEOUT.as_secs()
            ))),
        };
        let result = result.map(drop);
        let before = self.last.lock().replace((Instant::now(), result.clone()));
        match (&result, before.is_none_or(|(_, before)| before.is_ok())) {
            (Err(error), true) => error!(%error, "a test write to the store has failed"),
            (Ok(()), false) => info!("test writes to the store succeed again"),
            _ => {}
        }
        result
    }

    fn last(&self) -> Option<(Instant, Result<(), StoreError>)> {
        self.last.lock().clone()
    }
}

fn failure(message: String) -> StoreError {
    StoreError { kind: StoreErrorKind::Io, message }
}

impl fmt::Debug for WriteProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteProbe").field("last", &self.last()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use bytes::Bytes;
    use sa_core::store::{Record, StoreFuture};
    use tokio::sync::Notify;

    use super::*;

    /// Records that count writes, can fail, and can hang.
    #[derive(Default)]
    struct Disk {
        writes: AtomicU64,
        broken: AtomicBool,
        hangs: AtomicBool,
        released: Notify,
    }

    impl Records for Disk {
        fn get(&self, _: &str, _: &str) -> StoreFuture<'_, Option<Record>> {
            panic!("the probe reads nothing")
        }

        fn list(&self, _: &str) -> StoreFuture<'_, Vec<(String, Record)>> {
            panic!("the probe reads nothing")
        }

        fn sizes(&self, _: &str) -> StoreFuture<'_, Vec<(String, usize)>> {
            panic!("the probe reads nothing")
        }

        fn put(&self, _: &str, _: &str, _: Bytes, expect: Expect) -> StoreFuture<'_, u64> {
            assert_eq!(expect, Expect::Anything, "one document is overwritten");
            self.writes.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {
                if self.hangs.load(Ordering::Relaxed) {
                    self.released.notified().await;
                }
                if self.broken.load(Ordering::Relaxed) {
                    Err(failure("EIO".to_owned()))
                } else {
                    Ok(1)
                }
            })
        }

        fn delete(&self, _: &str, _: &str) -> StoreFuture<'_, bool> {
            panic!("the probe deletes nothing")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_requests_share_one_write_a_second_and_see_failures_come_and_go() {
        let disk = Arc::new(Disk::default());
        let probe = WriteProbe::new(Arc::clone(&disk) as _);
        for second in 1..=3 {
            for _ in 0..100 {
                assert!(probe.check().await.is_ok());
            }
            assert_eq!(disk.writes.load(Ordering::Relaxed), second);
            tokio::time::advance(FRESH).await;
        }
        disk.broken.store(true, Ordering::Relaxed);
        assert_eq!(probe.check().await.unwrap_err().message, "EIO");
        disk.broken.store(false, Ordering::Relaxed);
        assert!(probe.check().await.is_err(), "the last result");
        tokio::time::advance(FRESH).await;
        assert!(probe.check().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_fails_the_probe_and_gets_no_second_one() {
        let disk = Arc::new(Disk::default());
        let probe = WriteProbe::new(Arc::clone(&disk) as _);
        disk.hangs.store(true, Ordering::Relaxed);
        let (first, second) = tokio::join!(probe.check(), probe.check());
        assert!(first.is_err() && second.is_err());
        for _ in 0..5 {
            tokio::time::advance(FRESH).await;
            assert!(probe.check().await.is_err());
        }
        assert_eq!(disk.writes.load(Ordering::Relaxed), 1);
        disk.hangs.store(false, Ordering::Relaxed);
        disk.released.notify_one();
        tokio::time::advance(FRESH).await;
        assert!(probe.check().await.is_ok());
    }
}
