//! Rule: a sandboxed command cannot read secrets of the host, wherever they are.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::rig::{Rig, eventually, users};

/// Creates a directory that every user may enter.
fn open_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    dir
}

#[test]
fn passwords_and_homes_are_not_there() {
    for user in users() {
        let rig = Rig::new(*user);
        let said =
            rig.output("cat /etc/shadow /etc/shadow- /etc/gshadow /etc/sudoers /etc/ssh/*_key; ls /etc/ssl/private");
        assert!(
            !said.contains('$') && !said.contains(":!") && !said.contains("PRIVATE"),
            "{user:?}: {said}"
        );
        assert_eq!(rig.output("ls -A /home /root").trim(), "/home:\n\n/root:", "{user:?}");
        assert!(rig.output("head -c 5 /etc/passwd").starts_with("root:"), "{user:?}");
    }
}

/// Root owns these files, and would need no capability to read them.
#[test]
fn what_other_users_cannot_read_in_the_systems_directories_root_cannot_either() {
    let mut made = Vec::new();
    for tree in ["/etc", "/opt", "/usr/local"] {
        // Only root can create it, and only root could read it.
        let Ok(dir) = tempfile::tempdir_in(tree) else { continue };
        let deep = dir.path().join("1/2/3/4/5/6/7/8/9/10");
        fs::create_dir_all(&deep).unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        for secret in [dir.path().join(".env"), deep.join("key")] {
            fs::write(&secret, "canary").unwrap();
            fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        }
        fs::write(dir.path().join("plain"), "plain").unwrap();
        made.push(dir);
    }
    for user in users() {
        let rig = Rig::new(*user);
        let readable = "find /etc /opt /usr/local -type f -not -perm -004 -readable 2>/dev/null";
        assert_eq!(rig.output(readable), "", "{user:?}");
        for dir in &made {
            let said = rig.output(&format!(
                "cd {}; cat plain .env 1/2/3/4/5/6/7/8/9/10/key",
                dir.path().display()
            ));
            assert!(said.starts_with("plain") && !said.contains("canary"), "{user:?}: {said}");
        }
    }
}

#[test]
fn a_hidden_file_in_a_readable_directory_is_not_readable_by_any_name() {
    for user in users() {
        let mut rig = Rig::new(*user);
        let data = open_dir();
        fs::write(data.path().join("operator.token"), "canary").unwrap();
        fs::write(data.path().join("plain"), "plain").unwrap();
        symlink("operator.token", data.path().join("link")).unwrap();
        rig.policy.readable.push(data.path().to_owned());
        rig.policy.hidden.push(data.path().join("operator.token"));
        let dir = data.path().display();
        assert_eq!(rig.output(&format!("cat {dir}/plain")), "plain", "{user:?}");
        let said = rig.output(&format!(
            "cat {dir}/operator.token {dir}/link; cp {dir}/operator.token x; cat x; ln {dir}/link y; cat y"
        ));
        assert!(!said.contains("canary"), "{user:?}: {said}");
    }
}

#[test]
fn a_directory_in_a_hidden_one_can_be_given_away() {
    for user in users() {
        let mut rig = Rig::new(*user);
        let data = open_dir();
        let work = data.path().join("sessions/one");
        fs::create_dir_all(&work).unwrap();
        fs::set_permissions(&work, Permissions::from_mode(0o777)).unwrap();
        fs::write(data.path().join("operator.token"), "canary").unwrap();
        rig.policy.readable.push(data.path().parent().unwrap().to_owned());
        rig.policy.private.clear();
        rig.policy.hidden.push(data.path().to_owned());
        rig.policy.writable.push(work.clone());
        let (dir, work) = (data.path().display(), work.display());
        assert_eq!(
            rig.output(&format!("echo fine > {work}/file; cat {work}/file")),
            "fine\n",
            "{user:?}"
        );
        let said = rig.output(&format!("cat {dir}/operator.token; find {dir}"));
        assert!(!said.contains("canary") && said.contains("sessions/one"), "{user:?}: {said}");
    }
}

/// A file that is mounted over becomes visible again when another one takes its name. Landlock
/// rules apply to files, not names.
#[test]
fn a_secret_that_is_replaced_while_a_command_runs_stays_hidden() {
    for user in users() {
        let mut rig = Rig::new(*user);
        let data = open_dir();
        let (secret, new) = (data.path().join("secret"), data.path().join("new"));
        fs::write(&secret, "canary").unwrap();
        symlink("secret", data.path().join("link")).unwrap();
        rig.policy.readable.push(data.path().to_owned());
        rig.policy.hidden.push(secret.clone());
        let script = "touch ready; until [ -e go ]; do sleep 0.01; done; cat DATA/secret DATA/link";
        let script = script.replace("DATA", data.path().to_str().unwrap());
        let running = rig.command(&script).stdout(std::process::Stdio::piped()).spawn().unwrap();
        eventually("the command runs", || rig.workspace().join("ready").exists());
        fs::write(&new, "canary").unwrap();
        fs::rename(&new, &secret).unwrap();
        fs::write(rig.workspace().join("go"), "").unwrap();
        let output = running.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{user:?}");
        assert!(!output.status.success());
    }
}
