//! How many calls one provider is given at once. [`crate::budget`] bounds what all share.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::outcome::{CallError, CallErrorKind};
use crate::provider::ProviderId;

/// One provider's places. A short burst beyond them queues; what does not get a place in time is `overloaded`.
#[derive(Debug)]
pub struct Slots {
    places: Arc<Semaphore>,
    max: usize,
}

impl Slots {
    pub fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        Self { places: Arc::new(Semaphore::new(max)), max }
    }

    pub async fn enter(&self, provider: &ProviderId, patience: Duration) -> Result<OwnedSemaphorePermit, CallError> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        match Box::pin(tokio::time::timeout(patience, Arc::clone(&self.places).acquire_owned())).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) => Err(CallError::undelivered(format!("the {provider} went away"))),
            Err(_) => Err(CallError::new(
                CallErrorKind::Overloaded,
                format!(
                    "the {provider} has {} calls running, its limit, and none ended within {} ms",
                    self.max,
                    patience.as_millis()
                ),
            )
            .hint(
                "try again later, or let it have more calls at once: limits.pending_per_node for a node, max_running \
                 for an upstream server or plugins",
            )),
        }
    }

    pub fn running(&self) -> usize {
        self.max.saturating_sub(self.places.available_permits())
    }

    /// The provider is gone: whoever waits for a place need not.
    pub fn close(&self) {
        self.places.close();
    }
}
