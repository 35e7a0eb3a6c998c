//! Runs a command in a sandbox, as this user and, if this user is root, as an unprivileged one.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::libc;
use rustix::event::{Timespec, poll};
use sa_sandbox::Policy;
use tempfile::TempDir;

/// A user and a group that own nothing.
pub(crate) const NOBODY: &str = "65534";
/// The timeout after which a test fails because an event did not happen.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The user that runs the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    This,
    Nobody,
}

pub(crate) fn users() -> &'static [User] {
    if rustix::process::geteuid().is_root() { &[User::This, User::Nobody] } else { &[User::This] }
}

/// System calls that a kernel answers with an error.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Calls {
    Only(libc::c_long),
    From(libc::c_long),
}

/// A user, and the kernel to simulate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) user: User,
    /// The highest version of Landlock to use. Without one, it is the kernel's newest.
    pub(crate) landlock: Option<i32>,
    /// The system calls that fail, and their error.
    pub(crate) without: Option<(Calls, i32)>,
}

impl From<User> for Case {
    fn from(user: User) -> Self {
        Self { user, landlock: None, without: None }
    }
}

/// Returns every user with the oldest version of Landlock that is required, with Linux 6.1, and
/// with this kernel. The last system call of Linux 6.1 is `set_mempolicy_home_node` (450).
pub(crate) fn cases() -> Vec<Case> {
    let linux_6_1 = (Calls::From(451), libc::ENOSYS);
    let kernels = [(Some(1), None), (Some(2), Some(linux_6_1)), (None, None)];
    let of = |user: User| kernels.map(|(landlock, without)| Case { user, landlock, without });
    users().iter().copied().flat_map(of).collect()
}

/// Starts a program on a kernel that answers some system calls with an error. The first arguments
/// are the number of `prctl`, the comparison of the filter with a number, and the error.
const FILTER: &str = "my ($prctl, $jump, $call, $error) = splice(@ARGV, 0, 4); \
my $filter = pack('SCCL' x 4, 0x20, 0, 0, 0, $jump, 0, 1, $call, 6, 0, 0, 0x50000 | $error, 6, 0, 0, 0x7fff0000); \
my $program = pack('Sx![P]P', 4, $filter); \
syscall($prctl + 0, 38, 1, 0, 0, 0) == 0 && syscall($prctl + 0, 22, 2, $program) == 0 or die $!; \
exec @ARGV or die $!";

pub(crate) struct Rig {
    dir: TempDir,
    pub(crate) user: User,
    landlock: Option<i32>,
    /// The system calls that fail, and their error.
    pub(crate) without: Option<(Calls, i32)>,
    /// The supplementary group of the supervisor. Only root can set it.
    pub(crate) group: Option<u32>,
    pub(crate) policy: Policy,
}

impl Rig {
    /// Creates a rig with a writable workspace and no network.
    pub(crate) fn new(case: impl Into<Case>) -> Self {
        Self::within(&std::env::temp_dir(), case)
    }

    /// Creates a rig in a directory of this directory.
    pub(crate) fn within(parent: &Path, case: impl Into<Case>) -> Self {
        let Case { user, landlock, without } = case.into();
        let dir = tempfile::tempdir_in(parent).unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let workspace = dir.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        fs::set_permissions(&workspace, Permissions::from_mode(0o777)).unwrap();
        // The build directory may be inaccessible to other users. A program cannot start while it
        // is open for writing, and a child of another test would inherit the open copy.
        let mut copy = Command::new("cp");
        copy.arg(env!("CARGO_BIN_EXE_sa-sandbox-run")).arg(dir.path().join("run"));
        assert!(copy.status().unwrap().success());
        let policy = Policy::new(false);
        let mut rig = Self { dir, user, landlock, without, group: None, policy };
        rig.policy = rig.default_policy();
        rig
    }

    /// Returns the policy that the supervisor's user gets by default, with a writable workspace.
    pub(crate) fn default_policy(&self) -> Policy {
        let made = self.supervisor().arg("policy").output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let policy: Policy = serde_json::from_slice(&made.stdout).unwrap();
        policy.with_writable(&self.workspace())
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.path().join("workspace")
    }

    /// Returns the supervisor with a shell that runs a script.
    pub(crate) fn command(&self, script: &str) -> Command {
        let policy = serde_json::to_string(&self.policy).unwrap();
        let mut command = self.supervisor();
        command.arg(policy).args(["bash", "-c", script]).env_clear();
        command
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C.UTF-8");
        if let Some(highest) = self.landlock {
            command.env("SA_TEST_LANDLOCK", highest.to_string());
        }
        command
    }

    /// Returns the supervisor program, run as the rig's user on the rig's kernel.
    pub(crate) fn supervisor(&self) -> Command {
        let mut words = Vec::new();
        if self.user == User::Nobody || self.group.is_some() {
            words.push("setpriv".to_owned());
            if self.user == User::Nobody {
                words.extend(["--reuid", NOBODY, "--regid", NOBODY].map(str::to_owned));
            }
            match self.group {
                Some(group) => words.extend(["--groups".to_owned(), group.to_string()]),
                None => words.push("--clear-groups".to_owned()),
            }
        }
        if let Some((calls, error)) = self.without {
            let (jump, call) = match calls {
                Calls::Only(call) => (libc::BPF_JEQ, call),
                Calls::From(call) => (libc::BPF_JGE, call),
            };
            let jump = libc::BPF_JMP | jump | libc::BPF_K;
            words.extend(["perl", "-e", FILTER].map(str::to_owned));
            let numbers = [libc::SYS_prctl, jump.into(), call, error.into()];
            words.extend(numbers.map(|number| number.to_string()));
        }
        words.push(self.dir.path().join("run").to_str().unwrap().to_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(self.workspace());
        command
    }

    pub(crate) fn run(&self, script: &str) -> Output {
        self.command(script).stdin(Stdio::null()).output().unwrap()
    }

    /// Returns both outputs of a script.
    pub(crate) fn output(&self, script: &str) -> String {
        let output = self.run(script);
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    }
}

/// Waits until a condition is true.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < until, "this never happened: {what}");
        let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
    }
}

/// Returns the number of processes on this machine with this word among their arguments.
pub(crate) fn running(word: &Path) -> usize {
    let word = word.as_os_str().as_encoded_bytes();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let commands = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    commands
        .filter(|command| command.split(|byte| *byte == 0).any(|argument| argument == word))
        .count()
}

impl Rig {
    /// Returns the id of the user that runs the supervisor.
    pub(crate) fn supervisor_id(&self) -> String {
        match self.user {
            User::This => rustix::process::geteuid().as_raw().to_string(),
            User::Nobody => NOBODY.to_owned(),
        }
    }
}
