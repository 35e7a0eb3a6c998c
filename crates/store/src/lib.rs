//! The log and the records on embedded SQLite, with group commit.
//!
//! [`Store`] implements [`Log`] and [`Records`]. An append passes through [`Store`] → `queue` →
//! `writer` → `apply` → `witness` → answer. The writer is one thread. It commits all queued
//! operations in one transaction with one sync. Reads go to `readers`, which are threads with their
//! own connections.
//!
//! Guarantees, and the modules that implement them:
//! - An acknowledged write is on disk: WAL with a sync for each commit, answers after the commit
//!   (`writer`).
//! - Sequence numbers have no gaps and are never reused, also after a trim or a restart (`heads`).
//! - A key is stored once per stream (`apply`, by a unique index).
//! - Entries of one stream are found by labels, in few steps (`labels`).
//! - Damage is an error that names the damaged data. Data is never lost silently (`read`,
//!   `witness`, `wal`, `schema`). One kind of damage is invisible to a lookup of an absent key: a
//!   whole page that is missing in the index. [`Store::verify`] finds it.
//! - On a full disk, waiting callers get an error and background entries are kept. Writes resume
//!   without a restart (`writer`, `retained`).
//! - Only one process opens the store (`files`). Only the owner can read its files. Upgrades make a
//!   backup first (`schema`).

mod apply;
mod code;
mod directory;
mod error;
mod file_problem;
mod files;
mod heads;
mod labels;
mod log;
mod op;
mod open;
mod options;
mod queue;
mod read;
mod readers;
mod records;
mod retained;
mod schema;
mod stats;
mod verify;
mod wal;
mod wal_guard;
mod witness;
mod writer;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

use parking_lot::{Mutex, MutexGuard};

pub use file_problem::FileProblem;
pub use files::{Holder, Unusable, is_held};
pub use labels::Labelled;
pub use options::OpenOptions;
pub use sa_core::store::{Log, Records, StoreError, StoreErrorKind};
pub use stats::Stats;
pub use verify::Verified;

use crate::op::Op;
use crate::queue::Queue;
use crate::readers::Readers;

/// An open store: a cheap handle to the threads that do the work.
///
/// Dropping the last handle ends the threads like [`Store::shutdown`], and waits for them. It
/// cannot report errors.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

/// The maximum size of an entry's body and of a document's value.
pub const MAX_BODY_BYTES: usize = 32 << 20;
/// The maximum length of a stream or bucket name, and of a key.
pub const MAX_NAME_BYTES: usize = 512;

struct Inner {
    shared: Arc<Shared>,
    readers: Readers,
    writer: Mutex<Option<JoinHandle<Result<(), StoreError>>>>,
    lock: Mutex<Option<files::Lock>>,
    /// The identity of the opened file, in case the path is replaced later.
    file: Option<files::Identity>,
}

/// The state that the handles and the threads share.
struct Shared {
    options: OpenOptions,
    queue: Queue,
    directory: directory::Directory,
    counters: stats::Counters,
    file_problems: file_problem::FileProblems,
    /// The write-ahead log that the writer has open. `None` while the writer reopens the database.
    wal: Mutex<Option<files::Identity>>,
}

impl Shared {
    fn wal(&self) -> MutexGuard<'_, Option<files::Identity>> {
        self.wal.lock()
    }
}

impl Store {
    /// Opens the store, and creates it if it does not exist.
    ///
    /// Blocks while it reads the heads of all streams and recovers the write-ahead log after a
    /// crash. The time does not depend on the number of entries.
    pub fn open(options: OpenOptions) -> Result<Self, StoreError> {
        Self::open_with(options, schema::STEPS)
    }

    /// Opens with other migration steps, for tests.
    fn open_with(options: OpenOptions, steps: &[schema::Step]) -> Result<Self, StoreError> {
        let lock = files::Lock::take(&options.path)?;
        let opened = open::open(&options, steps)?;
        let shared = Arc::new(Shared {
            queue: Queue::new(options.queue_bytes, MAX_BODY_BYTES),
            directory: directory::Directory::default(),
            counters: stats::Counters::default(),
            file_problems: file_problem::FileProblems::default(),
            wal: Mutex::default(),
            options,
        });
        opened.heads.all().iter().for_each(|head| shared.directory.publish(head));
        let readers = Readers::start(&shared)?;
        let writer = {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("store-write".to_owned());
            thread
                .spawn(move || writer::run(shared, opened))
                .map_err(|e| error::io("a thread".as_ref(), "start", &e))?
        };
        let file = files::Identity::of(&shared.options.path).ok();
        let inner = Inner {
            shared,
            readers,
            writer: Mutex::new(Some(writer)),
            lock: Mutex::new(Some(lock)),
            file,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Writes all queued data, ends the threads, and closes the file.
    ///
    /// Fails if background entries could not be written. Afterwards every operation fails with
    /// `Closed`.
    pub async fn shutdown(&self) -> Result<(), StoreError> {
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || inner.close())
            .await
            .unwrap_or_else(|_| Err(error::closed(&self.inner.shared.options.path)))
    }

    /// Returns the time of the newest entry of any stream, in milliseconds since the Unix epoch.
    ///
    /// Returns `None` if there are no entries.
    pub async fn newest_ms(&self) -> Result<Option<i64>, StoreError> {
        self.inner.readers.run(&self.inner.shared, read::newest_ms).await
    }

    /// Returns the counters since the store was opened, and its current state.
    pub fn stats(&self) -> Stats {
        self.inner.shared.counters.read()
    }

    /// Returns the reason why new data would be lost at a restart, or `None` if all is well.
    /// Queries the file system.
    pub fn unusable(&self) -> Option<Unusable> {
        let shared = &*self.inner.shared;
        let Shared { directory, options, .. } = shared;
        if directory.is_closed() {
            return Some(Unusable::Ended);
        }
        if self.inner.file.is_some_and(|opened| opened.is_gone(&options.path)) {
            return Some(Unusable::Gone);
        }
        // The writer clears this under the lock before it closes its connection, which may delete
        // the log.
        let wal = shared.wal();
        wal.is_some_and(|opened| opened.is_gone(&files::beside(&options.path, "-wal")))
            .then_some(Unusable::Gone)
    }

    /// Returns the last problem with the file since the store was opened.
    pub fn file_problem(&self) -> Option<FileProblem> {
        self.inner.shared.file_problems.last()
    }

    /// Records that stored data is invalid for its reader, which only the reader can detect.
    ///
    /// It is reported like any other problem with the file.
    pub fn note(&self, error: &StoreError) {
        self.inner.shared.file_problems.note(error);
    }

    /// Checks all stored data in one snapshot, for an operator command.
    ///
    /// This takes as long as reading the file. Meanwhile the write-ahead log cannot be shortened.
    pub async fn verify(&self) -> Result<Verified, StoreError> {
        let shared = self.inner.shared.clone();
        let run = move || {
            let conn = open::connect_reader(&shared.options)?;
            verify::everything(&conn, &shared.options)
        };
        tokio::task::spawn_blocking(run)
            .await
            .unwrap_or_else(|_| Err(error::closed(&self.inner.shared.options.path)))
    }

    /// Sends an operation to the writer and waits for its answer.
    async fn ask<T>(&self, make: impl FnOnce(op::Reply<T>) -> Op) -> Result<T, StoreError> {
        let closed = || error::closed(&self.inner.shared.options.path);
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.inner.shared.queue.push(make(reply)).await.map_err(|_| closed())?;
        let answer = answer.await.map_err(|_| closed())?;
        answer.inspect_err(|error| self.inner.shared.file_problems.note(error))
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("path", &self.inner.shared.options.path)
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn close(&self) -> Result<(), StoreError> {
        self.readers.close();
        self.shared.queue.close();
        let writer = self.writer.lock().take();
        let result = match writer.map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(error::closed(&self.shared.options.path)),
        };
        self.lock.lock().take();
        result
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The writer has logged the error.
        let _ = self.close();
    }
}

impl Shared {
    /// Counts and logs a background entry that is dropped.
    fn lost(&self, stream: &str, key: Option<&str>, error: &StoreError) {
        self.counters.lost.fetch_add(1, Relaxed);
        self.file_problems.note(error);
        tracing::error!(stream, key, %error, "an entry is LOST");
    }
}

/// Whether there has been a store at this path, even if its file no longer exists.
pub fn has_been(path: &std::path::Path) -> bool {
    path.exists() || witness::path_of(path).exists()
}

/// Checks the length of a name or key.
fn check_name(what: &str, name: &str) -> Result<(), StoreError> {
    if (1..=MAX_NAME_BYTES).contains(&name.len()) {
        return Ok(());
    }
    let len = name.len();
    Err(error::invalid(format!(
        "a {what} must have 1 to {MAX_NAME_BYTES} bytes, but this one has {len}"
    )))
}

/// Checks the size of a body or value.
fn check_body(what: &str, len: usize) -> Result<(), StoreError> {
    if len <= MAX_BODY_BYTES {
        return Ok(());
    }
    Err(error::invalid(format!(
        "a {what} must have at most {MAX_BODY_BYTES} bytes, but this one has {len}; split it"
    )))
}
