//! The description of the machine for the gateway, and the lookup of programs.

use std::ffi::OsStr;
use std::path::Path;

use rustix::fs::Access;
use serde_json::{Value, json};

/// The purpose of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Runs any tool: calls that name no host may be sent here.
    #[default]
    Execution,
    /// Runs only tools that are unique to it: only calls that name this host are sent here.
    Specialized,
}

impl Role {
    fn as_str(self) -> &'static str {
        match self {
            Self::Execution => "execution",
            Self::Specialized => "specialized",
        }
    }
}

/// Returns the description of this machine for
/// [`NodeClientBuilder::host`](sa_node_sdk::NodeClientBuilder::host): its role, its system, and the
/// names of its environment variables. Their values are not included.
pub fn describe(role: Role) -> Value {
    let mut env: Vec<String> =
        std::env::vars_os().filter_map(|(key, _)| key.into_string().ok()).collect();
    env.sort_unstable();
    json!({ "role": role.as_str(), "os": system(std::env::consts::OS), "arch": std::env::consts::ARCH, "env": env })
}

/// Returns the name of the system, as its kernel reports it.
fn system(os: &str) -> &str {
    if os == "macos" { "darwin" } else { os }
}

/// Returns whether a program with this name can be run: an executable file on the `PATH`.
pub fn has_program(name: &str) -> bool {
    is_on(std::env::var_os("PATH").as_deref(), name)
}

fn is_on(path: Option<&OsStr>, name: &str) -> bool {
    if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." {
        return false;
    }
    // Shells read an empty entry as the working directory. It is ignored here, because files there
    // are data.
    let dirs = path
        .map(std::env::split_paths)
        .into_iter()
        .flatten()
        .filter(|dir| !dir.as_os_str().is_empty());
    dirs.map(|dir| dir.join(name)).any(|file| is_program(&file))
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file())
        && rustix::fs::access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_program_is_an_executable_file_on_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        fs::create_dir_all(first.join("folder")).unwrap();
        fs::create_dir(&second).unwrap();
        for (file, mode) in [(first.join("text"), 0o644), (second.join("tool"), 0o755)] {
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::symlink(second.join("tool"), first.join("link")).unwrap();
        std::os::unix::fs::symlink(second.join("gone"), first.join("broken")).unwrap();
        let path = std::env::join_paths([&first, &dir.path().join("missing"), &second]).unwrap();
        for (name, there) in [
            ("tool", true),
            ("link", true),
            ("broken", false),
            ("text", false),
            ("folder", false),
            ("other", false),
            ("", false),
            (".", false),
            ("..", false),
            ("../second/tool", false),
            ("tool\0", false),
        ] {
            assert_eq!(is_on(Some(&path), name), there, "{name:?}");
        }
        assert!(!is_on(None, "tool"));
        assert!(!is_on(Some("".as_ref()), "Cargo.toml"));
    }

    #[test]
    fn the_machine_is_described_without_the_values_of_its_environment() {
        let host = describe(Role::Specialized);
        assert_eq!(host["role"], "specialized");
        assert_eq!(host["os"], system(std::env::consts::OS));
        let keys: Vec<&str> =
            host["env"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
        assert!(keys.is_sorted() && keys.contains(&"PATH"), "{keys:?}");
        assert!(keys.iter().all(|key| !key.contains('=')), "{keys:?}");
        assert_eq!(
            (system("macos"), system("linux"), system("windows")),
            ("darwin", "linux", "windows")
        );
    }
}
