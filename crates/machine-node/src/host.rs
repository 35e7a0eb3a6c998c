//! What the gateway is told of the machine, and asked.

use std::ffi::OsStr;
use std::path::Path;

use rustix::fs::Access;
use serde_json::{Value, json};

/// What a machine is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Runs whatever is to be run: tools that nobody named a host for may go here.
    #[default]
    Execution,
    /// For what it alone has: only what is sent to it by name goes here.
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

/// What a node says of the machine it runs on, for
/// [`NodeClientBuilder::host`](sa_node_sdk::NodeClientBuilder::host): its role, its system, and the keys of its environment.
/// The values stay here.
pub fn describe(role: Role) -> Value {
    let mut env: Vec<String> = std::env::vars_os().filter_map(|(key, _)| key.into_string().ok()).collect();
    env.sort_unstable();
    json!({ "role": role.as_str(), "os": system(std::env::consts::OS), "arch": std::env::consts::ARCH, "env": env })
}

/// The name that hosts go by, which is the kernel's.
fn system(os: &str) -> &str {
    if os == "macos" { "darwin" } else { os }
}

/// Whether a program of this name can be run here: a file on the `PATH` that its user may execute.
pub fn has_program(name: &str) -> bool {
    is_on(std::env::var_os("PATH").as_deref(), name)
}

fn is_on(path: Option<&OsStr>, name: &str) -> bool {
    if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." {
        return false;
    }
    // An empty entry, which shells take for the working directory, counts for nothing: what lies there is data.
    let dirs = path.map(std::env::split_paths).into_iter().flatten().filter(|dir| !dir.as_os_str().is_empty());
    dirs.map(|dir| dir.join(name)).any(|file| is_program(&file))
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file()) && rustix::fs::access(file, Access::EXEC_OK).is_ok()
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
        let keys: Vec<&str> = host["env"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
        assert!(keys.is_sorted() && keys.contains(&"PATH"), "{keys:?}");
        assert!(keys.iter().all(|key| !key.contains('=')), "{keys:?}");
        assert_eq!((system("macos"), system("linux"), system("windows")), ("darwin", "linux", "windows"));
    }
}
