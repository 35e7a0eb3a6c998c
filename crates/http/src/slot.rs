//! Connection slots, and the principal that each connection is charged to.
//!
//! A connection is accepted before its token is known, so it is first charged to the anonymous
//! holder. Its first request with a valid token moves the charge to that token's principal until it
//! closes. When the anonymous share is used up, each new connection evicts the oldest one without a
//! token. A flood of silent connections therefore does not block other clients.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sa_limits::budget::{Holder, Limit, Permit, Refused, SharedBudget};
use tokio::sync::Notify;

/// The number of entries below which expired ones are not removed.
const FEW: usize = 1_024;
/// The polling interval while waiting for the last connection to close.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The holder of settled connections without a token: nodes, if no node token is configured. It
/// differs from the anonymous holder, so that the limit applies when a connection settles.
/// Evictable connections also do not use up its share.
const WITHOUT_TOKEN: &str = "settled without a token";

/// The slots of all open connections.
#[derive(Debug)]
pub struct ConnectionSlots {
    budget: Arc<SharedBudget>,
    /// Connections without a token, oldest first. Settled and closed connections are skipped.
    unknown: Mutex<VecDeque<Weak<Slot>>>,
}

/// The slot of one connection, released when the socket closes.
#[derive(Debug)]
pub struct Slot {
    permit: Mutex<Permit>,
    /// Whether the connection is charged to its final holder and can no longer be evicted.
    settled: AtomicBool,
    evicted: Notify,
}

impl ConnectionSlots {
    pub fn new(max: usize) -> Arc<Self> {
        let budget = SharedBudget::new(Limit {
            name: "connections",
            what: "open connections",
            key: "server.max_connections",
            remedy: "close unused connections",
            total: max,
        });
        Arc::new(Self { budget, unknown: Mutex::default() })
    }

    pub fn budget(&self) -> &Arc<SharedBudget> {
        &self.budget
    }

    /// Returns a slot for a new connection, if one is available.
    pub fn accept(&self) -> Option<Arc<Slot>> {
        let anonymous = Holder::anonymous();
        let permit = match self.budget.acquire(&anonymous, 1) {
            Ok(permit) => permit,
            Err(_) if self.may_look() => self.budget.charge(&anonymous, 1),
            Err(_) => return None,
        };
        let slot = Arc::new(Slot {
            permit: Mutex::new(permit),
            settled: AtomicBool::new(false),
            evicted: Notify::new(),
        });
        let mut unknown = self.unknown.lock();
        if unknown.len() >= FEW.max(2 * self.budget.held_by(&anonymous)) {
            unknown.retain(|slot| slot.upgrade().is_some_and(|slot| !slot.is_settled()));
        }
        unknown.push_back(Arc::downgrade(&slot));
        Some(slot)
    }

    /// Reports whether a connection is accepted although the anonymous share is used up. It may be
    /// from an operator. The oldest connection without a token is evicted for it. If all
    /// connections have a token, the space above their limits is free, because they can never reach
    /// the total. The margin allows for evicted connections that are still closing.
    fn may_look(&self) -> bool {
        let (used, total) = (self.budget.used(), self.budget.limit().total);
        let margin = total - self.budget.largest();
        used < total + margin && (self.evict() || used < total)
    }

    /// Evicts the oldest connection without a token. Returns `false` if there is none.
    fn evict(&self) -> bool {
        let mut unknown = self.unknown.lock();
        while let Some(slot) = unknown.pop_front() {
            if let Some(slot) = slot.upgrade().filter(|slot| !slot.is_settled()) {
                slot.evicted.notify_one();
                return true;
            }
        }
        false
    }

    /// Waits until all connections are closed.
    pub async fn emptied(&self) {
        while self.budget.used() > 0 {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl Slot {
    /// Moves the charge of the connection to a holder. Only the first call has an effect, because a
    /// proxy may send requests of many principals on one connection.
    pub fn settle(&self, holder: impl FnOnce() -> Holder) -> Result<(), Refused> {
        if self.is_settled() {
            return Ok(());
        }
        let mut holder = holder();
        if holder == Holder::anonymous() {
            holder = Holder::named(WITHOUT_TOKEN);
        }
        self.permit.lock().transfer(&holder)?;
        self.settled.store(true, Ordering::Release);
        Ok(())
    }

    fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// Waits until the connection is evicted.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// Waits until the connection is evicted. A connection without a slot is never evicted.
pub async fn evicted(slot: Option<Arc<Slot>>) {
    match slot {
        Some(slot) => slot.evicted().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    //! Rule: neither one token nor a flood of clients without a token prevents others from
    //! connecting.

    use futures_util::FutureExt as _;
    use sa_core::{Principal, Role};

    use super::*;

    fn holder(id: &str, role: Role) -> Holder {
        Principal::new(id, id, role).holder()
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
            refused.message.contains("120 of them")
                && refused.hint.contains("server.max_connections"),
            "{refused:?}"
        );
        let others: Vec<_> = (0..21).map(|_| connect(&slots, &other).unwrap()).collect();
        let third: Vec<_> =
            (0..9).map(|_| connect(&slots, &holder("third", Role::Agent)).unwrap()).collect();
        assert_eq!(slots.budget().used(), 150);
        assert!(
            connect(&slots, &holder("third", Role::Agent)).is_err(),
            "the rest is for operators"
        );
        let operators: Vec<_> =
            (0..10).map(|_| connect(&slots, &holder("o", Role::Operator)).unwrap()).collect();
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
            assert!(
                oldest.evicted().now_or_never().is_some(),
                "round {round}: the oldest is closed for a new one"
            );
            flood.push_back(next);
        }
        // A client that sends its token immediately is not evicted by later connections.
        let operator = connect(&slots, &holder("o", Role::Operator)).unwrap();
        for _ in 0..500 {
            flood.push_back(slots.accept().unwrap());
            flood.pop_front();
        }
        assert!(operator.evicted().now_or_never().is_none());
        assert!(slots.unknown.lock().len() <= FEW + 1);
    }

    #[test]
    fn nodes_without_a_token_share_one_part() {
        let slots = ConnectionSlots::new(160);
        let nodes: Vec<_> =
            (0..120).map(|_| connect(&slots, &Holder::anonymous()).unwrap()).collect();
        let refused = connect(&slots, &Holder::anonymous()).unwrap_err();
        assert!(refused.message.contains("120 of them"), "{refused:?}");
        let agents: Vec<_> =
            (0..21).map(|_| connect(&slots, &holder("agent", Role::Agent)).unwrap()).collect();
        let operators: Vec<_> =
            (0..19).map(|_| connect(&slots, &holder("o", Role::Operator)).unwrap()).collect();
        assert_eq!(slots.budget().used(), 160);
        drop((nodes, agents, operators));
    }

    #[test]
    fn silent_connections_do_not_keep_out_nodes_without_a_token() {
        let slots = ConnectionSlots::new(160);
        let silent: Vec<_> = (0..120).map(|_| slots.accept().unwrap()).collect();
        let nodes: Vec<_> =
            (0..21).map(|_| connect(&slots, &Holder::anonymous()).unwrap()).collect();
        assert!(
            connect(&slots, &Holder::anonymous()).is_err(),
            "a holder of more than an eighth is refused"
        );
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
