//! Marks on files that hold a gateway's secrets, so that no tool on the same machine serves them.
//!
//! The mark is an extended attribute of the file. It belongs to the inode, so hard links and bind
//! mounts carry it. The reader does not need to know where a gateway stores its data. Some file
//! systems have no user attributes. There, a marker file in the same directory marks the files
//! beside it, but it does not cover a hard link elsewhere.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, getxattr};
use rustix::io::Errno;

const ATTRIBUTE: &str = "user.switchboard.secret";
const MARKER: &str = ".switchboard-secret";
const EXPLANATION: &str = "The files in this directory hold secrets of a Switchboard gateway. Machine nodes do not hand \
them out while this file is here.\n";

/// Marks a directory, and the directories and regular files below it. Links are not followed. A
/// file that cannot be marked does not prevent the others; the first error is returned.
pub fn mark_directory(directory: &Path) -> io::Result<()> {
    let mut result = mark(directory);
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        for entry in note(entries, &mut result).unwrap_or_default() {
            let Some(kind) = note(entry.file_type(), &mut result) else { continue };
            if kind.is_file() || kind.is_dir() {
                note(mark(&entry.path()), &mut result);
            }
            if kind.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    result
}

/// Notes the first error. A temporary file may be renamed or removed at any moment.
fn note<T>(done: io::Result<T>, result: &mut io::Result<()>) -> Option<T> {
    match done {
        Ok(done) => Some(done),
        Err(error) => {
            if result.is_ok() && error.kind() != io::ErrorKind::NotFound {
                *result = Err(error);
            }
            None
        }
    }
}

/// Marks exactly one file. Returns an error if the file system has no user attributes.
pub fn mark_file(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    if is_marked(&file) {
        return Ok(());
    }
    Ok(fsetxattr(file, ATTRIBUTE, b"1", XattrFlags::empty())?)
}

/// Marks one file or directory.
pub fn mark(path: &Path) -> io::Result<()> {
    if is_marked_path(path) {
        return Ok(());
    }
    let file = File::open(path)?;
    match fsetxattr(&file, ATTRIBUTE, b"1", XattrFlags::empty()) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP) => {
            let directory = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
            fs::write(directory.join(MARKER), EXPLANATION)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Returns whether an open file or directory holds a gateway's secrets.
pub fn is_marked(file: impl AsFd) -> bool {
    match fgetxattr(&file, ATTRIBUTE, &mut [0_u8; 1]) {
        // A handle that was opened with O_PATH has no attributes of its own.
        Err(Errno::BADF) => is_marked_path(&link(&file)),
        read => by_attribute(read, || fs::read_link(link(&file)).ok()),
    }
}

/// Returns whether a path holds a gateway's secrets. Follows symbolic links.
pub fn is_marked_path(path: &Path) -> bool {
    by_attribute(getxattr(path, ATTRIBUTE, &mut [0_u8; 1]), || path.canonicalize().ok())
}

/// Whether a file or directory, or a directory above it, is marked. The path must have no symbolic
/// links. A gateway makes files after it marked the directory, and those have no mark of their own.
pub fn is_below_marked(real: &Path) -> bool {
    real.ancestors().any(is_marked_path)
}

fn by_attribute(read: Result<usize, Errno>, real: impl FnOnce() -> Option<PathBuf>) -> bool {
    match read {
        Ok(_) | Err(Errno::RANGE) => true,
        Err(Errno::OPNOTSUPP) => real().is_some_and(|real| has_marker(&real)),
        // The attribute does not exist, or this user cannot read the file.
        Err(_) => false,
    }
}

fn has_marker(real: &Path) -> bool {
    [Some(real), real.parent()]
        .into_iter()
        .flatten()
        .any(|directory| directory.join(MARKER).exists())
}

fn link(file: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn every_file_of_a_marked_directory_is_marked_under_every_name() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir_all(data.join("nested")).unwrap();
        let (token, hard, soft) =
            (data.join("operator.token"), dir.path().join("hard"), dir.path().join("soft"));
        fs::write(&token, "secret").unwrap();
        let (nested, away) = (data.join("nested/attachment"), dir.path().join("away"));
        fs::write(&nested, "secret").unwrap();
        fs::hard_link(&nested, &away).unwrap();
        fs::write(dir.path().join("plain"), "no secret").unwrap();
        // What a link leads to is elsewhere.
        std::os::unix::fs::symlink(dir.path(), data.join("nested/link")).unwrap();
        mark_directory(&data).unwrap();
        fs::hard_link(&token, &hard).unwrap();
        std::os::unix::fs::symlink(&token, &soft).unwrap();
        for path in [&data, &token, &hard, &soft, &data.join("nested"), &nested, &away] {
            assert!(
                is_marked_path(path) && is_marked(File::open(path).unwrap()),
                "{}",
                path.display()
            );
            let by_path =
                rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
            assert!(is_marked(by_path), "{}", path.display());
        }
        for path in [dir.path().join("plain"), dir.path().to_owned()] {
            assert!(
                !is_marked_path(&path) && !is_marked(File::open(&path).unwrap()),
                "{}",
                path.display()
            );
        }
        assert!(!is_marked_path(&dir.path().join("missing")));
        // Whatever is made later is below the mark.
        let real = data.canonicalize().unwrap();
        for path in [real.clone(), real.join("nested/later"), real.join("missing/file")] {
            assert!(is_below_marked(&path), "{}", path.display());
        }
        assert!(!is_below_marked(&dir.path().canonicalize().unwrap().join("plain")));
        // Marking again changes nothing, and needs no marker file where attributes work.
        mark_directory(&data).unwrap();
        assert!(!data.join(MARKER).exists());
    }

    #[test]
    fn a_marker_file_counts_where_attributes_are_not_supported() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join("token"), "secret").unwrap();
        let unsupported = |path: PathBuf| by_attribute(Err(Errno::OPNOTSUPP), || Some(path));
        assert!(!unsupported(data.join("token")));
        fs::write(data.join(MARKER), EXPLANATION).unwrap();
        assert!(unsupported(data.join("token")) && unsupported(data.clone()));
        assert!(!unsupported(dir.path().join("plain")));
    }
}
