//! Detects the memory limit of this process: the limit of its control group, or the machine's
//! memory.

use std::fs;
use std::path::{Path, PathBuf};

/// The assumed limit if neither can be read.
const UNKNOWN: u64 = 4 << 30;

/// Returns the memory that the gateway may use, in bytes.
pub fn detect() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of(&text));
    let of_group = of_groups(&groups, Path::new("/sys/fs/cgroup"));
    of_group.into_iter().chain(machine).min().unwrap_or(UNKNOWN)
}

/// Returns the lowest limit of the process's control groups and their parents. In a container, the
/// path may be a host path that is not mounted. The mount point is then the process's own group.
fn of_groups(groups: &str, mount: &Path) -> Option<u64> {
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (base, file) = match controllers {
            "" => (mount.to_owned(), "memory.max"),
            controllers if controllers.split(',').any(|name| name == "memory") => {
                (mount.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let path = PathBuf::from(path.trim_start_matches('/'));
        limits.extend(path.ancestors().filter_map(|group| limit_in(&base.join(group).join(file))));
    }
    limits.into_iter().min()
}

/// Reads a limit. `max` and other text mean no limit.
fn limit_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(groups: &str, files: &[(&str, &str)], expected: Option<u64>) {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        assert_eq!(of_groups(groups, dir.path()), expected, "{groups}");
    }

    #[test]
    fn the_lowest_limit_on_the_way_up_counts() {
        check("0::/a/b", &[("a/memory.max", "1000\n"), ("a/b/memory.max", "max\n")], Some(1_000));
        check("0::/a/b", &[("a/memory.max", "1000\n"), ("a/b/memory.max", "700\n")], Some(700));
        check("0::/", &[("memory.max", "5")], Some(5));
        check("0::/", &[], None);
        check("0::/of/the/host", &[("memory.max", "9")], Some(9));
        let old = "4:memory:/a\n1:cpu:/\n0::/\n";
        check(
            old,
            &[
                ("memory/a/memory.limit_in_bytes", "300"),
                ("memory/memory.limit_in_bytes", "9223372036854771712"),
            ],
            Some(300),
        );
        check("5:cpu,memory:/", &[("memory/memory.limit_in_bytes", "8")], Some(8));
        check("no groups", &[], None);
    }

    #[test]
    fn a_machine_says_what_it_has() {
        assert_eq!(
            total_of("MemTotal:       24684100 kB\nMemFree: 1 kB\n"),
            Some(24_684_100 * 1_024)
        );
        assert_eq!(total_of("MemFree: 1 kB"), None);
        assert!(detect() > 1 << 20);
    }
}
