//! Rule: a path that another command can change shows nothing else than when it was configured.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use crate::rig::{Rig, users};

fn directory(path: &Path) {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn a_link_that_replaces_a_part_of_a_path_is_not_followed() {
    for user in users() {
        for is_writable in [false, true] {
            let mut rig = Rig::new(*user);
            let root = rig.workspace().parent().unwrap().to_owned();
            let (other, victim) = (root.join("other"), root.join("victim"));
            let given = other.join("sub/given");
            for path in [&other, &other.join("sub"), &given, &victim, &victim.join("given")] {
                directory(path);
            }
            fs::write(victim.join("given/file"), "secret").unwrap();
            fs::write(given.join("file"), "given").unwrap();
            let paths =
                if is_writable { &mut rig.policy.writable } else { &mut rig.policy.readable };
            paths.push(given.clone());
            rig.policy.pinned.insert(given.clone(), given.clone());
            let script = format!("cat {0}/file; echo planted > {0}/planted", given.display());
            assert!(rig.output(&script).starts_with("given"), "{user:?}");
            assert_eq!(given.join("planted").exists(), is_writable, "{user:?}");

            // Another command that can write to `other` replaces a directory by a link.
            fs::rename(other.join("sub"), other.join("old")).unwrap();
            symlink(&victim, other.join("sub")).unwrap();
            let output = rig.output(&script);
            assert!(
                output.contains("a symbolic link has replaced a part of"),
                "{user:?}: {output}"
            );
            assert!(!output.contains("secret") && !victim.join("given/planted").exists());
        }
    }
}

#[test]
fn a_linked_name_shows_its_real_path() {
    for user in users() {
        let mut rig = Rig::new(*user);
        let root = rig.workspace().parent().unwrap().to_owned();
        directory(&root.join("tool-1"));
        fs::write(root.join("tool-1/file"), "one").unwrap();
        symlink(root.join("tool-1"), root.join("tool")).unwrap();
        rig.policy.readable.push(root.join("tool"));
        rig.policy.pinned.insert(root.join("tool"), root.join("tool-1"));
        assert_eq!(rig.output(&format!("cat {}/tool/file", root.display())), "one", "{user:?}");
    }
}
