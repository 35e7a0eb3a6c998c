//! The log and the records on embedded SQLite, with group commit.
//!
//! [`Store`] implements [`Log`] and [`Records`]. The way of an append: [`Store`] → `queue` → `writer` (one
//! thread, one transaction for all that has queued up, one sync) → `apply` → `witness` → answer. Reads go to
//! `readers`, threads with connections of their own.
//!
//! What it promises, and where that is kept:
//! - An acknowledgement means on disk: WAL with a sync for each commit, answers after the commit (`writer`).
//! - Numbers have no holes and are never given twice, also after a trim or a restart (`heads`).
//! - A key is stored once per stream (`apply`, by a unique index).
//! - Entries of one stream are found by labels, in few steps (`labels`).
//! - Damage is an error with the place, never less data (`read`, `witness`, `wal`, `schema`). What a lookup of an
//!   absent key cannot see, a page of the index that lost its way as a whole, is found by [`Store::verify`].
//! - A full disk fails those who wait, keeps what nobody waits for, and ends by itself (`writer`, `retained`).
//! - One process at a time (`files`), files that only their owner can read, upgrades after a backup (`schema`).

mod apply;
mod code;
mod directory;
mod error;
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
mod trouble;
mod verify;
mod wal;
mod wal_keeper;
mod witness;
mod writer;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub use files::{Holder, Unusable, is_held};
pub use labels::Labelled;
pub use options::OpenOptions;
pub use sa_core::store::{Log, Records, StoreError, StoreErrorKind};
pub use stats::Stats;
pub use trouble::Trouble;
pub use verify::Verified;

use crate::op::Op;
use crate::queue::Queue;
use crate::readers::Readers;

/// An open store: a cheap handle to the threads that do the work.
///
/// The last handle that is dropped ends them as [`Store::shutdown`] does, and waits for that, but cannot report
/// what went wrong.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

/// The largest body of an entry and value of a document.
pub const MAX_BODY_BYTES: usize = 32 << 20;
/// The longest name of a stream or bucket, and the longest key.
pub const MAX_NAME_BYTES: usize = 512;

struct Inner {
    shared: Arc<Shared>,
    readers: Readers,
    writer: Mutex<Option<JoinHandle<Result<(), StoreError>>>>,
    lock: Mutex<Option<files::Lock>>,
    /// The file that was opened, whatever has its name now.
    file: Option<files::Identity>,
}

/// What the handles and the threads have in common.
struct Shared {
    options: OpenOptions,
    queue: Queue,
    directory: directory::Directory,
    counters: stats::Counters,
    troubles: trouble::Troubles,
    /// The write-ahead log that the writer has open. Absent while the writer opens the database again.
    wal: Mutex<Option<files::Identity>>,
}

impl Shared {
    fn wal(&self) -> MutexGuard<'_, Option<files::Identity>> {
        self.wal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Opens the store, and makes it if there is none. Blocks for as long as it takes to read the heads of all
    /// streams and what a crash left in the write-ahead log, which does not depend on how many entries there are.
    pub fn open(options: OpenOptions) -> Result<Self, StoreError> {
        Self::open_with(options, schema::STEPS)
    }

    /// Opens with other migrations than the real ones, for their tests.
    fn open_with(options: OpenOptions, steps: &[schema::Step]) -> Result<Self, StoreError> {
        let lock = files::Lock::take(&options.path)?;
        let opened = open::open(&options, steps)?;
        let shared = Arc::new(Shared {
            queue: Queue::new(options.queue_bytes, MAX_BODY_BYTES),
            directory: directory::Directory::default(),
            counters: stats::Counters::default(),
            troubles: trouble::Troubles::default(),
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
        let inner = Inner { shared, readers, writer: Mutex::new(Some(writer)), lock: Mutex::new(Some(lock)), file };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Writes everything that was handed over, ends the threads, and lets go of the file. Fails when entries that
    /// nobody waited for could not be written. Afterwards, every operation fails with `Closed`.
    pub async fn shutdown(&self) -> Result<(), StoreError> {
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || inner.close())
            .await
            .unwrap_or_else(|_| Err(error::closed(&self.inner.shared.options.path)))
    }

    /// The time of the newest entry of any stream, in milliseconds since the Unix epoch. `None` when there is none.
    pub async fn newest_ms(&self) -> Result<Option<i64>, StoreError> {
        self.inner.readers.run(&self.inner.shared, read::newest_ms).await
    }

    /// What the store has done since it was opened, and how it is.
    pub fn stats(&self) -> Stats {
        self.inner.shared.counters.read()
    }

    /// Why nothing that is written now would be there after a restart; absent when all is well. Asks the file system.
    pub fn unusable(&self) -> Option<Unusable> {
        let shared = &*self.inner.shared;
        let Shared { directory, options, .. } = shared;
        if directory.is_closed() {
            return Some(Unusable::Ended);
        }
        if self.inner.file.is_some_and(|opened| opened.is_gone(&options.path)) {
            return Some(Unusable::Gone);
        }
        // The writer clears this under the lock before it closes its connection, which may delete the log.
        let wal = shared.wal();
        wal.is_some_and(|opened| opened.is_gone(&files::beside(&options.path, "-wal"))).then_some(Unusable::Gone)
    }

    /// The last time that the file was not as it should be, since the store was opened.
    pub fn trouble(&self) -> Option<Trouble> {
        self.inner.shared.troubles.last()
    }

    /// Notes that something stored is not what its reader wrote, which only the reader can tell. It is told as any other
    /// trouble with the file.
    pub fn note(&self, error: &StoreError) {
        self.inner.shared.troubles.note(error);
    }

    /// Checks everything that is stored, as of one state: for a command of the operator. Takes as long as it
    /// takes to read the file, and keeps the write-ahead log from being shortened meanwhile.
    pub async fn verify(&self) -> Result<Verified, StoreError> {
        let shared = self.inner.shared.clone();
        let run = move || {
            let conn = open::connect_reader(&shared.options)?;
            verify::everything(&conn, &shared.options)
        };
        tokio::task::spawn_blocking(run).await.unwrap_or_else(|_| Err(error::closed(&self.inner.shared.options.path)))
    }

    /// Hands an operation to the writer and waits for its answer.
    async fn ask<T>(&self, make: impl FnOnce(op::Reply<T>) -> Op) -> Result<T, StoreError> {
        let closed = || error::closed(&self.inner.shared.options.path);
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.inner.shared.queue.push(make(reply)).await.map_err(|_| closed())?;
        let answer = answer.await.map_err(|_| closed())?;
        answer.inspect_err(|error| self.inner.shared.troubles.note(error))
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.inner.shared.options.path).finish_non_exhaustive()
    }
}

impl Inner {
    fn close(&self) -> Result<(), StoreError> {
        self.readers.close();
        self.shared.queue.close();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let result = match writer.map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(error::closed(&self.shared.options.path)),
        };
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        result
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What went wrong has been logged by the writer.
        let _ = self.close();
    }
}

impl Shared {
    /// An entry that nobody waits for is given up.
    fn lost(&self, stream: &str, key: Option<&str>, error: &StoreError) {
        self.counters.lost.fetch_add(1, Relaxed);
        self.troubles.note(error);
        tracing::error!(stream, key, %error, "an entry is LOST");
    }
}

/// Whether there has been a store at this path, even if its file is gone.
pub fn has_been(path: &std::path::Path) -> bool {
    path.exists() || witness::path_of(path).exists()
}

/// Checks the length of a name or key.
fn check_name(what: &str, name: &str) -> Result<(), StoreError> {
    if (1..=MAX_NAME_BYTES).contains(&name.len()) {
        return Ok(());
    }
    let len = name.len();
    Err(error::invalid(format!("a {what} has 1 to {MAX_NAME_BYTES} bytes, and this one has {len}")))
}

/// Checks the size of what is to be stored.
fn check_body(what: &str, len: usize) -> Result<(), StoreError> {
    if len <= MAX_BODY_BYTES {
        return Ok(());
    }
    Err(error::invalid(format!("a {what} has at most {MAX_BODY_BYTES} bytes, and this one has {len}; split it")))
}
