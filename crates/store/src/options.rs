//! How a store is opened.

use std::path::PathBuf;
use std::time::Duration;

use crate::labels::Labelled;

/// How to open a store. Start from [`OpenOptions::new`] and change what differs.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The database file. Its directory must exist; `-wal`, `.lock` and `.witness` files appear next to it.
    pub path: PathBuf,
    /// Opens a store that is behind its witness, which is otherwise refused: the operator has read
    /// the message and accepts that the newest commits are gone. What remains is checked in full first.
    pub accept_loss: bool,
    /// How long an entry that nobody waits for may wait for company before it is committed.
    pub linger: Duration,
    /// How many bytes may queue up for the writer before `append` and `record` wait.
    pub queue_bytes: usize,
    /// How many bytes of entries that nobody waits for are kept for another attempt while the disk is full.
    pub retain_bytes: usize,
    /// How many threads read.
    pub readers: usize,
    /// At how many pages the write-ahead log is moved into the database file. Few are recovered in a moment;
    /// many mean that pages which change often are moved once. The default is 16 MiB.
    pub checkpoint_frames: u32,
    /// The stream whose entries can be searched by labels.
    pub labelled: Option<Labelled>,
    /// The SQLite file layer; tests put one that loses what was not synced in its place.
    #[doc(hidden)]
    pub vfs: String,
}

impl OpenOptions {
    /// The defaults, for the database file at `path`.
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
            // One process owns the file, so the index of the WAL can live in that process's memory: no -shm
            // file, no lock system calls per transaction, and nothing that a full disk could take away from
            // the readers. `locking_mode=EXCLUSIVE` would give the same to one single connection only.
            vfs: "unix-excl".to_owned(),
        }
    }
}
