//! Keeps the write-ahead log short, and updates the witness.
//!
//! The writer runs passive checkpoints between two transactions. SQLite's automatic checkpoints
//! would run inside a commit, before its callers get their answers. A checkpoint in its own thread
//! would never catch up under constant load. The WAL can only restart after a checkpoint that has
//! caught up.
//!
//! The file keeps its size when it restarts, because a sync of overwritten blocks is cheaper than
//! one of a growing file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::apply::Session;
use crate::files;
use crate::wal::{self, Salts};
use crate::witness::Witness;

pub(crate) struct WalGuard {
    path: PathBuf,
    file: Option<File>,
    witness: Witness,
    frames: u32,
    /// The number of frames that are also in the database file.
    moved: u32,
    /// The number of frames at which to run the next checkpoint.
    ///
    /// It grows by a quarter when readers prevent a checkpoint from catching up, or the WAL from
    /// restarting.
    next: u32,
    regular: u32,
    /// Whether the last checkpoint failed and was reported.
    complained: bool,
}

/// The time after which an idle store is checkpointed.
const IDLE: Duration = Duration::from_millis(500);

impl WalGuard {
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

    /// Returns the number of frames in the WAL.
    pub(crate) fn frames(&self) -> u32 {
        self.frames
    }

    /// Returns the identity of the current WAL file.
    pub(crate) fn identity(&self) -> Option<files::Identity> {
        files::Identity::of(&self.path).ok()
    }

    /// Starts with a new connection, which may have recovered a WAL.
    pub(crate) fn start(&mut self, session: &mut Session<'_>, commits: u64) {
        self.file = None;
        self.frames = session.wal_frames().unwrap_or(0);
        self.moved = 0;
        if !self.try_checkpoint(session, commits) {
            let place = self.place();
            self.witness.note(commits, place);
        }
    }

    /// Records a committed transaction.
    pub(crate) fn note(&mut self, session: &mut Session<'_>, commits: u64) {
        let before = self.frames;
        self.frames = session.wal_frames().unwrap_or(before);
        if self.frames < before {
            // The WAL was restarted.
            self.next = self.regular;
        }
        self.moved = self.moved.min(self.frames.saturating_sub(1));
        let place = self.place();
        self.witness.note(commits, place);
    }

    /// Returns the idle time after which [`WalGuard::checkpoint`] should be called.
    pub(crate) fn pause(&self) -> Option<Duration> {
        (self.moved < self.frames).then_some(IDLE)
    }

    /// Runs a checkpoint if the WAL is long or the store is idle.
    pub(crate) fn checkpoint(&mut self, session: &mut Session<'_>, commits: u64, idle: bool) {
        if self.frames >= self.next || (idle && self.moved < self.frames) {
            self.try_checkpoint(session, commits);
        }
    }

    /// Runs the final checkpoint.
    pub(crate) fn finish(&mut self, session: &mut Session<'_>, commits: u64) {
        self.try_checkpoint(session, commits);
    }

    /// Runs a checkpoint. If all frames are in the database file, updates the witness and returns
    /// `true`.
    fn try_checkpoint(&mut self, session: &mut Session<'_>, commits: u64) -> bool {
        let result = session.conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)").and_then(
            |mut statement| {
                statement.query_row([], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))
            },
        );
        match result {
            Ok((frames, moved)) => {
                (self.frames, self.moved) = (frames.max(0) as u32, moved.max(0) as u32);
                self.complained = false;
            }
            // No data is lost, because it is all in the WAL. On a full disk, checkpoints fail here
            // until there is space.
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

    /// Returns the WAL and the number of its frames that the newest commit needs.
    fn place(&mut self) -> Option<(Salts, u32)> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let salts = wal::salts(self.file.as_ref()?)?;
        Some((salts, self.frames))
    }
}
