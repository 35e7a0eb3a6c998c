//! One writer at a time for each file.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::fstat;
use rustix::io::Errno;

use super::hidden::{Identity, identity};
use super::place::Target;

/// Files are told apart by the directory they are in and their name there: their inode changes with every write.
type Key = (Identity, OsString);

#[derive(Default)]
pub(super) struct Locks {
    held: Mutex<HashMap<Key, Arc<Mutex<()>>>>,
}

impl Locks {
    /// Does something while nobody else of this process writes the file.
    pub(super) fn with<T>(&self, target: &Target, work: impl FnOnce() -> T) -> Result<T, Errno> {
        let key = (identity(&fstat(&target.directory)?), target.name.clone());
        let lock = Arc::clone(self.table().entry(key.clone()).or_default());
        let done = {
            let _alone = lock.lock().unwrap_or_else(PoisonError::into_inner);
            work()
        };
        let mut table = self.table();
        // The table's own and ours: nobody else waits for it.
        if Arc::strong_count(&lock) == 2 {
            table.remove(&key);
        }
        Ok(done)
    }

    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<Mutex<()>>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
