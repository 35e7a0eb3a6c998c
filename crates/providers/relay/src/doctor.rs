//! The check of `switchboard doctor` for sessions.

use std::path::{Path, PathBuf};

use sa_http::doctor::Finding;

use crate::Settings;

impl Settings {
    /// Checks whether agents with `sandbox = true` can run in a sandbox on this machine. Returns
    /// `None` if there are no such agents.
    pub async fn sandbox_finding(
        &self,
        data_dir: &Path,
        secret_files: &[PathBuf],
    ) -> Option<Finding> {
        if !self.enabled || !self.agents.values().any(|agent| agent.sandbox) {
            return None;
        }
        let program = std::env::current_exe().ok()?;
        let checked = self.check_sandboxes(&program, data_dir, secret_files).await;
        Some(match checked {
            Ok(()) => Finding::good("agents can run in a sandbox"),
            Err(why) => {
                let (what, fix) = why.rsplit_once("; ").unwrap_or((&why, "see docs/sessions.md"));
                Finding::bad(what, fix)
            }
        })
    }
}
