//! The full check of a store: every page, index, checksum and number.

use rusqlite::Connection;
use sa_core::store::StoreError;

use crate::heads::{Heads, Kind};
use crate::read::{Page, View};
use crate::{OpenOptions, error, labels};

/// The numbers of items that a full check has found intact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    /// Streams of the log.
    pub streams: u64,
    /// Entries in the streams.
    pub entries: u64,
    /// Buckets of documents.
    pub buckets: u64,
    /// Documents in the buckets.
    pub records: u64,
}

/// Reads all data in one snapshot. Returns the first problem as the error.
pub(crate) fn everything(conn: &Connection, options: &OpenOptions) -> Result<Verified, StoreError> {
    let path = options.path.as_path();
    let view = View { conn, path };
    view.snapshot(|| {
        // Checks the structure of all pages, and that each index has exactly the rows of its table.
        let problem: String = conn
            .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
            .map_err(|e| error::sql(path, "check the structure", &e))?;
        if problem != "ok" {
            return Err(error::damaged(path, problem));
        }
        let mut seen = Verified::default();
        for head in Heads::load(conn, path)?.all() {
            match head.kind {
                Kind::Store => {}
                Kind::Bucket => {
                    seen.buckets += 1;
                    seen.records += view.list(head.id)?.len() as u64;
                }
                Kind::Stream => {
                    seen.streams += 1;
                    let mut after = 0;
                    while let Some(last) = view.page(head.id, Page::After(after), 256)?.last() {
                        after = last.seq;
                    }
                    seen.entries += (head.numbers[1] - head.numbers[0] + 1) as u64;
                }
            }
        }
        labels::verify(conn, path, options.labelled)?;
        strays(view, seen)
    })
}

/// Rows without a stream or bucket would otherwise not be checked.
fn strays(view: View<'_>, seen: Verified) -> Result<Verified, StoreError> {
    let count = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        view.conn
            .query_row(&sql, [], |row| row.get::<_, i64>(0))
            .map_err(|e| error::sql(view.path, "count rows", &e))
    };
    if count("entry")? as u64 != seen.entries || count("record")? as u64 != seen.records {
        return Err(error::damaged(
            view.path,
            "it contains rows that belong to no stream or bucket",
        ));
    }
    Ok(seen)
}
