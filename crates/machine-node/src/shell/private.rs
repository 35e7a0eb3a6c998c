//! Directories that belong to one command each.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, statat};

use crate::machine::StartError;

/// What the names of such directories begin with.
const PREFIX: &str = "switchboard-node-";

/// How often a directory is made anew that another node took for one that was left behind.
const ATTEMPTS: usize = 8;

/// Where the directories of a node's commands are. Gone with this value; should the node be killed, the keepers remove
/// it, and should they be killed as well, the next node.
#[derive(Debug)]
pub(super) struct PrivateDir {
    path: PathBuf,
    /// As long as it is held, the directory is in use.
    _lock: OwnedFd,
}

impl PrivateDir {
    pub(super) fn new() -> Result<Self, StartError> {
        Self::below(&std::env::temp_dir()).map_err(|error| StartError::Directory {
            what: "the directory for temporary files",
            path: std::env::temp_dir(),
            error,
        })
    }

    fn below(base: &Path) -> io::Result<Self> {
        let base = base.canonicalize()?;
        remove_abandoned(&base);
        for _ in 0..ATTEMPTS {
            let path = base.join(format!("{PREFIX}{}", uuid::Uuid::new_v4().simple()));
            DirBuilder::new().mode(0o700).create(&path)?;
            if let Some(lock) = lock(&path) {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(io::Error::other("every directory that was made there was removed at once"))
    }

    /// A home and a place for temporary files, for a command that sees no others.
    pub(super) fn for_command(&self, session: &str) -> io::Result<PathBuf> {
        let path = self.path.join(session);
        let mut private = DirBuilder::new();
        private.mode(0o700).create(&path)?;
        let made = private.create(home(&path)).and_then(|()| private.create(temporary(&path)));
        made.inspect_err(|_| remove(Some(&path), false))?;
        Ok(path)
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        remove(Some(&self.path), false);
    }
}

pub(super) fn home(private: &Path) -> PathBuf {
    private.join("home")
}

pub(super) fn temporary(private: &Path) -> PathBuf {
    private.join("tmp")
}

/// Removes a command's directory, if it has one, and with the last one of an abandoned node what they were in.
pub(super) fn remove(path: Option<&Path>, abandoned: bool) {
    let Some(path) = path else { return };
    if std::fs::remove_dir_all(path).is_err() && path.exists() {
        // A command may have locked its own directories.
        unlock(path);
        let _ = std::fs::remove_dir_all(path);
    }
    if abandoned && let Some(parent) = path.parent() {
        let _ = std::fs::remove_dir(parent);
    }
}

fn unlock(directory: &Path) {
    let _ = std::fs::set_permissions(directory, Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            unlock(&entry.path());
        }
    }
}

/// Removes what nodes of this user have left that are gone.
fn remove_abandoned(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && let Some(_lock) = lock(&path)
        {
            remove(Some(&path), false);
        }
    }
}

/// Takes a directory of this user's that nobody else has taken, and that still is where it was.
fn lock(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let opened = fstat(&directory).ok()?;
    if opened.st_uid != rustix::process::geteuid().as_raw() {
        return None;
    }
    flock(&directory, FlockOperation::NonBlockingLockExclusive).ok()?;
    let found = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    ((found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)).then_some(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_node_left_is_removed_and_what_a_live_one_has_is_not() {
        let base = tempfile::tempdir().unwrap();
        let left = base.path().join(format!("{PREFIX}left"));
        std::fs::create_dir_all(left.join("session/home")).unwrap();
        std::fs::create_dir(base.path().join("other")).unwrap();
        let live = PrivateDir::below(base.path()).unwrap();
        assert!(!left.exists() && base.path().join("other").exists());
        let command = live.for_command("session").unwrap();
        let second = PrivateDir::below(base.path()).unwrap();
        assert!(home(&command).is_dir() && temporary(&command).is_dir());
        drop((live, second));
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 1);
    }

    #[test]
    fn locked_directories_are_no_hindrance() {
        let base = tempfile::tempdir().unwrap();
        let node = PrivateDir::below(base.path()).unwrap();
        let command = node.for_command("session").unwrap();
        std::fs::create_dir(command.join("home/locked")).unwrap();
        std::fs::write(command.join("home/locked/file"), "x").unwrap();
        std::fs::set_permissions(command.join("home/locked"), Permissions::from_mode(0o000)).unwrap();
        remove(Some(&command), false);
        assert!(!command.exists());
    }
}
