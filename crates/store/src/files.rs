//! The files of a store: their names, permissions and lock.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sa_core::store::{StoreError, StoreErrorKind};

use crate::error;

/// Locks the store for this process as long as the value lives.
///
/// It is an `flock` on a separate file. SQLite's locks on the database are POSIX locks. They are
/// released when any code in this process opens and closes the file, and they cannot name the
/// owner.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub(crate) fn take(store: &Path) -> Result<Self, StoreError> {
        let path = beside(store, ".lock");
        let mut file = open_private(&path, true)?;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                // A process that only checks the lock shares it for a moment. The owner of the
                // store never shares it.
                Err(TryLockError::WouldBlock) if file.try_lock_shared().is_ok() => {
                    file.unlock().map_err(|e| error::io(&path, "unlock", &e))?;
                    std::thread::yield_now();
                }
                Err(TryLockError::WouldBlock) => return Err(in_use(store, &mut file)),
                Err(TryLockError::Error(e)) => return Err(error::io(&path, "lock", &e)),
            }
        }
        // Only used in the error message for the second process, so a full disk does not matter
        // here.
        let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

/// Identifies a file independently of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(crate) fn of(path: &Path) -> std::io::Result<Self> {
        let file = std::fs::metadata(path)?;
        Ok(Self { device: file.dev(), inode: file.ino() })
    }

    /// Whether the path has no file any more, or another one.
    pub(crate) fn is_gone(self, path: &Path) -> bool {
        match Self::of(path) {
            Ok(now) => self != now,
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }
}

/// The reason why an open store cannot keep new data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// The store has been shut down, or its writer has failed.
    Ended,
    /// The database or its write-ahead log was deleted or replaced. SQLite continues with the open
    /// file, which no other process can find.
    Gone,
}

/// The process that holds a store, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    pub since: SystemTime,
}

impl Holder {
    /// Returns the process that holds the store at this path, if the lock file names it.
    pub fn of(store: &Path) -> Option<Self> {
        let mut file = held(store)?;
        Some(Self { pid: owner(&mut file)?, since: file.metadata().ok()?.modified().ok()? })
    }
}

/// Whether a process holds the store at this path, even if the lock file does not name it.
pub fn is_held(store: &Path) -> bool {
    held(store).is_some()
}

/// Returns the lock file if a process holds the lock.
fn held(store: &Path) -> Option<File> {
    let file = File::open(beside(store, ".lock")).ok()?;
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)).then_some(file)
}

/// Reads the process id that the owner of the lock has written.
fn owner(file: &mut File) -> Option<u32> {
    let mut pid = String::new();
    file.take(16).read_to_string(&mut pid).ok()?;
    // Pids 0 and 1 are ignored. No message may ask the operator to stop them.
    pid.trim().parse().ok().filter(|pid| *pid > 1)
}

fn in_use(store: &Path, file: &mut File) -> StoreError {
    let owner =
        owner(file).map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
    let message = format!(
        "the store {} is in use by {owner}; stop that process, or choose another data directory",
        store.display()
    );
    StoreError { kind: StoreErrorKind::InUse, message }
}

/// Returns the path of a file next to the database.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Opens a file for reading and writing that only this user can read.
///
/// SQLite gives its `-wal` file the mode of the database, so this is enough for both.
pub(crate) fn open_private(path: &Path, create: bool) -> Result<File, StoreError> {
    let opened = OpenOptions::new().read(true).write(true).create(create).mode(0o600).open(path);
    let file = opened.map_err(|e| error::io(path, "open", &e))?;
    let mode = file.metadata().map_err(|e| error::io(path, "look at", &e))?.permissions().mode();
    if mode & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))
            .map_err(|e| error::io(path, "restrict the permissions of", &e))?;
    }
    Ok(file)
}

/// Makes the names of new files in the directory of `path` durable.
pub(crate) fn sync_directory(path: &Path) -> Result<(), StoreError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory).and_then(|d| d.sync_all()).map_err(|e| error::io(directory, "sync", &e))
}

/// Copies the database durably to a path that does not exist yet.
pub(crate) fn copy_private(from: &Path, to: &Path) -> Result<(), StoreError> {
    let partial = beside(to, ".partial");
    let mut target = open_private(&partial, true)?;
    let copy = |target: &mut File| {
        target.set_len(0)?;
        std::io::copy(&mut File::open(from)?, target)?;
        target.sync_all()?;
        std::fs::rename(&partial, to)
    };
    copy(&mut target).map_err(|e| error::io(to, "back the store up to", &e))?;
    sync_directory(to)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn who_looks_at_a_lock_stands_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store.db");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    is_held(&store);
                }
            });
            let taken: Vec<_> = (0..2_000).map(|_| Lock::take(&store).map(drop)).collect();
            done.store(true, Ordering::Relaxed);
            looking.join().unwrap();
            assert!(
                taken.iter().all(Result::is_ok),
                "{:?}",
                taken.iter().find(|taken| taken.is_err())
            );
        });
        // On a single core the two threads rarely meet. This reader therefore holds the lock until
        // the other thread has tried it many times.
        let looks = File::open(beside(&store, ".lock")).unwrap();
        looks.try_lock_shared().unwrap();
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| Lock::take(&store).map(drop));
            let _ = (0..100_000).find(|_| {
                std::thread::yield_now();
                taking.is_finished()
            });
            drop(looks);
            taking.join().unwrap().unwrap();
        });
        let held = Lock::take(&store).unwrap();
        assert!(is_held(&store) && Lock::take(&store).is_err());
        assert_eq!(Holder::of(&store).map(|holder| holder.pid), Some(std::process::id()));
        drop(held);
        assert!(!is_held(&store));
    }
}
