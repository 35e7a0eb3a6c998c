//! The sandbox of a machine's commands: what its options mean, and whether it is possible.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sa_sandbox::Policy;

use super::private::PrivateDir;
use crate::machine::{Options, Sandbox, StartError};

/// The system readable, the workspace writable, or readable as well. Not visible are the node's secrets, nor a home that
/// lies among the system's directories; the workspace may lie in that.
pub(super) fn policy(options: &Options, wanted: Sandbox, home: Option<&Path>) -> Policy {
    let mut policy = Policy::new(wanted.network);
    let home = home.and_then(|home| home.canonicalize().ok());
    let among = |home: &PathBuf| policy.shows(home) && !policy.readable.contains(home);
    let outside = |home: &PathBuf| !home.starts_with(&options.workspace);
    let home = home.filter(among).filter(outside);
    let place = if options.read_only { &mut policy.readable } else { &mut policy.writable };
    place.push(options.workspace.clone());
    policy.hiding(options.hidden.iter().cloned().chain(home))
}

/// Tries the sandbox in a process of its own, so that a node which cannot provide it does not start.
pub(super) fn check(keeper: &Path, policy: &Policy, secrets: &[PathBuf]) -> Result<(), StartError> {
    let visible = |why: String| StartError::Secret { why };
    let secrets: Vec<PathBuf> =
        secrets.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())).collect();
    if let Some(path) = secrets.iter().find(|path| policy.writable.iter().any(|root| path.starts_with(root))) {
        return Err(visible(format!(
            "{} lies in the workspace, which commands may use and where it could not be kept from them; choose a workspace \
             that does not hold it, such as one project's directory (or move it elsewhere)",
            path.display()
        )));
    }
    let linked = |path: &&PathBuf| path.metadata().is_ok_and(|file| file.is_file() && file.nlink() > 1);
    if let Some(path) = secrets.iter().find(linked) {
        return Err(visible(format!(
            "{} has a second name (a hard link) by which commands may be able to read it; remove that, or replace the \
             file by a copy",
            path.display()
        )));
    }
    let private = PrivateDir::new().map_err(|error| StartError::Directory {
        what: "the directory for temporary files",
        path: std::env::temp_dir(),
        error,
    })?;
    sa_sandbox::probe(keeper, &policy.with_writable(private.path())).map_err(|why| StartError::Sandbox { why })
}
