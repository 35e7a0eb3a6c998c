//! The tables, and the migration of files with an older layout.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior};
use sa_core::store::{StoreError, StoreErrorKind};

use crate::{OpenOptions, error, labels};

/// One migration step: step `n` of the list leads from version `n` to `n + 1`.
#[derive(Debug)]
pub(crate) struct Step {
    /// A description of the change, for the log.
    pub what: &'static str,
    pub sql: &'static str,
    /// Fills new tables with data from older ones.
    pub fill: Option<Fill>,
}

type Fill = fn(&Connection, &OpenOptions) -> Result<(), StoreError>;

/// All steps. A released step is never changed. New changes are new steps.
pub(crate) const STEPS: &[Step] = &[FIRST, LABELS];

const FIRST: Step = Step {
    what: "the first layout",
    // `head`: row 0 counts commits and heads. A stream's row has its first and last number. A
    // bucket's row has its last revision, count and sum of checksums. Reads can therefore
    // distinguish absent data from lost data. They share one table because each commit changes row
    // 0 and a stream, mostly on the same page.
    sql: "CREATE TABLE head(id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, name TEXT NOT NULL,
            a INTEGER NOT NULL, b INTEGER NOT NULL, c INTEGER NOT NULL, crc INTEGER NOT NULL);
          CREATE TABLE entry(id INTEGER PRIMARY KEY, at INTEGER NOT NULL, crc INTEGER NOT NULL,
            key BLOB, body BLOB NOT NULL);
          CREATE UNIQUE INDEX entry_key ON entry(key) WHERE key IS NOT NULL;
          CREATE TABLE record(bucket INTEGER NOT NULL, key TEXT NOT NULL, revision INTEGER NOT NULL,
            crc INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY(bucket, key)) WITHOUT ROWID;",
    fill: None,
};

const LABELS: Step = Step {
    what: "an index of calls by tool, principal and outcome",
    sql: "CREATE TABLE label(block INTEGER NOT NULL, label INTEGER NOT NULL, a INTEGER NOT NULL, b INTEGER NOT NULL,
            c INTEGER NOT NULL, d INTEGER NOT NULL, PRIMARY KEY(block, label)) WITHOUT ROWID;",
    fill: Some(labels::fill),
};

/// Marks the file as a Switchboard store: "SwBd".
pub(crate) const APPLICATION_ID: i32 = 0x5377_4264;

/// Whether the file can be used, and which migration it needs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// An empty file.
    Fresh,
    Current,
    Older(usize),
}

/// Reads the version of the file without changing it.
pub(crate) fn inspect(
    conn: &Connection,
    path: &Path,
    steps: &[Step],
) -> Result<Layout, StoreError> {
    let pragma = |name: &str| -> Result<i32, StoreError> {
        conn.pragma_query_value(None, name, |row| row.get(0))
            .map_err(|e| error::sql(path, "read the version", &e))
    };
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let things: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|e| error::sql(path, "read the layout", &e))?;
    if things == 0 && application == 0 && version == 0 {
        return Ok(Layout::Fresh);
    }
    if application != APPLICATION_ID {
        let what = format!(
            "its application id is {application:#x}, but a Switchboard store has {APPLICATION_ID:#x}"
        );
        return Err(error::damaged(path, what));
    }
    match usize::try_from(version) {
        Ok(version) if version > steps.len() => Err(StoreError {
            kind: StoreErrorKind::TooNew,
            message: format!(
                "the store {} has layout {version}, but this version of Switchboard supports layouts up to {}; \
                 use a newer Switchboard, or the backup that was made before the file was migrated",
                path.display(),
                steps.len()
            ),
        }),
        Ok(version) if version == steps.len() => Ok(Layout::Current),
        Ok(version) if version > 0 => Ok(Layout::Older(version)),
        _ => Err(error::damaged(path, format!("its layout number {version} is invalid"))),
    }
}

/// Applies the missing steps in one transaction. A crash leaves either the old or the new layout.
pub(crate) fn migrate(
    conn: &mut Connection,
    options: &OpenOptions,
    steps: &[Step],
    from: usize,
) -> Result<(), StoreError> {
    let path = options.path.as_path();
    let failed = |e: rusqlite::Error| error::sql(path, "change the layout", &e);
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    for step in &steps[from..] {
        tx.execute_batch(step.sql).map_err(failed)?;
        if let Some(fill) = step.fill.filter(|_| from > 0) {
            fill(&tx, options)?;
        }
    }
    if from == 0 {
        let store: String =
            tx.query_row("SELECT hex(randomblob(16))", [], |row| row.get(0)).map_err(failed)?;
        let crc = crate::code::head_crc(0, 0, &store, [0; 3]);
        tx.execute("INSERT INTO head VALUES(0, 0, ?1, 0, 0, 0, ?2)", (&store, crc))
            .map_err(failed)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    }
    tx.pragma_update(None, "user_version", steps.len() as i64).map_err(failed)?;
    tx.commit().map_err(failed)
}

/// Refuses a file with tables that differ from those of this version.
///
/// SQLite would use a schema with a flipped bit as long as it parses. It could then use a table or
/// an index in another way than it was written.
pub(crate) fn check(conn: &Connection, path: &Path, steps: &[Step]) -> Result<(), StoreError> {
    let failed = |e: rusqlite::Error| error::sql(path, "read the layout", &e);
    let model = Connection::open_in_memory().map_err(failed)?;
    for step in steps {
        model.execute_batch(step.sql).map_err(failed)?;
    }
    if describe(conn).map_err(failed)? != describe(&model).map_err(failed)? {
        return Err(error::damaged(path, "its tables do not match its layout version"));
    }
    Ok(())
}

type Described = Vec<(String, String, String, Option<String>)>;

fn describe(conn: &Connection) -> rusqlite::Result<Described> {
    conn.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
        .collect()
}

/// Returns the path of the backup that is made before a file of this version is migrated.
pub(crate) fn backup_path(path: &Path, version: usize) -> PathBuf {
    crate::files::beside(path, &format!(".layout-{version}.backup"))
}

#[cfg(test)]
mod tests {
    //! Rule: a file of an older layout is backed up and migrated, and a file of a newer layout is
    //! refused.

    use sa_core::store::{Log, NewEntry};

    use super::*;
    use crate::Store;

    const MADE_UP: &str = "CREATE TABLE made_up(id INTEGER PRIMARY KEY);";
    const NEXT: &[Step] =
        &[FIRST, LABELS, Step { what: "a table that was made up", sql: MADE_UP, fill: None }];
    const HALF: &str = "CREATE TABLE half(id INTEGER); CREATE TABLE entry(id INTEGER);";
    const BROKEN: &[Step] =
        &[FIRST, LABELS, Step { what: "breaks half way", sql: HALF, fill: None }];

    fn new_entry() -> NewEntry {
        NewEntry { stream: "a".into(), key: None, body: "body".into() }
    }

    async fn store_of_this_version(path: &Path) {
        let store = Store::open(OpenOptions::new(path)).expect("opened");
        store.append(new_entry()).await.expect("kept");
        store.shutdown().await.expect("a clean end");
    }

    #[tokio::test]
    async fn an_older_layout_is_backed_up_and_migrated_and_a_newer_one_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store.db");
        store_of_this_version(&path).await;
        let store = Store::open_with(OpenOptions::new(&path), NEXT).expect("migrated");
        assert_eq!(store.read("a", 0, 10).await.expect("read").len(), 1);
        assert_eq!(store.append(new_entry()).await.expect("kept").seq, 2);
        store.shutdown().await.expect("a clean end");

        let error = Store::open(OpenOptions::new(&path)).expect_err("too new");
        assert_eq!(error.kind, StoreErrorKind::TooNew, "{error}");
        let backup = backup_path(&path, STEPS.len());
        let mode = std::fs::metadata(&backup).expect("a backup").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let store = Store::open(OpenOptions::new(&backup)).expect("the backup has the old layout");
        assert_eq!(store.read("a", 0, 10).await.expect("read").len(), 1);
        let again = Store::open_with(OpenOptions::new(&path), NEXT).expect("no second migration");
        assert_eq!(again.read("a", 0, 10).await.expect("read").len(), 2);
    }

    #[tokio::test]
    async fn a_migration_that_fails_changes_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store.db");
        store_of_this_version(&path).await;
        Store::open_with(OpenOptions::new(&path), BROKEN).expect_err("broken");
        let store = Store::open(OpenOptions::new(&path)).expect("as it was");
        assert_eq!(store.read("a", 0, 10).await.expect("read").len(), 1);
    }

    #[tokio::test]
    async fn another_program_s_database_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store.db");
        Connection::open(&path).and_then(|c| c.execute_batch("CREATE TABLE t(x)")).expect("made");
        let error = Store::open(OpenOptions::new(&path)).expect_err("not ours");
        assert!(error.message.contains("store.db"), "{error}");
        std::fs::write(
            &path,
            "no database at all, whatever its name says, and long enough for a header",
        )
        .expect("written");
        let error = Store::open(OpenOptions::new(&path)).expect_err("not ours");
        assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}");
    }
}
