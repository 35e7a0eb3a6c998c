//! The memory that SQLite uses.

use rusqlite::ffi;

/// Returns the bytes that SQLite has allocated in this process. They come from C's allocator, so no
/// count of Rust's allocations includes them.
pub fn sqlite_bytes() -> u64 {
    // SAFETY: the function has no arguments, and SQLite synchronizes it.
    let bytes = unsafe { ffi::sqlite3_memory_used() };
    u64::try_from(bytes).unwrap_or(0)
}
