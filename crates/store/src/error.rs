//! What SQLite and the operating system report, as the errors of the seam: what happened, to which file, what
//! to do about it.

use std::path::Path;

use rusqlite::ErrorCode;
use sa_core::store::{StoreError, StoreErrorKind};

/// Translates an error of SQLite. `doing` completes "could not …".
pub(crate) fn sql(path: &Path, doing: &str, error: &rusqlite::Error) -> StoreError {
    let (kind, advice) = classify(error);
    let at = path.display();
    let message = format!("could not {doing} in the store {at}: {error}; {advice}");
    StoreError { kind, message }
}

/// Translates an error of the operating system on one of the store's files.
pub(crate) fn io(path: &Path, doing: &str, error: &std::io::Error) -> StoreError {
    let full = matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
    let (kind, advice) = if full { (StoreErrorKind::Full, FULL) } else { (StoreErrorKind::Io, IO) };
    let at = path.display();
    StoreError { kind, message: format!("could not {doing} {at}: {error}; {advice}") }
}

/// What is stored is not what was written; `what` names the place.
pub(crate) fn damaged(path: &Path, what: impl std::fmt::Display) -> StoreError {
    let message = format!("the store {} is damaged: {what}; {DAMAGED}", path.display());
    StoreError { kind: StoreErrorKind::Damaged, message }
}

/// The caller asks for something that the store does not take.
pub(crate) fn invalid(message: String) -> StoreError {
    StoreError { kind: StoreErrorKind::Invalid, message }
}

/// The store has been shut down, or its writer is gone.
pub(crate) fn closed(path: &Path) -> StoreError {
    let message = format!("the store {} has been shut down; open it again", path.display());
    StoreError { kind: StoreErrorKind::Closed, message }
}

const FULL: &str = "free space on that file system, and writes succeed again by themselves; reads go on";
const DAMAGED: &str = "restore a backup of it, and check the disk and the memory of this machine";
const IO: &str = "check that the disk is healthy, mounted and writable for this user";

fn classify(error: &rusqlite::Error) -> (StoreErrorKind, &'static str) {
    use rusqlite::Error as E;
    match error {
        E::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DiskFull => (StoreErrorKind::Full, FULL),
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => (StoreErrorKind::Damaged, DAMAGED),
            // A page of the WAL that is not there: the file was cut while it was open.
            ErrorCode::SystemIoFailure if failure.extended_code == SHORT_READ => (StoreErrorKind::Damaged, DAMAGED),
            // A constraint that our own statements cannot violate, or a statement that no longer fits the
            // schema: what is stored contradicts itself.
            ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::Unknown => {
                (StoreErrorKind::Damaged, DAMAGED)
            }
            _ => (StoreErrorKind::Io, IO),
        },
        // A column of another type than we wrote.
        E::InvalidColumnType(..)
        | E::FromSqlConversionFailure(..)
        | E::IntegralValueOutOfRange(..)
        | E::Utf8Error(..)
        | E::QueryReturnedNoRows
        | E::SqlInputError { .. } => (StoreErrorKind::Damaged, DAMAGED),
        _ => (StoreErrorKind::Io, IO),
    }
}

/// `SQLITE_IOERR_SHORT_READ`.
const SHORT_READ: i32 = 522;
