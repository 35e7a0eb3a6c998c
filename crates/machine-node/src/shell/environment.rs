//! The environment of commands.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The variable that links a process to its session.
pub(super) const SESSION: &str = "SA_SHELL_SESSION";

/// The prefixes of the node's own variables, including its token. Commands do not get them.
const OURS: [&str; 2] = ["SA_", "SWITCHBOARD_"];

/// The only variables that a sandboxed command gets.
const HARMLESS: [&str; 7] = ["PATH", "LANG", "LANGUAGE", "TERM", "TZ", "USER", "SHELL"];

/// Returns the node's environment without the node's own variables.
pub(super) fn of_the_user(
    all: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    all.into_iter().filter(|(name, _)| !starts_with(name, &OURS)).collect()
}

/// Returns the part of the environment that a sandboxed command gets.
pub(super) fn of_a_sandbox(
    all: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let harmless =
        |name: &OsStr| HARMLESS.iter().any(|known| name == *known) || starts_with(name, &["LC_"]);
    all.into_iter().filter(|(name, _)| harmless(name)).collect()
}

/// Returns the user's shell if the program exists, or else `/bin/sh`.
pub(super) fn login_shell(wanted: Option<&OsStr>) -> String {
    let usable = |path: &&str| {
        let file = Path::new(path).metadata();
        Path::new(path).is_absolute()
            && file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    wanted.and_then(OsStr::to_str).filter(usable).unwrap_or("/bin/sh").to_owned()
}

fn starts_with(name: &OsStr, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(kept: &[(OsString, OsString)]) -> Vec<&str> {
        kept.iter().map(|(name, _)| name.to_str().unwrap()).collect()
    }

    fn given() -> Vec<(OsString, OsString)> {
        ["PATH", "HOME", "SA_NODE_TOKEN", "SWITCHBOARD_X", "AWS_SECRET", "LC_ALL", "SAVED"]
            .map(|name| (name.into(), "x".into()))
            .into()
    }

    #[test]
    fn the_nodes_own_variables_are_kept_back() {
        assert_eq!(names(&of_the_user(given())), ["PATH", "HOME", "AWS_SECRET", "LC_ALL", "SAVED"]);
    }

    #[test]
    fn a_sandbox_has_no_secrets() {
        assert_eq!(names(&of_a_sandbox(given())), ["PATH", "LC_ALL"]);
    }

    #[test]
    fn a_shell_that_is_none_is_replaced() {
        assert_eq!(login_shell(Some("/bin/bash".as_ref())), "/bin/bash");
        for unusable in ["bash", "/nonexistent", "/etc/passwd", "/bin", ""] {
            assert_eq!(login_shell(Some(unusable.as_ref())), "/bin/sh", "{unusable}");
        }
        assert_eq!(login_shell(None), "/bin/sh");
    }
}
