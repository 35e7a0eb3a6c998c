//! Opens the files of a walk one after the other.
//!
//! Most files follow another file of the same directory. The directory's handle is cached, so that
//! the kernel need not resolve the path, and confine it to a root, for each file again.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use super::Files;
use super::hidden::HiddenNow;
use super::place::{READ, regular};

#[derive(Default)]
pub(super) struct Near {
    parent: Vec<u8>,
    directory: Option<OwnedFd>,
}

impl Near {
    /// What is at the end of a path, links included, and whether the path is one.
    pub(super) fn look_at(&mut self, files: &Files, path: &Path) -> Result<(Stat, bool), Errno> {
        let (directory, name) = self.enter(files, path)?;
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            Ok((files.place.look_at(path)?, true))
        } else {
            Ok((stat, false))
        }
    }

    /// Opens a regular file that may be read.
    pub(super) fn open(
        &mut self,
        files: &Files,
        path: &Path,
        hidden: &HiddenNow,
    ) -> Result<File, Errno> {
        let (directory, name) = self.enter(files, path)?;
        match openat(directory, name, READ | OFlags::NOFOLLOW, rustix::fs::Mode::empty()) {
            Ok(file) => regular(file, hidden),
            Err(Errno::LOOP) => files.place.open_candidate(path, hidden),
            Err(errno) => Err(errno),
        }
    }

    fn enter<'a>(
        &'a mut self,
        files: &Files,
        path: &'a Path,
    ) -> Result<(&'a OwnedFd, &'a OsStr), Errno> {
        let bytes = path.as_os_str().as_bytes();
        let slash = bytes.iter().rposition(|byte| *byte == b'/').ok_or(Errno::INVAL)?;
        // The slash is kept, for files of the root.
        let (parent, name) = bytes.split_at(slash + 1);
        if self.directory.is_none() || self.parent != parent {
            self.directory = None;
            self.directory =
                Some(files.place.open_directory(Path::new(OsStr::from_bytes(parent)))?);
            parent.clone_into(&mut self.parent);
        }
        Ok((self.directory.as_ref().ok_or(Errno::BADF)?, OsStr::from_bytes(name)))
    }
}
