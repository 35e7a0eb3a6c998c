//! A sandbox of which a part is missing is refused, with the name of the part.

use std::process::Command;

use crate::rig::{Rig, users};

/// Runs the probe of a sandbox where something is different, as root of a user namespace.
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

#[test]
fn user_namespaces() {
    for user in users() {
        let said = probe(&Rig::new(*user), "echo 0 > /proc/sys/user/max_user_namespaces");
        assert!(said.contains("user namespaces are not available to this user"), "{user:?}: {said}");
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
