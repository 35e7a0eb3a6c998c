//! The removal of a program's directory at its end.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, unlinkat};
use sa_sandbox::leftovers;

/// The removal of a directory by a process that joins the mount namespace of the program's sandbox.
/// There the directory is a mount point, which the kernel does not remove. Its parent, opened
/// before, leads to the directory itself.
#[derive(Debug)]
pub(crate) struct Removal {
    path: PathBuf,
    parent: io::Result<OwnedFd>,
}

impl Removal {
    /// Creates the removal. Call it before the process joins the namespace.
    pub(crate) fn new(path: PathBuf) -> Self {
        // The descriptor is closed when the sandbox's first process is started.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent =
            rustix::fs::open(path.parent().unwrap_or(Path::new("/")), flags, Mode::empty());
        Self { path, parent: parent.map_err(io::Error::from) }
    }

    /// A directory that cannot be removed is left.
    pub(crate) fn run(self) {
        let _ = leftovers::remove(&self.path);
        if let (Ok(parent), Some(name)) = (&self.parent, self.path.file_name()) {
            let _ = unlinkat(parent, name, AtFlags::REMOVEDIR);
        }
    }
}
