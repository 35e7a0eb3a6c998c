//! Opens the file: the checks, the migration, and the connections.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use sa_core::store::StoreError;

use crate::heads::Heads;
use crate::schema::{self, Layout, Step};
use crate::wal::{self, Scan};
use crate::witness::{self, Seen, Witness};
use crate::{OpenOptions, error, files, verify};

/// The state that the writer starts with.
pub(crate) struct Opened {
    pub conn: Connection,
    pub heads: Heads,
    pub witness: Witness,
}

/// Opens the store for the single writer. The caller already holds the lock.
pub(crate) fn open(options: &OpenOptions, steps: &[Step]) -> Result<Opened, StoreError> {
    let path = &options.path;
    let seen = witness::read(path)?;
    if let Some(seen) = &seen
        && let Some(what) = objection_to_files(seen, path)?
    {
        accept_or_refuse(options, &what)?;
    }
    if let Some(what) = objection_to_length(path)? {
        return Err(error::damaged(path, what));
    }
    let created = !path.exists();
    files::open_private(path, true)?;
    if created {
        files::sync_directory(path)?;
    }
    let conn = prepare(options, steps)?;
    settle_wal(path)?;
    let heads = Heads::load(&conn, path)?;
    let seen = seen.filter(|seen| same_store(seen, &heads, path));
    if let Some(seen) = &seen
        && heads.commits() < seen.commits
    {
        let (has, had) = (heads.commits(), seen.commits);
        accept_or_refuse(options, &format!("it has {has} commits, but had {had}"))?;
    }
    if options.accept_loss {
        // The data that SQLite recovered from a damaged WAL may contradict itself. Such a store
        // must not be opened.
        verify::everything(&conn, options)?;
    }
    let witness = Witness::open(path, heads.store_name().to_owned(), seen.as_ref())?;
    Ok(Opened { conn, heads, witness })
}

/// Opens a connection with the settings that all connections share.
pub(crate) fn connect(options: &OpenOptions) -> Result<Connection, StoreError> {
    let path = &options.path;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let conn = Connection::open_with_flags_and_vfs(path, flags, options.vfs.as_str())?;
        conn.busy_timeout(Duration::from_secs(5))?;
        conn.set_prepared_statement_cache_capacity(64);
        // EXTRA is FULL, and also syncs the directory after the rollback journal is deleted. This
        // journal exists once in the life of a store, while a new file is switched to WAL. With
        // FULL, a power loss soon afterwards can restore that journal, and SQLite then rolls the
        // store back to an empty file.
        //
        // The writer runs checkpoints at a time of its choice. A page with invalid cells is refused
        // when it is loaded. Memory-mapped reads stay off, because a bad sector must be an error.
        conn.execute_batch(
            "PRAGMA synchronous = EXTRA; PRAGMA wal_autocheckpoint = 0; PRAGMA cell_size_check = ON;
             PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0; PRAGMA journal_size_limit = 67108864;",
        )?;
        Ok(conn)
    };
    open().map_err(|e| error::sql(path, "open the database", &e))
}

/// Opens a connection for a reader.
///
/// It must be opened for writing too, because only such connections share the in-process index of
/// the WAL.
pub(crate) fn connect_reader(options: &OpenOptions) -> Result<Connection, StoreError> {
    let conn = connect(options)?;
    conn.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -4000;")
        .map_err(|e| error::sql(&options.path, "open the database", &e))?;
    Ok(conn)
}

/// Opens a connection for the writer, to a file with a checked layout.
pub(crate) fn connect_writer(options: &OpenOptions) -> Result<Connection, StoreError> {
    let conn = connect(options)?;
    conn.execute_batch(WRITER_CACHE)
        .map_err(|e| error::sql(&options.path, "open the database", &e))?;
    Ok(conn)
}

/// Limits the writer's cache to 16 MB. SQLite converts this into a number of pages, and keeps that
/// number when the page size changes. So it is set again after that.
const WRITER_CACHE: &str = "PRAGMA cache_size = -16000;";

/// Syncs the WAL.
///
/// After a crash of the process alone, the WAL may hold a commit that was written but not synced.
/// SQLite recovers it and shows it to readers. It must be on disk before any other operation
/// depends on it.
pub(crate) fn settle_wal(path: &Path) -> Result<(), StoreError> {
    let wal = files::beside(path, "-wal");
    match File::open(&wal).and_then(|file| file.sync_all()) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(error::io(&wal, "sync", &e)),
        _ => Ok(()),
    }
}

/// Connects, and migrates the layout to this version.
fn prepare(options: &OpenOptions, steps: &[Step]) -> Result<Connection, StoreError> {
    let path = &options.path;
    let mut conn = connect_writer(options)?;
    match schema::inspect(&conn, path, steps)? {
        Layout::Current => {}
        Layout::Fresh => {
            // Large pages, because a journal is written page by page, twice, with three system
            // calls for each.
            conn.execute_batch("PRAGMA page_size = 16384; PRAGMA journal_mode = WAL;")
                .and_then(|()| conn.execute_batch(WRITER_CACHE))
                .map_err(|e| error::sql(path, "create the database", &e))?;
            schema::migrate(&mut conn, options, steps, 0)?;
        }
        Layout::Older(version) => {
            // Moves all data into the one file that is copied. Closing the only connection leaves
            // no WAL behind.
            conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
                .map_err(|e| error::sql(path, "checkpoint", &e))?;
            drop(conn);
            let backup = schema::backup_path(path, version);
            files::copy_private(path, &backup)?;
            conn = connect_writer(options)?;
            schema::migrate(&mut conn, options, steps, version)?;
            let what: Vec<_> = steps[version..].iter().map(|step| step.what).collect();
            tracing::info!(
                path = %path.display(), backup = %backup.display(), from = version, to = steps.len(),
                changes = ?what, "migrated the store to a newer layout, after a backup"
            );
        }
    }
    schema::check(&conn, path, steps)?;
    Ok(conn)
}

fn objection_to_files(seen: &Seen, path: &Path) -> Result<Option<String>, StoreError> {
    let size = std::fs::metadata(path).map_or(0, |meta| meta.len());
    if size == 0 {
        return Ok(Some("the file is missing or empty".to_owned()));
    }
    witness::objection_to_wal(seen, path)
}

/// Returns why the database file cannot be complete, judged by its length.
///
/// SQLite accepts a partial last page and only fails when the page is read. If the log is empty,
/// the file must have every page that its header counts.
fn objection_to_length(path: &Path) -> Result<Option<String>, StoreError> {
    let wal = files::beside(path, "-wal");
    let logged = wal::scan(&wal, 1).map_err(|e| error::io(&wal, "read", &e))?;
    if matches!(logged, Scan::Frames { intact: 1.., .. })
        || files::beside(path, "-journal").exists()
    {
        return Ok(None);
    }
    let mut header = [0; 100];
    let length = File::open(path).and_then(|file| {
        file.read_exact_at(&mut header, 0)?;
        Ok(file.metadata()?.len())
    });
    // SQLite judges a file that is no database, has no header, or has an older header without a
    // page count.
    let Ok(length) = length else { return Ok(None) };
    if !header.starts_with(b"SQLite format 3\0") || header[24..28] != header[92..96] {
        return Ok(None);
    }
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    let pages = u32::from_be_bytes([header[28], header[29], header[30], header[31]]);
    let whole = u64::from(pages) * page;
    Ok((length < whole)
        .then(|| format!("its file was truncated: it has {length} bytes, but had {whole}")))
}

fn accept_or_refuse(options: &OpenOptions, what: &str) -> Result<(), StoreError> {
    if !options.accept_loss {
        return Err(witness::refuse(&options.path, what));
    }
    tracing::warn!(path = %options.path.display(), what, "the store has lost commits; accepted by option");
    Ok(())
}

fn same_store(seen: &Seen, heads: &Heads, path: &Path) -> bool {
    let same = seen.store == heads.store_name();
    if !same {
        let witness = witness::path_of(path);
        tracing::warn!(witness = %witness.display(), "the witness belongs to another store; replacing it");
    }
    same
}
