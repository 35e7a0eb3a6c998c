//! Search for secret files of gateways that sandboxed programs could read.
//!
//! A gateway marks its secret files ([`secret_file`]). A marked file may be in a directory that a
//! program can write to, or be linked there. A program can rename directories there, so a mount
//! over such a file would not hide it reliably. Therefore nothing is started until the file is
//! removed. In directories that a program can only read, marked files are hidden.

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
    let roots: Vec<&Path> = directories.into_iter().chain(SYSTEM.map(Path::new)).collect();
    search_within(&roots, MAX_ENTRIES)
}

impl Policy {
    /// Returns this policy with the marked files hidden. The error names a marked file in a
    /// writable directory.
    pub fn without_marked(self, found: Vec<PathBuf>) -> Result<Self, String> {
        let writable =
            |path: &PathBuf| self.writable.iter().find(|root| path.starts_with(root)).cloned();
        if let Some((path, root)) = found.iter().find_map(|path| Some((path, writable(path)?))) {
            return Err(format!(
                "{} belongs to the secret files of a Switchboard gateway, and commands could read it in {}; move it \
                 elsewhere, or choose a directory that does not contain it",
                path.display(),
                root.display()
            ));
        }
        Ok(self.hiding(found))
    }
}

/// Searches the roots. Lists nothing below a marked directory.
fn search_within(roots: &[&Path], max_entries: usize) -> Result<Vec<PathBuf>, String> {
    let kernel = mounts::pseudo();
    let (mut found, mut directories, mut entries) = (Vec::new(), Vec::new(), 0_usize);
    for root in roots {
        directories.push(root.to_path_buf());
        while let Some(directory) = directories.pop() {
            // A root inside another one is searched once.
            let is_other_root = directory != *root && roots.contains(&directory.as_path());
            if is_other_root || kernel.contains(&directory) {
                continue;
            }
            if secret_file::is_marked_path(&directory) {
                found.push(directory);
                continue;
            }
            // A command runs as the same user with fewer rights, so it cannot list the directory
            // either.
            let Ok(listed) = std::fs::read_dir(&directory) else { continue };
            for entry in listed.flatten() {
                entries += 1;
                if entries > max_entries {
                    return Err(format!(
                        "more than {max_entries} files would have to be searched for secrets of gateways; choose a \
                         directory with fewer files than {}",
                        roots[0].display()
                    ));
                }
                look_at(&entry, &mut found, &mut directories);
            }
        }
    }
    Ok(found)
}

fn look_at(entry: &std::fs::DirEntry, found: &mut Vec<PathBuf>, directories: &mut Vec<PathBuf>) {
    // The target of a symbolic link is searched itself, or is not visible.
    match entry.file_type() {
        Ok(kind) if kind.is_dir() => directories.push(entry.path()),
        Ok(kind) if kind.is_file() && secret_file::is_marked_path(&entry.path()) => {
            found.push(entry.path());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let mut found = search_within(&[&path("work"), dir.path()], 100).unwrap();
        found.sort();
        assert_eq!(found, [path("work/a/b/link"), path("work/data")]);
    }

    #[test]
    fn a_search_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..5 {
            fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        assert_eq!(search_within(&[dir.path()], 5), Ok(Vec::new()));
        let why = search_within(&[dir.path()], 4).unwrap_err();
        assert!(why.contains("more than 4 files"), "{why}");
    }
}
