//! How much may go on at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::aside;
use crate::outcome::{CallError, CallErrorKind};
use crate::provider::ProviderId;

/// A count with a ceiling: of calls, or of the bytes that they hold.
#[derive(Debug)]
pub struct Ceiling {
    count: AtomicUsize,
    max: usize,
}

impl Ceiling {
    pub fn new(max: usize) -> Self {
        Self { count: AtomicUsize::new(0), max }
    }

    pub fn enter(self: &Arc<Self>, amount: usize) -> Option<Entered> {
        let entered = self.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
            count.checked_add(amount).filter(|count| *count <= self.max)
        });
        entered.ok().map(|_| Entered(Arc::clone(self), amount))
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub fn max(&self) -> usize {
        self.max
    }
}

/// A place under the ceiling, given back on drop.
#[derive(Debug)]
pub struct Entered(Arc<Ceiling>, usize);

impl Entered {
    pub fn amount(&self) -> usize {
        self.1
    }

    /// Takes so much more; `false` when there is no room for it.
    #[must_use]
    pub fn grow(&mut self, more: usize) -> bool {
        let Some(mut more) = self.0.enter(more) else { return false };
        self.1 += std::mem::take(&mut more.1);
        true
    }
}

impl Entered {
    /// Gives back what is beyond so much. What is kept is never up for others meanwhile.
    pub fn shrink(&mut self, to: usize) {
        let less = self.1.saturating_sub(to);
        // Nobody else's count is touched for nothing.
        if less > 0 {
            self.0.count.fetch_sub(less, Ordering::AcqRel);
            self.1 -= less;
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.count.fetch_sub(self.1, Ordering::AcqRel);
    }
}

/// Room for something that comes piece by piece, taken once it is large.
#[derive(Debug)]
pub struct Growing {
    room: Arc<Ceiling>,
    held: Option<Entered>,
}

impl Growing {
    pub fn new(room: Arc<Ceiling>) -> Self {
        Self { room, held: None }
    }

    /// How much there is for everybody together.
    pub fn max(&self) -> usize {
        self.room.max()
    }

    /// Keeps room for so much, more or less than before; `false` when there is no room for it, and what was kept is kept.
    #[must_use]
    pub fn keep(&mut self, bytes: usize) -> bool {
        // By the step, so that hardly anybody has to ask.
        let wanted = bytes / aside::LARGE * aside::LARGE;
        match &mut self.held {
            held if wanted == 0 => {
                *held = None;
                true
            }
            Some(held) if wanted <= held.amount() => {
                held.shrink(wanted);
                true
            }
            Some(held) => held.grow(wanted - held.amount()),
            none => {
                *none = self.room.enter(wanted);
                none.is_some()
            }
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_needs_less_keeps_what_is_left_and_gives_back_the_rest() {
        let room = Arc::new(Ceiling::new(4 * aside::LARGE));
        let mut growing = Growing::new(Arc::clone(&room));
        assert!(growing.keep(aside::LARGE - 1) && room.count() == 0, "what is small takes none");
        assert!(growing.keep(3 * aside::LARGE));
        let other = room.enter(aside::LARGE);
        assert!(growing.keep(2 * aside::LARGE) && room.count() == 3 * aside::LARGE);
        assert!(!growing.keep(4 * aside::LARGE));
        drop(other);
        assert!(growing.keep(4 * aside::LARGE) && growing.keep(0));
        assert_eq!(room.count(), 0);
    }
}
