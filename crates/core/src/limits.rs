//! The limit of concurrent calls for each provider. [`sa_limits::budget`] limits shared resources.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::outcome::{CallError, CallErrorKind};
use crate::provider::ProviderId;

/// The slots of one provider for concurrent calls. Short bursts beyond the limit are queued. A call
/// without a slot at the timeout fails as `overloaded`.
#[derive(Debug)]
pub struct Slots {
    semaphore: Arc<Semaphore>,
    max: usize,
}

impl Slots {
    pub fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self { semaphore: Arc::new(Semaphore::new(max)), max }
    }

    pub async fn acquire(
        &self,
        provider: &ProviderId,
        timeout: Duration,
    ) -> Result<OwnedSemaphorePermit, CallError> {
        if let Ok(slot) = Arc::clone(&self.semaphore).try_acquire_owned() {
            return Ok(slot);
        }
        match Box::pin(tokio::time::timeout(timeout, Arc::clone(&self.semaphore).acquire_owned())).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) => Err(CallError::undelivered(format!("the {provider} disconnected"))),
            Err(_) => Err(CallError::new(
                CallErrorKind::Overloaded,
                format!(
                    "the {provider} has {} running calls, which is its limit, and none ended within {} ms",
                    self.max,
                    timeout.as_millis()
                ),
            )
            .hint(
                "retry later, or raise its limit of running calls: limits.pending_per_node for a node, max_running \
                 for an upstream server or a plugin",
            )),
        }
    }

    pub fn running(&self) -> usize {
        self.max.saturating_sub(self.semaphore.available_permits())
    }

    /// Closes the slots when the provider disconnects: all queued calls fail.
    pub fn close(&self) {
        self.semaphore.close();
    }
}
