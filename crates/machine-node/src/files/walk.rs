//! Walks a whole tree, including hidden and ignored files, and follows links, but visits nothing
//! twice because of a loop.
//!
//! The walk itself uses names, because ripgrep's walker does. So it only makes proposals: with
//! allowed roots, a file that is reported or read is opened again from the root's handle. A name
//! that meanwhile leads outside is rejected there.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ignore::{DirEntry, WalkBuilder, WalkState};
use parking_lot::RwLock;
use rustix::io::Errno;
use sa_node_sdk::ToolError;
use sa_sandbox::mounts;
use sa_vault::secret_file;

use super::hidden::{HiddenNow, real_path};
use super::watch::Watch;
use super::{Files, errors};

pub(super) struct Walk {
    pub(super) files: Arc<Files>,
    pub(super) hidden: HiddenNow,
    pub(super) watch: Arc<Watch>,
    /// The start of the walk, as it was named, and its real path.
    base: PathBuf,
    real_base: PathBuf,
    /// The mount points of file systems that are not storage, and their names on this walk.
    pseudo: Vec<PathBuf>,
    closed: RwLock<HashSet<PathBuf>>,
    unreadable: AtomicU64,
}

/// The selection of files for a walk.
pub(super) trait Search: Send + Sync + 'static {
    /// Returns whether this directory may contain relevant files.
    fn enters(&self, directory: &DirEntry) -> bool;

    /// Returns whether this file is relevant, by its name.
    fn wants(&self, file: &DirEntry) -> bool;
}

impl Walk {
    /// Creates a walk. `base` must be a directory.
    pub(super) fn new(files: &Arc<Files>, base: &Path, watch: Arc<Watch>) -> Arc<Self> {
        let real_base = base.canonicalize().unwrap_or_else(|_| base.to_owned());
        let walk = Self {
            files: Arc::clone(files),
            hidden: files.place.hidden(),
            watch,
            base: base.to_owned(),
            pseudo: mounts::pseudo(),
            closed: RwLock::default(),
            unreadable: AtomicU64::new(0),
            real_base,
        };
        walk.close_pseudo(&walk.base, &walk.real_base);
        Arc::new(walk)
    }

    /// Calls each thread's visitor with the files that the search selects.
    pub(super) fn run<V: FnMut(&Path) + Send>(
        self: &Arc<Self>,
        search: &Arc<impl Search>,
        max_depth: Option<usize>,
        visitor: impl Fn() -> V,
    ) {
        // Links among the files of processes lead everywhere, and change each time.
        let follow = !self.pseudo.iter().any(|mount| self.real_base.starts_with(mount));
        let mut builder = WalkBuilder::new(&self.base);
        builder.standard_filters(false).follow_links(follow).max_depth(max_depth);
        let (walk, searching) = (Arc::clone(self), Arc::clone(search));
        builder.filter_entry(move |entry| match entry.file_type() {
            Some(kind) if kind.is_dir() => searching.enters(entry) && walk.may_enter(entry),
            Some(kind) if kind.is_file() => {
                walk.watch.count_file();
                searching.wants(entry)
            }
            _ => false,
        });
        builder.build_parallel().run(|| {
            let mut visit = visitor();
            Box::new(move |entry| {
                if self.watch.is_stopped() {
                    return WalkState::Quit;
                }
                match entry {
                    Ok(entry) if entry.file_type().is_some_and(|kind| kind.is_file()) => {
                        visit(entry.path());
                    }
                    Ok(_) => {}
                    Err(error) => self.count_error(&error),
                }
                WalkState::Continue
            })
        });
    }

    /// Counts a file or directory that could not be read.
    pub(super) fn count_unreadable(&self) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn unreadable(&self) -> u64 {
        self.unreadable.load(Ordering::Relaxed)
    }

    /// Counts an error. Broken and circular links are not errors; a lack of permission is.
    fn count_error(&self, error: &ignore::Error) {
        if error.io_error().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            self.count_unreadable();
        }
    }

    fn may_enter(&self, directory: &DirEntry) -> bool {
        let path = directory.path();
        if self.watch.is_stopped() || self.hidden.covers(path) {
            return false;
        }
        if directory.path_is_symlink() && !self.may_follow(path) {
            return false;
        }
        if secret_file::is_marked_path(path) {
            return false;
        }
        !self.closed.read().contains(path)
    }

    /// Returns whether to follow a link to a directory. It is not followed outside the roots, into
    /// a file system that is not storage, or to an ancestor of the start: there all files would be
    /// found again.
    fn may_follow(&self, link: &Path) -> bool {
        let Ok(real) = link.canonicalize() else { return false };
        if self.real_base.starts_with(&real)
            || self.pseudo.iter().any(|mount| real.starts_with(mount))
        {
            return false;
        }
        if self.hidden.covers_directory(&real) || self.files.place.open_directory(link).is_err() {
            return false;
        }
        self.close_pseudo(link, &real);
        true
    }

    /// Excludes mount points below a directory that are not storage.
    fn close_pseudo(&self, name: &Path, real: &Path) {
        let below: Vec<_> =
            self.pseudo.iter().filter_map(|mount| mount.strip_prefix(real).ok()).collect();
        if !below.is_empty() {
            let mut closed = self.closed.write();
            closed.extend(below.into_iter().map(|below| name.join(below)));
        }
    }
}

/// Checks that a directory can be searched.
pub(super) fn check_base(files: &Files, base: &Path) -> Result<(), ToolError> {
    let directory = files.place.open_directory(base).map_err(|errno| match errno {
        Errno::NOTDIR if base.is_file() => {
            ToolError::Failed(format!("{} is a file, not a directory", base.display()))
        }
        errno => errors::explain(&files.place, base, errno),
    })?;
    let covered = |real: PathBuf| files.place.hidden().covers_directory(&real);
    if real_path(&directory).is_none_or(covered) {
        return Err(errors::secret(base));
    }
    Ok(())
}
