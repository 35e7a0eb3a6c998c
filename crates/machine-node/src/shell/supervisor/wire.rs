//! The messages between node, supervisor and stage.

use sa_sandbox::Policy;
use serde::{Deserialize, Serialize};

/// The command to run. It inherits directory and environment from the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) shell: String,
    pub(crate) command: String,
    /// Whether its input is a terminal that becomes its controlling terminal.
    pub(crate) terminal: bool,
    pub(crate) sandbox: Option<Policy>,
}

/// A message of a supervisor to its node, one per line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// The shell is running.
    Started { pid: i32 },
    /// The shell could not be started.
    Failed { why: String },
    /// The shell has ended.
    Exited { code: Option<i32>, signal: Option<i32> },
    /// All its descendants have ended, too.
    Gone,
}

impl Said {
    pub(crate) fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sa_sandbox::handover::{from_memory, in_memory};

    use super::*;

    proptest! {
        #[test]
        fn what_a_keeper_says_is_read_as_it_was_said(pid: i32, why in any::<String>(), code: Option<i32>, signal: Option<i32>) {
            for said in [Said::Started { pid }, Said::Failed { why }, Said::Exited { code, signal }, Said::Gone] {
                let line = said.line();
                prop_assert!(!line.contains('\n'));
                prop_assert_eq!(serde_json::from_str::<Said>(&line).unwrap(), said);
            }
        }

        #[test]
        fn a_launch_is_read_as_it_was_written_or_refused(shell in any::<String>(), command in any::<String>(), terminal: bool, noise in sa_hostile::noise()) {
            let launch = Launch { shell, command, terminal, sandbox: None };
            let read: Launch = from_memory(in_memory(&launch).unwrap()).unwrap();
            prop_assert_eq!((read.shell, read.command, read.terminal), (launch.shell, launch.command, terminal));
            prop_assert!(from_memory::<Launch>(in_memory(&noise).unwrap()).is_err());
        }
    }
}
