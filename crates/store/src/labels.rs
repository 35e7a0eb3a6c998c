//! The label index: finds entries of one stream by their labels.
//!
//! Labels are a pure function of an entry's body ([`Labelled`]). They can therefore be rebuilt for
//! an older store, and verified.
//!
//! A row covers a block of 256 entries. It lists the entries with one label as a bitmap of four
//! 64-bit words. Rows of one block are neighbours, so a transaction changes only a few pages.
//!
//! A search goes from block to block and reads one row per requested label. That is about a
//! hundredth of the data that a scan reads.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row};
use sa_core::store::{Found, Label, Search, StoreError};

use crate::code::{row_id, stream_and_seq, uuid_range};
use crate::heads::Head;
use crate::read::View;
use crate::{OpenOptions, error, heads};

/// The maximum number of steps of one search. The search then returns the position to continue
/// from.
const MAX_STEPS: u64 = 20_000;

/// The number of bits of a position in a block. Row ids of one block differ only in these lowest
/// bits.
const BLOCK_BITS: u32 = 8;
/// The number of index rows to collect before they are written while an index is built.
const FILL_ROWS: usize = 16_384;

/// A bitmap of entries in a block, by the lowest bits of their row ids.
type Bits = [u64; 4];

/// The stream with labels, and the function that returns the labels of an entry.
#[derive(Debug, Clone, Copy)]
pub struct Labelled {
    pub stream: &'static str,
    pub of: fn(body: &[u8], labels: &mut Vec<Label>),
}

/// Bits that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    rows: BTreeMap<(i64, Label), Bits>,
    /// A reused buffer for the labels of one entry.
    labels: Vec<Label>,
}

impl Marks {
    /// Adds the labels of an entry.
    pub(crate) fn add(&mut self, labelled: Labelled, row: i64, body: &[u8]) {
        self.labels.clear();
        (labelled.of)(body, &mut self.labels);
        for label in &self.labels {
            set(self.rows.entry((row >> BLOCK_BITS, *label)).or_default(), row);
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
        for ((block, label), bits) in &self.rows {
            let [a, b, c, d] = bits.map(u64::cast_signed);
            statement.execute((block, label.0, a, b, c, d))?;
        }
        self.rows.clear();
        Ok(())
    }
}

/// Deletes the rows of blocks without remaining entries. `first` is the oldest remaining entry of
/// the stream.
///
/// A partly deleted block keeps its bits, and searches ignore the bits of deleted entries.
pub(crate) fn trim(conn: &Connection, stream: u32, first: u64) -> rusqlite::Result<()> {
    let mut statement =
        conn.prepare_cached("DELETE FROM label WHERE block >= ?1 AND block < ?2")?;
    statement
        .execute((row_id(stream, 0) >> BLOCK_BITS, row_id(stream, first) >> BLOCK_BITS))
        .map(drop)
}

fn set(bits: &mut Bits, row: i64) {
    bits[(row >> 6 & 3) as usize] |= 1 << (row & 63);
}

/// Returns the bits of a block for the rows `from..=to`.
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

/// Builds the index of a store that has none.
pub(crate) fn fill(conn: &Connection, options: &OpenOptions) -> Result<(), StoreError> {
    let Some(labelled) = options.labelled else { return Ok(()) };
    let failed = |e: rusqlite::Error| error::sql(&options.path, "create the label index", &e);
    let mut marks = Marks::default();
    each_entry(conn, labelled, &options.path, |row, body| {
        marks.add(labelled, row, body);
        if marks.rows.len() < FILL_ROWS { Ok(()) } else { marks.flush(conn).map_err(failed) }
    })?;
    marks.flush(conn).map_err(failed)
}

/// Checks that every bit matches an entry with the label, and that every entry has its bits.
pub(crate) fn verify(
    conn: &Connection,
    path: &Path,
    labelled: Option<Labelled>,
) -> Result<(), StoreError> {
    let failed = |e: rusqlite::Error| error::sql(path, "check the label index", &e);
    let (mut expected, mut first) = (Marks::default(), None);
    if let Some(labelled) = labelled {
        each_entry(conn, labelled, path, |row, body| {
            first.get_or_insert(row);
            expected.add(labelled, row, body);
            Ok(())
        })?;
    }
    let wrong = |block| {
        error::damaged(path, format!("block {block} of the label index does not match the entries"))
    };
    let mut statement =
        conn.prepare("SELECT block, label, a, b, c, d FROM label").map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let take = || Ok(((row.get(0)?, Label(row.get(1)?)), bits_of(row, 2)?));
        let (place, found): ((i64, Label), Bits) = take().map_err(failed)?;
        // The first block may have bits of deleted entries.
        let there = between(place.0, first.unwrap_or(i64::MAX), i64::MAX);
        let bits = both(found, there);
        if expected.rows.remove(&place).unwrap_or_default() != bits {
            return Err(wrong(place.0));
        }
    }
    expected.rows.first_key_value().map_or(Ok(()), |((block, _), _)| Err(wrong(*block)))
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
    let mut rows = statement
        .query((row_id(stream, first as u64), row_id(stream, last as u64)))
        .map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let body = row.get_ref(1).and_then(|body| Ok(body.as_blob()?)).map_err(failed)?;
        f(row.get(0).map_err(failed)?, body)?;
    }
    Ok(())
}

/// Returns the newest entries before `before` that match the search, at most `limit`.
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
    // One extra match shows whether there is a next page.
    let wanted = limit.saturating_add(1);
    let mut walk = Walk { view, all_of: &search.all_of, steps: 0 };
    let (mut rows, stopped) = match &search.uuid_prefix {
        None => {
            let blocks = (range.0 >> BLOCK_BITS)..=(range.1 >> BLOCK_BITS);
            walk.by_block(
                blocks.rev().map(|block| (block, between(block, range.0, range.1))),
                wanted,
            )?
        }
        Some(prefix) => {
            walk.by_block(keys(view, head.id, prefix, range)?.into_iter().rev(), wanted)?
        }
    };
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = if more { rows.last().copied() } else { stopped };
    let entries = rows
        .into_iter()
        .map(|row| view.entry_at(head, stream_and_seq(row).1))
        .collect::<Result<_, _>>()?;
    Ok(Found { entries, next: next.map(|row| stream_and_seq(row).1), steps: walk.steps })
}

/// Returns the positions of entries in a range with this key prefix. Only the index of keys is
/// read.
fn keys(
    view: View<'_>,
    stream: u32,
    prefix: &str,
    range: (i64, i64),
) -> Result<BTreeMap<i64, Bits>, StoreError> {
    let failed = |e: rusqlite::Error| view.failed(&e);
    let mut blocks = BTreeMap::new();
    let Some((from, to)) = uuid_range(stream, prefix) else { return Ok(blocks) };
    let sql = "SELECT id FROM entry INDEXED BY entry_key WHERE key BETWEEN ?1 AND ?2 AND id BETWEEN ?3 AND ?4";
    let mut statement = view.conn.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query((&from[..], &to[..], range.0, range.1)).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let row: i64 = row.get(0).map_err(failed)?;
        set(blocks.entry(row >> BLOCK_BITS).or_default(), row);
    }
    Ok(blocks)
}

struct Walk<'a> {
    view: View<'a>,
    all_of: &'a [Vec<Label>],
    steps: u64,
}

impl Walk<'_> {
    /// Returns the rows that have a label of each set, in the order of the blocks.
    ///
    /// If the search stops early, it also returns the row below which to continue.
    fn by_block(
        &mut self,
        blocks: impl Iterator<Item = (i64, Bits)>,
        wanted: usize,
    ) -> Result<(Vec<i64>, Option<i64>), StoreError> {
        let mut rows = Vec::new();
        for (block, bits) in blocks {
            let bits = self.matching(block, bits)?;
            for word in (0..4).rev() {
                let mut left = bits[word];
                while left != 0 {
                    let bit = left.ilog2();
                    left &= !(1 << bit);
                    rows.push((block << BLOCK_BITS) + 64 * word as i64 + i64::from(bit));
                    if rows.len() == wanted {
                        return Ok((rows, None));
                    }
                }
            }
            if self.steps >= MAX_STEPS {
                return Ok((rows, Some(block << BLOCK_BITS)));
            }
        }
        Ok((rows, None))
    }

    /// Returns the entries of a block that have a label of each set.
    fn matching(&mut self, block: i64, mut bits: Bits) -> Result<Bits, StoreError> {
        let failed = |e: rusqlite::Error| self.view.failed(&e);
        let sql = "SELECT a, b, c, d FROM label WHERE block = ?1 AND label = ?2";
        let mut statement = self.view.conn.prepare_cached(sql).map_err(failed)?;
        for any_of in self.all_of {
            let mut any = Bits::default();
            for label in any_of {
                self.steps += 1;
                let found = statement
                    .query_row((block, label.0), |row| bits_of(row, 0))
                    .optional()
                    .map_err(failed)?;
                any = either(any, found.unwrap_or_default());
            }
            bits = both(bits, any);
            if bits == Bits::default() {
                break;
            }
        }
        Ok(bits)
    }
}

fn both(a: Bits, b: Bits) -> Bits {
    std::array::from_fn(|word| a[word] & b[word])
}

fn either(a: Bits, b: Bits) -> Bits {
    std::array::from_fn(|word| a[word] | b[word])
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
