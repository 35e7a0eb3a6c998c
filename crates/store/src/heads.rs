//! The heads: one small row for each stream and bucket, and one for the store. The writer keeps all
//! of them in memory.
//!
//! The rows state which data must exist, so reads can distinguish absent data from lost data. The
//! writer changes its copy during a transaction and writes the changed rows at its end. If the
//! transaction fails, the writer reverts the changes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row};
use sa_core::store::StoreError;

use crate::code::{MAX_HEADS, head_crc};
use crate::error;

/// The kind of a head, which defines its three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Row 0: the number of commits, the number of other heads.
    Store = 0,
    /// The first and the last sequence number in the stream.
    Stream = 1,
    /// The last revision, the number of documents, the sum of their checksums.
    Bucket = 2,
}

#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub id: u32,
    pub kind: Kind,
    pub name: Arc<str>,
    pub numbers: [i64; 3],
    /// Changed since the last commit.
    dirty: bool,
}

#[derive(Debug)]
pub(crate) struct Heads {
    rows: Vec<Head>,
    streams: HashMap<Arc<str>, u32>,
    buckets: HashMap<Arc<str>, u32>,
    /// The number of committed rows.
    committed: usize,
    /// The numbers to restore if the transaction fails.
    undo: Vec<(u32, [i64; 3])>,
}

const COLUMNS: &str = "SELECT id, kind, name, a, b, c, crc FROM head";

impl Heads {
    /// Reads and checks all heads. Their ids have no gaps, and row 0 contains their number.
    pub(crate) fn load(conn: &Connection, path: &Path) -> Result<Self, StoreError> {
        let failed = |e: rusqlite::Error| error::sql(path, "read the heads", &e);
        let mut heads = Self {
            rows: Vec::new(),
            streams: HashMap::new(),
            buckets: HashMap::new(),
            committed: 0,
            undo: Vec::new(),
        };
        let mut statement = conn.prepare(&format!("{COLUMNS} ORDER BY id")).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let expected = heads.rows.len() as i64;
            let head = checked(row, expected, path)?;
            match head.kind {
                Kind::Store if expected == 0 => {}
                Kind::Stream => drop(heads.streams.insert(head.name.clone(), head.id)),
                Kind::Bucket => drop(heads.buckets.insert(head.name.clone(), head.id)),
                Kind::Store => {
                    return Err(error::damaged(path, format!("head {expected} is misplaced")));
                }
            }
            heads.rows.push(head);
        }
        let found = heads.rows.len() as i64;
        if found == 0 || heads.rows[0].numbers[1] != found - 1 {
            return Err(error::damaged(
                path,
                format!("streams or buckets are missing after head {found}"),
            ));
        }
        heads.committed = heads.rows.len();
        Ok(heads)
    }

    pub(crate) fn store_name(&self) -> &str {
        &self.rows[0].name
    }

    pub(crate) fn commits(&self) -> u64 {
        self.rows[0].numbers[0] as u64
    }

    pub(crate) fn get(&self, id: u32) -> &Head {
        &self.rows[id as usize]
    }

    pub(crate) fn all(&self) -> &[Head] {
        &self.rows
    }

    /// Returns the numbers of a head to change them in this transaction.
    pub(crate) fn change(&mut self, id: u32) -> &mut [i64; 3] {
        let row = &mut self.rows[id as usize];
        if !row.dirty {
            row.dirty = true;
            self.undo.push((id, row.numbers));
        }
        &mut row.numbers
    }

    pub(crate) fn find(&self, kind: Kind, name: &str) -> Option<u32> {
        if kind == Kind::Stream { self.streams.get(name) } else { self.buckets.get(name) }.copied()
    }

    /// Returns the head of this name. If there is none, this transaction creates it.
    pub(crate) fn find_or_make(&mut self, kind: Kind, name: &Arc<str>) -> Result<u32, StoreError> {
        if let Some(id) = self.find(kind, name) {
            return Ok(id);
        }
        if self.rows.len() > MAX_HEADS {
            let message =
                format!("the store holds {MAX_HEADS} streams and buckets, which is its limit");
            return Err(error::invalid(message));
        }
        let id = self.rows.len() as u32;
        let numbers = if kind == Kind::Stream { [1, 0, 0] } else { [0; 3] };
        self.rows.push(Head { id, kind, name: name.clone(), numbers, dirty: true });
        let map = if kind == Kind::Stream { &mut self.streams } else { &mut self.buckets };
        map.insert(name.clone(), id);
        self.change(0)[1] += 1;
        Ok(id)
    }

    /// Whether this transaction has changed anything.
    pub(crate) fn dirty(&self) -> bool {
        !self.undo.is_empty() || self.rows.len() > self.committed
    }

    /// Writes the changed rows, and counts this commit.
    pub(crate) fn write(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        self.change(0)[0] += 1;
        let mut update =
            conn.prepare_cached("UPDATE head SET a = ?2, b = ?3, c = ?4, crc = ?5 WHERE id = ?1")?;
        for &(id, _) in &self.undo {
            let head = &self.rows[id as usize];
            let [a, b, c] = head.numbers;
            if update.execute((id, a, b, c, head.crc()))? != 1 {
                return Err(rusqlite::Error::QueryReturnedNoRows);
            }
        }
        if self.rows.len() > self.committed {
            let mut insert =
                conn.prepare_cached("INSERT INTO head VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
            for head in &self.rows[self.committed..] {
                let [a, b, c] = head.numbers;
                insert.execute((head.id, head.kind as i64, &*head.name, a, b, c, head.crc()))?;
            }
        }
        Ok(())
    }

    /// Marks the transaction as durable, and calls `f` for each head that it changed.
    pub(crate) fn commit(&mut self, mut f: impl FnMut(&Head)) {
        for (id, _) in self.undo.drain(..) {
            self.rows[id as usize].dirty = false;
            f(&self.rows[id as usize]);
        }
        for head in &mut self.rows[self.committed..] {
            head.dirty = false;
            f(head);
        }
        self.committed = self.rows.len();
    }

    /// Reverts the changes of a failed transaction.
    pub(crate) fn rollback(&mut self) {
        for (id, numbers) in self.undo.drain(..) {
            let row = &mut self.rows[id as usize];
            (row.numbers, row.dirty) = (numbers, false);
        }
        for head in self.rows.drain(self.committed..) {
            let map = if head.kind == Kind::Stream { &mut self.streams } else { &mut self.buckets };
            map.remove(&head.name);
        }
    }
}

impl Head {
    fn crc(&self) -> u32 {
        head_crc(self.id, self.kind as i64, &self.name, self.numbers)
    }
}

/// Reads one head in the current transaction of `conn`. It must exist, because heads are never
/// deleted.
pub(crate) fn read(conn: &Connection, id: u32, path: &Path) -> Result<Head, StoreError> {
    let failed = |e: rusqlite::Error| error::sql(path, "read a head", &e);
    let mut statement = conn.prepare_cached(&format!("{COLUMNS} WHERE id = ?1")).map_err(failed)?;
    statement
        .query_row([id], |row| Ok(checked(row, i64::from(id), path)))
        .optional()
        .map_err(failed)?
        .unwrap_or_else(|| Err(error::damaged(path, format!("head {id} is missing"))))
}

fn checked(row: &Row<'_>, expected: i64, path: &Path) -> Result<Head, StoreError> {
    let take = || -> rusqlite::Result<(i64, i64, String, [i64; 3], i64)> {
        let numbers = [row.get(3)?, row.get(4)?, row.get(5)?];
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, numbers, row.get(6)?))
    };
    let (id, kind, name, numbers, crc) = take().map_err(|e| error::sql(path, "read a head", &e))?;
    let kind_of = match kind {
        0 => Some(Kind::Store),
        1 => Some(Kind::Stream),
        2 => Some(Kind::Bucket),
        _ => None,
    };
    match kind_of {
        Some(kind)
            if id == expected
                && crc == i64::from(head_crc(id as u32, kind as i64, &name, numbers)) =>
        {
            Ok(Head { id: id as u32, kind, name: name.into(), numbers, dirty: false })
        }
        _ => Err(error::damaged(path, format!("head {expected} has a wrong number or checksum"))),
    }
}
