//! The witness: a small file next to the database that records the database's last commit.
//!
//! After each commit, and before its callers get their answers, the number of commits and the WAL
//! position are written here. The number is also in the database, changed by the same transaction.
//! A database that is behind its witness has lost acknowledged commits. Either its WAL was damaged,
//! truncated or deleted, or an older copy replaced the file. SQLite opens all of these without an
//! error.
//!
//! Why there are no false alarms:
//! - It is written after the commit was synced. After a power loss it is therefore never newer than
//!   the data on disk. A witness that is older than the database is normal. It needs no sync of its
//!   own.
//! - When a checkpoint has moved all frames into the database file, the witness records that no WAL
//!   is needed. It is then synced, once per checkpoint, before SQLite can restart the WAL. An old
//!   witness therefore never requires frames of an overwritten WAL.
//! - Two slots with checksums are written alternately, so a torn write leaves the previous one
//!   intact. If both are unreadable, the witness is ignored with a warning. The data does not
//!   depend on it.
//! - A database that was copied without its witness is not compared. A witness of another store has
//!   another random name and is ignored with a warning.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sa_core::store::StoreError;

use crate::wal::{Salts, Scan};
use crate::{error, files, wal};

/// The last recorded state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    version: u64,
    pub commits: u64,
    /// The random name of the store, 32 hexadecimal digits.
    pub store: String,
    /// The WAL and the number of its frames that the newest commit needs.
    ///
    /// `frames` is 0 if the database file is complete without the WAL.
    pub salts: Salts,
    pub frames: u32,
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Witness {
    path: PathBuf,
    file: File,
    version: u64,
    store: String,
    complained: bool,
}

const MAGIC: &[u8; 8] = b"SwBdWit1";
const SLOT: usize = 72;
/// The offset of the second slot, so that the slots are in different sectors.
const DISTANCE: u64 = 512;

pub(crate) fn path_of(store: &Path) -> PathBuf {
    files::beside(store, ".witness")
}

/// Reads the newest valid slot.
pub(crate) fn read(store: &Path) -> Result<Option<Seen>, StoreError> {
    let path = path_of(store);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(error::io(&path, "open", &e)),
    };
    let slot = |at: u64| {
        let mut bytes = [0; SLOT];
        file.read_exact_at(&mut bytes, at).ok()?;
        decode(&bytes)
    };
    let newest = [slot(0), slot(DISTANCE)].into_iter().flatten().max_by_key(|seen| seen.version);
    if newest.is_none() {
        tracing::warn!(path = %path.display(), "the store's witness is unreadable; continuing without it");
    }
    Ok(newest)
}

/// Returns why the WAL cannot match the witness. Called before SQLite opens the file.
pub(crate) fn objection_to_wal(seen: &Seen, store: &Path) -> Result<Option<String>, StoreError> {
    if seen.frames == 0 {
        return Ok(None);
    }
    let path = files::beside(store, "-wal");
    let found = wal::scan(&path, seen.frames).map_err(|e| error::io(&path, "read", &e))?;
    let (at, wanted) = (path.display(), seen.frames);
    Ok(match found {
        Scan::Missing => Some(format!("its write-ahead log {at} with {wanted} frames is missing")),
        Scan::BadHeader => Some(format!("the header of its write-ahead log {at} is damaged")),
        Scan::Frames { salts, intact } if salts == seen.salts && intact < wanted => Some(format!(
            "its write-ahead log {at} is damaged or cut at frame {} of {wanted}",
            intact + 1
        )),
        // The WAL was restarted after the witness was written, so the number of commits decides.
        Scan::Frames { .. } => None,
    })
}

/// Returns the error for a store that is behind its witness.
pub(crate) fn refuse(store: &Path, what: &str) -> StoreError {
    let at = store.display();
    let witness = path_of(store);
    let message = format!(
        "the store {at} has lost commits that were acknowledged: {what}; restore a backup of {at} together with \
         its -wal file (and delete {} if the backup is older on purpose), or run `switchboard doctor --accept-loss` \
         to accept the loss of the newest commits",
        witness.display()
    );
    StoreError { kind: sa_core::store::StoreErrorKind::Behind, message }
}

impl Witness {
    /// Opens or creates the file at its full size, so that later writes need no disk space.
    pub(crate) fn open(
        store: &Path,
        name: String,
        seen: Option<&Seen>,
    ) -> Result<Self, StoreError> {
        let path = path_of(store);
        let file = files::open_private(&path, true)?;
        let size = file.metadata().map_err(|e| error::io(&path, "look at", &e))?.len();
        if size < 2 * DISTANCE {
            file.write_all_at(&[0; 2 * DISTANCE as usize], 0)
                .map_err(|e| error::io(&path, "write", &e))?;
        }
        let version = seen.map_or(0, |seen| seen.version);
        Ok(Self { path, file, version, store: name, complained: false })
    }

    /// Records a commit. An error is logged and not returned, because the commit itself is on disk.
    pub(crate) fn note(&mut self, commits: u64, wal: Option<(Salts, u32)>) {
        self.version += 1;
        let (salts, frames) = wal.unwrap_or_default();
        let seen =
            Seen { version: self.version, commits, store: self.store.clone(), salts, frames };
        let at = (self.version % 2) * DISTANCE;
        let mut result = self.file.write_all_at(&encode(&seen), at);
        if result.is_ok() && wal.is_none() {
            result = self.file.sync_data();
        }
        if let Err(error) = &result
            && !self.complained
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot write the store's witness; damage of \
                the newest commits may go unnoticed at the next start");
        }
        self.complained = result.is_err();
    }
}

fn encode(seen: &Seen) -> [u8; SLOT] {
    let mut out = [0; SLOT];
    out[..8].copy_from_slice(MAGIC);
    out[8..16].copy_from_slice(&seen.version.to_le_bytes());
    out[16..24].copy_from_slice(&seen.commits.to_le_bytes());
    out[24..56].copy_from_slice(seen.store.as_bytes());
    out[56..64].copy_from_slice(&seen.salts);
    out[64..68].copy_from_slice(&seen.frames.to_le_bytes());
    let crc = crc32fast::hash(&out[..68]);
    out[68..].copy_from_slice(&crc.to_le_bytes());
    out
}

fn decode(bytes: &[u8; SLOT]) -> Option<Seen> {
    let number = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    let short = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    if &bytes[..8] != MAGIC || short(68)? != crc32fast::hash(&bytes[..68]) {
        return None;
    }
    Some(Seen {
        version: number(8)?,
        commits: number(16)?,
        store: String::from_utf8(bytes[24..56].to_vec()).ok()?,
        salts: bytes[56..64].try_into().ok()?,
        frames: short(64)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_slot_is_read_as_it_was_written_or_not_at_all(
            version: u64, commits: u64, store in "[0-9a-f]{32}", salts: [u8; 8], frames: u32, at in 0..SLOT, bit in 0_u8..8,
            noise in prop::collection::vec(any::<u8>(), SLOT),
        ) {
            let seen = Seen { version, commits, store, salts, frames };
            let mut slot = encode(&seen);
            prop_assert_eq!(decode(&slot), Some(seen));
            slot[at] ^= 1 << bit;
            prop_assert_eq!(decode(&slot), None);
            prop_assert_eq!(decode(noise.as_slice().try_into().unwrap()), None);
        }
    }
}
