//! The sandbox of a machine's commands: its policy, and the check whether it is possible.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sa_sandbox::Policy;

use super::private::PrivateDir;
use crate::machine::{Options, Sandbox, StartError};

/// Returns the policy: the system is readable, and the workspace is writable or readable. The
/// node's secrets are hidden. So is a home among the system's directories, but the workspace may be
/// inside it. If the home is in the workspace, its credentials are hidden.
pub(super) fn policy(options: &Options, wanted: Sandbox) -> Policy {
    let mut policy = Policy::new(wanted.network);
    let home = options.home().and_then(|home| home.canonicalize().ok());
    policy.homes.extend(home.clone());
    let among = |home: &PathBuf| policy.shows(home) && !policy.readable.contains(home);
    let outside = |home: &PathBuf| !home.starts_with(&options.workspace);
    let home = home.filter(among).filter(outside);
    let place = if options.read_only { &mut policy.readable } else { &mut policy.writable };
    place.push(options.workspace.clone());
    // It is a real path already. Another command may be able to change a directory above it.
    policy.pinned.insert(options.workspace.clone(), options.workspace.clone());
    // Each command also hides the ones that exist when it starts. These stay hidden even if a
    // command removes the link that leads to them.
    let credentials = policy.credentials();
    policy.hiding(options.hidden.iter().cloned().chain(home).chain(credentials))
}

/// Tries the sandbox in a separate process, so that a node that cannot provide it does not start.
pub(super) fn check(
    supervisor: &Path,
    policy: &Policy,
    secrets: &[PathBuf],
) -> Result<(), StartError> {
    let visible = |why: String| StartError::Secret { why };
    let secrets: Vec<PathBuf> =
        secrets.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())).collect();
    if let Some(path) =
        secrets.iter().find(|path| policy.writable.iter().any(|root| path.starts_with(root)))
    {
        return Err(visible(format!(
            "{} is in the workspace, where it cannot be protected from commands; choose a workspace that does not contain \
             it, such as the directory of one project, or move the file elsewhere",
            path.display()
        )));
    }
    let linked =
        |path: &&PathBuf| path.metadata().is_ok_and(|file| file.is_file() && file.nlink() > 1);
    if let Some(path) = secrets.iter().find(linked) {
        return Err(visible(format!(
            "{} has a second name (a hard link), by which commands may be able to read it; remove that link, or replace \
             the file with a copy",
            path.display()
        )));
    }
    // A command could replace the directory of another one.
    let temporary = std::env::temp_dir();
    let temporary = temporary.canonicalize().unwrap_or(temporary);
    if policy.writable.iter().any(|root| temporary.starts_with(root)) {
        return Err(StartError::Sandbox {
            why: format!(
                "the directory for temporary files, {}, is in the workspace; choose another workspace, or set TMPDIR to \
                 a directory outside of it",
                temporary.display()
            ),
        });
    }
    let private = PrivateDir::new().map_err(|error| StartError::Directory {
        what: "the directory for temporary files",
        path: std::env::temp_dir(),
        error,
    })?;
    sa_sandbox::probe(supervisor, &policy.with_writable(private.path()))
        .map_err(|why| StartError::Sandbox { why })
}
