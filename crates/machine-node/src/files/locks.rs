//! Locks that allow one writer at a time for each file.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::fstat;
use rustix::io::Errno;

use super::hidden::{Identity, identity};
use super::place::Target;

/// A file is identified by its directory and its name, because its inode changes with every write.
type Key = (Identity, OsString);

#[derive(Default)]
pub(super) struct Locks {
    held: Mutex<HashMap<Key, Arc<Mutex<()>>>>,
}

impl Locks {
    /// Runs a function while no other task of this process writes the file.
    pub(super) fn with<T>(&self, target: &Target, work: impl FnOnce() -> T) -> Result<T, Errno> {
        let key = (identity(&fstat(&target.directory)?), target.name.clone());
        let lock = Arc::clone(self.table().entry(key.clone()).or_default());
        let done = {
            let _alone = lock.lock();
            work()
        };
        let mut table = self.table();
        // Only the table and this function hold the lock, so no other task waits for it.
        if Arc::strong_count(&lock) == 2 {
            table.remove(&key);
        }
        Ok(done)
    }

    fn table(&self) -> parking_lot::MutexGuard<'_, HashMap<Key, Arc<Mutex<()>>>> {
        self.held.lock()
    }
}
