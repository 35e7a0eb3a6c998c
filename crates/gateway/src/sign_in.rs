//! One-time codes for signing in to the console.
//!
//! A link with the operator's token would remain valid in histories, chats and screenshots. A code
//! is invalid after its first use, and expires soon in any case.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use parking_lot::Mutex;

use sa_http::auth::same_secret;

/// The lifetime of a code. It leaves enough time to open a browser.
pub const LIFE: Duration = Duration::from_secs(600);

/// The maximum number of open codes. A further one invalidates the oldest.
const MAX_OPEN: usize = 16;

/// The unused codes. They are only in memory, and a restarted gateway prints a new one.
#[derive(Default)]
pub struct SignInCodes {
    open: Mutex<VecDeque<(String, Instant)>>,
}

impl SignInCodes {
    /// Creates a code.
    pub fn issue(&self) -> String {
        self.issue_at(Instant::now())
    }

    /// Consumes a code. Returns `false` if it is unknown, used or expired.
    pub fn redeem(&self, code: &str) -> bool {
        self.redeem_at(code, Instant::now())
    }

    fn issue_at(&self, now: Instant) -> String {
        let code = BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 24]>());
        let mut open = self.open.lock();
        if open.len() == MAX_OPEN {
            open.pop_front();
        }
        open.push_back((code.clone(), now + LIFE));
        code
    }

    fn redeem_at(&self, code: &str, now: Instant) -> bool {
        let mut open = self.open.lock();
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

/// Returns the console path with a code. The code is in the fragment, which does not reach servers,
/// logs or referrers.
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
