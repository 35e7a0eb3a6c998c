//! The index of labels: entries of one stream by what they are about.
//!
//! Labels are a pure function of an entry's body ([`Labelled`]), so they can be made again for an older store, deleted with
//! their entry, and checked. A row is a label and the number of an entry; rows of one label are in the entry's order, and
//! new ones go to the end of a few hot pages. Several labels are intersected by leaping: each in turn is asked for its
//! newest entry that is not newer than the last answer, until all agree. A search takes about as many steps as the rarest
//! label has entries.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension};
use sa_core::store::{Found, Label, Search, StoreError};

use crate::code::{row_id, stream_and_seq, uuid_range};
use crate::heads::Head;
use crate::read::View;
use crate::{OpenOptions, error, heads};

/// One search takes at most this many steps, and then says where to go on.
const MAX_STEPS: u64 = 20_000;

/// Which stream has labels, and which labels an entry of it has.
#[derive(Debug, Clone, Copy)]
pub struct Labelled {
    pub stream: &'static str,
    pub of: fn(body: &[u8], labels: &mut Vec<Label>),
}

impl Labelled {
    /// The labels of an entry, each once.
    pub(crate) fn labels(self, body: &[u8], labels: &mut Vec<Label>) {
        labels.clear();
        (self.of)(body, labels);
        labels.sort_unstable();
        labels.dedup();
    }
}

pub(crate) fn insert(conn: &Connection, row: i64, labels: &[Label]) -> rusqlite::Result<()> {
    let mut statement = conn.prepare_cached("INSERT OR IGNORE INTO label VALUES(?1, ?2)")?;
    labels.iter().try_for_each(|label| statement.execute((label.0, row)).map(drop))
}

/// Deletes the labels of the rows `from..=to`. `labels` are all that these have.
pub(crate) fn delete(conn: &Connection, labels: &BTreeSet<Label>, from: i64, to: i64) -> rusqlite::Result<()> {
    let mut statement = conn.prepare_cached("DELETE FROM label WHERE label = ?1 AND entry BETWEEN ?2 AND ?3")?;
    labels.iter().try_for_each(|label| statement.execute((label.0, from, to)).map(drop))
}

/// Makes the index of a store that had none.
pub(crate) fn fill(conn: &Connection, options: &OpenOptions) -> Result<(), StoreError> {
    let Some(labelled) = options.labelled else { return Ok(()) };
    let failed = |e: rusqlite::Error| error::sql(&options.path, "make the index of labels", &e);
    each_labelled(conn, labelled, &options.path, |row, labels| insert(conn, row, labels).map_err(failed))
}

/// Checks that every label leads to its entry, and every entry of the stream has its labels.
pub(crate) fn verify(conn: &Connection, path: &Path, labelled: Option<Labelled>) -> Result<(), StoreError> {
    let failed = |e: rusqlite::Error| error::sql(path, "check the index of labels", &e);
    let mut expected = 0_i64;
    if let Some(labelled) = labelled {
        let mut find = conn.prepare("SELECT 1 FROM label WHERE label = ?1 AND entry = ?2").map_err(failed)?;
        each_labelled(conn, labelled, path, |row, labels| {
            for label in labels {
                if !find.exists((label.0, row)).map_err(failed)? {
                    let seq = stream_and_seq(row).1;
                    let what = format!("entry {seq} of stream {:?} is missing in the index of labels", labelled.stream);
                    return Err(error::damaged(path, what));
                }
                expected += 1;
            }
            Ok(())
        })?;
    }
    let found: i64 = conn.query_row("SELECT count(*) FROM label", [], |row| row.get(0)).map_err(failed)?;
    if found == expected {
        return Ok(());
    }
    Err(error::damaged(path, format!("the index of labels has {found} rows of {expected}")))
}

fn each_labelled(
    conn: &Connection,
    labelled: Labelled,
    path: &Path,
    mut f: impl FnMut(i64, &[Label]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let failed = |e: rusqlite::Error| error::sql(path, "read the entries with labels", &e);
    let sql = "SELECT id, a, b FROM head WHERE kind = ?1 AND name = ?2";
    let found: Option<(u32, i64, i64)> = conn
        .query_row(sql, (heads::Kind::Stream as i64, labelled.stream), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()
        .map_err(failed)?;
    let Some((stream, first, last)) = found else { return Ok(()) };
    let sql = "SELECT id, body FROM entry WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
    let mut statement = conn.prepare(sql).map_err(failed)?;
    let mut rows = statement.query((row_id(stream, first as u64), row_id(stream, last as u64))).map_err(failed)?;
    let mut labels = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let body = row.get_ref(1).and_then(|body| Ok(body.as_blob()?)).map_err(failed)?;
        labelled.labels(body, &mut labels);
        f(row.get(0).map_err(failed)?, &labels)?;
    }
    Ok(())
}

/// Entries before `before` that the search asks for, newest first, at most `limit`.
pub(crate) fn search(
    view: View<'_>,
    head: &Head,
    search: &Search,
    before: u64,
    limit: usize,
) -> Result<Found, StoreError> {
    let (first, last) = (head.numbers[0] as u64, head.numbers[1] as u64);
    let newest = before.saturating_sub(1).min(last);
    if newest < first || limit == 0 {
        return Ok(Found::default());
    }
    let range = (row_id(head.id, first), row_id(head.id, newest));
    // One more than asked for tells whether there is a next page.
    let wanted = limit.saturating_add(1);
    let mut walk = Walk { view, all_of: &search.all_of, low: range.0, steps: 0 };
    let (mut rows, stopped) = match &search.uuid_prefix {
        None => walk.leap(range.1, wanted)?,
        Some(prefix) => walk.by_key(head.id, prefix, range.1, wanted)?,
    };
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = if more { rows.last().copied() } else { stopped };
    let entries = rows.into_iter().map(|row| view.entry_at(head, stream_and_seq(row).1)).collect::<Result<_, _>>()?;
    Ok(Found { entries, next: next.map(|row| stream_and_seq(row).1), steps: walk.steps })
}

struct Walk<'a> {
    view: View<'a>,
    all_of: &'a [Vec<Label>],
    low: i64,
    steps: u64,
}

impl Walk<'_> {
    /// Rows up to `high` that have a label of each set, newest first; and below which row to go on where it stopped early.
    fn leap(&mut self, high: i64, wanted: usize) -> Result<(Vec<i64>, Option<i64>), StoreError> {
        let (mut rows, mut candidate, mut agreed) = (Vec::new(), high, 0);
        for set in self.all_of.iter().cycle() {
            if self.steps >= MAX_STEPS {
                return Ok((rows, Some(candidate + 1)));
            }
            let Some(found) = self.newest(set, candidate)? else { break };
            agreed = if found == candidate { agreed + 1 } else { 1 };
            candidate = found;
            if agreed == self.all_of.len() {
                rows.push(found);
                if rows.len() == wanted || found == self.low {
                    break;
                }
                (candidate, agreed) = (found - 1, 0);
            }
        }
        Ok((rows, None))
    }

    /// The same among the rows whose key begins like this, which the index of keys knows.
    fn by_key(
        &mut self,
        stream: u32,
        prefix: &str,
        high: i64,
        wanted: usize,
    ) -> Result<(Vec<i64>, Option<i64>), StoreError> {
        let Some((from, to)) = uuid_range(stream, prefix) else { return Ok((Vec::new(), None)) };
        let sql = "SELECT id FROM entry INDEXED BY entry_key WHERE key BETWEEN ?1 AND ?2 AND id BETWEEN ?3 AND ?4
                   ORDER BY id DESC LIMIT ?5";
        let (view, low) = (self.view, self.low);
        let mut statement = view.conn.prepare_cached(sql).map_err(|e| view.failed(&e))?;
        let candidates = statement
            .query_map((&from[..], &to[..], low, high, MAX_STEPS as i64), |row| row.get::<_, i64>(0))
            .map_err(|e| view.failed(&e))?;
        let mut rows = Vec::new();
        for candidate in candidates {
            let candidate = candidate.map_err(|e| view.failed(&e))?;
            self.steps += 1;
            let mut all = true;
            for set in self.all_of {
                all = all && self.newest_from(set, candidate, candidate)?.is_some();
            }
            if all {
                rows.push(candidate);
            }
            if rows.len() == wanted {
                return Ok((rows, None));
            }
            if self.steps >= MAX_STEPS {
                return Ok((rows, Some(candidate)));
            }
        }
        Ok((rows, None))
    }

    fn newest(&mut self, any_of: &[Label], high: i64) -> Result<Option<i64>, StoreError> {
        self.newest_from(any_of, self.low, high)
    }

    /// The newest row of `low..=high` with one of these labels.
    fn newest_from(&mut self, any_of: &[Label], low: i64, high: i64) -> Result<Option<i64>, StoreError> {
        let view = self.view;
        let sql = "SELECT entry FROM label WHERE label = ?1 AND entry BETWEEN ?2 AND ?3 ORDER BY entry DESC LIMIT 1";
        let mut statement = view.conn.prepare_cached(sql).map_err(|e| view.failed(&e))?;
        let mut newest = None;
        for label in any_of {
            self.steps += 1;
            let found = statement.query_row((label.0, low, high), |row| row.get(0)).optional();
            newest = newest.max(found.map_err(|e| view.failed(&e))?);
        }
        Ok(newest)
    }
}
