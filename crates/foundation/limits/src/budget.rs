//! Budgets that many principals share, so that no single one can take everything.
//!
//! One rule covers everything that is bounded: sessions, channels, stored bytes, connections, calls, bytes in memory.
//! - Below three quarters in use, everybody may take.
//! - Above that, a holder of more than an eighth is refused.
//! - The last sixteenth is reserved for operators.
//!
//! A [`Permit`] gives its amount back when it is dropped.

mod refused;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

pub use self::refused::Refused;
use self::refused::Why;
use crate::principal::{Principal, Role};

/// The part of a budget above which shares count.
const CROWDED: usize = 4;
/// The part of a crowded budget that one holder may have before it is refused.
const SHARE: usize = 8;
/// The part that is reserved for operators.
const RESERVE: usize = 16;

/// How finely bytes are counted that come and go all the time. Less than this is free for each connection.
pub const STEP: usize = 16 * 1024;

/// What a budget is for, as its errors, the status and the metrics name it.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// A word for the status and for metrics, such as `sessions`.
    pub name: &'static str,
    /// What is counted, in the plural, for errors: `open sessions`, `bytes of stored messages`.
    pub what: &'static str,
    /// The configuration key that raises the total.
    pub key: &'static str,
    /// What the holder can do, as an imperative: `end sessions that are not needed`.
    pub remedy: &'static str,
    pub total: usize,
}

/// The most that one holder may have, however much is free.
#[derive(Debug, Clone, Copy)]
pub struct Quota {
    pub key: &'static str,
    pub max: usize,
}

/// A total that many holders take from.
///
/// One mutex guards the sums, because the rule needs the total and the holder's part at the same moment. It is held for
/// one hash look-up.
#[derive(Debug)]
pub struct SharedBudget {
    limit: Limit,
    quota: Option<Quota>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// What each holder has. A holder with nothing has no entry.
    held: HashMap<Arc<str>, usize>,
}

/// The principal that takes from budgets: a token, or everybody without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    id: Arc<str>,
    operator: bool,
}

impl Holder {
    pub fn of(principal: &Principal) -> Self {
        Self { id: Arc::clone(&principal.id), operator: principal.role == Role::Operator }
    }

    /// The same by the token's name, where that is what tells principals apart.
    pub fn by_name(principal: &Principal) -> Self {
        Self { id: Arc::clone(&principal.name), operator: principal.role == Role::Operator }
    }

    /// A holder that is no operator, by its id.
    pub fn named(id: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), operator: false }
    }

    /// All clients that have shown no token. They share one part of each budget. No token has this id.
    pub fn anonymous() -> Self {
        static ANONYMOUS: LazyLock<Arc<str>> = LazyLock::new(|| "anonymous".into());
        Self { id: Arc::clone(&ANONYMOUS), operator: false }
    }

    pub fn id(&self) -> &Arc<str> {
        &self.id
    }
}

impl SharedBudget {
    pub fn new(limit: Limit) -> Arc<Self> {
        Arc::new(Self { limit, quota: None, state: Mutex::default() })
    }

    /// A budget of which no holder may have more than its quota.
    pub fn with_quota(limit: Limit, quota: Quota) -> Arc<Self> {
        Arc::new(Self { limit, quota: Some(quota), state: Mutex::default() })
    }

    /// Takes an amount for a holder, if the rule allows it.
    pub fn acquire(self: &Arc<Self>, holder: &Holder, amount: usize) -> Result<Permit, Refused> {
        let mut permit = self.empty(holder);
        permit.resize(amount)?;
        Ok(permit)
    }

    /// The part of a budget that one holder takes from, to be handed on.
    pub fn share(self: &Arc<Self>, holder: &Holder) -> Share {
        Share { budget: Arc::clone(self), holder: holder.clone() }
    }

    /// A permit for nothing, which can grow later.
    pub fn empty(self: &Arc<Self>, holder: &Holder) -> Permit {
        Permit { budget: Arc::clone(self), holder: holder.clone(), amount: 0 }
    }

    /// Counts an amount that exists already, such as what was stored before a restart. The rule is not asked.
    pub fn charge(self: &Arc<Self>, holder: &Holder, amount: usize) -> Permit {
        self.state().add(holder, amount);
        Permit { budget: Arc::clone(self), holder: holder.clone(), amount }
    }

    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The largest amount that fits for everybody when nothing else is in use.
    pub fn largest(&self) -> usize {
        self.limit.total - self.limit.total / RESERVE
    }

    pub fn used(&self) -> usize {
        self.state().used
    }

    pub fn held_by(&self, holder: &Holder) -> usize {
        self.state().held(holder)
    }

    /// How many holders there are.
    pub fn holders(&self) -> usize {
        self.state().held.len()
    }

    /// Why a holder may not take this much more.
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
        } else if after > total - total / CROWDED && held > total / SHARE {
            Some(Why::Share)
        } else {
            None
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A budget as one holder sees it.
#[derive(Debug, Clone)]
pub struct Share {
    budget: Arc<SharedBudget>,
    holder: Holder,
}

impl Share {
    pub fn acquire(&self, amount: usize) -> Result<Permit, Refused> {
        self.budget.acquire(&self.holder, amount)
    }

    /// A permit for nothing, which can grow later.
    pub fn empty(&self) -> Permit {
        self.budget.empty(&self.holder)
    }

    /// See [`SharedBudget::largest`].
    pub fn largest(&self) -> usize {
        self.budget.largest()
    }
}

/// An amount of a budget, given back on drop.
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

    /// Changes the amount. When more is refused, the permit keeps what it has.
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

    /// The same in whole steps of [`STEP`], rounded down, so that most changes cost nothing and small amounts are free.
    pub fn resize_in_steps(&mut self, to: usize) -> Result<(), Refused> {
        self.resize(to / STEP * STEP)
    }

    /// Hands the permit over to another holder, if that one may take as much.
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
        debug_assert!(Arc::ptr_eq(&self.budget, &other.budget) && self.holder.id == other.holder.id);
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
