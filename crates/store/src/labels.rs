//! The index of labels: entries of one stream by what they are about.
//!
//! Labels are a pure function of an entry's body ([`Labelled`]), so they can be made again for an older store, deleted with
//! their entry, and checked. A row says which entries of a block of 256 have a label, as four words of 64 bits. The writer
//! collects the bits of a transaction and writes each row once: a busy gateway pays for a few rows per block, and not for
//! each entry. Several labels are intersected by leaping: each in turn is asked for its newest entry that is not newer than
//! the last answer, until all agree. A search takes about as many steps as the rarest label has entries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row};
use sa_core::store::{Found, Label, Search, StoreError};

use crate::code::{row_id, stream_and_seq, uuid_range};
use crate::heads::Head;
use crate::read::View;
use crate::{OpenOptions, error, heads};

/// One search takes at most this many steps, and then says where to go on.
const MAX_STEPS: u64 = 20_000;

/// A block has this many entries: their row numbers differ in the lowest 8 bits only.
const BLOCK_BITS: u32 = 8;
/// While an index is made, bits of this many rows are collected before they are written.
const FILL_ROWS: usize = 16_384;

/// Which entries of a block, by the lowest bits of their row numbers.
type Bits = [u64; 4];

/// Which stream has labels, and which labels an entry of it has.
#[derive(Debug, Clone, Copy)]
pub struct Labelled {
    pub stream: &'static str,
    pub of: fn(body: &[u8], labels: &mut Vec<Label>),
}

/// Bits that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    rows: BTreeMap<(Label, i64), Bits>,
    /// Memory for the labels of one entry.
    labels: Vec<Label>,
}

impl Marks {
    /// Notes the labels of an entry.
    pub(crate) fn add(&mut self, labelled: Labelled, row: i64, body: &[u8]) {
        self.labels.clear();
        (labelled.of)(body, &mut self.labels);
        for label in &self.labels {
            set(self.rows.entry((*label, row >> BLOCK_BITS)).or_default(), row);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
    }

    /// Writes the bits, each row once.
    pub(crate) fn flush(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let sql = "INSERT INTO label VALUES(?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE
                   SET a = a | excluded.a, b = b | excluded.b, c = c | excluded.c, d = d | excluded.d";
        let mut statement = conn.prepare_cached(sql)?;
        for ((label, block), bits) in &self.rows {
            let [a, b, c, d] = bits.map(u64::cast_signed);
            statement.execute((label.0, block, a, b, c, d))?;
        }
        self.rows.clear();
        Ok(())
    }
}

/// The labels of entries that are to be deleted.
#[derive(Debug, Default)]
pub(crate) struct Doomed(BTreeSet<Label>);

impl Doomed {
    pub(crate) fn add(&mut self, labelled: Labelled, body: &[u8]) {
        let mut labels = Vec::new();
        (labelled.of)(body, &mut labels);
        self.0.extend(labels);
    }

    /// Clears the bits of the rows `from..=to`, whose labels these are.
    pub(crate) fn delete(&self, conn: &Connection, from: i64, to: i64) -> rusqlite::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let sql = "UPDATE label SET a = a & ?3, b = b & ?4, c = c & ?5, d = d & ?6 WHERE label = ?1 AND block = ?2";
        let mut clear = conn.prepare_cached(sql)?;
        let sql = "DELETE FROM label WHERE label = ?1 AND block BETWEEN ?2 AND ?3
                   AND a = 0 AND b = 0 AND c = 0 AND d = 0";
        let mut delete = conn.prepare_cached(sql)?;
        let blocks = (from >> BLOCK_BITS)..=(to >> BLOCK_BITS);
        for label in &self.0 {
            for block in blocks.clone() {
                let [a, b, c, d] = between(block, from, to).map(|bits| (!bits).cast_signed());
                clear.execute((label.0, block, a, b, c, d))?;
            }
            delete.execute((label.0, blocks.start(), blocks.end()))?;
        }
        Ok(())
    }
}

fn set(bits: &mut Bits, row: i64) {
    bits[(row >> 6 & 3) as usize] |= 1 << (row & 63);
}

/// The bits of a block for the rows `from..=to`.
fn between(block: i64, from: i64, to: i64) -> Bits {
    let mut bits = Bits::default();
    let first = block << BLOCK_BITS;
    let (from, to) = (from.max(first), to.min(first | ((1 << BLOCK_BITS) - 1)));
    for word in 0..4_i64 {
        let (low, high) = (first + 64 * word, first + 64 * word + 63);
        let (low, high) = (from.max(low), to.min(high));
        if low <= high {
            bits[word as usize] = u64::MAX << (low & 63) & u64::MAX >> (63 - (high & 63));
        }
    }
    bits
}

fn bits_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Bits> {
    let word = |n| row.get::<_, i64>(column + n).map(i64::cast_unsigned);
    Ok([word(0)?, word(1)?, word(2)?, word(3)?])
}

/// Makes the index of a store that had none.
pub(crate) fn fill(conn: &Connection, options: &OpenOptions) -> Result<(), StoreError> {
    let Some(labelled) = options.labelled else { return Ok(()) };
    let failed = |e: rusqlite::Error| error::sql(&options.path, "make the index of labels", &e);
    let mut marks = Marks::default();
    each_entry(conn, labelled, &options.path, |row, body| {
        marks.add(labelled, row, body);
        if marks.rows.len() < FILL_ROWS { Ok(()) } else { marks.flush(conn).map_err(failed) }
    })?;
    marks.flush(conn).map_err(failed)
}

/// Checks that every bit leads to an entry with the label, and every entry of the stream has its bits.
pub(crate) fn verify(conn: &Connection, path: &Path, labelled: Option<Labelled>) -> Result<(), StoreError> {
    let failed = |e: rusqlite::Error| error::sql(path, "check the index of labels", &e);
    let mut expected = Marks::default();
    if let Some(labelled) = labelled {
        each_entry(conn, labelled, path, |row, body| {
            expected.add(labelled, row, body);
            Ok(())
        })?;
    }
    let mut statement = conn.prepare("SELECT label, block, a, b, c, d FROM label").map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let take = || Ok(((Label(row.get(0)?), row.get(1)?), bits_of(row, 2)?));
        let (place, found) = take().map_err(failed)?;
        if expected.rows.remove(&place) != Some(found) {
            return Err(error::damaged(path, format!("block {} of the index of labels is wrong", place.1)));
        }
    }
    match expected.rows.first_key_value() {
        None => Ok(()),
        Some(((_, block), _)) => Err(error::damaged(path, format!("block {block} of the index of labels is missing"))),
    }
}

fn each_entry(
    conn: &Connection,
    labelled: Labelled,
    path: &Path,
    mut f: impl FnMut(i64, &[u8]) -> Result<(), StoreError>,
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
    while let Some(row) = rows.next().map_err(failed)? {
        let body = row.get_ref(1).and_then(|body| Ok(body.as_blob()?)).map_err(failed)?;
        f(row.get(0).map_err(failed)?, body)?;
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
        let failed = |e: rusqlite::Error| view.failed(&e);
        let sql =
            "SELECT block, a, b, c, d FROM label WHERE label = ?1 AND block BETWEEN ?2 AND ?3 ORDER BY block DESC";
        let mut statement = view.conn.prepare_cached(sql).map_err(failed)?;
        let mut newest = None;
        for label in any_of {
            self.steps += 1;
            let range = (label.0, low >> BLOCK_BITS, high >> BLOCK_BITS);
            let mut rows = statement.query(range).map_err(failed)?;
            // Bits outside of the range are in the first and the last block only.
            while let Some(row) = rows.next().map_err(failed)? {
                let block: i64 = row.get(0).map_err(failed)?;
                let (bits, wanted) = (bits_of(row, 1).map_err(failed)?, between(block, low, high));
                let word = (0..4).rev().find(|word| bits[*word] & wanted[*word] != 0);
                if let Some(word) = word {
                    let bit = (bits[word] & wanted[word]).ilog2();
                    newest = newest.max(Some((block << BLOCK_BITS) + 64 * word as i64 + i64::from(bit)));
                    break;
                }
            }
        }
        Ok(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn the_bits_of_a_range_are_those_of_its_rows(block in 0..4_i64, from in 0..1024_i64, to in 0..1024_i64) {
            let mut slowly = Bits::default();
            (from..=to).filter(|row| row >> BLOCK_BITS == block).for_each(|row| set(&mut slowly, row));
            proptest::prop_assert_eq!(between(block, from, to), slowly);
        }
    }
}
