//! Rule: a sandboxed command cannot read secrets of the host, wherever they are.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use crate::rig::{NOBODY, Rig, User, cases, eventually, users};

/// Creates a directory that every user may enter.
fn open_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    dir
}

#[test]
fn no_file_of_the_kernel_is_readable_that_other_users_cannot_read() {
    for user in users() {
        let rig = Rig::new(*user);
        let readable = "find /proc/sys /proc/tty /proc/irq /proc/fs -type f ! -perm -004 -readable";
        assert_eq!(rig.output(&format!("{readable} 2>/dev/null")), "", "{user:?}");
        assert!(rig.output("cat /proc/sys/kernel/ostype").starts_with("Linux"), "{user:?}");
    }
}

#[test]
fn passwords_and_homes_are_not_there() {
    for case in cases() {
        let rig = Rig::new(case);
        let said =
            rig.output("cat /etc/shadow /etc/shadow- /etc/gshadow /etc/sudoers /etc/ssh/*_key; ls /etc/ssl/private");
        assert!(
            !said.contains('$') && !said.contains(":!") && !said.contains("PRIVATE"),
            "{case:?}: {said}"
        );
        assert_eq!(rig.output("ls -A /home /root").trim(), "/home:\n\n/root:", "{case:?}");
        assert!(rig.output("head -c 5 /etc/passwd").starts_with("root:"), "{case:?}");
    }
}

/// The user of a command owns these files, and would need no capability to read them.
#[test]
fn what_other_users_cannot_read_in_the_systems_directories_its_owner_cannot_either() {
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
        let [own, closed] = ["own", "closed"].map(|name| dir.path().join(name));
        fs::create_dir(&closed).unwrap();
        for secret in [&own, &closed.join("file")] {
            fs::write(secret, "canary").unwrap();
        }
        fs::set_permissions(&own, Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
        give_to_nobody(&[&own, &closed]);
        fs::write(dir.path().join("plain"), "plain").unwrap();
        made.push(dir);
    }
    for case in cases() {
        let rig = Rig::new(case);
        // Other tests create files in their own directories after this policy was made.
        let readable = "find /etc /opt /usr/local -name '.tmp*' -prune -o \
                        -type f -not -perm -004 -readable -print 2>/dev/null";
        assert_eq!(rig.output(readable), "", "{case:?}");
        for dir in &made {
            let said = rig.output(&format!(
                "cd {}; cat plain own closed/file .env 1/2/3/4/5/6/7/8/9/10/key",
                dir.path().display()
            ));
            assert!(said.starts_with("plain") && !said.contains("canary"), "{case:?}: {said}");
        }
    }
}

/// Makes the unprivileged user of the tests the owner, if this user is root.
fn give_to_nobody(paths: &[&Path]) {
    let nobody = NOBODY.parse().unwrap();
    for path in paths.iter().filter(|_| users().len() > 1) {
        chown(path, Some(nobody), Some(nobody)).unwrap();
    }
}

/// A group that owns nothing.
const GROUP: u32 = 54_242;

#[test]
fn supplementary_groups_of_the_supervisor_give_nothing() {
    // Only root can give itself groups.
    for user in users().iter().filter(|_| users().len() > 1) {
        let dir = tempfile::tempdir_in("/opt").unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let [file, closed, hidden] = ["file", "closed", "hidden"].map(|name| dir.path().join(name));
        fs::create_dir(&closed).unwrap();
        for (path, mode) in [(&file, 0o640), (&closed.join("file"), 0o644), (&hidden, 0o640)] {
            fs::write(path, "canary").unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(&closed, Permissions::from_mode(0o750)).unwrap();
        for path in [&file, &closed, &hidden] {
            chown(path, None, Some(GROUP)).unwrap();
        }
        let mut rig = Rig::new(*user);
        rig.group = Some(GROUP);
        let script = format!("cd {}; cat file closed/file hidden", dir.path().display());
        rig.policy = rig.default_policy();
        let said = rig.output(&script);
        assert!(!said.contains("canary") && said.contains("denied"), "{user:?}: {said}");
        if *user == User::This {
            assert_eq!(rig.output("id -G").trim(), "0");
        }
    }
}

/// The workspace and what is given by name belong to the command, even below a directory that is
/// searched.
#[test]
fn what_is_given_is_not_hidden() {
    let Ok(dir) = tempfile::tempdir_in("/opt") else { return };
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    for user in users() {
        let mut rig = Rig::within(dir.path(), *user);
        let given = tempfile::tempdir_in(dir.path()).unwrap();
        let (tools, file) = (given.path().join("tools"), given.path().join("file"));
        fs::create_dir(&tools).unwrap();
        fs::write(tools.join("key"), "given").unwrap();
        fs::write(&file, "given").unwrap();
        fs::write(rig.workspace().join("own"), "own").unwrap();
        let all =
            [&rig.workspace(), &rig.workspace().join("own"), &tools, &tools.join("key"), &file];
        for path in all {
            let mode = if path.is_dir() { 0o700 } else { 0o600 };
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(given.path(), Permissions::from_mode(0o755)).unwrap();
        if *user == User::Nobody {
            give_to_nobody(&all.map(PathBuf::as_path));
        }
        rig.policy = rig.default_policy();
        let script = format!(
            "cat own {}/key {}; echo new > new && cat new",
            tools.display(),
            file.display()
        );
        let said = rig.output(&script);
        assert!(said.starts_with("own") && !said.contains("given"), "{user:?}: {said}");
        rig.policy.readable.extend([tools, file]);
        assert_eq!(rig.output(&script), "owngivengivennew\n", "{user:?}");
    }
}

#[test]
fn a_hidden_file_in_a_readable_directory_is_not_readable_by_any_name() {
    for case in cases() {
        let mut rig = Rig::new(case);
        let data = open_dir();
        fs::write(data.path().join("operator.token"), "canary").unwrap();
        fs::write(data.path().join("plain"), "plain").unwrap();
        symlink("operator.token", data.path().join("link")).unwrap();
        rig.policy.readable.push(data.path().to_owned());
        rig.policy.hidden.push(data.path().join("operator.token"));
        let dir = data.path().display();
        assert_eq!(rig.output(&format!("cat {dir}/plain")), "plain", "{case:?}");
        let said = rig.output(&format!(
            "cat {dir}/operator.token {dir}/link; cp {dir}/operator.token x; cat x; ln {dir}/link y; cat y"
        ));
        assert!(!said.contains("canary"), "{case:?}: {said}");
    }
}

#[test]
fn a_directory_in_a_hidden_one_can_be_given_away() {
    for case in cases() {
        let mut rig = Rig::new(case);
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
            "{case:?}"
        );
        let said = rig.output(&format!("cat {dir}/operator.token; find {dir}"));
        assert!(!said.contains("canary") && said.contains("sessions/one"), "{case:?}: {said}");
    }
}

/// A file that is mounted over becomes visible again when another one takes its name. Landlock
/// rules apply to files, not names.
#[test]
fn a_secret_that_is_replaced_while_a_command_runs_stays_hidden() {
    for case in cases() {
        let mut rig = Rig::new(case);
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
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{case:?}");
        assert!(!output.status.success());
    }
}
