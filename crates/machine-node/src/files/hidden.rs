//! Files that no tool may show: the node's own token and configuration, the secrets of any gateway
//! on the same machine, and files that expose the node's memory.

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Stat, fstatfs};
use sa_vault::secret_file;

use super::args::absolute;

/// The magic number of a process file system.
const PROC_SUPER_MAGIC: i64 = 0x9fa0;

/// Files of any process that expose its secrets, including the token in the environment of the
/// node's parent.
const TELLING: [&str; 4] = ["environ", "mem", "map_files", "auxv"];

/// The most directories that are remembered as being without secrets.
const MAX_OPEN: usize = 4096;

pub(crate) struct Hidden {
    paths: Arc<[PathBuf]>,
}

/// The hidden files at one moment. Their inodes are looked up again for each call, because an
/// atomic write gives a file a new inode.
pub(crate) struct HiddenNow {
    paths: Arc<[PathBuf]>,
    files: Vec<Identity>,
    /// Real directories that are not marked, and neither is one above them. A search looks at many
    /// files of the same directory.
    open: Mutex<HashSet<PathBuf>>,
}

/// The identity of a file, independent of its name.
pub(crate) type Identity = (u64, u64);

pub(crate) fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

impl Hidden {
    pub(super) fn new(workspace: &Path, paths: &[PathBuf]) -> Self {
        let real = |path: &PathBuf| {
            let path = absolute(workspace, path);
            let parent = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
            path.canonicalize().ok().or_else(parent).unwrap_or(path)
        };
        Self { paths: paths.iter().map(real).collect() }
    }

    pub(super) fn now(&self) -> HiddenNow {
        let found = self.paths.iter().filter_map(|path| rustix::fs::stat(path).ok());
        HiddenNow {
            paths: Arc::clone(&self.paths),
            files: found.map(|stat| identity(&stat)).collect(),
            open: Mutex::default(),
        }
    }
}

impl HiddenNow {
    /// Returns whether this path is hidden or below a hidden path. A file that does not exist yet
    /// has no other mark.
    pub(crate) fn covers(&self, real: &Path) -> bool {
        self.paths.iter().any(|hidden| real.starts_with(hidden))
    }

    /// Whether a directory is hidden, or below one that is hidden or marked. It may not exist yet.
    /// The path must have no symbolic links.
    pub(crate) fn covers_directory(&self, real: &Path) -> bool {
        if self.covers(real) {
            return true;
        }
        if self.open.lock().contains(real) {
            return false;
        }
        let is_marked = secret_file::is_below_marked(real);
        if !is_marked {
            let mut open = self.open.lock();
            if open.len() >= MAX_OPEN {
                open.clear();
            }
            open.insert(real.to_owned());
        }
        is_marked
    }

    /// Whether a file is hidden by the directory that it is in. The path must have no symbolic
    /// links.
    pub(crate) fn covers_file(&self, real: &Path) -> bool {
        self.covers(real) || real.parent().is_some_and(|parent| self.covers_directory(parent))
    }

    pub(crate) fn is(&self, stat: &Stat) -> bool {
        self.files.contains(&identity(stat))
    }

    /// Returns whether an open file must not be read.
    pub(crate) fn forbids(&self, file: impl AsFd, stat: &Stat) -> bool {
        if self.is(stat) || secret_file::is_marked(&file) {
            return true;
        }
        // Nearly all files of processes report a size of zero, or one larger than any disk; other
        // files need no check.
        let may_be_of_a_process = stat.st_size == 0 || stat.st_size > 1 << 40;
        let of_a_process = may_be_of_a_process
            && fstatfs(&file).is_ok_and(|system| system.f_type == PROC_SUPER_MAGIC);
        let Some(real) = real_path(&file) else { return true };
        self.covers_file(&real) || of_a_process && tells(&real)
    }
}

/// Returns whether a file of a process exposes secrets, or belongs to this process.
fn tells(path: &Path) -> bool {
    let names = || path.iter().filter_map(|name| name.to_str());
    names().any(|name| TELLING.contains(&name))
        || names().filter_map(|name| name.parse::<u32>().ok()).any(|number| {
            number == std::process::id()
                || Path::new("/proc/self/task").join(number.to_string()).exists()
        })
}

/// Returns the path of an open file.
pub(super) fn real_path(file: impl AsFd) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    std::fs::read_link(link).ok().filter(|path| path.is_absolute())
}
