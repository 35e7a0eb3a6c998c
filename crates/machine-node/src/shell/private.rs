//! Private directories of commands.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, statat};
use sa_sandbox::leftovers;

/// The prefix of the names of such directories.
const PREFIX: &str = "switchboard-command-";

/// The maximum number of attempts to create a directory, if another node removes it as abandoned.
const ATTEMPTS: usize = 8;

/// A home and a directory for temporary files, for a command that sees no others. Its supervisor
/// removes it with the command. If the supervisor is killed, this value removes it; if the node is
/// killed too, the next node does.
#[derive(Debug)]
pub(super) struct PrivateDir {
    path: PathBuf,
    /// The directory is in use while this lock is held.
    _lock: OwnedFd,
}

impl PrivateDir {
    pub(super) fn new() -> io::Result<Self> {
        Self::below(&std::env::temp_dir())
    }

    fn below(base: &Path) -> io::Result<Self> {
        let base = base.canonicalize()?;
        let mut private = DirBuilder::new();
        private.mode(0o700);
        for _ in 0..ATTEMPTS {
            let path = base.join(format!("{PREFIX}{}", uuid::Uuid::new_v4().simple()));
            private.create(&path)?;
            if let Some(lock) = lock(&path) {
                // From here on the directory is removed in every case.
                let dir = Self { path, _lock: lock };
                private.create(home(&dir.path))?;
                private.create(temporary(&dir.path))?;
                return Ok(dir);
            }
        }
        Err(io::Error::other("every directory that was made there was removed at once"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

pub(super) fn home(private: &Path) -> PathBuf {
    private.join("home")
}

pub(super) fn temporary(private: &Path) -> PathBuf {
    private.join("tmp")
}

/// Removes a command's directory. A directory that cannot be removed is left.
fn remove(path: &Path) {
    let _ = leftovers::remove(path);
}

/// Removes the directories that ended nodes of this user have left.
pub(super) fn remove_abandoned() {
    remove_abandoned_below(&std::env::temp_dir());
}

fn remove_abandoned_below(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && let Some(_lock) = lock(&path)
        {
            remove(&path);
        }
    }
}

/// Locks a directory of this user, unless another process has locked it or it was moved.
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
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_a_dead_node_left_is_removed_and_what_a_live_one_has_is_not() {
        let base = tempfile::tempdir().unwrap();
        let left = base.path().join(format!("{PREFIX}left"));
        std::fs::create_dir_all(left.join("home")).unwrap();
        std::fs::create_dir(base.path().join("other")).unwrap();
        let live = PrivateDir::below(base.path()).unwrap();
        remove_abandoned_below(base.path());
        assert!(!left.exists() && base.path().join("other").exists());
        assert!(home(live.path()).is_dir() && temporary(live.path()).is_dir());
        drop(live);
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 1);
    }

    #[test]
    fn locked_directories_are_no_hindrance() {
        let base = tempfile::tempdir().unwrap();
        let private = PrivateDir::below(base.path()).unwrap();
        let locked = home(private.path()).join("locked");
        std::fs::create_dir(&locked).unwrap();
        std::fs::write(locked.join("file"), "x").unwrap();
        std::fs::set_permissions(&locked, Permissions::from_mode(0o000)).unwrap();
        drop(private);
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
    }
}
