//! The policy of commands without the secret files of gateways. The last search for them counts for some time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sa_node_sdk::ToolError;
use sa_sandbox::{Policy, marked};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// A search counts for this time.
const INTERVAL: Duration = Duration::from_secs(10);
/// A search counts at least for this many times its own duration, so that searching takes at most 3 % of the time.
const INTERVAL_FACTOR: u32 = 30;

/// A sandbox's policy, kept free of marked files.
#[derive(Debug)]
pub(super) struct Guarded {
    policy: Policy,
    workspace: PathBuf,
    last: Mutex<Last>,
}

/// The last search.
#[derive(Debug)]
struct Last {
    valid_until: Instant,
    found: Result<Vec<PathBuf>, String>,
}

impl Guarded {
    /// Searches for the first time. The error is the reason why no command may be started.
    pub(super) fn new(policy: Policy, workspace: &Path) -> Result<Self, String> {
        let last = Last::search(workspace);
        last.allow(&policy)?;
        Ok(Self { policy, workspace: workspace.to_owned(), last: Mutex::new(last) })
    }

    /// The policy for a command that starts now. Of several commands, one searches and the others wait for it.
    pub(super) async fn current(&self) -> Result<Policy, ToolError> {
        let mut last = self.last.lock().await;
        if Instant::now() >= last.valid_until {
            let workspace = self.workspace.clone();
            let searched = tokio::task::spawn_blocking(move || Last::search(&workspace)).await;
            *last = searched.map_err(|error| ToolError::Failed(format!("cannot search for secret files: {error}")))?;
        }
        last.allow(&self.policy).map_err(|why| ToolError::NotAllowed(format!("no command is started: {why}")))
    }
}

impl Last {
    fn search(workspace: &Path) -> Self {
        let began = Instant::now();
        let found = marked::search([workspace]);
        let interval = INTERVAL.max(began.elapsed() * INTERVAL_FACTOR);
        Self { valid_until: Instant::now() + interval, found }
    }

    /// A policy without what was found.
    fn allow(&self, policy: &Policy) -> Result<Policy, String> {
        policy.clone().without_marked(self.found.clone()?)
    }
}
