//! The policy of commands without the secret files of gateways. The result of the last search for
//! them is cached.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sa_node_sdk::ToolError;
use sa_sandbox::{Policy, marked};
use sa_vault::secret_file;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The minimum time for which a search result is cached.
const INTERVAL: Duration = Duration::from_secs(10);
/// A search result is cached for at least this multiple of the search's duration, so that searching
/// takes at most 3 % of the time.
const INTERVAL_FACTOR: u32 = 30;

/// A sandbox's policy that excludes marked files.
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

    /// Returns the policy for a command that starts now. If several commands start, one searches
    /// and the others wait for it.
    pub(super) async fn current(&self) -> Result<Policy, ToolError> {
        let mut last = self.last.lock().await;
        if Instant::now() >= last.valid_until {
            let workspace = self.workspace.clone();
            let searched = tokio::task::spawn_blocking(move || Last::search(&workspace)).await;
            *last = searched.map_err(|error| {
                ToolError::Failed(format!("cannot search for secret files: {error}"))
            })?;
        }
        last.allow(&self.policy)
            .map_err(|why| ToolError::NotAllowed(format!("the command was not started: {why}")))
    }
}

impl Last {
    fn search(workspace: &Path) -> Self {
        let began = Instant::now();
        // A workspace below a marked directory is one of the secrets.
        let found = if secret_file::is_below_marked(&real(workspace)) {
            Ok(vec![workspace.to_owned()])
        } else {
            marked::search([workspace])
        };
        let interval = INTERVAL.max(began.elapsed() * INTERVAL_FACTOR);
        Self { valid_until: Instant::now() + interval, found }
    }

    /// Returns the policy without the files that were found.
    fn allow(&self, policy: &Policy) -> Result<Policy, String> {
        policy.clone().without_marked(self.found.clone()?)
    }
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
