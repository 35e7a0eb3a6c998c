//! The policy of commands without the secret files of gateways.
//!
//! A gateway may mark a file at any time. A search before each command looks at the files nearest
//! to the top of each directory, which are all files of most workspaces. The result for the others
//! is cached. While commands run, the searches are repeated, and a command that could read a secret
//! file is ended.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sa_node_sdk::ToolError;
use sa_sandbox::Policy;
use sa_sandbox::marked::{self, Search};
use sa_vault::secret_file;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

/// The number of files and directories that are searched before each command. This takes a few
/// milliseconds.
const FIRST: usize = 10_000;
/// The minimum time between two searches while commands run.
const INTERVAL: Duration = Duration::from_secs(2);
/// The time between two complete searches, and between two searches while commands run, is at least
/// this multiple of their duration, so that each takes at most 3 % of the time.
const INTERVAL_FACTOR: u32 = 30;

/// A sandbox's policy that excludes marked files.
#[derive(Debug)]
pub(super) struct Guarded {
    policy: Policy,
    workspace: PathBuf,
    last: Mutex<Last>,
}

/// The permissions of a command, and the marked files that are hidden from it.
#[derive(Debug)]
pub(super) struct Allowed {
    pub(super) policy: Policy,
    pub(super) hidden: Vec<PathBuf>,
}

/// The last search.
#[derive(Debug, Clone)]
struct Last {
    began: Instant,
    /// The duration of the bounded part of a search.
    first_took: Duration,
    /// Until then, the result of the last complete search is used.
    valid_until: Instant,
    found: Result<Vec<PathBuf>, String>,
}

impl Guarded {
    /// Searches for the first time. The error is the reason why no command may be started.
    pub(super) fn new(policy: Policy, workspace: &Path) -> Result<Self, String> {
        let last = Last::complete(workspace);
        policy.clone().without_marked(last.found.clone()?)?;
        Ok(Self { policy, workspace: workspace.to_owned(), last: Mutex::new(last) })
    }

    /// Returns the permissions of a command that starts now.
    pub(super) async fn current(&self) -> Result<Allowed, ToolError> {
        let refused =
            |why: String| ToolError::NotAllowed(format!("the command was not started: {why}"));
        let hidden = self.found(Instant::now()).await.map_err(refused)?;
        let policy = self.policy.clone().without_marked(hidden.clone()).map_err(refused)?;
        Ok(Allowed { policy, hidden })
    }

    /// Waits until a running command could read a secret file, or until the search for such files
    /// fails. Returns the reason. `hidden` are the marked files that were found before the command.
    pub(super) async fn revoked(&self, hidden: &[PathBuf]) -> String {
        loop {
            let pause = INTERVAL.max(self.last.lock().await.first_took * INTERVAL_FACTOR);
            sleep(pause).await;
            // Another command may have searched meanwhile.
            let found = match self.found(Instant::now() - pause / 2).await {
                Ok(found) => found,
                Err(why) => return why,
            };
            let is_hidden = |path: &Path| hidden.iter().any(|root| path.starts_with(root));
            let visible = |path: &&PathBuf| self.policy.shows(path) && !is_hidden(path);
            if let Some(path) = found.iter().find(visible) {
                return format!(
                    "{} belongs to the secret files of a Switchboard gateway, and the command could read it",
                    path.display()
                );
            }
        }
    }

    /// Returns the marked files, from a search that began at this time or later. If several
    /// commands need one, they share it.
    async fn found(&self, since: Instant) -> Result<Vec<PathBuf>, String> {
        let mut last = self.last.lock().await;
        if last.began < since {
            let (workspace, before) = (self.workspace.clone(), last.clone());
            let search = tokio::task::spawn_blocking(move || before.renewed(&workspace));
            *last = search.await.map_err(|error| format!("cannot search for secrets: {error}"))?;
        }
        last.found.clone()
    }
}

impl Last {
    /// Searches everything.
    fn complete(workspace: &Path) -> Self {
        let began = Instant::now();
        let found = if is_secret(workspace) {
            Ok(vec![workspace.to_owned()])
        } else {
            marked::search([workspace])
        };
        Self { began, first_took: Duration::ZERO, valid_until: valid_until(began), found }
    }

    /// Searches again, as much as necessary.
    fn renewed(self, workspace: &Path) -> Self {
        let began = Instant::now();
        let Search { found, is_complete } = if is_secret(workspace) {
            Search { found: vec![workspace.to_owned()], is_complete: true }
        } else {
            marked::search_first([workspace], FIRST)
        };
        let first_took = began.elapsed();
        if is_complete {
            return Self { began, first_took, valid_until: valid_until(began), found: Ok(found) };
        }
        if began >= self.valid_until {
            return Self { first_took, ..Self::complete(workspace) };
        }
        let found = self.found.map(|mut all| {
            all.retain(|path| secret_file::is_below_marked(path) && !found.contains(path));
            all.extend(found);
            all
        });
        Self { began, first_took, found, ..self }
    }
}

/// Returns whether a workspace is below a marked directory.
fn is_secret(workspace: &Path) -> bool {
    secret_file::is_below_marked(&real(workspace))
}

/// Returns how long the result of a complete search is used that ends now.
fn valid_until(began: Instant) -> Instant {
    Instant::now() + began.elapsed() * INTERVAL_FACTOR
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
