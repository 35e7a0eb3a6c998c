//! The sizes of the in-memory byte budgets, and the budgets that belong to no provider.
//!
//! Each budget has a configuration key. The default of 0 gives it a share of
//! `limits.pending_bytes`. That key defaults to half of the memory limit, and at most 2 GiB. The
//! other half is left for memory that is not counted: buffers, parsed messages and the store's
//! cache.

use std::sync::Arc;

use sa_limits::budget::{Limit, SharedBudget};
use sa_settings::{Budget, Limits};

use crate::assemble::Settings;
use sa_http::slot::ConnectionSlots;

/// The default maximum of all budgets together.
const MOST: u64 = 2 << 30;
/// The number of shares that all budgets are divided into.
const PARTS: u64 = 18;

/// Gives each budget without a size its share, and returns the total of all budgets in memory.
pub fn assign(settings: &mut Settings, memory_limit: u64) -> u64 {
    let all = match settings.limits.pending_bytes as u64 {
        0 => (memory_limit / 2).min(MOST),
        all => all,
    };
    let mut total = 0_u64;
    for (_, section) in settings.sections_mut() {
        for Budget { size, parts, on_disk } in section.budgets() {
            if *size == 0 {
                *size = (all / PARTS * parts) as usize;
            }
            if !on_disk {
                total = total.saturating_add(*size as u64);
            }
        }
    }
    total
}

/// The budgets for incoming and outgoing HTTP traffic. The budgets are separate, so that slow
/// readers cannot close connections of nodes, and callers cannot cause nodes to be rejected.
#[derive(Debug)]
pub struct Budgets {
    /// For requests and messages of callers and participants, from their first byte until they are
    /// handled.
    pub requests: Arc<SharedBudget>,
    /// For responses that clients have not read yet.
    pub answers: Arc<SharedBudget>,
    /// For answers of providers and models, from their first byte until a surface has passed them
    /// on. Then they count as responses.
    pub provider_answers: Arc<SharedBudget>,
    pub(crate) connections: Arc<ConnectionSlots>,
}

impl Budgets {
    pub(crate) fn new(limits: &Limits, max_connections: usize) -> Self {
        let requests = Limit {
            name: "requests",
            what: "bytes of large requests",
            key: "limits.request_bytes",
            remedy: "wait until other requests are done, or send less",
            total: limits.request_bytes,
        };
        let answers = Limit {
            name: "answers",
            what: "bytes of unread responses",
            key: "limits.answer_bytes",
            remedy: "read the responses, or request less",
            total: limits.answer_bytes,
        };
        let provider_answers = Limit {
            name: "provider_answers",
            what: "bytes of large answers of providers and models",
            key: "limits.provider_answer_bytes",
            remedy: "make fewer such calls at once, or request less",
            total: limits.provider_answer_bytes,
        };
        Self {
            requests: SharedBudget::new(requests),
            answers: SharedBudget::new(answers),
            provider_answers: SharedBudget::new(provider_answers),
            connections: ConnectionSlots::new(max_connections),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn by_default_all_budgets_together_are_half_of_the_memory_limit() {
        for limit in [64 << 20, GIB, 3 * GIB, 64 * GIB] {
            let total = assign(&mut Settings::default(), limit);
            let most = (limit / 2).min(MOST);
            assert!(total <= most && total > most - PARTS, "{total} of {limit}");
        }
    }

    #[test]
    fn a_key_sets_one_budget_and_pending_bytes_scales_the_others() {
        let mut settings = Settings::default();
        settings.limits.pending_bytes = 1_800;
        settings.limits.answer_bytes = 7;
        assert_eq!(assign(&mut settings, GIB), 1_507);
        let limits = settings.limits;
        assert_eq!(
            (limits.request_bytes, limits.argument_bytes, limits.answer_bytes),
            (300, 200, 7)
        );
        assert_eq!(limits.idempotency_bytes, 400, "on disk, and not part of the total");
    }
}
