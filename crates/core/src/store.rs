//! The two interfaces to all durable state: [`Log`] and [`Records`].
//!
//! The core defines the interfaces. `sa-store` implements them with SQLite, a cluster uses another
//! store, and no other code depends on the choice. A log is append-only: channel messages, the
//! record of calls, the audit trail. Records are small documents that are read, replaced and
//! deleted by key: tokens, settings, registries.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

/// The result of a store: a boxed future, because stores are used as trait objects.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Append-only streams, each with one order that is the same for all readers.
///
/// Sequence numbers of a stream start at 1 and have no gaps, so a reader can detect a lost entry.
pub trait Log: Send + Sync + 'static {
    /// Appends an entry. When this resolves with `Ok`, the entry is on disk.
    ///
    /// An entry with a key that the stream already contains is not stored again. The position of
    /// the first one is returned, marked as a duplicate. This holds across restarts, while the
    /// first entry is retained.
    fn append(&self, entry: NewEntry) -> StoreFuture<'_, Appended>;

    /// Queues an entry without waiting for the disk. It is written shortly, together with others,
    /// in the order of the calls. This method never waits and never fails, so it can be used in a
    /// destructor. The store logs and counts write errors, and never ignores them.
    fn record(&self, stream: &str, key: Option<&str>, body: &[u8]);

    /// Returns a future for backpressure. Users of [`Log::record`] should await it before they
    /// create more work, because the queue itself refuses nothing. `None` while the store keeps up.
    fn backpressure(&self) -> Option<BoxFuture<'_, ()>>;

    /// Returns entries of a stream with a sequence number greater than `after`, oldest first, at
    /// most `limit`.
    fn read(&self, stream: &str, after: u64, limit: usize) -> StoreFuture<'_, Vec<Entry>>;

    /// Returns entries of a stream with a sequence number lower than `before`, newest first, at
    /// most `limit`.
    fn read_back(&self, stream: &str, before: u64, limit: usize) -> StoreFuture<'_, Vec<Entry>>;

    /// Returns the entry that was appended with this key.
    fn find(&self, stream: &str, key: &str) -> StoreFuture<'_, Option<Entry>>;

    /// Returns entries of a stream before `before` that match a search, newest first, at most
    /// `limit`.
    fn search(
        &self,
        stream: &str,
        search: Search,
        before: u64,
        limit: usize,
    ) -> StoreFuture<'_, Found>;

    /// Returns the first and last sequence number in the stream.
    fn bounds(&self, stream: &str) -> StoreFuture<'_, Bounds>;

    /// Returns the stream's last committed sequence number as a watch channel. A follower reads
    /// after its last seen entry whenever this changes. A slow follower skips no entry; it only
    /// reads larger pages.
    fn follow(&self, stream: &str) -> watch::Receiver<u64>;

    /// Deletes the oldest entries of a stream, and returns the numbers of deleted entries by
    /// reason.
    fn trim(&self, stream: &str, keep: Retention) -> StoreFuture<'_, Trimmed>;
}

/// Small documents in buckets, by key, each with a revision that increases with every change.
pub trait Records: Send + Sync + 'static {
    fn get(&self, bucket: &str, key: &str) -> StoreFuture<'_, Option<Record>>;

    /// Returns all documents of a bucket, by key in byte order.
    fn list(&self, bucket: &str) -> StoreFuture<'_, Vec<(String, Record)>>;

    /// Returns the keys of a bucket in byte order, each with the size of its document in bytes. The
    /// documents are not read, so this uses little memory whatever their size is.
    fn sizes(&self, bucket: &str) -> StoreFuture<'_, Vec<(String, usize)>>;

    /// Stores a document and returns its revision, once it is on disk. Fails with
    /// [`StoreErrorKind::Conflict`] if the document is not as expected.
    fn put(&self, bucket: &str, key: &str, value: Bytes, expect: Expect) -> StoreFuture<'_, u64>;

    /// Deletes a document. Returns `false` if there was none.
    fn delete(&self, bucket: &str, key: &str) -> StoreFuture<'_, bool>;
}

#[derive(Debug, Clone)]
pub struct NewEntry {
    pub stream: Arc<str>,
    /// Makes the append idempotent, and the entry findable by this key.
    pub key: Option<Arc<str>>,
    pub body: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    pub seq: u64,
    /// Milliseconds since the Unix epoch, as stamped by the store.
    pub at_ms: i64,
    /// The stream already had an entry with this key; `seq` and `at_ms` are that entry's.
    pub duplicate: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub seq: u64,
    pub at_ms: i64,
    pub body: Bytes,
}

/// A search label of an entry. Two labels may be equal by chance, so a reader must check the found
/// entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(pub u32);

impl Label {
    /// Returns the label for a field with this value. It is stored, so it is the same in every
    /// version.
    pub fn new(field: &str, value: &str) -> Self {
        // FNV-1a, with a separator byte that occurs in neither of them.
        let bytes = field.bytes().chain([0xff]).chain(value.bytes());
        Self(
            bytes
                .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)),
        )
    }
}

/// A search in a stream with labels. All given conditions must hold.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// An entry must have at least one label of each set.
    pub all_of: Vec<Vec<Label>>,
    /// The key is a UUID that begins with this.
    pub uuid_prefix: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct Found {
    pub entries: Vec<Entry>,
    /// The sequence number to continue before; absent if there are no more entries.
    pub next: Option<u64>,
    /// The number of index rows that were read.
    pub steps: u64,
}

/// `first` is `last + 1` if the stream is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub first: u64,
    pub last: u64,
}

/// The retention of a stream. By default it keeps everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Keep at most this number of entries.
    pub entries: Option<u64>,
    /// Keep at most this number of bytes, the newest entries. The newest entry stays even if it is
    /// larger.
    pub bytes: Option<u64>,
    /// Delete some of the entries that are too old; see [`crate::retention`] for the rules.
    pub aged: Option<Aged>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aged {
    /// Entries stamped before this time are too old, in milliseconds since the Unix epoch.
    pub since_ms: i64,
    /// Delete at most this number by age.
    pub at_most: u64,
}

/// The numbers of deleted entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trimmed {
    /// The stream exceeded its limit.
    pub over_limit: u64,
    /// The entries were too old.
    pub aged: u64,
}

impl Trimmed {
    pub fn total(self) -> u64 {
        self.over_limit + self.aged
    }
}

impl std::ops::AddAssign for Trimmed {
    fn add_assign(&mut self, other: Self) {
        self.over_limit += other.over_limit;
        self.aged += other.aged;
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub value: Bytes,
    pub revision: u64,
}

/// The state that a document must have for a change to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Anything,
    Absent,
    Revision(u64),
}

/// An error of the store, in one sentence with the file's name and the remedy.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    pub kind: StoreErrorKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// A document was not as expected.
    Conflict,
    /// The value to store exceeds a limit of the store (its size, the length of a name or key).
    Invalid,
    /// No space is left. Reads still work, and writes succeed again once there is space.
    Full,
    /// The stored data is corrupt: the message names the file and the location.
    Damaged,
    /// The newest acknowledged data is missing: the message names the file. The store is only
    /// opened after an operator has accepted that.
    Behind,
    /// Written by a newer version.
    TooNew,
    /// Another process has it open.
    InUse,
    /// The store has been shut down.
    Closed,
    /// Any other failure of the disk or the engine.
    Io,
}
