//! Why a budget gave nothing: what is exhausted, how much the holder has, and what to do.

use super::{CROWDED, Limit, Quota, RESERVE, SHARE};
use crate::outcome::{CallError, CallErrorKind};

/// Nothing was taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// Names what is exhausted, and how much of it the holder has.
    pub message: String,
    /// What to do, with the configuration key that raises the limit.
    pub hint: String,
    /// Whether the same may be granted later. A quota stays used until its holder acts.
    pub transient: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Why {
    /// There is not enough left, apart from what is reserved.
    Full,
    /// The budget is crowded, and the holder has more than its share.
    Share,
    /// The holder has as much as any holder may have.
    Quota(Quota),
}

impl Refused {
    pub(super) fn new(limit: &Limit, why: Why, used: usize, held: usize, wanted: usize) -> Self {
        let Limit { what, total, remedy, .. } = limit;
        let in_use = format!("the gateway has {used} of {total} {what} in use, {held} of them by this principal");
        let (message, key) = match why {
            Why::Full => {
                let message = format!("{in_use}; {wanted} more do not fit (1/{RESERVE} is reserved for operators)");
                (message, limit.key)
            }
            Why::Share => {
                let most = CROWDED - 1;
                let rule = format!("above {most}/{CROWDED} in use, a principal with more than 1/{SHARE} gets no more");
                (format!("{in_use}; {rule}"), limit.key)
            }
            Why::Quota(Quota { key, max }) => {
                let message = format!(
                    "this principal has {held} of the {max} {what} that one principal may have; {wanted} more do not fit"
                );
                (message, key)
            }
        };
        let hint = format!("{remedy}, or ask the operator to raise {key}");
        Self { message, hint, transient: !matches!(why, Why::Quota(_)) }
    }
}

impl From<Refused> for CallError {
    fn from(refused: Refused) -> Self {
        let Refused { message, hint, transient } = refused;
        Self::new(CallErrorKind::Overloaded, message).hint(hint).retryable(transient)
    }
}
