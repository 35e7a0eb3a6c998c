//! Counts the answer of a provider or a model in a budget, from its first large piece until a
//! surface has passed it on.
//!
//! A small answer is free: it touches no budget.

use std::sync::Arc;

use crate::budget::{Permit, Refused, STEP, Share};
use crate::offload::LARGE;

/// One answer that is being received.
#[derive(Debug)]
pub struct Received {
    /// `None` if the answer takes no budget.
    share: Option<Share>,
    permit: Option<Permit>,
}

impl Received {
    /// Returns the counter of an answer that takes from this share.
    pub fn counted(share: Share) -> Self {
        Self { share: Some(share), permit: None }
    }

    /// Returns the counter of an answer that takes no budget, for requests of the gateway itself.
    pub fn uncounted() -> Self {
        Self { share: None, permit: None }
    }

    /// Counts this number of bytes, unless more are counted already. A single answer always fits,
    /// however large it is.
    pub fn grow(&mut self, to: usize) -> Result<(), Refused> {
        let Some(share) = self.share.as_ref().filter(|_| to >= LARGE) else { return Ok(()) };
        let to = (to / STEP * STEP).min(share.largest());
        let permit = self.permit.get_or_insert_with(|| share.empty());
        if to > permit.amount() { permit.resize(to) } else { Ok(()) }
    }

    /// Counts at most this number of bytes from now on.
    pub fn shrink(&mut self, to: usize) {
        let Some(permit) = &mut self.permit else { return };
        if to < LARGE {
            self.permit = None;
        } else if to < permit.amount() {
            // A smaller amount is never refused.
            let _ = permit.resize_in_steps(to);
        }
    }

    /// Returns the counted part, for the value that was made of the answer.
    pub fn into_held(self) -> Held {
        Held { permit: self.permit.map(Arc::new) }
    }
}

/// The part of a budget that a value holds while it is in memory. Copies of the value share it.
///
/// Two values are equal whatever they hold.
#[derive(Debug, Clone, Default)]
pub struct Held {
    permit: Option<Arc<Permit>>,
}

impl Held {
    /// Returns whether the value holds nothing, because it is small.
    pub fn is_empty(&self) -> bool {
        self.permit.is_none()
    }
}

impl PartialEq for Held {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Held {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Holder, Limit, SharedBudget};

    fn budget(total: usize) -> Arc<SharedBudget> {
        SharedBudget::new(Limit { name: "b", what: "bytes", key: "k", remedy: "wait", total })
    }

    #[test]
    fn an_answer_counts_in_steps_until_the_last_copy_of_its_value_is_dropped() {
        let budget = budget(64 * LARGE);
        let mut received = Received::counted(budget.share(&Holder::named("a")));
        received.grow(LARGE - 1).unwrap();
        assert_eq!((budget.used(), budget.holders()), (0, 0), "a small answer is free");
        received.grow(LARGE).unwrap();
        received.grow(3 * LARGE + STEP + 1).unwrap();
        received.grow(LARGE).unwrap();
        assert_eq!(budget.used(), 3 * LARGE + STEP);
        received.shrink(2 * LARGE);
        received.shrink(9 * LARGE);
        assert_eq!(budget.used(), 2 * LARGE);
        let held = received.into_held();
        let copy = held.clone();
        drop(held);
        assert_eq!(budget.used(), 2 * LARGE);
        drop(copy);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_has_become_small_is_free() {
        let budget = budget(64 * LARGE);
        let mut received = Received::counted(budget.share(&Holder::named("a")));
        received.grow(4 * LARGE).unwrap();
        received.shrink(LARGE - 1);
        assert_eq!(budget.used(), 0);
        received.grow(LARGE).unwrap();
        assert_eq!(budget.used(), LARGE);
    }

    #[test]
    fn a_single_answer_fits_and_the_next_one_of_its_principal_is_refused() {
        let budget = budget(16 * LARGE);
        let share = budget.share(&Holder::named("a"));
        let mut first = Received::counted(share.clone());
        first.grow(usize::MAX).unwrap();
        assert_eq!(budget.used(), budget.largest());
        let mut second = Received::counted(share);
        assert!(second.grow(LARGE).is_err());
        second.grow(LARGE - 1).unwrap();
        Received::uncounted().grow(usize::MAX).unwrap();
    }
}
