//! Keeps the write-ahead log short, and the witness informed about it.
//!
//! Checkpoints are passive, run by the writer between two transactions. SQLite's automatic ones would run
//! inside a commit, before its callers are answered. One in a thread of its own would never catch up under
//! constant load, and a WAL can only be started over when a checkpoint has caught up. The file keeps its size
//! when it is started over: overwriting blocks that exist makes syncs cheaper than growing a file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::apply::Session;
use crate::files;
use crate::wal::{self, Salts};
use crate::witness::Witness;

pub(crate) struct WalKeeper {
    path: PathBuf,
    file: Option<File>,
    witness: Witness,
    frames: u32,
    /// The frames that are in the database file, too.
    moved: u32,
    /// Checkpoint when the WAL has so many frames. When readers keep a checkpoint from catching up, or the WAL
    /// from being started over, the next one comes a quarter later.
    next: u32,
    regular: u32,
    /// The last checkpoint failed, and that has been reported.
    complained: bool,
}

/// An idle store is checkpointed after this time.
const IDLE: Duration = Duration::from_millis(500);

impl WalKeeper {
    pub(crate) fn new(store: &Path, witness: Witness, checkpoint_frames: u32) -> Self {
        let path = files::beside(store, "-wal");
        Self {
            path,
            file: None,
            witness,
            frames: 0,
            moved: 0,
            next: checkpoint_frames,
            regular: checkpoint_frames,
            complained: false,
        }
    }

    /// How many frames the WAL has.
    pub(crate) fn frames(&self) -> u32 {
        self.frames
    }

    /// Which file the WAL is now.
    pub(crate) fn identity(&self) -> Option<files::Identity> {
        files::Identity::of(&self.path).ok()
    }

    /// A connection was opened, and may have recovered a WAL.
    pub(crate) fn start(&mut self, session: &mut Session<'_>, commits: u64) {
        self.file = None;
        self.frames = session.wal_frames().unwrap_or(0);
        self.moved = 0;
        if !self.try_checkpoint(session, commits) {
            let place = self.place();
            self.witness.note(commits, place);
        }
    }

    /// A transaction was committed.
    pub(crate) fn note(&mut self, session: &mut Session<'_>, commits: u64) {
        let before = self.frames;
        self.frames = session.wal_frames().unwrap_or(before);
        if self.frames < before {
            // Started over.
            self.next = self.regular;
        }
        self.moved = self.moved.min(self.frames.saturating_sub(1));
        let place = self.place();
        self.witness.note(commits, place);
    }

    /// How long to wait for work before [`WalKeeper::checkpoint`] is worth a call without any.
    pub(crate) fn pause(&self) -> Option<Duration> {
        (self.moved < self.frames).then_some(IDLE)
    }

    /// Moves the WAL into the database file when it has become long, or when there is nothing else to do.
    pub(crate) fn checkpoint(&mut self, session: &mut Session<'_>, commits: u64, idle: bool) {
        if self.frames >= self.next || (idle && self.moved < self.frames) {
            self.try_checkpoint(session, commits);
        }
    }

    /// Moves all there is, at the end.
    pub(crate) fn finish(&mut self, session: &mut Session<'_>, commits: u64) {
        self.try_checkpoint(session, commits);
    }

    /// Returns whether everything is in the database file now, as the witness has then noted.
    fn try_checkpoint(&mut self, session: &mut Session<'_>, commits: u64) -> bool {
        let result = session.conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)").and_then(|mut statement| {
            statement.query_row([], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))
        });
        match result {
            Ok((frames, moved)) => {
                (self.frames, self.moved) = (frames.max(0) as u32, moved.max(0) as u32);
                self.complained = false;
            }
            // Nothing is lost: everything is in the WAL. A full disk ends here until there is room.
            Err(error) => {
                if !std::mem::replace(&mut self.complained, true) {
                    tracing::warn!(path = %self.path.display(), %error, "cannot checkpoint the store");
                }
                self.next = self.frames + self.regular / 4;
                return false;
            }
        }
        let complete = self.moved == self.frames;
        self.next = self.regular.max(self.frames + self.regular / 4);
        if complete {
            self.witness.note(commits, None);
        }
        complete
    }

    /// Which WAL, and how much of it, the newest commit needs.
    fn place(&mut self) -> Option<(Salts, u32)> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let salts = wal::salts(self.file.as_ref()?)?;
        Some((salts, self.frames))
    }
}
