//! The two seams behind which all durable state lives: a [`Log`] and [`Records`].
//!
//! The core says what it needs; `sa-store` keeps it in SQLite, a cluster keeps it elsewhere, and nothing else
//! knows which. A log is append-only: channel messages, the record of calls, the audit trail. Records are small
//! documents that are read, replaced and deleted by key: tokens, settings, registries.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

/// The answer of a store: a boxed future, because stores are used as trait objects.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Append-only streams, each with one order that is the same for all readers.
///
/// Sequence numbers of a stream start at 1 and have no holes, so a reader can tell a lost entry from none.
pub trait Log: Send + Sync + 'static {
    /// Appends an entry. When this resolves with `Ok` the entry is on disk.
    ///
    /// An entry whose key the stream already holds is not stored again: the first one's place comes back,
    /// marked as a duplicate. This holds across restarts, for as long as the first entry is kept.
    fn append(&self, entry: NewEntry) -> StoreFuture<'_, Appended>;

    /// Hands over an entry that nobody waits for: it reaches the disk shortly, together with others, and in the
    /// order of the calls. Never waits and never refuses, so that it can be used in a destructor. A failure to
    /// write is logged and counted by the store, never dropped in silence.
    fn record(&self, stream: &str, key: Option<&str>, body: &[u8]);

    /// What a well-behaved user of [`Log::record`] waits for before it makes more work, so that the queue stays
    /// bounded though it refuses nothing. `None` while the store keeps up.
    fn keep_pace(&self) -> Option<BoxFuture<'_, ()>>;

    /// Entries of a stream with a sequence number greater than `after`, oldest first, at most `limit`.
    fn read(&self, stream: &str, after: u64, limit: usize) -> StoreFuture<'_, Vec<Entry>>;

    /// Entries of a stream with a sequence number lower than `before`, newest first, at most `limit`.
    fn read_back(&self, stream: &str, before: u64, limit: usize) -> StoreFuture<'_, Vec<Entry>>;

    /// The entry that was appended with this key.
    fn find(&self, stream: &str, key: &str) -> StoreFuture<'_, Option<Entry>>;

    /// Entries of a stream before `before` that a search asks for, newest first, at most `limit`.
    fn search(&self, stream: &str, search: Search, before: u64, limit: usize) -> StoreFuture<'_, Found>;

    /// The first and last sequence number that the stream still holds.
    fn bounds(&self, stream: &str) -> StoreFuture<'_, Bounds>;

    /// The stream's last committed sequence number, as it grows. A follower reads after the last entry it has
    /// seen whenever this changes: a slow one skips no entry, it only reads larger pages.
    fn follow(&self, stream: &str) -> watch::Receiver<u64>;

    /// Deletes the oldest entries of a stream, and returns how many, by reason.
    fn trim(&self, stream: &str, keep: Retention) -> StoreFuture<'_, Trimmed>;
}

/// Small documents in buckets, by key, each with a revision that grows with every change of it.
pub trait Records: Send + Sync + 'static {
    fn get(&self, bucket: &str, key: &str) -> StoreFuture<'_, Option<Record>>;

    /// All documents of a bucket, by key in byte order.
    fn list(&self, bucket: &str) -> StoreFuture<'_, Vec<(String, Record)>>;

    /// The keys of a bucket in byte order, each with the size of its document in bytes. The documents are not read, so that
    /// this takes little memory however large they are.
    fn sizes(&self, bucket: &str) -> StoreFuture<'_, Vec<(String, usize)>>;

    /// Stores a document and returns its revision, once it is on disk. Fails with [`StoreErrorKind::Conflict`]
    /// when the document is not as expected.
    fn put(&self, bucket: &str, key: &str, value: Bytes, expect: Expect) -> StoreFuture<'_, u64>;

    /// Deletes a document; `false` when there was none.
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
    /// Milliseconds since the Unix epoch, as the store stamped the entry.
    pub at_ms: i64,
    /// The stream held an entry with this key already; `seq` and `at_ms` are that entry's.
    pub duplicate: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub seq: u64,
    pub at_ms: i64,
    pub body: Bytes,
}

/// By what an entry is found. Two labels may be equal by chance, so a reader checks what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(pub u32);

impl Label {
    /// The label for a field with this value. It is stored, so it is the same in every version.
    pub fn new(field: &str, value: &str) -> Self {
        // FNV-1a, with a byte in between that neither of them has.
        let bytes = field.bytes().chain([0xff]).chain(value.bytes());
        Self(bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)))
    }
}

/// What to search a stream with labels for. Everything that is given must hold.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Of each set, an entry has at least one label.
    pub all_of: Vec<Vec<Label>>,
    /// The key is a UUID that begins like this.
    pub uuid_prefix: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct Found {
    pub entries: Vec<Entry>,
    /// Where to go on: what is left is before this number. Absent when there is no more.
    pub next: Option<u64>,
    /// How many index rows were looked at.
    pub steps: u64,
}

/// `first` is `last + 1` when the stream holds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub first: u64,
    pub last: u64,
}

/// What a stream keeps. By default it keeps everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Keep at most this many entries.
    pub entries: Option<u64>,
    /// Delete some of the entries that are too old; see [`crate::retention`] for when and how many.
    pub aged: Option<Aged>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aged {
    /// Entries stamped before this time are too old, in milliseconds since the Unix epoch.
    pub since_ms: i64,
    /// Delete at most this many for their age.
    pub at_most: u64,
}

/// How many entries were deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trimmed {
    /// The stream held more than it may.
    pub over_limit: u64,
    /// They were too old.
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

/// What a document must look like for a change of it to go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Anything,
    Absent,
    Revision(u64),
}

/// What went wrong in the store, in one sentence with the file's name and what to do about it.
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
    /// What was asked to be stored is over a limit of the store (its size, the length of a name or key).
    Invalid,
    /// No room left; reads go on, and writes succeed again once there is room.
    Full,
    /// What is stored is not what was written: the message names the file and the place.
    Damaged,
    /// The newest of what it had acknowledged is gone: the message names the file. It is opened only by somebody who accepts
    /// that.
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
