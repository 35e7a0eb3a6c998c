//! Checks whether a sandbox is possible, before anything depends on it.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rustix::fs::{Mode, OFlags};

use crate::{Namespaces, PROBE, Policy};

/// Enters a sandbox in another process, and returns the missing part as an error. `program` must
/// call [`run_if_asked`](crate::run_if_asked).
pub fn probe(program: &Path, policy: &Policy) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot check the sandbox: {error}");
    let mut process = Command::new(program)
        .arg(PROBE)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let policy = serde_json::to_vec(policy).map_err(|error| failed(error.into()))?;
    // A program that reads none of the input reports its error by its exit status.
    let _ = process.stdin.take().map(|mut stdin| stdin.write_all(&policy));
    let output = process.wait_with_output().map_err(failed)?;
    match (output.status.success(), output.stdout.as_slice()) {
        (true, _) => Ok(()),
        (false, b"") => Err(format!("{} ended with {}", program.display(), output.status)),
        (false, why) => Err(String::from_utf8_lossy(why).into_owned()),
    }
}

pub(crate) fn run() -> ExitCode {
    match enter() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = write!(io::stdout(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn enter() -> io::Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let policy: Policy = serde_json::from_str(&text)?;
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut started = Namespaces::enter(policy)?.start(None, [nothing.as_fd(); 3])?;
    started.init.wait()?;
    Ok(())
}
