//! Options to open a store.

use std::path::PathBuf;
use std::time::Duration;

use crate::labels::Labelled;

/// Options to open a store. Start from [`OpenOptions::new`] and change individual fields.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The database file. Its directory must exist; `-wal`, `.lock` and `.witness` files appear
    /// next to it.
    pub path: PathBuf,
    /// Opens a store that is behind its witness, which is refused by default.
    ///
    /// The operator has read the message and accepts the loss of the newest commits. The remaining
    /// data is fully checked first.
    pub accept_loss: bool,
    /// How long a background entry may wait for other entries before it is committed.
    pub linger: Duration,
    /// The number of queued bytes at which `append` and `record` start to wait.
    pub queue_bytes: usize,
    /// The maximum size of the background entries that are kept for a retry while the disk is full,
    /// in bytes.
    pub retain_bytes: usize,
    /// The number of reader threads.
    pub readers: usize,
    /// The number of pages at which the write-ahead log is moved into the database file.
    ///
    /// A small log is recovered quickly. With a large log, pages that change often are moved only
    /// once. The default is 16 MiB.
    pub checkpoint_frames: u32,
    /// The stream with entries that can be searched by labels.
    pub labelled: Option<Labelled>,
    /// The SQLite file layer. Tests replace it by one that loses unsynced data.
    #[doc(hidden)]
    pub vfs: String,
}

impl OpenOptions {
    /// Returns the defaults for the database file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            accept_loss: false,
            linger: Duration::from_millis(20),
            queue_bytes: 64 << 20,
            retain_bytes: 64 << 20,
            readers: 2,
            checkpoint_frames: 1024,
            labelled: None,
            // One process owns the file, so the WAL index can live in the memory of that process.
            // There is no -shm file and no lock system call per transaction. A full disk cannot
            // stop readers. `locking_mode=EXCLUSIVE` has the same effect, but only for a single
            // connection.
            vfs: "unix-excl".to_owned(),
        }
    }
}
