//! Rule: a sandbox with a missing part is refused, and the error names the part.

use std::io::Write as _;
use std::process::{Command, Stdio};

use nix::libc;

use crate::rig::{Calls, Rig, User, users};

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

/// What the start of a command and the check at a start say on a kernel that answers one system
/// call with an error.
fn without_call(user: User, call: libc::c_long, error: i32) -> [String; 2] {
    let mut rig = Rig::new(user);
    rig.without = Some((Calls::Only(call), error));
    let ran = rig.run("echo started");
    assert_eq!((ran.status.code(), &*ran.stdout), (Some(125), &b""[..]), "{ran:?}");
    let mut check = rig.supervisor();
    check.arg("__sandbox-probe").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut check = check.spawn().unwrap();
    let policy = serde_json::to_vec(&rig.policy).unwrap();
    check.stdin.take().unwrap().write_all(&policy).unwrap();
    let checked = check.wait_with_output().unwrap();
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    [ran.stderr, checked.stdout].map(|text| String::from_utf8(text).unwrap())
}

#[test]
fn landlock() {
    for user in users() {
        for error in [libc::ENOSYS, libc::EOPNOTSUPP] {
            for said in without_call(*user, libc::SYS_landlock_create_ruleset, error) {
                assert!(said.contains("Landlock is not available"), "{user:?} {error}: {said}");
            }
        }
    }
}

#[test]
fn seccomp_filters() {
    for user in users() {
        for error in [libc::ENOSYS, libc::EINVAL] {
            for said in without_call(*user, libc::SYS_seccomp, error) {
                let part = "seccomp filters are not available";
                assert!(said.contains(part), "{user:?} {error}: {said}");
            }
        }
    }
}

/// A filter of a container's runtime may refuse the call.
#[test]
fn capabilities() {
    for user in users() {
        for said in without_call(*user, libc::SYS_capset, libc::EPERM) {
            assert!(said.contains("capabilities are not available"), "{user:?}: {said}");
        }
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
