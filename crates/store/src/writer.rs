//! The writer: the only thread that changes the database.
//!
//! It commits all queued operations in one transaction, so all callers share the cost of a sync.
//! Under load, transactions grow instead of the queue. The order of a commit is: sync the
//! transaction, write the witness, notify followers, answer callers.
//!
//! When a transaction fails:
//! - Full disk: the operations with waiting callers are tried once more without the background
//!   entries, and then fail. The background entries are [retained](crate::retained) and retried
//!   without a time limit.
//! - Damage: the batch is halved until the operations that touch the damage are found. Only those
//!   fail.
//! - Any other error, especially of a sync: after a failed sync the state of the disk is unknown. A
//!   second sync may report success without writing. No operation is acknowledged. The connection
//!   and its cache are dropped. The commit count in the database then shows whether the transaction
//!   was written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rusqlite::Connection;
use sa_core::clock::now_ms;
use sa_core::store::{NewEntry, StoreError, StoreErrorKind};

use crate::apply::Session;
use crate::heads::Heads;
use crate::op::{Op, Outcome};
use crate::open::{self, Opened};
use crate::queue::Queued;
use crate::retained::Retained;
use crate::wal_guard::WalGuard;
use crate::{Shared, error};

/// The limits of one transaction, in operations and in bytes.
const BATCH_OPS: usize = 4096;
const BATCH_BYTES: usize = 8 << 20;
/// The number of operations after which the writer yields the core.
const WITHOUT_PAUSE: usize = 32;
/// The pause before the file is opened again after a failed attempt.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct Writer {
    shared: Arc<Shared>,
    heads: Heads,
    wal: WalGuard,
    retained: Retained,
    /// The background entries of a transaction with an unknown result.
    uncertain: Vec<NewEntry>,
    /// Operations that were taken from the queue and not tried yet.
    backlog: VecDeque<Queued>,
    /// Trims that have more to delete.
    unfinished: Vec<Op>,
    closed: bool,
}

/// Runs the writer's thread. Fails if entries had to be dropped at the end.
pub(crate) fn run(shared: Arc<Shared>, opened: Opened) -> Result<(), StoreError> {
    let _closing = CloseAtEnd(&shared);
    let Opened { conn, heads, witness } = opened;
    let mut writer = Writer {
        heads,
        wal: WalGuard::new(&shared.options.path, witness, shared.options.checkpoint_frames),
        retained: Retained::new(shared.options.retain_bytes),
        uncertain: Vec::new(),
        backlog: VecDeque::new(),
        unfinished: Vec::new(),
        closed: false,
        shared: shared.clone(),
    };
    let mut conn = Some(conn);
    loop {
        let failure = match conn.take() {
            Some(open) => {
                let ended = writer.session(&open);
                *shared.wal() = None;
                match ended {
                    Ok(()) => break,
                    Err(error) => error,
                }
            }
            None => match writer.reopen() {
                Ok(reopened) => {
                    conn = Some(reopened);
                    continue;
                }
                Err(error) => {
                    writer.turn_away(&error);
                    error
                }
            },
        };
        tracing::error!(error = %failure, "the store failed; opening its file again");
        if writer.closed && writer.backlog.is_empty() {
            break;
        }
    }
    writer.retained.give_up(&shared)
}

/// Closes the queue when the writer ends for any reason, so that no caller waits forever.
struct CloseAtEnd<'a>(&'a Shared);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.queue.close();
        let mut rest = VecDeque::new();
        self.0.queue.take(&mut rest, None, Duration::ZERO);
        self.0.directory.close();
    }
}

impl Writer {
    /// Uses one connection until the store is closed (`Ok`) or the connection fails (`Err`).
    fn session(&mut self, conn: &Connection) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let mut session = Session::new(conn, &shared.options)?;
        self.wal.start(&mut session, self.heads.commits());
        *shared.wal() = self.wal.identity();
        loop {
            let busy = !self.backlog.is_empty() || !self.unfinished.is_empty();
            if self.backlog.is_empty() {
                let pause = [self.retained.pause(), self.wal.pause()].into_iter().flatten().min();
                let (idle, linger) = if busy {
                    (Some(Duration::ZERO), Duration::ZERO)
                } else {
                    (pause, shared.options.linger)
                };
                self.closed = shared.queue.take(&mut self.backlog, idle, linger);
            }
            let (batch, permits) = self.next_batch();
            let nothing = batch.is_empty();
            let settled = self.settle(&mut session, batch);
            shared.queue.release(permits);
            settled?;
            self.retry(&mut session, self.closed && nothing)?;
            self.wal.checkpoint(&mut session, self.heads.commits(), nothing);
            shared.counters.wal_frames.store(self.wal.frames().into(), Relaxed);
            if self.closed && nothing && !self.retained.due() {
                self.wal.finish(&mut session, self.heads.commits());
                return Ok(());
            }
        }
    }

    fn next_batch(&mut self) -> (Vec<Op>, u32) {
        let mut batch = std::mem::take(&mut self.unfinished);
        let (mut bytes, mut permits) = (0, 0);
        while batch.len() < BATCH_OPS && bytes < BATCH_BYTES {
            let Some(queued) = self.backlog.pop_front() else {
                break;
            };
            bytes += queued.op.size();
            permits += queued.permits;
            batch.push(queued.op);
        }
        (batch, permits)
    }

    /// Commits the operations, or answers their callers with an error.
    ///
    /// Returns `Err` if the connection is unusable.
    fn settle(&mut self, session: &mut Session<'_>, batch: Vec<Op>) -> Result<(), StoreError> {
        let batch = if self.retained.is_empty() {
            batch
        } else {
            // While entries are retained, later background entries queue behind them to keep their
            // order.
            let (awaited, background) = split(batch);
            self.retained.add(background, &self.shared);
            awaited
        };
        match self.attempt(session, batch) {
            Ok(()) => Ok(()),
            Err((batch, error)) => self.recover(session, batch, error),
        }
    }

    fn recover(
        &mut self,
        session: &mut Session<'_>,
        mut batch: Vec<Op>,
        error: StoreError,
    ) -> Result<(), StoreError> {
        match error.kind {
            StoreErrorKind::Full => {
                let (awaited, background) = split(batch);
                if background.is_empty() {
                    fail(awaited, &error);
                    return Ok(());
                }
                tracing::error!(%error, "background entries cannot be written; keeping them in memory");
                self.retained.add(background, &self.shared);
                match self.attempt(session, awaited) {
                    Ok(()) => Ok(()),
                    Err((batch, error)) => self.recover(session, batch, error),
                }
            }
            StoreErrorKind::Damaged if batch.len() > 1 => {
                let rest = batch.split_off(batch.len() / 2);
                if let Err(error) = self.settle(session, batch) {
                    for op in rest.into_iter().rev() {
                        self.backlog.push_front(Queued { op, permits: 0 });
                    }
                    return Err(error);
                }
                self.settle(session, rest)
            }
            StoreErrorKind::Damaged => {
                let lost = fail(batch, &error);
                self.lose(&lost, &error);
                Ok(())
            }
            _ => {
                self.uncertain = fail(batch, &error);
                Err(error)
            }
        }
    }

    /// Runs one transaction. If it fails, returns the operations and the error.
    fn attempt(
        &mut self,
        session: &mut Session<'_>,
        batch: Vec<Op>,
    ) -> Result<(), (Vec<Op>, StoreError)> {
        if batch.is_empty() {
            return Ok(());
        }
        match self.transact(session, &batch) {
            Ok(outcomes) => {
                self.answer(batch, outcomes);
                Ok(())
            }
            Err(error) => {
                self.shared.counters.failures.fetch_add(1, Relaxed);
                self.heads.rollback();
                if session.conn.is_autocommit() || session.conn.execute_batch("ROLLBACK").is_ok() {
                    return Err((batch, error));
                }
                // The transaction can neither be finished nor rolled back.
                let error = StoreError { kind: StoreErrorKind::Io, ..error };
                Err((batch, error))
            }
        }
    }

    fn transact(
        &mut self,
        session: &mut Session<'_>,
        batch: &[Op],
    ) -> Result<Vec<Outcome>, StoreError> {
        let shared = self.shared.clone();
        let failed = |e: rusqlite::Error| error::sql(&shared.options.path, "commit", &e);
        let conn = session.conn;
        let run =
            |sql: &str| conn.prepare_cached(sql).and_then(|mut s| s.execute([])).map_err(failed);
        run("BEGIN IMMEDIATE")?;
        let now = now_ms();
        session.begin();
        let mut outcomes = Vec::with_capacity(batch.len());
        for (count, op) in batch.iter().enumerate() {
            if count % WITHOUT_PAUSE == WITHOUT_PAUSE - 1 {
                // Yields to tasks on this core. They would otherwise wait for the whole
                // transaction.
                std::thread::yield_now();
            }
            outcomes.push(session.apply(&mut self.heads, op, now)?);
        }
        if !self.heads.dirty() {
            run("ROLLBACK")?;
            return Ok(outcomes);
        }
        session.write_labels()?;
        self.heads.write(conn).map_err(failed)?;
        run("COMMIT")?;
        self.wal.note(session, self.heads.commits());
        self.heads.commit(|changed| shared.directory.publish(changed));
        shared.counters.commits.fetch_add(1, Relaxed);
        Ok(outcomes)
    }

    fn answer(&mut self, batch: Vec<Op>, outcomes: Vec<Outcome>) {
        let mut entries = 0;
        for (op, outcome) in batch.into_iter().zip(outcomes) {
            entries += u64::from(matches!(&outcome, Outcome::Appended(done) if !done.duplicate));
            match op.settle(outcome) {
                None => {}
                Some((Op::Append { entry, .. }, Some(error))) => self.lose(&[entry], &error),
                Some((op, _)) => self.unfinished.push(op),
            }
        }
        self.shared.counters.entries.fetch_add(entries, Relaxed);
    }

    /// Retries the oldest retained entries if the pause is over, or if this is the last chance.
    fn retry(&mut self, session: &mut Session<'_>, last_chance: bool) -> Result<(), StoreError> {
        // One chunk at a time, so that waiting callers are served in between.
        while self.retained.due() || (last_chance && !self.retained.is_empty()) {
            let chunk = self.retained.take_chunk();
            let ops = chunk.into_iter().map(|entry| Op::Append { entry, reply: None }).collect();
            match self.attempt(session, ops) {
                Ok(()) => self.retained.succeeded(&self.shared),
                Err((ops, error)) => {
                    let entries = fail(ops, &error);
                    match error.kind {
                        StoreErrorKind::Full => self.retained.put_back(entries, &self.shared),
                        StoreErrorKind::Damaged => self.lose(&entries, &error),
                        _ => {
                            self.uncertain = entries;
                            return Err(error);
                        }
                    }
                    return Ok(());
                }
            }
            if !last_chance {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Opens the file again after an error with an unknown result.
    fn reopen(&mut self) -> Result<Connection, StoreError> {
        let options = &self.shared.options;
        let conn = open::connect_writer(options)?;
        open::settle_wal(&options.path)?;
        let heads = Heads::load(&conn, &options.path)?;
        let uncertain = std::mem::take(&mut self.uncertain);
        if heads.commits() == self.heads.commits() {
            self.retained.put_back(uncertain, &self.shared);
        }
        self.heads = heads;
        self.heads.all().iter().for_each(|head| self.shared.directory.publish(head));
        Ok(conn)
    }

    /// Fails all operations while the file cannot be opened, so that no caller keeps waiting.
    fn turn_away(&mut self, error: &StoreError) {
        self.closed = self.shared.queue.take(&mut self.backlog, Some(REOPEN_PAUSE), Duration::ZERO);
        let mut ops = std::mem::take(&mut self.unfinished);
        for queued in self.backlog.drain(..) {
            self.shared.queue.release(queued.permits);
            ops.push(queued.op);
        }
        let background = fail(ops, error);
        self.retained.add(background, &self.shared);
    }

    fn lose(&self, entries: &[NewEntry], error: &StoreError) {
        for entry in entries {
            self.shared.lost(&entry.stream, entry.key.as_deref(), error);
        }
    }
}

/// Splits operations with waiting callers from background entries.
fn split(batch: Vec<Op>) -> (Vec<Op>, Vec<NewEntry>) {
    let (mut awaited, mut background) = (Vec::new(), Vec::new());
    for op in batch {
        match op {
            Op::Append { entry, reply: None } => background.push(entry),
            op => awaited.push(op),
        }
    }
    (awaited, background)
}

/// Answers waiting callers with an error, and returns the background entries.
fn fail(ops: Vec<Op>, error: &StoreError) -> Vec<NewEntry> {
    ops.into_iter().filter_map(|op| op.fail(error)).collect()
}

#[cfg(test)]
mod tests {
    use crate::{Log as _, OpenOptions, Store, Unusable, files};

    use super::*;

    #[tokio::test]
    async fn a_store_whose_files_are_deleted_or_replaced_says_so() {
        for (suffix, replaced) in [("", false), ("", true), ("-wal", false), ("-wal", true)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("store.db");
            let store = Store::open(OpenOptions::new(&path)).unwrap();
            store
                .append(NewEntry { stream: "s".into(), key: None, body: "1".into() })
                .await
                .unwrap();
            assert_eq!(store.unusable(), None);
            let file = files::beside(&path, suffix);
            let moved = dir.path().join("moved");
            std::fs::rename(&file, &moved).unwrap();
            if replaced {
                std::fs::copy(&moved, &file).unwrap();
            }
            assert_eq!(store.unusable(), Some(Unusable::Gone), "{suffix} {replaced}");
        }
    }

    #[tokio::test]
    async fn a_store_whose_writer_broke_down_says_so_while_it_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(OpenOptions::new(dir.path().join("store.db"))).unwrap();
        store.append(NewEntry { stream: "s".into(), key: None, body: "1".into() }).await.unwrap();
        // The only cleanup that runs when the writer panics.
        drop(CloseAtEnd(&store.inner.shared));
        assert_eq!(store.unusable(), Some(Unusable::Ended));
        assert_eq!(
            store.bounds("s").await.unwrap().last,
            1,
            "which is no sign that it can be written"
        );
        let refused =
            store.append(NewEntry { stream: "s".into(), key: None, body: "2".into() }).await;
        assert_eq!(refused.unwrap_err().kind, StoreErrorKind::Closed);
    }
}
