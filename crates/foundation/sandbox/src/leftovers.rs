//! Removes the directory of a command that has ended.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, chmodat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

/// The maximum depth to which directories are opened at a time. Deeper ones are moved to the top
/// first: a command can nest them as deeply as it likes.
const MAX_DEPTH: usize = 32;

/// Removes a directory and everything in it, even if the command removed the permissions of its own
/// directories. A missing directory is not an error.
pub fn remove(directory: &Path) -> io::Result<()> {
    let top = match open(CWD, directory) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let mut moved = 0_u64;
    loop {
        let before = moved;
        empty(top.as_fd(), top.as_fd(), &mut moved, 0)?;
        if moved == before {
            break;
        }
    }
    Ok(unlinkat(CWD, directory, AtFlags::REMOVEDIR)?)
}

/// Empties a directory. Directories at the maximum depth are moved to the top.
fn empty(
    top: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    moved: &mut u64,
    depth: usize,
) -> Result<(), Errno> {
    for name in names(directory)? {
        let kind = match statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            found => FileType::from_raw_mode(found?.st_mode),
        };
        if !kind.is_dir() {
            unlinkat(directory, &name, AtFlags::empty())?;
        } else if depth == MAX_DEPTH {
            // A directory can only be moved by a user that can write to it.
            drop(open(directory, OsStr::from_bytes(name.to_bytes()))?);
            while renameat(directory, &name, top, format!("moved-{moved}")).is_err_and(is_taken) {
                *moved += 1;
            }
            *moved += 1;
        } else {
            let inner = open(directory, OsStr::from_bytes(name.to_bytes()))?;
            empty(top, inner.as_fd(), moved, depth + 1)?;
            unlinkat(directory, &name, AtFlags::REMOVEDIR)?;
        }
    }
    Ok(())
}

fn is_taken(error: Errno) -> bool {
    matches!(error, Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR | Errno::ISDIR)
}

/// Opens a directory for its owner, whatever its permissions are. Links are not followed.
fn open(at: impl AsFd, name: impl AsRef<Path>) -> Result<OwnedFd, Errno> {
    let (at, name) = (at.as_fd(), name.as_ref());
    let found = statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_locked = found.st_mode & 0o700 != 0o700;
    if is_locked && FileType::from_raw_mode(found.st_mode).is_dir() {
        chmodat(at, name, Mode::RWXU, AtFlags::empty())?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

fn names(directory: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let entries = Dir::read_from(directory)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_owned()));
    let is_own = |name: &CString| !matches!(name.to_bytes(), b"." | b"..");
    names.filter(|name: &Result<CString, Errno>| name.as_ref().is_ok_and(is_own)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_directory_without_permissions_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let (work, deep) = (root.path().join("work"), root.path().join("work/d/e"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "").unwrap();
        fs::write(root.path().join("outside"), "").unwrap();
        std::os::unix::fs::symlink(root.path(), work.join("link")).unwrap();
        for path in [&deep, deep.parent().unwrap()] {
            fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
        }
        remove(&work).unwrap();
        assert!(!work.exists() && root.path().join("outside").exists());
        remove(&work).unwrap();
    }

    /// Removing them one inside the other would overflow the stack.
    #[test]
    fn deeply_nested_directories_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        fs::create_dir(&work).unwrap();
        // A name that the removal itself would use.
        fs::write(work.join("moved-0"), "").unwrap();
        let mut at = open(CWD, &work).unwrap();
        for _ in 0..3_000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = open(&at, "d").unwrap();
        }
        let small_stack = std::thread::Builder::new().stack_size(256 << 10);
        let path = work.clone();
        small_stack.spawn(move || remove(&path)).unwrap().join().unwrap().unwrap();
        assert!(!work.exists());
    }
}
