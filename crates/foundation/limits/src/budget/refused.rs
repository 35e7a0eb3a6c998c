//! The error for a refused amount: the exhausted budget, the holder's part, and a remedy.

use super::{CROWDED, Limit, Quota, RESERVE, SHARE};

/// A refused acquisition. Nothing was acquired.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// Names the exhausted budget and the holder's part of it.
    pub message: String,
    /// The remedy, with the configuration key that raises the limit.
    pub hint: String,
    /// Whether a later attempt may succeed. A quota stays used until its holder acts.
    pub transient: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Why {
    /// Not enough is left, apart from the reserve.
    Full,
    /// The budget is crowded, and the holder has more than its share.
    Share,
    /// The holder has reached its quota.
    Quota(Quota),
}

impl Refused {
    pub(super) fn new(limit: &Limit, why: Why, used: usize, held: usize, wanted: usize) -> Self {
        let Limit { what, total, remedy, .. } = limit;
        let in_use = format!(
            "the gateway has {used} of {total} {what} in use, {held} of them by this principal"
        );
        let (message, key) = match why {
            Why::Full => {
                let message = format!(
                    "{in_use}; {wanted} more do not fit (1/{RESERVE} is reserved for operators)"
                );
                (message, limit.key)
            }
            Why::Share => {
                let most = CROWDED - 1;
                let rule = format!(
                    "above {most}/{CROWDED} in use, a principal with more than 1/{SHARE} cannot acquire more"
                );
                (format!("{in_use}; {rule}"), limit.key)
            }
            Why::Quota(Quota { key, max }) => {
                let message = format!(
                    "this principal has {held} of the {max} {what} allowed for one principal; {wanted} more do not fit"
                );
                (message, key)
            }
        };
        let hint = format!("{remedy}, or ask the operator to raise {key}");
        Self { message, hint, transient: !matches!(why, Why::Quota(_)) }
    }
}
