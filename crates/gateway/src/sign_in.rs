//! Codes that sign a person in to the console once.
//!
//! A link with the operator's token in it would live on in histories, in chats and on screens. A code is worth nothing
//! once it was used, and little time later in any case.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::tokens::same_secret;

/// How long a code can be used: long enough to find the browser.
pub const LIFE: Duration = Duration::from_secs(600);

/// Codes that can be open at once. One more, and the oldest is worth nothing.
const MAX_OPEN: usize = 16;

/// The codes that nobody has used yet. They are in memory alone: a gateway that starts anew prints a new one.
#[derive(Default)]
pub struct SignInCodes {
    open: Mutex<VecDeque<(String, Instant)>>,
}

impl SignInCodes {
    /// Makes a code.
    pub fn issue(&self) -> String {
        self.issue_at(Instant::now())
    }

    /// Uses a code up. `false` when it is none of ours, was used, or is too old.
    pub fn redeem(&self, code: &str) -> bool {
        self.redeem_at(code, Instant::now())
    }

    fn issue_at(&self, now: Instant) -> String {
        let code = BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 24]>());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() == MAX_OPEN {
            open.pop_front();
        }
        open.push_back((code.clone(), now + LIFE));
        code
    }

    fn redeem_at(&self, code: &str, now: Instant) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, until)| now < *until);
        let found = open.iter().position(|(known, _)| same_secret(known, code));
        found.is_some_and(|at| open.remove(at).is_some())
    }
}

impl std::fmt::Debug for SignInCodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignInCodes").finish_non_exhaustive()
    }
}

/// The console's address with a code. Behind the `#`, where no server, log or referrer sees it.
pub fn path(code: &str) -> String {
    format!("/console/#code={code}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_works_once() {
        let codes = SignInCodes::default();
        let code = codes.issue();
        assert!(!codes.redeem("") && !codes.redeem(&code[1..]));
        assert!(codes.redeem(&code));
        assert!(!codes.redeem(&code));
    }

    #[test]
    fn a_code_works_for_ten_minutes() {
        let (codes, start) = (SignInCodes::default(), Instant::now());
        let (early, late) = (codes.issue_at(start), codes.issue_at(start));
        assert!(codes.redeem_at(&early, start + Duration::from_millis(599_999)));
        assert!(!codes.redeem_at(&late, start + LIFE));
    }

    #[test]
    fn the_oldest_of_too_many_goes() {
        let codes = SignInCodes::default();
        let issued: Vec<_> = (0..=MAX_OPEN).map(|_| codes.issue()).collect();
        assert!(!codes.redeem(&issued[0]));
        assert!(codes.redeem(&issued[1]) && codes.redeem(&issued[MAX_OPEN]));
    }
}
