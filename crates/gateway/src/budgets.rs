//! The sizes of the in-memory byte budgets, and the budgets that belong to no provider.
//!
//! Each budget has a configuration key. The default of 0 gives it a share of
//! `limits.pending_bytes`. That key defaults to half of the memory limit, and at most 2 GiB. The
//! other half is left for memory that is not counted: buffers, parsed messages and the store's
//! cache.

use std::sync::Arc;

use sa_limits::budget::{Limit, SharedBudget};

use crate::config::settings::Settings;
use sa_http::slot::ConnectionSlots;

/// The default maximum of all budgets together.
const MOST: u64 = 2 << 30;
/// The number of shares that all budgets are divided into.
const PARTS: u64 = 18;

/// The size of each budget in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub requests: usize,
    pub arguments: usize,
    pub answers: usize,
    pub provider_answers: usize,
    pub node_messages: usize,
    pub node_requests: usize,
    pub node_hellos: usize,
    pub channel_messages: usize,
    /// Stored on disk, so not part of the total in memory.
    pub task_results: usize,
    /// Stored on disk, so not part of the total in memory.
    pub idempotency_outcomes: usize,
}

impl Sizes {
    pub fn of(settings: &Settings, memory_limit: u64) -> Self {
        let Settings { limits, nodes, channels, mcp, .. } = settings;
        let all = match limits.pending_bytes as u64 {
            0 => (memory_limit / 2).min(MOST),
            all => all,
        };
        let size =
            |set: usize, parts: u64| if set == 0 { (all / PARTS * parts) as usize } else { set };
        Self {
            requests: size(limits.request_bytes, 3),
            arguments: size(limits.argument_bytes, 2),
            answers: size(limits.answer_bytes, 3),
            provider_answers: size(limits.provider_answer_bytes, 2),
            node_messages: size(nodes.message_bytes, 2),
            node_requests: size(nodes.request_bytes, 2),
            node_hellos: size(nodes.hello_bytes, 2),
            channel_messages: size(channels.pending_bytes, 2),
            task_results: size(mcp.task_result_bytes, 4),
            idempotency_outcomes: size(limits.idempotency_bytes, 4),
        }
    }

    /// Returns the total of all budgets in memory.
    pub fn total(&self) -> usize {
        let Self {
            requests,
            arguments,
            answers,
            provider_answers,
            node_messages,
            node_requests,
            node_hellos,
            channel_messages,
            ..
        } = *self;
        let all = [
            requests,
            arguments,
            answers,
            provider_answers,
            node_messages,
            node_requests,
            node_hellos,
            channel_messages,
        ];
        all.into_iter().fold(0, usize::saturating_add)
    }
}

/// The budgets for incoming and outgoing HTTP traffic. The budgets are separate, so that slow
/// readers cannot close connections of nodes, and callers cannot cause nodes to be rejected.
#[derive(Debug)]
pub struct Budgets {
    /// For requests and messages of callers and participants, from their first byte until they are
    /// handled.
    pub requests: Arc<SharedBudget>,
    /// For messages from nodes that are still being received.
    pub node_messages: Arc<SharedBudget>,
    /// For responses that clients have not read yet.
    pub answers: Arc<SharedBudget>,
    /// For answers of providers and models, from their first byte until a surface has passed them
    /// on. Then they count as responses.
    pub provider_answers: Arc<SharedBudget>,
    pub(crate) connections: Arc<ConnectionSlots>,
}

impl Budgets {
    pub(crate) fn new(sizes: &Sizes, max_connections: usize) -> Self {
        let requests = Limit {
            name: "requests",
            what: "bytes of large requests",
            key: "limits.request_bytes",
            remedy: "wait until other requests are done, or send less",
            total: sizes.requests,
        };
        let node_messages = Limit {
            name: "node_messages",
            what: "bytes of large messages from nodes",
            key: "nodes.message_bytes",
            remedy: "try again later, or send less",
            total: sizes.node_messages,
        };
        let answers = Limit {
            name: "answers",
            what: "bytes of unread responses",
            key: "limits.answer_bytes",
            remedy: "read the responses, or request less",
            total: sizes.answers,
        };
        let provider_answers = Limit {
            name: "provider_answers",
            what: "bytes of large answers of providers and models",
            key: "limits.provider_answer_bytes",
            remedy: "make fewer such calls at once, or request less",
            total: sizes.provider_answers,
        };
        Self {
            requests: SharedBudget::new(requests),
            node_messages: SharedBudget::new(node_messages),
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
            let total = Sizes::of(&Settings::default(), limit).total() as u64;
            let most = (limit / 2).min(MOST);
            assert!(total <= most && total > most - PARTS, "{total} of {limit}");
        }
    }

    #[test]
    fn a_key_sets_one_budget_and_pending_bytes_scales_the_others() {
        let mut settings = Settings::default();
        settings.limits.pending_bytes = 1_800;
        settings.limits.answer_bytes = 7;
        let sizes = Sizes::of(&settings, GIB);
        assert_eq!(
            (sizes.requests, sizes.arguments, sizes.answers, sizes.node_hellos),
            (300, 200, 7, 200)
        );
        assert_eq!((sizes.task_results, sizes.idempotency_outcomes), (400, 400));
    }
}
