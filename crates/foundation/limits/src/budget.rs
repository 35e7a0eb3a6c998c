//! Budgets that principals share, so that no single one can use everything.
//!
//! One rule applies to every bounded resource: sessions, channels, stored bytes, connections,
//! calls, bytes in memory.
//! - While less than three quarters are in use, every holder may acquire.
//! - Above that, a holder of more than an eighth is refused.
//! - The last sixteenth is reserved for operators.
//!
//! A [`Permit`] returns its amount to the budget when it is dropped.

mod refused;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::{Mutex, MutexGuard};

pub use self::refused::Refused;
use self::refused::Why;

/// The budget is crowded when less than this part (1/4) is free. Shares then apply.
const CROWDED: usize = 4;
/// The part (1/8) of a crowded budget above which a holder is refused.
const SHARE: usize = 8;
/// The part (1/16) that is reserved for operators.
const RESERVE: usize = 16;

/// The granularity for bytes that change all the time. Each connection may use less than this
/// without a charge.
pub const STEP: usize = 16 * 1024;

/// A description of a budget, used in its errors, the status and the metrics.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// A word for the status and for metrics, such as `sessions`.
    pub name: &'static str,
    /// The counted thing in the plural, for errors: `open sessions`, `bytes of stored messages`.
    pub what: &'static str,
    /// The configuration key that raises the total.
    pub key: &'static str,
    /// The remedy for the holder, as an imperative: `end sessions that are not needed`.
    pub remedy: &'static str,
    pub total: usize,
}

/// The maximum that one holder may have, even if more is free.
#[derive(Debug, Clone, Copy)]
pub struct Quota {
    pub key: &'static str,
    pub max: usize,
}

/// A total that many holders acquire from.
///
/// One mutex guards the sums, because the rule needs the total and the holder's part at the same
/// moment. The mutex is held for one hash lookup.
#[derive(Debug)]
pub struct SharedBudget {
    limit: Limit,
    quota: Option<Quota>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// The amount of each holder. A holder with nothing has no entry.
    held: HashMap<Arc<str>, usize>,
}

/// The principal that acquires from budgets: a token, or all clients without a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    id: Arc<str>,
    operator: bool,
}

impl Holder {
    /// Returns an operator, which may also acquire from the reserve.
    pub fn operator(id: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), operator: true }
    }

    /// Returns a holder that is not an operator, by its id.
    pub fn named(id: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), operator: false }
    }

    /// Returns the holder for all clients without a token. They share one part of each budget. No
    /// token has this id.
    pub fn anonymous() -> Self {
        static ANONYMOUS: LazyLock<Arc<str>> = LazyLock::new(|| "anonymous".into());
        Self { id: Arc::clone(&ANONYMOUS), operator: false }
    }

    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Returns whether the holder may acquire from the reserve.
    pub fn is_operator(&self) -> bool {
        self.operator
    }
}

impl SharedBudget {
    pub fn new(limit: Limit) -> Arc<Self> {
        Arc::new(Self { limit, quota: None, state: Mutex::default() })
    }

    /// Creates a budget in which no holder may have more than its quota.
    pub fn with_quota(limit: Limit, quota: Quota) -> Arc<Self> {
        Arc::new(Self { limit, quota: Some(quota), state: Mutex::default() })
    }

    /// Acquires an amount for a holder, if the rule allows it.
    pub fn acquire(self: &Arc<Self>, holder: &Holder, amount: usize) -> Result<Permit, Refused> {
        let mut permit = self.empty(holder);
        permit.resize(amount)?;
        Ok(permit)
    }

    /// Returns a handle for one holder of this budget.
    pub fn share(self: &Arc<Self>, holder: &Holder) -> Share {
        Share { budget: Arc::clone(self), holder: holder.clone() }
    }

    /// Returns an empty permit, which can grow later.
    pub fn empty(self: &Arc<Self>, holder: &Holder) -> Permit {
        Permit { budget: Arc::clone(self), holder: holder.clone(), amount: 0 }
    }

    /// Counts an amount that exists already, such as data stored before a restart. The rule does
    /// not apply.
    pub fn charge(self: &Arc<Self>, holder: &Holder, amount: usize) -> Permit {
        self.state().add(holder, amount);
        Permit { budget: Arc::clone(self), holder: holder.clone(), amount }
    }

    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Returns the largest amount that every holder can acquire when nothing else is in use.
    pub fn largest(&self) -> usize {
        self.limit.total - self.limit.total / RESERVE
    }

    pub fn used(&self) -> usize {
        self.state().used
    }

    pub fn held_by(&self, holder: &Holder) -> usize {
        self.state().held(holder)
    }

    /// Returns whether a holder has more than an eighth. It is refused in a crowded budget.
    pub fn is_above_share(&self, holder: &Holder) -> bool {
        self.held_by(holder) > self.share_size()
    }

    fn share_size(&self) -> usize {
        self.limit.total / SHARE
    }

    /// Returns the number of holders.
    pub fn holders(&self) -> usize {
        self.state().held.len()
    }

    /// Returns the reason why a holder may not acquire `amount` more.
    fn refusal(&self, used: usize, held: usize, operator: bool, amount: usize) -> Option<Why> {
        let (total, after) = (self.limit.total, used.saturating_add(amount));
        if let Some(quota) = self.quota.filter(|quota| held.saturating_add(amount) > quota.max) {
            return Some(Why::Quota(quota));
        }
        if operator {
            return (after > total).then_some(Why::Full);
        }
        if after > self.largest() {
            Some(Why::Full)
        } else if after > total - total / CROWDED && held > self.share_size() {
            Some(Why::Share)
        } else {
            None
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn held(&self, holder: &Holder) -> usize {
        self.held.get(&holder.id).copied().unwrap_or(0)
    }

    fn add(&mut self, holder: &Holder, amount: usize) {
        if amount == 0 {
            return;
        }
        self.used = self.used.saturating_add(amount);
        match self.held.get_mut(&holder.id) {
            Some(held) => *held += amount,
            None => drop(self.held.insert(Arc::clone(&holder.id), amount)),
        }
    }

    fn remove(&mut self, holder: &Holder, amount: usize) {
        if amount == 0 {
            return;
        }
        self.used = self.used.saturating_sub(amount);
        if let Some(held) = self.held.get_mut(&holder.id) {
            *held = held.saturating_sub(amount);
            if *held == 0 {
                self.held.remove(&holder.id);
            }
        }
    }
}

/// A handle for one holder of a budget.
#[derive(Debug, Clone)]
pub struct Share {
    budget: Arc<SharedBudget>,
    holder: Holder,
}

impl Share {
    pub fn acquire(&self, amount: usize) -> Result<Permit, Refused> {
        self.budget.acquire(&self.holder, amount)
    }

    /// Returns an empty permit, which can grow later.
    pub fn empty(&self) -> Permit {
        self.budget.empty(&self.holder)
    }

    /// See [`SharedBudget::largest`].
    pub fn largest(&self) -> usize {
        self.budget.largest()
    }
}

/// An acquired amount of a budget, returned on drop.
#[derive(Debug)]
pub struct Permit {
    budget: Arc<SharedBudget>,
    holder: Holder,
    amount: usize,
}

impl Permit {
    pub fn amount(&self) -> usize {
        self.amount
    }

    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    pub fn budget(&self) -> &Arc<SharedBudget> {
        &self.budget
    }

    /// Changes the amount. If a larger amount is refused, the permit keeps its current amount.
    pub fn resize(&mut self, to: usize) -> Result<(), Refused> {
        if to == self.amount {
            return Ok(());
        }
        let mut state = self.budget.state();
        if to < self.amount {
            state.remove(&self.holder, self.amount - to);
        } else {
            let (more, used, held) = (to - self.amount, state.used, state.held(&self.holder));
            if let Some(why) = self.budget.refusal(used, held, self.holder.operator, more) {
                return Err(Refused::new(&self.budget.limit, why, used, held, more));
            }
            state.add(&self.holder, more);
        }
        drop(state);
        self.amount = to;
        Ok(())
    }

    /// Changes the amount in whole steps of [`STEP`], rounded down. Most changes then cost nothing,
    /// and small amounts are free.
    pub fn resize_in_steps(&mut self, to: usize) -> Result<(), Refused> {
        self.resize(to / STEP * STEP)
    }

    /// Transfers the permit to another holder, if the rule allows that holder the amount.
    pub fn transfer(&mut self, to: &Holder) -> Result<(), Refused> {
        let mut state = self.budget.state();
        let (used, held) = (state.used.saturating_sub(self.amount), state.held(to));
        if *to != self.holder
            && let Some(why) = self.budget.refusal(used, held, to.operator, self.amount)
        {
            return Err(Refused::new(&self.budget.limit, why, used, held, self.amount));
        }
        state.remove(&self.holder, self.amount);
        state.add(to, self.amount);
        drop(state);
        self.holder = to.clone();
        Ok(())
    }

    /// Adds the amount of another permit of the same budget and holder to this one.
    pub fn merge(&mut self, mut other: Self) {
        debug_assert!(
            Arc::ptr_eq(&self.budget, &other.budget) && self.holder.id == other.holder.id
        );
        self.amount += std::mem::take(&mut other.amount);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.budget.state().remove(&self.holder, self.amount);
        }
    }
}
