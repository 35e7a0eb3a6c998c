//! Replaces a file atomically: a reader sees either the old file or the new one.
//!
//! The new content is written to an unnamed file in the same directory and synced to disk. Only
//! then does the file get its name, so a process that is killed before leaves nothing behind. On a
//! file system without unnamed files, a hidden name is used, and removed after an error.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, Gid, Mode, OFlags, Stat, Uid, accessat, fchmod, fchown, fgetxattr,
    flistxattr, fsetxattr, fstat, fsync, ftruncate, linkat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use sa_node_sdk::ToolError;
use sa_vault::secret_file;

use super::errors;
use super::hidden::real_path;
use super::place::{LOOK, Place, Target};

/// Returns the file to replace, if it exists: a regular file that is writable and not hidden.
pub(super) fn current(
    place: &Place,
    path: &Path,
    target: &Target,
) -> Result<Option<Stat>, ToolError> {
    let hidden = place.hidden();
    let covered = |directory: PathBuf| hidden.covers_file(&directory.join(&target.name));
    if real_path(&target.directory).is_none_or(covered) {
        return Err(errors::secret(path));
    }
    let explain = |errno| errors::explain(place, path, errno);
    let stat = match statat(&target.directory, &target.name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        stat => stat.map_err(explain)?,
    };
    errors::regular(path, &stat, errors::TO_WRITE)?;
    let old = openat(&target.directory, &target.name, LOOK | OFlags::NOFOLLOW, Mode::empty())
        .map_err(explain)?;
    if hidden.is(&stat) || secret_file::is_marked(old) {
        return Err(errors::secret(path));
    }
    // A new file could replace a write-protected one, but that would defeat the purpose of the
    // protection.
    accessat(&target.directory, &target.name, Access::WRITE_OK, AtFlags::EACCESS)
        .map_err(explain)?;
    Ok(Some(stat))
}

/// Replaces the target with a file that has this content and the mode, owner and attributes of the
/// old file. `unchanged` is called last, and can stop the replacement.
pub(super) fn replace(
    target: &Target,
    old: Option<&Stat>,
    content: &[u8],
    unchanged: impl FnOnce() -> bool,
) -> Result<Replaced, Errno> {
    let mut new = match New::create(target, old.is_some()) {
        // The file may be writable although its directory is not.
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) if old.is_some() => {
            return overwrite(target, content, unchanged);
        }
        new => new?,
    };
    new.file.write_all(content).map_err(|error| errno(&error))?;
    if let Some(old) = old
        && !keep(target, old, &new.file)
    {
        // A new file would belong to another user than the old one.
        return overwrite(target, content, unchanged);
    }
    fsync(&new.file)?;
    if !unchanged() {
        return Ok(Replaced::NotAnyMore);
    }
    match new.take_place(old.is_some()) {
        // A file that is a mount point cannot be replaced.
        Err(Errno::BUSY) if old.is_some() => return overwrite(target, content, || true),
        result => result?,
    }
    // A directory that is writable but not readable cannot be synced; the file is in it
    // nevertheless.
    if let Ok(directory) =
        openat(&target.directory, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    {
        fsync(directory)?;
    }
    Ok(Replaced::Yes)
}

/// Overwrites the old file, for cases in which it cannot be replaced. A process that is killed
/// meanwhile leaves a partial file.
fn overwrite(
    target: &Target,
    content: &[u8],
    unchanged: impl FnOnce() -> bool,
) -> Result<Replaced, Errno> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file: File = openat(&target.directory, &target.name, flags, Mode::empty())?.into();
    if !unchanged() {
        return Ok(Replaced::NotAnyMore);
    }
    file.write_all(content).map_err(|error| errno(&error))?;
    ftruncate(&file, content.len() as u64)?;
    fsync(&file)?;
    Ok(Replaced::Yes)
}

#[derive(Debug, PartialEq)]
pub(super) enum Replaced {
    Yes,
    /// Another process has changed the file meanwhile.
    NotAnyMore,
}

/// A new file that is not in its final place yet. Dropping it before removes it.
struct New<'a> {
    target: &'a Target,
    file: File,
    /// Its temporary name.
    name: Option<OsString>,
}

impl<'a> New<'a> {
    fn create(target: &'a Target, private: bool) -> Result<Self, Errno> {
        // A copy of an old file must not be open to other users before it gets the old mode.
        let mode = Mode::from_raw_mode(if private { 0o600 } else { 0o666 });
        let nameless = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match openat(&target.directory, ".", nameless, mode) {
            Ok(file) => return Ok(Self { target, file: file.into(), name: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {}
            Err(errno) => return Err(errno),
        }
        let name = passing_name();
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&target.directory, &name, flags, mode)?;
        Ok(Self { target, file: file.into(), name: Some(name) })
    }

    fn take_place(&mut self, replaces: bool) -> Result<(), Errno> {
        let directory = &self.target.directory;
        if self.name.is_none() && !replaces {
            match self.link(&self.target.name) {
                // Another process has just created the file.
                Err(Errno::EXIST) => {}
                linked => return linked,
            }
        }
        if self.name.is_none() {
            let name = passing_name();
            self.link(&name)?;
            self.name = Some(name);
        }
        if let Some(name) = &self.name {
            renameat(directory, name, directory, &self.target.name)?;
        }
        self.name = None;
        Ok(())
    }

    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        let file = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        linkat(CWD, file, &self.target.directory, name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for New<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = unlinkat(&self.target.directory, name, AtFlags::empty());
        }
    }
}

fn passing_name() -> OsString {
    format!(".switchboard-{}.tmp", uuid::Uuid::new_v4().simple()).into()
}

/// Copies the owner, mode and attributes of the old file. Returns `false` if this user may not set
/// the owner.
fn keep(target: &Target, old: &Stat, new: &File) -> bool {
    let stat = fstat(new);
    if stat.is_ok_and(|stat| (stat.st_uid, stat.st_gid) != (old.st_uid, old.st_gid)) {
        let (owner, group) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
        if fchown(new, Some(owner), Some(group)).is_err() {
            return false;
        }
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if let Ok(old) = openat(&target.directory, &target.name, flags, Mode::empty()) {
        copy_attributes(&old.into(), new);
    }
    // The set-user-ID and set-group-ID bits were granted to the old content, not to the new one. A
    // file system without modes has nothing to copy.
    let _ = fchmod(new, Mode::from_raw_mode(old.st_mode & 0o1777));
    true
}

fn copy_attributes(old: &File, new: &File) {
    let mut names = [0; 4096];
    let Ok(length) = flistxattr(old, &mut names[..]) else { return };
    let mut value = vec![0; 64 * 1024];
    for name in names[..length].split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        // Capabilities were granted to the old content, not to the new one.
        if name == c"security.capability" {
            continue;
        }
        if let Ok(length) = fgetxattr(old, name, &mut value[..]) {
            let _ = fsetxattr(new, name, &value[..length], rustix::fs::XattrFlags::empty());
        }
    }
}

pub(super) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(directory: &Path) -> Target {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Target {
            directory: openat(CWD, directory, flags, Mode::empty()).unwrap(),
            name: "a".into(),
        }
    }

    #[test]
    fn a_file_that_was_changed_meanwhile_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "old").unwrap();
        let target = target(dir.path());
        let stat = statat(&target.directory, "a", AtFlags::empty()).unwrap();
        let changed_by_others = || {
            std::fs::write(&path, "theirs").unwrap();
            false
        };
        assert_eq!(
            replace(&target, Some(&stat), b"ours", changed_by_others),
            Ok(Replaced::NotAnyMore)
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_somebody_made_meanwhile_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let made_by_others = || std::fs::write(&path, "theirs").is_ok();
        assert_eq!(replace(&target(dir.path()), None, b"ours", made_by_others), Ok(Replaced::Yes));
        assert_eq!(std::fs::read(&path).unwrap(), b"ours");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_name_for_the_meantime_goes_again() {
        let dir = tempfile::tempdir().unwrap();
        let target = target(dir.path());
        let file = File::create(dir.path().join("passing")).unwrap();
        drop(New { target: &target, file, name: Some("passing".into()) });
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
