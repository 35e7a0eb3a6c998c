//! Search for secret files of gateways that sandboxed programs could read.
//!
//! A gateway marks its secret files ([`secret_file`]). A marked file may be in a directory that a
//! program can write to, or be linked there. A program can rename directories there, so a mount
//! over such a file would not hide it reliably. Therefore nothing is started until the file is
//! removed. In directories that a program can only read, marked files are hidden.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sa_vault::secret_file;

use crate::{Policy, mounts};

/// System directories that may contain a gateway's data. Others, such as `/usr`, contain the files
/// of packages.
const SYSTEM: [&str; 2] = ["/etc", "/opt"];
/// The maximum number of files and directories to search.
const MAX_ENTRIES: usize = 2_000_000;

/// Returns every marked file and directory below these directories and below the system
/// directories. The error describes why the search did not finish.
pub fn search<'a>(directories: impl IntoIterator<Item = &'a Path>) -> Result<Vec<PathBuf>, String> {
    let roots = roots(directories);
    let Search { found, is_complete } = search_within(&roots, MAX_ENTRIES, MAX_ENTRIES);
    if is_complete {
        return Ok(found);
    }
    Err(format!(
        "more than {MAX_ENTRIES} files would have to be searched for secrets of gateways; choose a directory with \
         fewer files than {}",
        roots[0].display()
    ))
}

/// Searches the same directories, but at most this number of files and directories: those nearest
/// to the roots, and a tenth of this number in each directory.
pub fn search_first<'a>(
    directories: impl IntoIterator<Item = &'a Path>,
    max_entries: usize,
) -> Search {
    search_within(&roots(directories), max_entries, max_entries / 10)
}

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub struct Search {
    /// The marked files and directories.
    pub found: Vec<PathBuf>,
    /// Whether everything was searched.
    pub is_complete: bool,
}

fn roots<'a>(directories: impl IntoIterator<Item = &'a Path>) -> Vec<&'a Path> {
    directories.into_iter().chain(SYSTEM.map(Path::new)).collect()
}

impl Policy {
    /// Returns this policy with the marked files hidden. The error names a marked file in a
    /// writable directory.
    pub fn without_marked(self, found: Vec<PathBuf>) -> Result<Self, String> {
        let writable =
            |path: &PathBuf| self.writable.iter().find(|root| path.starts_with(root)).cloned();
        if let Some((path, root)) = found.iter().find_map(|path| Some((path, writable(path)?))) {
            return Err(format!(
                "{} belongs to the secret files of a Switchboard gateway, or cannot be searched for them, and commands \
                 could read it in {}; move it elsewhere, make it readable, or choose a directory that does not contain it",
                path.display(),
                root.display()
            ));
        }
        Ok(self.hiding(found))
    }
}

fn is_own(directory: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    std::fs::metadata(directory).is_ok_and(|metadata| metadata.uid() == user)
}

/// Searches the roots, breadth-first. Lists nothing below a marked directory.
fn search_within(roots: &[&Path], max_entries: usize, max_per_directory: usize) -> Search {
    let kernel = mounts::pseudo();
    let is_marked = |path: &PathBuf| secret_file::is_marked_path(path);
    let (mut found, open): (Vec<_>, Vec<_>) =
        roots.iter().map(|root| root.to_path_buf()).partition(is_marked);
    let (mut directories, mut left) = (VecDeque::from(open), max_entries);
    let mut is_complete = true;
    while let Some(directory) = directories.pop_front() {
        if kernel.contains(&directory) {
            continue;
        }
        let listed = match std::fs::read_dir(&directory) {
            Ok(listed) => listed,
            // The owner can make the directory readable, and knows the names in it.
            Err(_) if is_own(&directory) => {
                found.push(directory);
                continue;
            }
            // A command runs as the same user with fewer rights, so it cannot list the directory
            // either.
            Err(_) => continue,
        };
        let mut listed = listed.flatten();
        for entry in listed.by_ref().take(max_per_directory.min(left)) {
            left -= 1;
            // The target of a symbolic link is searched itself, or is not visible.
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            // A root inside another one is searched once.
            if !(kind.is_file() || kind.is_dir()) || roots.contains(&path.as_path()) {
                continue;
            }
            if is_marked(&path) {
                found.push(path);
            } else if kind.is_dir() {
                directories.push_back(path);
            }
        }
        is_complete &= listed.next().is_none();
        if left == 0 && !directories.is_empty() {
            return Search { found, is_complete: false };
        }
    }
    Search { found, is_complete }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn marked_files_and_directories_are_found_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("work/data")).unwrap();
        fs::create_dir_all(path("work/a/b")).unwrap();
        fs::write(path("work/data/token"), "secret").unwrap();
        fs::write(path("work/plain"), "plain").unwrap();
        secret_file::mark_directory(&path("work/data")).unwrap();
        fs::hard_link(path("work/data/token"), path("work/a/b/link")).unwrap();
        std::os::unix::fs::symlink("data/token", path("work/soft")).unwrap();
        let mut search = search_within(&[&path("work"), dir.path()], 100, 100);
        search.found.sort();
        let found = vec![path("work/a/b/link"), path("work/data")];
        assert_eq!(search, Search { found, is_complete: true });
    }

    #[test]
    fn all_of_it_as_an_unprivileged_user() {
        sa_test_needs::repeat_as_nobody(module_path!(), &[]);
    }

    #[test]
    fn a_directory_that_its_owner_cannot_list_counts_as_marked() {
        // Root can list every directory.
        if rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o311)).unwrap();
        let search = search_within(&[dir.path()], 100, 100);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(search.found, [closed]);
    }

    #[test]
    fn marker_files_count_where_attributes_are_not_supported() {
        sa_test_needs::run_without_attributes("marked::tests::without_attributes");
    }

    #[test]
    #[ignore = "runs on the file system that the other test mounts"]
    fn without_attributes() {
        if sa_test_needs::small_disk().is_none() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("work/data/deep")).unwrap();
        fs::create_dir_all(path("work/other")).unwrap();
        fs::write(path("work/data/token"), "secret").unwrap();
        secret_file::mark_directory(&path("work/data")).unwrap();
        // A file that is marked alone marks the directory that it is in.
        let config = fs::File::create_new(path("work/other/config")).unwrap();
        secret_file::mark_created(&config, &path("work/other/config")).unwrap();
        let work = path("work");
        let mut found = search([work.as_path()]).unwrap();
        found.retain(|found| found.starts_with(&work));
        found.sort();
        assert_eq!(found, [path("work/data"), path("work/other")]);
    }

    #[test]
    fn a_search_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..5 {
            fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        let found = Vec::new();
        assert_eq!(search_within(&[dir.path()], 5, 5), Search { found, is_complete: true });
        for (max_entries, max_per_directory) in [(4, 5), (5, 4)] {
            assert!(!search_within(&[dir.path()], max_entries, max_per_directory).is_complete);
        }
    }

    #[test]
    fn a_bounded_search_looks_at_the_top_of_every_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["large", "small", "small/data", "large/deep/er/data"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        for number in 0..2_000 {
            fs::write(path("large").join(number.to_string()), "").unwrap();
            fs::write(path("large/deep").join(number.to_string()), "").unwrap();
        }
        let deep = path("large/deep/er/data");
        for data in [&deep, &path("small/data")] {
            secret_file::mark_directory(data).unwrap();
        }
        let first = search_first([dir.path()], 1_000);
        assert!(first.found.contains(&path("small/data")) && !first.is_complete, "{first:?}");
        assert!(search([dir.path()]).unwrap().contains(&deep));
    }
}
