//! The messages between owner, supervisor and stage.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use sa_sandbox::Policy;
use serde::{Deserialize, Serialize};

/// The program to run. It inherits directory and environment from the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    /// Whether its input is a terminal that becomes its controlling terminal.
    pub(crate) terminal: bool,
    pub(crate) sandbox: Option<Policy>,
    /// The time between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
    /// A directory to remove at the end.
    pub(crate) remove: Option<PathBuf>,
}

/// A message of a supervisor to its owner, one per line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The program is running.
    Started { pid: i32 },
    /// The program could not be started.
    Failed(Failure),
    /// The program has ended.
    Exited { code: Option<i32>, signal: Option<i32> },
    /// All its descendants have ended, too.
    Gone,
}

/// Why a program could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub why: String,
    /// The system's error code, if the system could not run the program.
    pub code: Option<i32>,
}

/// What an owner orders its supervisor to do with all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// SIGTERM, and SIGKILL after the grace period.
    Terminate,
    /// SIGKILL at once.
    Kill,
}

impl Report {
    pub(crate) fn line(&self) -> String {
        format!("{}\n", serde_json::to_string(self).unwrap_or_default())
    }
}

impl Order {
    pub(crate) fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::Terminate => b"t",
            Self::Kill => b"k",
        }
    }

    /// Reads orders that arrived together. `Kill` takes precedence.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        if bytes.contains(&b'k') { Self::Kill } else { Self::Terminate }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self { why: error.to_string(), code: None }
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure.code {
            Some(code) => Self::from_raw_os_error(code),
            None => Self::other(failure.why),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sa_sandbox::handover::{from_memory, in_memory};

    use super::*;

    proptest! {
        #[test]
        fn a_report_is_read_as_it_was_written(pid: i32, why in any::<String>(), code: Option<i32>, signal: Option<i32>) {
            let failed = Report::Failed(Failure { why, code });
            for report in [Report::Started { pid }, failed, Report::Exited { code, signal }, Report::Gone] {
                let line = report.line();
                prop_assert_eq!(line.find('\n'), Some(line.len() - 1));
                prop_assert_eq!(serde_json::from_str::<Report>(&line).unwrap(), report);
            }
        }

        #[test]
        fn a_launch_is_read_as_it_was_written_or_refused(program in any::<OsString>(), args in proptest::collection::vec(any::<OsString>(), 0..3), terminal: bool, noise in sa_hostile::noise()) {
            let launch = Launch { program, args, terminal, sandbox: None, grace: Duration::from_millis(1), remove: None };
            let read: Launch = from_memory(in_memory(&launch).unwrap()).unwrap();
            prop_assert_eq!((read.program, read.args, read.terminal), (launch.program, launch.args, terminal));
            prop_assert!(from_memory::<Launch>(in_memory(&noise).unwrap()).is_err());
        }
    }
}
