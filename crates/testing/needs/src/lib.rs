//! The requirements that tests have on the machine: installed programs, and rights that not every
//! user has. This is a separate crate, because tests of crates that do not depend on the gateway
//! need it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Lists the requirements, separated by commas, that tests may skip.
const WITHOUT: &str = "SWITCHBOARD_TESTS_WITHOUT";

/// Holds the directory of the small disk, for a test that runs on it.
const SMALL_DISK: &str = "SWITCHBOARD_SMALL_DISK";

/// Reports that a test cannot run here. By default that is a failure, because a test that is
/// skipped silently looks as if it had passed. The developer can allow the skip with the variable
/// [`WITHOUT`].
#[track_caller]
pub fn missing(need: &str, why: &str) {
    let without = std::env::var(WITHOUT).unwrap_or_default();
    let is_known = without.split(',').any(|known| known.trim() == need);
    assert!(
        is_known,
        "this test cannot run here: {why}; to leave out the tests that need this, set {WITHOUT}={need}"
    );
    eprintln!("left out, as {WITHOUT} says: {why}");
}

/// Runs another test of this program, one that is ignored by default, with a disk of this size for
/// its files.
///
/// The disk is a real tmpfs. It is mounted in its own mount namespace under `unshare`, and
/// disappears with it.
#[track_caller]
pub fn run_on_small_disk(size: &str, test: &str) {
    run_on("tmpfs", &format!("size={size}"), test);
}

/// Runs another test of this program, one that is ignored by default, on a file system without user
/// attributes.
#[track_caller]
pub fn run_without_attributes(test: &str) {
    run_on("ramfs", "mode=0755", test);
}

#[track_caller]
fn run_on(kind: &str, options: &str, test: &str) {
    let dir = tempfile::tempdir().unwrap();
    let possible = |flags: &str| {
        let script = format!("mount -t {kind} none {}", dir.path().display());
        Command::new("unshare")
            .args([flags, "sh", "-c", &script])
            .status()
            .is_ok_and(|status| status.success())
    };
    let Some(flags) = ["-m", "-rm"].into_iter().find(|flags| possible(flags)) else {
        return missing(
            "mount",
            "this machine allows no mount under unshare, neither to root nor in a user namespace",
        );
    };
    let ran = Command::new("unshare")
        .args([
            flags,
            "sh",
            "-c",
            "mount -t \"$0\" -o \"$1\" none \"$2\" && shift 2 && exec \"$@\"",
            kind,
            options,
        ])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--ignored"])
        .env(SMALL_DISK, dir.path())
        .env("TMPDIR", dir.path())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    // A name that matches no test would pass too.
    assert!(ran.status.success() && said.contains("1 passed"), "{test} failed: {said}");
}

/// A user and a group that own nothing.
const NOBODY: &str = "65534";

/// Runs the other tests of a module again as an unprivileged user, if this user is root. The name
/// of the calling test must contain `unprivileged_user`. `module` is its `module_path!()`.
///
/// The build directory may be inaccessible to other users. Therefore the test program is copied,
/// and so are the other programs. Each of them has an environment variable with the path of its
/// copy.
#[track_caller]
pub fn repeat_as_nobody(module: &str, programs: &[(&str, &Path)]) {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let tests = dir.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &tests).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]).arg(&tests);
    // Tests that need these rights have run as root.
    command.env(WITHOUT, "cgroup,mount,root");
    for (variable, program) in programs {
        let copy = dir.path().join(variable);
        fs::copy(program, &copy).unwrap();
        command.env(variable, copy);
    }
    // A test in the main file of a program has no module besides the program's own.
    let names = module.split_once("::").map(|(_, names)| format!("{names}::"));
    let ran = command
        .args(names)
        .args(["--skip", "unprivileged_user"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    // Names that match no test would pass, too.
    assert!(
        ran.status.success() && !said.contains(" 0 passed"),
        "{said}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// Whether this is root. The kernel gives a process's directory to its effective user.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0)
}

/// Returns the small disk's directory, or `None` when an ignored test runs without it.
pub fn small_disk() -> Option<PathBuf> {
    std::env::var_os(SMALL_DISK).map(Into::into)
}

/// A control group with a memory limit, removed when this value is dropped. All programs in it must
/// have ended by then.
#[derive(Debug)]
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Creates a group. Returns `None` where the machine does not allow one, see [`missing`].
    #[track_caller]
    pub fn new(bytes: u64) -> Option<Self> {
        let name = format!("switchboard-test-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        // A cgroup v2 group has only the controllers that its parent delegates.
        let _ = std::fs::write(root.join("cgroup.subtree_control"), "+memory");
        let places = [
            (root.join(&name), "memory.max"),
            (root.join("memory").join(&name), "memory.limit_in_bytes"),
        ];
        for (dir, file) in places {
            if dir.parent().is_some_and(|parent| parent.join("cgroup.procs").exists())
                && std::fs::create_dir(&dir).is_ok()
            {
                let group = Self(dir);
                if std::fs::write(group.0.join(file), bytes.to_string()).is_ok() {
                    return Some(group);
                }
            }
        }
        missing(
            "cgroup",
            "a control group with a memory limit needs root, and a machine that lets it make one",
        );
        None
    }

    /// Writes a script that runs the program within the group, with the same arguments.
    pub fn wrapping(&self, program: &str, dir: &Path) -> PathBuf {
        let script = format!(
            "#!/bin/sh\necho $$ > {}/cgroup.procs && exec {program} \"$@\"\n",
            self.0.display()
        );
        let path = dir.join("in-group");
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_a_failure_that_says_how_to_go_on() {
        let panic =
            std::panic::catch_unwind(|| missing("wings", "nobody can fly here")).unwrap_err();
        let said = panic.downcast_ref::<String>().unwrap();
        assert!(
            said.contains("nobody can fly here")
                && said.ends_with("SWITCHBOARD_TESTS_WITHOUT=wings"),
            "{said}"
        );
    }

    #[test]
    fn a_small_disk_is_soon_full() {
        run_on_small_disk("64k", "tests::on_it");
    }

    #[test]
    #[ignore = "runs on the small disk that the other test makes"]
    fn on_it() {
        let Some(disk) = small_disk() else { return };
        let dir = tempfile::tempdir().unwrap();
        assert!(dir.path().starts_with(disk));
        let file = dir.path().join("file");
        std::fs::write(&file, vec![0; 32 << 10]).unwrap();
        assert!(std::fs::write(&file, vec![0; 128 << 10]).is_err());
    }
}
