//! Where the file tools may go, and how they get there.
//!
//! Checking a path and then opening it leaves a moment in which a link can be swapped. So with allowed roots nothing is
//! checked: the kernel itself is told to stay below a directory that was opened at the start (`openat2` with
//! `RESOLVE_BENEATH`), and everything else happens with the handles that come of it. Links that lead to a place below
//! work. One that is absolute is looked up by name first, and what it names is then opened from the handle like any
//! other path: the look by name decides nothing.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, openat, openat2, readlinkat};
use rustix::io::Errno;
use sa_node_sdk::ToolError;
use sa_vault::secret_file;

use super::args::absolute;
use super::hidden::{Hidden, HiddenNow, real_path};
use super::trouble;

pub(crate) struct Place {
    workspace: PathBuf,
    /// None: wherever the user may.
    roots: Vec<Root>,
    hidden: Hidden,
}

struct Root {
    path: PathBuf,
    handle: OwnedFd,
}

/// A file that is to be written: the directory it is in, held open, and its name there. It is no link.
pub(super) struct Target {
    pub(super) directory: OwnedFd,
    pub(super) name: OsString,
}

/// A pipe that nobody writes to must not keep the reader waiting, and a terminal must not become ours.
pub(super) const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
pub(super) const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const LOOK_DIRECTORY: OFlags = LOOK.union(OFlags::DIRECTORY);

/// As many as the kernel follows.
const MAX_LINKS: usize = 40;

impl Place {
    /// Opens the roots, and asks the kernel whether it can hold to them.
    pub(super) fn open(workspace: &Path, roots: &[PathBuf], hidden: &[PathBuf]) -> Result<Self, (PathBuf, io::Error)> {
        let open = |path: &PathBuf| {
            let handle = rustix::fs::open(path, LOOK_DIRECTORY, Mode::empty())?;
            openat2(&handle, ".", LOOK_DIRECTORY, Mode::empty(), ResolveFlags::BENEATH)?;
            Ok(Root { path: path.clone(), handle })
        };
        let roots: Result<Vec<_>, _> =
            roots.iter().map(|path| open(path).map_err(|errno: Errno| (path.clone(), errno.into()))).collect();
        let mut roots = roots?;
        // The innermost root of a path is found first.
        roots.sort_by_key(|root| std::cmp::Reverse(root.path.as_os_str().len()));
        Ok(Self { workspace: workspace.to_owned(), roots, hidden: Hidden::new(workspace, hidden) })
    }

    /// The path that an argument means.
    pub(super) fn resolve(&self, path: Option<&str>) -> PathBuf {
        path.map_or_else(|| self.workspace.clone(), |path| absolute(&self.workspace, Path::new(path)))
    }

    pub(super) fn hidden(&self) -> HiddenNow {
        self.hidden.now()
    }

    pub(super) fn is_confined(&self) -> bool {
        !self.roots.is_empty()
    }

    /// The roots, for those who went astray.
    pub(super) fn roots(&self) -> String {
        let mut paths: Vec<_> = self.roots.iter().map(|root| root.path.display().to_string()).collect();
        paths.sort();
        paths.join(", ")
    }

    /// A regular file to read from. Nothing else is even opened: opening a device can do something.
    pub(super) fn open_file(&self, path: &Path) -> Result<(File, Stat), ToolError> {
        let hidden = self.hidden();
        let explain = |errno| trouble::explain(self, path, errno);
        let look = self.open_at(path, LOOK).map_err(explain)?;
        allow(path, &look, &hidden)?;
        let file = self.open_at(path, READ).map_err(explain)?;
        // It may be another one by now.
        let stat = allow(path, &file, &hidden)?;
        Ok((File::from(file), stat))
    }

    /// A regular file that a walk came by, if it is one and may be read.
    pub(super) fn open_candidate(&self, path: &Path, hidden: &HiddenNow) -> Result<File, Errno> {
        regular(self.open_at(path, READ)?, hidden)
    }

    /// What a walk came by, seen from inside.
    pub(super) fn look_at(&self, path: &Path) -> Result<Stat, Errno> {
        if self.is_confined() { fstat(self.open_at(path, LOOK)?) } else { rustix::fs::stat(path) }
    }

    pub(super) fn open_directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        self.open_at(path, LOOK_DIRECTORY)
    }

    /// The place of a file that is to be written, at the end of all links. With `create`, missing directories on the way
    /// are made.
    pub(super) fn target(&self, named: &Path, create: bool) -> Result<Target, ToolError> {
        let explain = |errno| trouble::explain(self, named, errno);
        let mut path = named.to_owned();
        for _ in 0..MAX_LINKS {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(explain(Errno::ISDIR));
            };
            let directory = match self.open_directory(parent) {
                Err(Errno::NOENT) if create => {
                    let (last, missing) = self.last_directory(parent).map_err(explain)?;
                    if self.is_secret(&last, &missing.join(name)) {
                        return Err(trouble::secret(named));
                    }
                    make_directories(last, &missing).map_err(explain)?
                }
                opened => opened.map_err(explain)?,
            };
            match readlinkat(&directory, name, Vec::new()) {
                Ok(link) => {
                    // Relative to where the link really is. What `..` means there is for the kernel to say.
                    let real = real_path(&directory).unwrap_or_else(|| parent.to_owned());
                    path = real.join(OsStr::from_bytes(link.to_bytes()));
                }
                Err(Errno::INVAL | Errno::NOENT) => return Ok(Target { name: name.to_owned(), directory }),
                Err(errno) => return Err(explain(errno)),
            }
        }
        Err(explain(Errno::LOOP))
    }

    /// The last directory of a path that exists, and the missing rest of the path.
    fn last_directory(&self, path: &Path) -> Result<(OwnedFd, PathBuf), Errno> {
        for existing in path.ancestors() {
            match self.open_directory(existing) {
                Err(Errno::NOENT) => {}
                opened => return Ok((opened?, path.strip_prefix(existing).unwrap_or(path).to_owned())),
            }
        }
        Err(Errno::NOENT)
    }

    /// Whether a directory, or what is to be made in it, holds secrets.
    fn is_secret(&self, directory: &OwnedFd, below: &Path) -> bool {
        let hidden = self.hidden();
        real_path(directory).is_none_or(|real| hidden.covers(&real.join(below))) || secret_file::is_marked(directory)
    }

    fn open_at(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        if self.roots.is_empty() {
            return openat(CWD, path, flags, Mode::empty());
        }
        match self.open_beneath(path, flags) {
            Err(Errno::XDEV) => {
                // Another spelling of a place inside, perhaps: through an absolute link, or a link to the root.
                let last = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
                let real = path.canonicalize().ok().or_else(last).ok_or(Errno::XDEV)?;
                self.open_beneath(&real, flags)
            }
            opened => opened,
        }
    }

    fn open_beneath(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let inside = self.roots.iter().find_map(|root| Some((root, path.strip_prefix(&root.path).ok()?)));
        let (root, below) = inside.ok_or(Errno::XDEV)?;
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        loop {
            match openat2(&root.handle, below, flags, Mode::empty(), resolve) {
                // Something was renamed on the way, so that the kernel could not be sure. It asks to try again.
                Err(Errno::AGAIN | Errno::INTR) => {}
                opened => return opened,
            }
        }
    }
}

/// Makes directories, one in the other, below an open one.
fn make_directories(mut at: OwnedFd, below: &Path) -> Result<OwnedFd, Errno> {
    if below.components().any(|component| !matches!(component, Component::Normal(_))) {
        return Err(Errno::NOENT);
    }
    for name in below {
        match mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        at = openat(&at, name, LOOK_DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(at)
}

/// An open file, if it is a regular one that is not hidden.
pub(super) fn regular(file: OwnedFd, hidden: &HiddenNow) -> Result<File, Errno> {
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || hidden.forbids(&file, &stat) {
        return Err(Errno::PERM);
    }
    Ok(File::from(file))
}

/// As [`regular`], with words for the caller.
fn allow(path: &Path, file: impl AsFd, hidden: &HiddenNow) -> Result<Stat, ToolError> {
    let stat =
        fstat(&file).map_err(|errno| ToolError::Failed(format!("cannot look at {}: {errno}", path.display())))?;
    trouble::regular(path, &stat, trouble::TO_READ)?;
    if hidden.forbids(file, &stat) {
        return Err(trouble::secret(path));
    }
    Ok(stat)
}
