//! Refused tokens in the audit log.

use sa_core::AuditEvent;
use sa_core::audit::MAX_SUBJECT;

use crate::{Ends, Http, Refused};

impl Http {
    /// Records a refused token in the audit log, without the token itself. A missing token is not
    /// recorded.
    pub fn token_refused(&self, refused: Refused, ends: Ends, path: &str) {
        if refused != Refused::Missing {
            self.token_refused_because(refused.message(), ends, path);
        }
    }

    /// Records a valid token that is not allowed here.
    pub fn token_refused_because(&self, why: &str, ends: Ends, path: &str) {
        self.journal.refused(AuditEvent {
            name: "token.refused",
            actor: ends.remote.ip().to_canonical().to_string(),
            subject: masked_path(path),
            detail: why.to_owned(),
        });
    }
}

/// Returns a path for the audit log. A segment that looks like a token is masked.
pub fn masked_path(path: &str) -> String {
    let segment = |segment: &str| if segment.contains("sb_") { "***" } else { segment }.to_owned();
    let path: Vec<String> = path.split('/').map(segment).collect();
    path.join("/").chars().take(MAX_SUBJECT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_the_audit_log_is_short_and_shows_no_token() {
        assert_eq!(masked_path("/v1/calls/sb_secret/x"), "/v1/calls/***/x");
        assert_eq!(masked_path("/"), "/");
        assert_eq!(masked_path(&"/long".repeat(100)).chars().count(), MAX_SUBJECT);
    }
}
