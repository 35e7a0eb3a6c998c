//! The bytes that one connection takes from a budget.
//!
//! Each connection may use a little without a charge, and the rest is charged in steps. Most
//! changes then do not touch the shared budget.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sa_limits::budget::{Permit, Refused, Share};

#[derive(Debug)]
pub(crate) struct ByteCounter(Mutex<State>);

#[derive(Debug)]
struct State {
    /// The bytes of all charges.
    bytes: usize,
    permit: Permit,
}

impl ByteCounter {
    pub(crate) fn new(share: &Share) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { bytes: 0, permit: share.empty() })))
    }

    pub(crate) fn empty(self: &Arc<Self>) -> Charge {
        Charge { byte_counter: Arc::clone(self), bytes: 0 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// The charge for one text, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    byte_counter: Arc<ByteCounter>,
    bytes: usize,
}

impl Charge {
    /// Changes the charge. If a larger one is refused, it stays as it is.
    pub(crate) fn resize(&mut self, to: usize) -> Result<(), Refused> {
        let mut state = self.byte_counter.state();
        // A text of the largest allowed size always fits in an empty budget.
        let to = to.min(state.permit.budget().largest());
        let bytes = state.bytes - self.bytes + to;
        state.permit.resize_in_steps(bytes)?;
        state.bytes = bytes;
        drop(state);
        self.bytes = to;
        Ok(())
    }

    /// Adds another charge of the same connection and budget to this one.
    pub(crate) fn merge(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.byte_counter, &other.byte_counter));
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // A smaller charge is never refused.
        let _ = self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use sa_limits::budget::{Holder, Limit, STEP, SharedBudget};

    use super::*;

    #[test]
    fn the_charges_of_a_connection_are_counted_together_until_they_are_dropped() {
        let limit = Limit { name: "b", what: "bytes", key: "k", remedy: "wait", total: 16 * STEP };
        let budget = SharedBudget::new(limit);
        let byte_counter = ByteCounter::new(&budget.share(&Holder::named("a")));
        let (mut first, mut second) = (byte_counter.empty(), byte_counter.empty());
        first.resize(STEP - 1).unwrap();
        assert_eq!(budget.used(), 0, "a little is free");
        second.resize(STEP + 1).unwrap();
        assert_eq!(budget.used(), 2 * STEP);
        assert!(first.resize(15 * STEP).is_err());
        assert_eq!(budget.used(), 2 * STEP);
        first.merge(second);
        assert_eq!(budget.used(), 2 * STEP);
        drop(first);
        assert_eq!(budget.used(), 0);
        let mut huge = byte_counter.empty();
        huge.resize(usize::MAX).unwrap();
        assert_eq!(budget.used(), 15 * STEP);
    }
}
