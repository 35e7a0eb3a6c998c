//! The budget for answers.

use std::sync::Arc;

use sa_limits::budget::{Limit, SharedBudget};

pub(crate) fn answers(total: usize) -> Arc<SharedBudget> {
    SharedBudget::new(Limit {
        name: "provider_answers",
        what: "bytes of answers",
        key: "limits.provider_answer_bytes",
        remedy: "request less",
        total,
    })
}
