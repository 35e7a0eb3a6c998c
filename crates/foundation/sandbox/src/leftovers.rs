//! Removes the directory of a command that has ended.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Removes a directory and everything in it, even if the command removed the permissions of its own
/// directories. A missing directory is not an error.
pub fn remove(directory: &Path) -> io::Result<()> {
    let removed = fs::remove_dir_all(directory).or_else(|_| {
        unlock(directory);
        fs::remove_dir_all(directory)
    });
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn unlock(directory: &Path) {
    let _ = fs::set_permissions(directory, Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            unlock(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_permissions_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let (work, deep) = (root.path().join("work"), root.path().join("work/d/e"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "").unwrap();
        for path in [&deep, deep.parent().unwrap()] {
            fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
        }
        remove(&work).unwrap();
        assert!(!work.exists());
        remove(&work).unwrap();
    }
}
