//! Rule: keys and passwords in a home are hidden, even if the home itself is given.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::rig::{Case, Rig, cases, eventually};

const SECRETS: [&str; 4] = [".ssh/id", ".aws/credentials", ".config/gh/hosts.yml", ".netrc"];

/// Creates a file that every user may read and write, and its directories.
fn file(path: &Path, content: &str) {
    let directory = path.parent().unwrap();
    fs::create_dir_all(directory).unwrap();
    for above in directory.ancestors().take_while(|above| !above.ends_with("workspace")) {
        fs::set_permissions(above, Permissions::from_mode(0o777)).unwrap();
    }
    fs::write(path, content).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
}

/// Returns a rig whose workspace is a home with secrets.
fn at_home(case: Case) -> Rig {
    let mut rig = Rig::new(case);
    for name in SECRETS {
        file(&rig.workspace().join(name), "canary");
    }
    file(&rig.workspace().join(".config/editor/settings"), "plain");
    rig.policy.homes = vec![rig.workspace()];
    rig
}

/// Reads every file in the workspace and its parent directories, under any name.
const READ_ALL: &str = "grep -rs canary . && echo found; cat .ssh/id .aws/credentials";

#[test]
fn a_writable_home_has_no_credentials() {
    for case in cases() {
        let rig = at_home(case);
        let said = rig.output(
            "cat .ssh/id; cat .aws/credentials; cat .config/gh/hosts.yml; cat .netrc; ls .ssh; \
             echo x > .ssh/authorized_keys; echo x > .netrc; chmod 777 .ssh .config/gh; cd .aws",
        );
        assert!(!said.contains("canary"), "{case:?}: {said}");
        let refused = said.matches("ermission denied").count() + said.matches("Read-only").count();
        assert_eq!(refused, said.lines().count(), "{case:?}: {said}");
        let work = "cat .config/editor/settings; echo new > .config/editor/settings; mkdir -p .config/more; \
                    echo own > .profile; cat .config/editor/settings .profile";
        assert_eq!(rig.output(work), "plainnew\nown\n", "{case:?}");
        assert!(!rig.workspace().join(".ssh/authorized_keys").exists());
    }
}

/// A directory that the command moved elsewhere would be visible to the next command.
#[test]
fn credentials_cannot_be_moved_away() {
    for case in cases() {
        let rig = at_home(case);
        let attempts = [
            "mv .ssh x",
            "mv .config x",
            "mv .config/gh x",
            "mv -T .config/editor .config/gh",
            "mv .netrc x",
            "ln .netrc x",
            "rm -rf .ssh",
            "rm -rf .config/gh .netrc",
            "mkdir x && mv --exchange .ssh x",
        ];
        for attempt in attempts {
            rig.output(attempt);
            let said = rig.output(READ_ALL);
            assert!(!said.contains("canary") && !said.contains("found"), "{attempt}: {said}");
            rig.output("rm -rf x");
        }
        for name in SECRETS {
            let content = fs::read_to_string(rig.workspace().join(name)).unwrap();
            assert_eq!(content, "canary", "{case:?} {name}");
        }
    }
}

#[test]
fn a_home_in_a_given_directory_has_no_credentials() {
    for case in cases() {
        for is_writable in [false, true] {
            let mut rig = at_home(case);
            let (above, home) = (rig.workspace(), rig.workspace().join("homes/me"));
            file(&home.join(".ssh/id"), "canary");
            file(&home.join("plain"), "plain");
            rig.policy.homes = vec![home];
            for name in SECRETS {
                fs::remove_file(above.join(name)).unwrap();
            }
            if !is_writable {
                rig.policy.writable.clear();
                rig.policy.readable.push(above);
            }
            assert_eq!(rig.output("cat homes/me/plain"), "plain", "{case:?}");
            for attempt in ["mv homes x", "mv homes/me x"] {
                rig.output(attempt);
                let said = rig.output("grep -rs canary . && echo found; cat homes/me/.ssh/id");
                assert!(said.contains("ermission denied"), "{case:?} {attempt}: {said}");
                assert!(!said.contains("found"), "{case:?} {attempt}: {said}");
            }
        }
    }
}

#[test]
fn credentials_that_are_given_by_name_are_visible() {
    for case in cases() {
        for (given, shown, hidden) in [
            (".ssh", ".ssh/id", ".aws/credentials"),
            (".aws/credentials", ".aws/credentials", ".ssh/id"),
            (".config/gh", ".config/gh/hosts.yml", ".netrc"),
        ] {
            let mut rig = at_home(case);
            rig.policy.readable.push(rig.workspace().join(given));
            assert_eq!(rig.output(&format!("cat {shown}")), "canary", "{case:?} {given}");
            let said = rig.output(&format!("cat {hidden}"));
            assert!(said.contains("ermission denied"), "{case:?} {given}: {said}");
        }
    }
}

#[test]
fn links_to_credentials_lead_to_nothing_and_do_no_harm() {
    for case in cases() {
        let mut rig = at_home(case);
        let home = rig.workspace();
        file(&home.join("dotfiles/kube/config"), "canary");
        for (to, name) in [
            (PathBuf::from("dotfiles/kube"), ".kube"),
            // A command may have made these.
            (PathBuf::from("."), ".docker"),
            (PathBuf::from("/"), ".gnupg"),
            (PathBuf::from("/usr"), ".oci"),
            (PathBuf::from("missing"), ".azure"),
        ] {
            symlink(to, home.join(name)).unwrap();
        }
        let said = rig.output("cat .kube/config; cat dotfiles/kube/config");
        assert_eq!(said.matches("ermission denied").count(), 2, "{case:?}: {said}");
        // The supervisor may also hide the target for all commands from the start on.
        rig.policy = rig.policy.clone().hiding(rig.policy.credentials());
        let said = rig.output("rm .kube; cat dotfiles/kube/config");
        assert!(said.contains("ermission denied"), "{case:?}: {said}");
        let said = rig.output("cat dotfiles/kube/config; mv dotfiles x; cat x/kube/config");
        assert!(!said.contains("canary"), "{case:?}: {said}");
    }
}

/// Other commands may be running in the same home.
#[test]
fn a_command_that_runs_cannot_move_credentials_for_the_next() {
    for case in cases() {
        let rig = at_home(case);
        let script =
            "touch up; until [ -e go ]; do sleep 0.01; done; mv .ssh x; mv .config y; touch done";
        let mut running = rig.command(script).spawn().unwrap();
        eventually("the command runs", || rig.workspace().join("up").exists());
        assert_eq!(rig.output("ls .config"), "editor\ngh\n", "{case:?}");
        fs::write(rig.workspace().join("go"), "").unwrap();
        running.wait().unwrap();
        assert!(rig.workspace().join("done").exists(), "{case:?}");
        assert!(!rig.output(READ_ALL).contains("canary"), "{case:?}");
    }
}
