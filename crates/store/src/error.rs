//! Translates errors of SQLite and the operating system to store errors.
//!
//! Each error names the operation, the file and the remedy.

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
    let full =
        matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
    let (kind, advice) = if full { (StoreErrorKind::Full, FULL) } else { (StoreErrorKind::Io, IO) };
    let at = path.display();
    StoreError { kind, message: format!("could not {doing} {at}: {error}; {advice}") }
}

/// Returns the error for stored data that differs from the written data. `what` names the place.
pub(crate) fn damaged(path: &Path, what: impl std::fmt::Display) -> StoreError {
    let message = format!("the store {} is damaged: {what}; {DAMAGED}", path.display());
    StoreError { kind: StoreErrorKind::Damaged, message }
}

/// Returns the error for a request that the store does not accept.
pub(crate) fn invalid(message: String) -> StoreError {
    StoreError { kind: StoreErrorKind::Invalid, message }
}

/// Returns the error for a store that was shut down or has lost its writer.
pub(crate) fn closed(path: &Path) -> StoreError {
    let message = format!("the store {} has been shut down; open it again", path.display());
    StoreError { kind: StoreErrorKind::Closed, message }
}

const FULL: &str =
    "free space on that file system; writes then resume automatically, and reads still work";
const DAMAGED: &str = "restore it from a backup, and check the disk and the memory of this machine";
const IO: &str = "check that the disk is healthy, mounted and writable for this user";

fn classify(error: &rusqlite::Error) -> (StoreErrorKind, &'static str) {
    use rusqlite::Error as E;
    match error {
        E::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DiskFull => (StoreErrorKind::Full, FULL),
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
                (StoreErrorKind::Damaged, DAMAGED)
            }
            // A page of the WAL is missing: the file was truncated while it was open.
            ErrorCode::SystemIoFailure if failure.extended_code == SHORT_READ => {
                (StoreErrorKind::Damaged, DAMAGED)
            }
            // A constraint that our statements cannot violate, or a statement that no longer fits
            // the schema. The stored data contradicts itself.
            ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::Unknown => {
                (StoreErrorKind::Damaged, DAMAGED)
            }
            _ => (StoreErrorKind::Io, IO),
        },
        // A column has another type than the one that was written.
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
