//! The operations of the writer, and their outcomes.

use std::sync::Arc;

use bytes::Bytes;
use sa_core::store::{Appended, Expect, NewEntry, Retention, StoreError, Trimmed};
use tokio::sync::oneshot;

/// The channel for an answer.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// One operation. The common variant is small, and the others are boxed.
pub(crate) enum Op {
    /// Without a reply this is a background entry: no caller waits for it. It must be kept if it
    /// cannot be written at once.
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
    /// The entries that earlier transactions deleted.
    pub done: Trimmed,
    pub reply: Reply<Trimmed>,
}

/// The outcome of an operation in a transaction that is not committed yet.
pub(crate) enum Outcome {
    Appended(Appended),
    Put(u64),
    Deleted(bool),
    /// `more`: another chunk is left to delete.
    Trimmed {
        deleted: Trimmed,
        more: bool,
    },
    /// Only this operation failed, and the transaction continues.
    Failed(Box<StoreError>),
}

impl Op {
    /// Returns the approximate size of the operation in bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Op::Append { entry, .. } => entry.body.len(),
            Op::Put(put) => put.value.len(),
            Op::Delete { .. } | Op::Trim(_) => 0,
        }
    }

    /// Whether a caller waits for it.
    pub(crate) fn awaited(&self) -> bool {
        !matches!(self, Op::Append { reply: None, .. })
    }

    /// Answers with an error. Returns the entry if it is a background entry.
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

    /// Answers with the committed outcome.
    ///
    /// Returns a trim that has more to delete, or a background entry that failed alone.
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
