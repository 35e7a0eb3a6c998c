//! What the writer is asked to do, and what came of it.

use std::sync::Arc;

use bytes::Bytes;
use sa_core::store::{Appended, Expect, NewEntry, Retention, StoreError, Trimmed};
use tokio::sync::oneshot;

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// One operation. The common one is kept small, the others are boxed.
pub(crate) enum Op {
    /// Without a reply nobody waits for it, and it must not be lost when it cannot be written at once.
    Append {
        entry: NewEntry,
        reply: Option<Reply<Appended>>,
    },
    Put(Box<Put>),
    Delete {
        bucket: Arc<str>,
        key: Arc<str>,
        reply: Reply<bool>,
    },
    Trim(Box<Trim>),
}

pub(crate) struct Put {
    pub bucket: Arc<str>,
    pub key: Arc<str>,
    pub value: Bytes,
    pub expect: Expect,
    pub reply: Reply<u64>,
}

pub(crate) struct Trim {
    pub stream: Arc<str>,
    pub keep: Retention,
    /// What the transactions before this one deleted.
    pub done: Trimmed,
    pub reply: Reply<Trimmed>,
}

/// What an operation came to in a transaction that is not committed yet.
pub(crate) enum Outcome {
    Appended(Appended),
    Put(u64),
    Deleted(bool),
    /// `more`: there is another chunk to delete.
    Trimmed {
        deleted: Trimmed,
        more: bool,
    },
    /// This operation failed by itself, and the transaction goes on.
    Failed(Box<StoreError>),
}

impl Op {
    /// About how many bytes it holds.
    pub(crate) fn size(&self) -> usize {
        match self {
            Op::Append { entry, .. } => entry.body.len(),
            Op::Put(put) => put.value.len(),
            Op::Delete { .. } | Op::Trim(_) => 0,
        }
    }

    /// Whether someone waits for it.
    pub(crate) fn awaited(&self) -> bool {
        !matches!(self, Op::Append { reply: None, .. })
    }

    /// Answers with an error. An entry that nobody waits for is given back.
    pub(crate) fn fail(self, error: &StoreError) -> Option<NewEntry> {
        match self {
            Op::Append { entry, reply: None } => return Some(entry),
            Op::Append { reply: Some(reply), .. } => drop(reply.send(Err(error.clone()))),
            Op::Put(put) => drop(put.reply.send(Err(error.clone()))),
            Op::Delete { reply, .. } => drop(reply.send(Err(error.clone()))),
            Op::Trim(trim) => drop(trim.reply.send(Err(error.clone()))),
        }
        None
    }

    /// Answers with what is now committed. Gives a trim back that has more to do, and an entry that nobody
    /// waits for and that failed by itself.
    pub(crate) fn settle(self, outcome: Outcome) -> Option<(Op, Option<StoreError>)> {
        match (self, outcome) {
            (op @ Op::Append { reply: None, .. }, Outcome::Failed(error)) => {
                return Some((op, Some(*error)));
            }
            (op, Outcome::Failed(error)) => drop(op.fail(&error)),
            (Op::Append { reply, .. }, Outcome::Appended(appended)) => {
                if let Some(reply) = reply {
                    let _ = reply.send(Ok(appended));
                }
            }
            (Op::Put(put), Outcome::Put(revision)) => drop(put.reply.send(Ok(revision))),
            (Op::Delete { reply, .. }, Outcome::Deleted(was)) => drop(reply.send(Ok(was))),
            (Op::Trim(mut trim), Outcome::Trimmed { deleted, more }) => {
                trim.done += deleted;
                if more {
                    return Some((Op::Trim(trim), None));
                }
                let done = trim.done;
                let _ = trim.reply.send(Ok(done));
            }
            _ => unreachable!("an operation has the outcome of its own kind"),
        }
        None
    }
}
