//! One transaction of the writer: applies operations to the tables and to the heads.
//!
//! An `Err` aborts the transaction. An error that concerns only one operation, such as a revision
//! conflict, is an [`Outcome::Failed`], and the other operations continue.

use std::path::Path;

use rusqlite::{Connection, Statement, params};
use sa_core::store::{Appended, Expect, NewEntry, StoreError, StoreErrorKind, Trimmed};

use crate::code::{MAX_SEQ, entry_crc, pack_key, record_crc, row_id};
use crate::heads::{Heads, Kind};
use crate::labels::{self, Labelled, Marks};
use crate::op::{Op, Outcome, Put, Trim};
use crate::read::View;
use crate::{OpenOptions, error};

/// The prepared statements of one connection.
pub(crate) struct Session<'c> {
    pub conn: &'c Connection,
    pub path: &'c Path,
    insert: Statement<'c>,
    frames: Statement<'c>,
    labelled: Option<Labelled>,
    key: Vec<u8>,
    marks: Marks,
}

/// The limits of one trim transaction, in entries and in bytes.
///
/// The entry that exceeds the byte limit is still deleted. The limits keep the delay for appends
/// short.
const TRIM_ENTRIES: i64 = 512;
const TRIM_BYTES: i64 = 4 << 20;

impl<'c> Session<'c> {
    pub(crate) fn new(conn: &'c Connection, options: &'c OpenOptions) -> Result<Self, StoreError> {
        let path = options.path.as_path();
        let prepare =
            |sql: &str| conn.prepare(sql).map_err(|e| error::sql(path, "prepare a statement", &e));
        // One statement inserts both the row and its key. The unique index decides whether the key
        // is new.
        let insert =
            prepare("INSERT INTO entry VALUES(?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING")?;
        let frames = prepare("PRAGMA wal_checkpoint(NOOP)")?;
        let labelled = options.labelled;
        Ok(Self { conn, path, insert, frames, labelled, key: Vec::new(), marks: Marks::default() })
    }

    /// Returns the number of frames in the WAL.
    pub(crate) fn wal_frames(&mut self) -> rusqlite::Result<u32> {
        self.frames.query_row([], |row| row.get(1))
    }

    /// Prepares for a new transaction, and drops the state of a failed one.
    pub(crate) fn begin(&mut self) {
        self.marks.clear();
    }

    /// Writes the labels of the entries that this transaction has appended.
    pub(crate) fn write_labels(&mut self) -> Result<(), StoreError> {
        self.marks.flush(self.conn).map_err(|e| error::sql(self.path, "label entries", &e))
    }

    pub(crate) fn apply(
        &mut self,
        heads: &mut Heads,
        op: &Op,
        now: i64,
    ) -> Result<Outcome, StoreError> {
        match op {
            Op::Append { entry, .. } => self.append(heads, entry, now),
            Op::Put(put) => self.put(heads, put),
            Op::Delete { bucket, key, .. } => self.delete(heads, bucket, key),
            Op::Trim(trim) => self.trim(heads, trim),
        }
    }

    fn append(
        &mut self,
        heads: &mut Heads,
        entry: &NewEntry,
        now: i64,
    ) -> Result<Outcome, StoreError> {
        let stream = match heads.find_or_make(Kind::Stream, &entry.stream) {
            Ok(stream) => stream,
            Err(error) => return Ok(Outcome::Failed(Box::new(error))),
        };
        let seq = heads.get(stream).numbers[1] as u64 + 1;
        if seq > MAX_SEQ {
            let message =
                format!("stream {:?} holds {MAX_SEQ} entries, which is its limit", entry.stream);
            return Ok(Outcome::Failed(Box::new(error::invalid(message))));
        }
        let row = row_id(stream, seq);
        let key = entry.key.as_deref().map(|key| pack_key(stream, key, &mut self.key));
        let crc = entry_crc(row, now, key, &entry.body);
        let inserted = self
            .insert
            .execute(params![row, now, crc, key, &entry.body[..]])
            .map_err(|e| error::sql(self.path, "append an entry", &e))?;
        if inserted == 1 {
            if let Some(labelled) = self.labelled_as(&entry.stream) {
                self.marks.add(labelled, row, &entry.body);
            }
            heads.change(stream)[1] = seq as i64;
            return Ok(Outcome::Appended(Appended { seq, at_ms: now, duplicate: false }));
        }
        let Some(key) = &entry.key else {
            let what = format!("stream {:?} has an entry {seq} after its last one", entry.stream);
            return Err(error::damaged(self.path, what));
        };
        let first = self.view().find(heads.get(stream), key)?.ok_or_else(|| {
            error::damaged(
                self.path,
                format!("stream {:?} has an entry {seq} after its last", entry.stream),
            )
        })?;
        Ok(Outcome::Appended(Appended { seq: first.seq, at_ms: first.at_ms, duplicate: true }))
    }

    fn put(&mut self, heads: &mut Heads, put: &Put) -> Result<Outcome, StoreError> {
        let bucket = match heads.find_or_make(Kind::Bucket, &put.bucket) {
            Ok(bucket) => bucket,
            Err(error) => return Ok(Outcome::Failed(Box::new(error))),
        };
        let old = self.view().record(bucket, &put.key)?;
        let conflict = match (put.expect, &old) {
            (Expect::Anything, _) | (Expect::Absent, None) => None,
            (Expect::Revision(r), Some(old)) if old.revision == r => None,
            (Expect::Absent, Some(old)) => Some(format!("exists, at revision {}", old.revision)),
            (Expect::Revision(r), Some(old)) => {
                Some(format!("is at revision {}, not at {r}", old.revision))
            }
            (Expect::Revision(r), None) => {
                Some(format!("does not exist, but was expected at revision {r}"))
            }
        };
        if let Some(how) = conflict {
            let message =
                format!("document {:?} of bucket {:?} {how}; read it again", put.key, put.bucket);
            return Ok(Outcome::Failed(Box::new(StoreError {
                kind: StoreErrorKind::Conflict,
                message,
            })));
        }
        let numbers = heads.change(bucket);
        // The bucket counts the revisions. A document that is deleted and created again therefore
        // never repeats a revision.
        numbers[0] += 1;
        let revision = numbers[0];
        let crc = record_crc(bucket, &put.key, revision, &put.value);
        match &old {
            Some(old) => numbers[2] = numbers[2].wrapping_sub(old_crc(bucket, &put.key, old)),
            None => numbers[1] += 1,
        }
        numbers[2] = numbers[2].wrapping_add(i64::from(crc));
        self.conn
            .prepare_cached("INSERT OR REPLACE INTO record VALUES(?1, ?2, ?3, ?4, ?5)")
            .and_then(|mut s| s.execute(params![bucket, &*put.key, revision, crc, &put.value[..]]))
            .map_err(|e| error::sql(self.path, "put a document", &e))?;
        Ok(Outcome::Put(revision as u64))
    }

    fn delete(
        &mut self,
        heads: &mut Heads,
        bucket: &str,
        key: &str,
    ) -> Result<Outcome, StoreError> {
        let Some(bucket) = heads.find(Kind::Bucket, bucket) else {
            return Ok(Outcome::Deleted(false));
        };
        let Some(old) = self.view().record(bucket, key)? else {
            return Ok(Outcome::Deleted(false));
        };
        let numbers = heads.change(bucket);
        numbers[1] -= 1;
        numbers[2] = numbers[2].wrapping_sub(old_crc(bucket, key, &old));
        let deleted = self
            .conn
            .prepare_cached("DELETE FROM record WHERE bucket = ?1 AND key = ?2")
            .and_then(|mut statement| statement.execute((bucket, key)))
            .map_err(|e| error::sql(self.path, "delete a document", &e))?;
        if deleted != 1 {
            return Err(error::damaged(self.path, format!("document {key:?} cannot be deleted")));
        }
        Ok(Outcome::Deleted(true))
    }

    fn trim(&mut self, heads: &mut Heads, trim: &Trim) -> Result<Outcome, StoreError> {
        let nothing = Outcome::Trimmed { deleted: Trimmed::default(), more: false };
        let Some(id) = heads.find(Kind::Stream, &trim.stream) else {
            return Ok(nothing);
        };
        let [first, last, _] = heads.get(id).numbers;
        // The trim may delete entries of this transaction, so their labels must be written first.
        self.write_labels()?;
        let (deleted, more) = self.trim_chunk(id, first, last, trim)?;
        let count = deleted.total() as i64;
        if count == 0 {
            return Ok(nothing);
        }
        let (from, to) = (row_id(id, first as u64), row_id(id, (first + count - 1) as u64));
        let gone = self
            .conn
            .prepare_cached("DELETE FROM entry WHERE id BETWEEN ?1 AND ?2")
            .and_then(|mut statement| statement.execute((from, to)))
            .map_err(|e| error::sql(self.path, "trim a stream", &e))?;
        if gone as i64 != count {
            let what = format!(
                "stream {:?} has only {gone} of {count} entries from {first} on",
                trim.stream
            );
            return Err(error::damaged(self.path, what));
        }
        if self.labelled_as(&trim.stream).is_some() {
            labels::trim(self.conn, id, (first + count) as u64)
                .map_err(|e| error::sql(self.path, "trim the label index", &e))?;
        }
        heads.change(id)[0] = first + count;
        Ok(Outcome::Trimmed { deleted, more })
    }

    /// Returns how many of the oldest entries to delete in this transaction, and whether more may
    /// follow.
    fn trim_chunk(
        &self,
        stream: u32,
        first: i64,
        last: i64,
        trim: &Trim,
    ) -> Result<(Trimmed, bool), StoreError> {
        let keep = trim.keep;
        let over_entries =
            keep.entries.map_or(0, |keep| (last - first + 1).saturating_sub_unsigned(keep).max(0))
                as u64;
        let over_bytes = match keep.bytes {
            Some(bytes) => self.over_bytes(stream, first + over_entries as i64, last, bytes)?,
            None => 0,
        };
        let over_limit = over_entries + over_bytes;
        let failed = |e: rusqlite::Error| error::sql(self.path, "trim a stream", &e);
        let sql =
            "SELECT at, length(body) FROM entry WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3";
        let mut statement = self.conn.prepare_cached(sql).map_err(failed)?;
        let range = (row_id(stream, first as u64), row_id(stream, last as u64), TRIM_ENTRIES);
        let mut rows = statement.query(range).map_err(failed)?;
        let (mut deleted, mut bytes) = (Trimmed::default(), 0);
        while let Some(row) = rows.next().map_err(failed)? {
            let (at, len): (i64, i64) =
                row.get(0).and_then(|at| Ok((at, row.get(1)?))).map_err(failed)?;
            if deleted.over_limit < over_limit {
                deleted.over_limit += 1;
            } else if keep.aged.is_some_and(|aged| {
                at < aged.since_ms && trim.done.aged + deleted.aged < aged.at_most
            }) {
                deleted.aged += 1;
            } else {
                return Ok((deleted, false));
            }
            bytes += len;
            if bytes >= TRIM_BYTES {
                break;
            }
        }
        Ok((deleted, first + deleted.total() as i64 <= last))
    }

    /// Returns how many of the oldest entries from `first` on to delete, so that the rest has at
    /// most `limit` bytes.
    ///
    /// The newest entry is always kept.
    fn over_bytes(
        &self,
        stream: u32,
        first: i64,
        last: i64,
        limit: u64,
    ) -> Result<u64, StoreError> {
        let failed = |e: rusqlite::Error| error::sql(self.path, "measure a stream", &e);
        if first > last {
            return Ok(0);
        }
        // The length of a body is in the row header, so the body itself is not read.
        let sql = "SELECT length(body) FROM entry WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC";
        let mut statement = self.conn.prepare_cached(sql).map_err(failed)?;
        let range = (row_id(stream, first as u64), row_id(stream, last as u64));
        let mut rows = statement.query(range).map_err(failed)?;
        let (mut kept, mut bytes) = (0, 0_u64);
        while let Some(row) = rows.next().map_err(failed)? {
            let len: i64 = row.get(0).map_err(failed)?;
            bytes = bytes.saturating_add(len as u64);
            if bytes > limit && kept > 0 {
                return Ok((last - first + 1 - kept) as u64);
            }
            kept += 1;
        }
        Ok(0)
    }

    /// Returns the labels of a stream, if it has any.
    fn labelled_as(&self, stream: &str) -> Option<Labelled> {
        self.labelled.filter(|labelled| labelled.stream == stream)
    }

    fn view(&self) -> View<'_> {
        View { conn: self.conn, path: self.path }
    }
}

fn old_crc(bucket: u32, key: &str, old: &sa_core::store::Record) -> i64 {
    i64::from(record_crc(bucket, key, old.revision as i64, &old.value))
}
