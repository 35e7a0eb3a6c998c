//! The gateway's program with counts of its live allocations, and of those of SQLite.
//!
//! Otherwise it is the same as `crates/cli/src/main.rs`. If `E2E_LIVE_BYTES` names a
//! directory, the program keeps writing the counts to a file there. The file has the name of the
//! process id, because the gateway starts itself again as a helper process with the same
//! environment.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use cap::Cap;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: Cap<MiMalloc> = Cap::new(MiMalloc, usize::MAX);

const INTERVAL: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    if let Some(dir) = std::env::var_os("E2E_LIVE_BYTES") {
        let file = File::create(PathBuf::from(dir).join(std::process::id().to_string())).unwrap();
        std::thread::spawn(move || report(&file));
    }
    switchboard::main()
}

/// Writes the number of the report and the counts in one write, so that a reader never sees a
/// partial report.
fn report(file: &File) {
    for number in 1_u64.. {
        let (live, sqlite) = (ALLOCATOR.allocated(), sa_store_faults::sqlite_bytes());
        let line = format!("{number:020} {live:020} {sqlite:020}\n");
        file.write_all_at(line.as_bytes(), 0).unwrap();
        std::thread::park_timeout(INTERVAL);
    }
}
