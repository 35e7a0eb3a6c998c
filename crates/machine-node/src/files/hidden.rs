//! What no tool may show: the node's own token and configuration, the secrets of any gateway on the same machine, and the
//! ways to the node's memory.

use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Stat, fstatfs};
use sa_vault::secret_file;

use super::args::absolute;

/// The kernel's mark of a process file system.
const PROC_SUPER_MAGIC: i64 = 0x9fa0;

/// Files of any process from which its secrets can be read, the token in the environment of the node's parent included.
const TELLING: [&str; 4] = ["environ", "mem", "map_files", "auxv"];

pub(crate) struct Hidden {
    paths: Arc<[PathBuf]>,
}

/// The hidden files as they are at one moment. Their inodes are looked up anew for each call, because a file that is
/// written atomically is a new one afterwards.
pub(crate) struct HiddenNow {
    paths: Arc<[PathBuf]>,
    files: Vec<Identity>,
    directories: bool,
}

/// Which file it is, whatever it is called.
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
        let mut now = HiddenNow { paths: Arc::clone(&self.paths), files: Vec::new(), directories: false };
        for path in self.paths.iter() {
            let Ok(stat) = rustix::fs::stat(path) else { continue };
            now.directories |= FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            now.files.push(identity(&stat));
        }
        now
    }
}

impl HiddenNow {
    /// Whether this name is hidden, or below one that is. A file that is not there yet has no other mark.
    pub(crate) fn covers(&self, real: &Path) -> bool {
        self.paths.iter().any(|hidden| real.starts_with(hidden))
    }

    pub(crate) fn is(&self, stat: &Stat) -> bool {
        self.files.contains(&identity(stat))
    }

    /// Whether an open file may not be looked at.
    pub(crate) fn forbids(&self, file: impl AsFd, stat: &Stat) -> bool {
        if self.is(stat) || secret_file::is_marked(&file) {
            return true;
        }
        // Nearly all files of processes say that they are empty, or larger than any disk; no other file need be asked.
        let may_be_of_a_process = stat.st_size == 0 || stat.st_size > 1 << 40;
        let of_a_process = may_be_of_a_process && fstatfs(&file).is_ok_and(|system| system.f_type == PROC_SUPER_MAGIC);
        if !of_a_process && !self.directories {
            return false;
        }
        let Some(real) = real_path(&file) else { return true };
        self.covers(&real) || of_a_process && tells(&real)
    }
}

/// Whether a file of a process tells its secrets, or is one of this process.
fn tells(path: &Path) -> bool {
    let names = || path.iter().filter_map(|name| name.to_str());
    names().any(|name| TELLING.contains(&name))
        || names().filter_map(|name| name.parse::<u32>().ok()).any(|number| {
            number == std::process::id() || Path::new("/proc/self/task").join(number.to_string()).exists()
        })
}

/// Where an open file is.
pub(super) fn real_path(file: impl AsFd) -> Option<PathBuf> {
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    std::fs::read_link(link).ok().filter(|path| path.is_absolute())
}
