//! Reads, each in one transaction with one snapshot. Each read is checked against the heads.
//!
//! A stream's numbers have no gaps, and its head has the first and the last one. A read therefore
//! knows in advance which rows it must find. A bucket's head has the number of documents and the
//! sum of their checksums.
//!
//! Only the answer for an absent key cannot be checked this way. The neighbours in the index are
//! checked instead, because a search that a damaged key misdirects ends next to that key.

use std::path::Path;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, ToSql};
use sa_core::store::{Bounds, Entry, Record, StoreError};

use crate::code::{entry_crc, pack_key, record_crc, row_id, stream_and_seq};
use crate::error;
use crate::heads::{self, Head, Heads, Kind};

/// The connection to read from, and the path for error messages.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub conn: &'a Connection,
    pub path: &'a Path,
}

/// The direction in which a stream is read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Page {
    After(u64),
    Before(u64),
}

impl View<'_> {
    /// Runs `f` in a transaction, so that a head and its rows have the same state.
    pub(crate) fn snapshot<T>(
        self,
        f: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // Rolls back when dropped, which for a reader is the same as a commit.
        let _tx = self.conn.unchecked_transaction().map_err(|e| self.failed(&e))?;
        f()
    }

    pub(crate) fn bounds(self, stream: u32) -> Result<Bounds, StoreError> {
        let [first, last, _] = heads::read(self.conn, stream, self.path)?.numbers;
        Ok(Bounds { first: first as u64, last: last as u64 })
    }

    pub(crate) fn page(
        self,
        stream: u32,
        page: Page,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let head = heads::read(self.conn, stream, self.path)?;
        let (first, last) = (head.numbers[0] as u64, head.numbers[1] as u64);
        let limit = limit as u64;
        // The numbers `from..=to` must exist.
        let (from, to) = match page {
            Page::After(after) => {
                let from = after.saturating_add(1).max(first);
                (from, last.min(from.saturating_add(limit).saturating_sub(1)))
            }
            Page::Before(before) => {
                let to = before.saturating_sub(1).min(last);
                (first.max(to.saturating_add(1).saturating_sub(limit)), to)
            }
        };
        if limit == 0 || from > to {
            return Ok(Vec::new());
        }
        let sql = match page {
            Page::After(_) => {
                "SELECT id, at, crc, key, body FROM entry WHERE id BETWEEN ?1 AND ?2 ORDER BY id"
            }
            Page::Before(_) => {
                "SELECT id, at, crc, key, body FROM entry WHERE id BETWEEN ?1 AND ?2 ORDER BY id DESC"
            }
        };
        let mut statement = self.conn.prepare_cached(sql).map_err(|e| self.failed(&e))?;
        let mut rows = statement
            .query((row_id(stream, from), row_id(stream, to)))
            .map_err(|e| self.failed(&e))?;
        let mut entries = Vec::with_capacity((to - from + 1).min(4096) as usize);
        let total = to - from + 1;
        for n in 0..total {
            let seq = if matches!(page, Page::After(_)) { from + n } else { to - n };
            let row = rows.next().map_err(|e| self.at_entry(&head, seq, &e))?;
            let row = row.ok_or_else(|| self.bad_entry(&head, seq, "is missing"))?;
            entries.push(self.entry(&head, seq, row)?.0);
        }
        Ok(entries)
    }

    /// Returns the entry with this key.
    ///
    /// The head is a parameter, because during a transaction only the writer has the current one.
    pub(crate) fn find(self, head: &Head, key: &str) -> Result<Option<Entry>, StoreError> {
        let mut buffer = Vec::new();
        let key = pack_key(head.id, key, &mut buffer);
        let sql = "SELECT id FROM entry WHERE key = ?1";
        let found: Option<i64> = self.one(sql, [key], |row| row.get(0))?;
        let Some(row) = found else {
            self.neighbours_of(key)?;
            return Ok(None);
        };
        let (owner, seq) = stream_and_seq(row);
        let inside =
            owner == head.id && (head.numbers[0]..=head.numbers[1]).contains(&(seq as i64));
        if !inside {
            return Err(self.bad_entry(
                head,
                seq,
                "is found by its key, but lies outside of the stream",
            ));
        }
        self.entry_with_key(head, seq, key).map(Some)
    }

    /// Checks that the keys next to a position in the index match their entries.
    fn neighbours_of(self, key: &[u8]) -> Result<(), StoreError> {
        for sql in [
            "SELECT id, key FROM entry WHERE key < ?1 ORDER BY key DESC LIMIT 1",
            "SELECT id, key FROM entry WHERE key > ?1 ORDER BY key LIMIT 1",
        ] {
            let near: Option<(i64, Vec<u8>)> =
                self.one(sql, [key], |row| Ok((row.get(0)?, row.get(1)?)))?;
            if let Some((row, near)) = near {
                let (stream, seq) = stream_and_seq(row);
                let head = heads::read(self.conn, stream, self.path)?;
                self.entry_with_key(&head, seq, &near)?;
            }
        }
        Ok(())
    }

    fn entry_with_key(self, head: &Head, seq: u64, key: &[u8]) -> Result<Entry, StoreError> {
        let (entry, matches) =
            self.indexed(head, seq, |entry, found| (entry, found == Some(key)))?;
        if matches {
            Ok(entry)
        } else {
            Err(self.bad_entry(head, seq, "has another key than its index"))
        }
    }

    /// Returns an entry that an index refers to.
    pub(crate) fn entry_at(self, head: &Head, seq: u64) -> Result<Entry, StoreError> {
        self.indexed(head, seq, |entry, _| entry)
    }

    fn indexed<T>(
        self,
        head: &Head,
        seq: u64,
        f: impl FnOnce(Entry, Option<&[u8]>) -> T,
    ) -> Result<T, StoreError> {
        let sql = "SELECT id, at, crc, key, body FROM entry WHERE id = ?1";
        let mut statement = self.conn.prepare_cached(sql).map_err(|e| self.failed(&e))?;
        let mut rows = statement.query([row_id(head.id, seq)]).map_err(|e| self.failed(&e))?;
        let row = rows.next().map_err(|e| self.at_entry(head, seq, &e))?;
        let row = row.ok_or_else(|| self.bad_entry(head, seq, "is in the index, but missing"))?;
        self.entry(head, seq, row).map(|(entry, key)| f(entry, key))
    }

    /// Reads an entry from a row of `id, at, crc, key, body`, and checks it.
    fn entry<'r>(
        self,
        head: &Head,
        seq: u64,
        row: &'r Row<'_>,
    ) -> Result<(Entry, Option<&'r [u8]>), StoreError> {
        let take = || -> rusqlite::Result<_> {
            let (id, at_ms, crc): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let key = row.get_ref(3)?.as_blob_or_null()?;
            Ok((id, at_ms, crc, key, row.get_ref(4)?.as_blob()?))
        };
        let (id, at_ms, crc, key, body) = take().map_err(|e| self.at_entry(head, seq, &e))?;
        if id != row_id(head.id, seq) {
            return Err(self.bad_entry(head, seq, "is missing"));
        }
        if crc != i64::from(entry_crc(id, at_ms, key, body)) {
            return Err(self.bad_entry(head, seq, "has a wrong checksum"));
        }
        Ok((Entry { seq, at_ms, body: Bytes::copy_from_slice(body) }, key))
    }

    pub(crate) fn record(self, bucket: u32, key: &str) -> Result<Option<Record>, StoreError> {
        let sql = "SELECT key, revision, crc, value FROM record WHERE bucket = ?1 AND key = ?2";
        let found = self.records(bucket, sql, (bucket, key))?.pop();
        if found.is_none() {
            for sql in [
                "SELECT key, revision, crc, value FROM record WHERE bucket = ?1 AND key < ?2
                 ORDER BY key DESC LIMIT 1",
                "SELECT key, revision, crc, value FROM record WHERE bucket = ?1 AND key > ?2
                 ORDER BY key LIMIT 1",
            ] {
                self.records(bucket, sql, (bucket, key))?;
            }
        }
        Ok(found.map(|(_, record, _)| record))
    }

    pub(crate) fn list(self, bucket: u32) -> Result<Vec<(String, Record)>, StoreError> {
        let head = heads::read(self.conn, bucket, self.path)?;
        let sql = "SELECT key, revision, crc, value FROM record WHERE bucket = ?1 ORDER BY key";
        let records = self.records(bucket, sql, [bucket])?;
        self.all_there(&head, records.iter().map(|(_, _, crc)| i64::from(*crc)))?;
        Ok(records.into_iter().map(|(key, record, _)| (key, record)).collect())
    }

    /// Returns keys and sizes. SQLite reads the length of a value from the row header, and not the
    /// value.
    pub(crate) fn sizes(self, bucket: u32) -> Result<Vec<(String, usize)>, StoreError> {
        let head = heads::read(self.conn, bucket, self.path)?;
        let sql = "SELECT key, crc, length(value) FROM record WHERE bucket = ?1 ORDER BY key";
        let mut statement = self.conn.prepare_cached(sql).map_err(|e| self.failed(&e))?;
        let rows = statement.query_map([bucket], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let rows: Vec<(String, i64, i64)> =
            rows.and_then(Iterator::collect).map_err(|e| self.failed(&e))?;
        self.all_there(&head, rows.iter().map(|(_, crc, _)| *crc))?;
        Ok(rows.into_iter().map(|(key, _, size)| (key, size as usize)).collect())
    }

    /// Checks the number of documents in a bucket and their checksums against its head.
    fn all_there(
        self,
        head: &Head,
        crcs: impl ExactSizeIterator<Item = i64>,
    ) -> Result<(), StoreError> {
        let (name, count, expected) = (&head.name, crcs.len(), head.numbers[1]);
        if expected == count as i64 && head.numbers[2] == crcs.fold(0_i64, i64::wrapping_add) {
            return Ok(());
        }
        let what = format!(
            "bucket {name:?} has {count} of {expected} documents, or other documents than were stored"
        );
        Err(error::damaged(self.path, what))
    }

    fn records(
        self,
        bucket: u32,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<Vec<(String, Record, u32)>, StoreError> {
        let mut statement = self.conn.prepare_cached(sql).map_err(|e| self.failed(&e))?;
        let mut rows = statement.query(params).map_err(|e| self.failed(&e))?;
        let mut out = Vec::new();
        while let Some(row) = rows.next().map_err(|e| self.failed(&e))? {
            let take = || -> rusqlite::Result<(String, i64, i64, &[u8])> {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get_ref(3)?.as_blob()?))
            };
            let (key, revision, crc, value) = take().map_err(|e| self.failed(&e))?;
            let expected = record_crc(bucket, &key, revision, value);
            if crc != i64::from(expected) {
                let what = format!("document {key:?} of bucket {bucket} has a wrong checksum");
                return Err(error::damaged(self.path, what));
            }
            let record = Record { value: Bytes::copy_from_slice(value), revision: revision as u64 };
            out.push((key, record, expected));
        }
        Ok(out)
    }

    fn one<T, P: ToSql>(
        self,
        sql: &str,
        params: [P; 1],
        f: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let mut statement = self.conn.prepare_cached(sql).map_err(|e| self.failed(&e))?;
        statement.query_row(params, f).optional().map_err(|e| self.failed(&e))
    }

    pub(crate) fn failed(self, e: &rusqlite::Error) -> StoreError {
        error::sql(self.path, "read", e)
    }

    fn at_entry(self, head: &Head, seq: u64, e: &rusqlite::Error) -> StoreError {
        error::sql(self.path, &format!("read entry {seq} of stream {:?}", head.name), e)
    }

    fn bad_entry(self, head: &Head, seq: u64, what: &str) -> StoreError {
        error::damaged(self.path, format!("entry {seq} of stream {:?} {what}", head.name))
    }
}

/// Returns the time of the newest entry of any stream. Reads one entry of each stream.
pub(crate) fn newest_ms(view: View<'_>) -> Result<Option<i64>, StoreError> {
    let mut newest = None;
    for head in Heads::load(view.conn, view.path)?.all() {
        let [first, last, _] = head.numbers;
        if head.kind == Kind::Stream && first <= last {
            let row = row_id(head.id, last as u64);
            let at: Option<i64> =
                view.one("SELECT at FROM entry WHERE id = ?1", [row], |row| row.get(0))?;
            newest = newest
                .max(Some(at.ok_or_else(|| view.bad_entry(head, last as u64, "is missing"))?));
        }
    }
    Ok(newest)
}
