//! Pseudo file systems, such as `/proc`. They are endless, contain links to everywhere, and have
//! files that block when they are read.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::mounted::unescape;

const PSEUDO: [&str; 14] = [
    "proc",
    "sysfs",
    "debugfs",
    "tracefs",
    "cgroup",
    "cgroup2",
    "securityfs",
    "bpf",
    "configfs",
    "devpts",
    "fusectl",
    "pstore",
    "binfmt_misc",
    "mqueue",
];

/// Returns the mount points of pseudo file systems.
pub fn pseudo() -> Vec<PathBuf> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    table.split(|byte| *byte == b'\n').filter_map(mount_point).collect()
}

/// Returns the mount point in a line of the table, if it is one of a pseudo file system.
fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let text = String::from_utf8_lossy(line);
    let (_, system) = text.split_once(" - ")?;
    if !PSEUDO.contains(&system.split(' ').next()?) {
        return None;
    }
    let field = line.split(|byte| *byte == b' ').nth(4)?;
    Some(PathBuf::from(OsString::from_vec(unescape(field))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<&str>) {
        assert_eq!(mount_point(line.as_bytes()), expected.map(PathBuf::from));
    }

    #[test]
    fn lines_of_the_table() {
        check("22 1 0:21 / /proc rw,nosuid shared:12 - proc proc rw", Some("/proc"));
        check("22 1 0:21 / /a\\040b\\134 rw - sysfs sysfs rw", Some("/a b\\"));
        check("22 1 0:21 / /home rw - ext4 /dev/sda rw", None);
        check("", None);
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_read(line in sa_hostile::noise()) {
            let _ = mount_point(&line);
        }
    }
}
