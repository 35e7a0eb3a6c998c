//! Which principal an open connection counts for.
//!
//! A connection is accepted before its token is seen, so it counts for the anonymous holder first. Its first request with a
//! valid token moves it to that token, for as long as it is open. While clients without a token have their share, each
//! new one takes the place of the oldest that has shown none: a flood of silent connections keeps nobody out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use sa_core::budget::{Holder, Limit, Permit, Refused, SharedBudget};
use tokio::sync::Notify;

/// Fewer entries than this are not worth a look at which of them are over.
const FEW: usize = 1_024;
/// How often it is looked whether the last connection is closed.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The holder of settled connections without a token: nodes, where no node token is configured. It is not the anonymous
/// holder, so that the rule applies when a connection settles, and evictable connections do not use up its share.
const WITHOUT_TOKEN: &str = "settled without a token";

/// All connections that may be open.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    budget: Arc<SharedBudget>,
    /// Connections that have shown no token yet, oldest first. Those that have, or are closed, are skipped.
    unknown: Mutex<VecDeque<Weak<Slot>>>,
}

/// One connection's slot, given back when the socket is closed.
#[derive(Debug)]
pub(crate) struct Slot {
    permit: Mutex<Permit>,
    /// Whether it counts for whom it should, and stays.
    settled: AtomicBool,
    evicted: Notify,
}

impl ConnectionSlots {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let budget = SharedBudget::new(Limit {
            name: "connections",
            what: "open connections",
            key: "server.max_connections",
            remedy: "close connections that are not needed",
            total: max,
        });
        Arc::new(Self { budget, unknown: Mutex::default() })
    }

    pub(crate) fn budget(&self) -> &Arc<SharedBudget> {
        &self.budget
    }

    /// A slot for a new connection, if there is one.
    pub(crate) fn accept(&self) -> Option<Arc<Slot>> {
        let anonymous = Holder::anonymous();
        let permit = match self.budget.acquire(&anonymous, 1) {
            Ok(permit) => permit,
            Err(_) if self.may_look() => self.budget.charge(&anonymous, 1),
            Err(_) => return None,
        };
        let slot =
            Arc::new(Slot { permit: Mutex::new(permit), settled: AtomicBool::new(false), evicted: Notify::new() });
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if unknown.len() >= FEW.max(2 * self.budget.held_by(&anonymous)) {
            unknown.retain(|slot| slot.upgrade().is_some_and(|slot| !slot.is_settled()));
        }
        unknown.push_back(Arc::downgrade(&slot));
        Some(slot)
    }

    /// Whether a connection is accepted for which the anonymous holder has nothing left: it may be an operator's. It takes
    /// the place of the oldest one that has shown no token. Without any, there are only those that have, and these never reach
    /// the total, so that what is above their limit is free. An evicted connection is closed a moment later, hence the margin.
    fn may_look(&self) -> bool {
        let (used, total) = (self.budget.used(), self.budget.limit().total);
        let margin = total - self.budget.largest();
        used < total + margin && (self.evict() || used < total)
    }

    /// Closes the oldest connection that has shown no token. `false` if there is none.
    fn evict(&self) -> bool {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(slot) = unknown.pop_front() {
            if let Some(slot) = slot.upgrade().filter(|slot| !slot.is_settled()) {
                slot.evicted.notify_one();
                return true;
            }
        }
        false
    }

    /// Waits until all connections are closed.
    pub(crate) async fn emptied(&self) {
        while self.budget.used() > 0 {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl Slot {
    /// Counts the connection for a holder from now on. Only the first call counts: a proxy may send requests of many
    /// principals on one connection.
    pub(crate) fn settle(&self, holder: impl FnOnce() -> Holder) -> Result<(), Refused> {
        if self.is_settled() {
            return Ok(());
        }
        let mut holder = holder();
        if holder == Holder::anonymous() {
            holder = Holder::named(WITHOUT_TOKEN);
        }
        self.permit.lock().unwrap_or_else(PoisonError::into_inner).transfer(&holder)?;
        self.settled.store(true, Ordering::Release);
        Ok(())
    }

    fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// Waits until another connection needs the slot.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// Waits until the slot of a connection is needed for another one. A connection without a slot is never evicted.
pub(crate) async fn evicted(slot: Option<Arc<Slot>>) {
    match slot {
        Some(slot) => slot.evicted().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    //! Rule: neither one token nor a flood of clients without any keeps others from connecting.

    use futures_util::FutureExt as _;
    use sa_core::{Principal, Role};

    use super::*;

    fn holder(id: &str, role: Role) -> Holder {
        Holder::of(&Principal::new(id, id, role))
    }

    fn connect(slots: &ConnectionSlots, holder: &Holder) -> Result<Arc<Slot>, Refused> {
        let slot = slots.accept().expect("a slot");
        slot.settle(|| holder.clone()).map(|()| slot)
    }

    #[test]
    fn one_token_cannot_take_every_connection() {
        let slots = ConnectionSlots::new(160);
        let (greedy, other) = (holder("greedy", Role::Agent), holder("other", Role::Agent));
        let held: Vec<_> = (0..120).map(|_| connect(&slots, &greedy).unwrap()).collect();
        let refused = connect(&slots, &greedy).unwrap_err();
        assert!(
            refused.message.contains("120 of them") && refused.hint.contains("server.max_connections"),
            "{refused:?}"
        );
        let others: Vec<_> = (0..21).map(|_| connect(&slots, &other).unwrap()).collect();
        let third: Vec<_> = (0..9).map(|_| connect(&slots, &holder("third", Role::Agent)).unwrap()).collect();
        assert_eq!(slots.budget().used(), 150);
        assert!(connect(&slots, &holder("third", Role::Agent)).is_err(), "the rest is for operators");
        let operators: Vec<_> = (0..10).map(|_| connect(&slots, &holder("o", Role::Operator)).unwrap()).collect();
        assert_eq!(slots.budget().used(), 160);
        assert!(slots.accept().is_none());
        drop((held, others, third, operators));
        assert_eq!(slots.budget().used(), 0);
    }

    #[test]
    fn a_flood_without_tokens_keeps_nobody_out() {
        let slots = ConnectionSlots::new(160);
        let mut flood: VecDeque<_> = (0..120).map(|_| slots.accept().unwrap()).collect();
        for round in 0..200 {
            let next = slots.accept().unwrap();
            let oldest = flood.pop_front().unwrap();
            assert!(oldest.evicted().now_or_never().is_some(), "round {round}: the oldest is closed for a new one");
            flood.push_back(next);
        }
        // A client that shows its token at once stays, however many come after it.
        let operator = connect(&slots, &holder("o", Role::Operator)).unwrap();
        for _ in 0..500 {
            flood.push_back(slots.accept().unwrap());
            flood.pop_front();
        }
        assert!(operator.evicted().now_or_never().is_none());
        assert!(slots.unknown.lock().unwrap().len() <= FEW + 1);
    }

    #[test]
    fn nodes_without_a_token_share_one_part() {
        let slots = ConnectionSlots::new(160);
        let nodes: Vec<_> = (0..120).map(|_| connect(&slots, &Holder::anonymous()).unwrap()).collect();
        let refused = connect(&slots, &Holder::anonymous()).unwrap_err();
        assert!(refused.message.contains("120 of them"), "{refused:?}");
        let agents: Vec<_> = (0..21).map(|_| connect(&slots, &holder("agent", Role::Agent)).unwrap()).collect();
        let operators: Vec<_> = (0..19).map(|_| connect(&slots, &holder("o", Role::Operator)).unwrap()).collect();
        assert_eq!(slots.budget().used(), 160);
        drop((nodes, agents, operators));
    }

    #[test]
    fn silent_connections_do_not_keep_out_nodes_without_a_token() {
        let slots = ConnectionSlots::new(160);
        let silent: Vec<_> = (0..120).map(|_| slots.accept().unwrap()).collect();
        let nodes: Vec<_> = (0..21).map(|_| connect(&slots, &Holder::anonymous()).unwrap()).collect();
        assert!(connect(&slots, &Holder::anonymous()).is_err(), "a holder of more than an eighth is refused");
        drop((silent, nodes));
    }

    #[test]
    fn a_connection_counts_for_the_first_token_that_it_shows() {
        let slots = ConnectionSlots::new(16);
        let (first, second) = (holder("first", Role::Agent), holder("second", Role::Agent));
        let slot = connect(&slots, &first).unwrap();
        slot.settle(|| second.clone()).unwrap();
        assert_eq!((slots.budget().held_by(&first), slots.budget().held_by(&second)), (1, 0));
    }
}
