//! Rule: a sandbox with a missing part is refused, and the error names the part.

use std::io::Write as _;
use std::process::{Command, Stdio};

use nix::libc;

use crate::rig::{Rig, User, users};

/// Runs the probe of a sandbox in a changed environment, as root of a user namespace.
fn probe(rig: &Rig, change: &str) -> String {
    let supervisor = rig.supervisor();
    let mut words: Vec<_> = vec![supervisor.get_program().to_owned()];
    words.extend(supervisor.get_args().map(std::ffi::OsStr::to_owned));
    let run = words.pop().unwrap();
    let script = format!("{change}\nexec \"$0\" \"$1\" bash -c true");
    let mut command = Command::new("unshare");
    if words.len() > 1 {
        command = Command::new(&words[0]);
        command.args(&words[1..]).arg("unshare");
    }
    command.args(["-Urmpf", "--mount-proc", "sh", "-c", &script]).arg(run);
    command.arg(serde_json::to_string(&rig.policy).unwrap()).current_dir(rig.workspace());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Gives a program a kernel that answers one system call with an error.
const FILTER: &str = "my ($prctl, $call, $error) = splice(@ARGV, 0, 3); \
my $filter = pack('SCCL' x 4, 0x20, 0, 0, 0, 0x15, 0, 1, $call, 6, 0, 0, 0x50000 | $error, 6, 0, 0, 0x7fff0000); \
my $program = pack('Sx![P]P', 4, $filter); \
syscall($prctl + 0, 38, 1, 0, 0, 0) == 0 && syscall($prctl + 0, 22, 2, $program) == 0 or die $!; \
exec @ARGV or die $!";

/// What the start of a command and the check at a start say on such a kernel.
fn without_call(rig: &Rig, call: libc::c_long, error: i32) -> [String; 2] {
    let filtered = |command: &Command| {
        let mut outer = Command::new("perl");
        outer.args(["-e", FILTER]);
        outer.args([libc::SYS_prctl, call, error.into()].map(|number| number.to_string()));
        outer.arg(command.get_program()).args(command.get_args());
        outer.current_dir(rig.workspace());
        outer.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        outer
    };
    let ran = filtered(&rig.command("echo started")).output().unwrap();
    assert_eq!((ran.status.code(), &*ran.stdout), (Some(125), &b""[..]), "{ran:?}");
    let mut check = rig.supervisor();
    check.arg("__sandbox-probe");
    let mut check = filtered(&check).spawn().unwrap();
    let policy = serde_json::to_vec(&rig.policy).unwrap();
    check.stdin.take().unwrap().write_all(&policy).unwrap();
    let checked = check.wait_with_output().unwrap();
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    [ran.stderr, checked.stdout].map(|text| String::from_utf8(text).unwrap())
}

#[test]
fn landlock() {
    for user in users() {
        let rig = Rig::new(*user);
        for error in [libc::ENOSYS, libc::EOPNOTSUPP] {
            for said in without_call(&rig, libc::SYS_landlock_create_ruleset, error) {
                assert!(said.contains("Landlock is not available"), "{user:?} {error}: {said}");
            }
        }
    }
}

#[test]
fn seccomp_filters() {
    for user in users() {
        let rig = Rig::new(*user);
        for error in [libc::ENOSYS, libc::EINVAL] {
            for said in without_call(&rig, libc::SYS_seccomp, error) {
                let part = "seccomp filters are not available";
                assert!(said.contains(part), "{user:?} {error}: {said}");
            }
        }
    }
}

/// A filter of a container's runtime may refuse the call.
#[test]
fn capabilities() {
    // The program that changes the user needs the call itself.
    let rig = Rig::new(User::This);
    for said in without_call(&rig, libc::SYS_capset, libc::EPERM) {
        assert!(said.contains("capabilities are not available"), "{said}");
    }
}

#[test]
fn user_namespaces() {
    for user in users() {
        let said = probe(&Rig::new(*user), "echo 0 > /proc/sys/user/max_user_namespaces");
        assert!(
            said.contains("user namespaces are not available to this user"),
            "{user:?}: {said}"
        );
    }
}

#[test]
fn every_other_namespace_by_its_name() {
    let parts =
        [("mnt", "mount"), ("ipc", "IPC"), ("uts", "UTS"), ("net", "network"), ("pid", "PID")];
    for user in users() {
        for (setting, part) in parts {
            let change = format!("echo 0 > /proc/sys/user/max_{setting}_namespaces");
            let said = probe(&Rig::new(*user), &change);
            let expected = format!("{part} namespaces are not available");
            assert!(said.starts_with(&expected), "{user:?} {setting}: {said}");
        }
    }
}

#[test]
fn a_private_proc() {
    for user in users() {
        let said = probe(&Rig::new(*user), "mount -t tmpfs none /proc/bus");
        assert!(said.contains("a private /proc is not available"), "{user:?}: {said}");
    }
}

#[test]
fn a_directory_that_does_not_exist() {
    for user in users() {
        let mut rig = Rig::new(*user);
        rig.policy.readable.push("/nonexistent".into());
        let said = rig.output("true");
        assert!(said.contains("/nonexistent cannot be a part of the sandbox"), "{user:?}: {said}");
    }
}
