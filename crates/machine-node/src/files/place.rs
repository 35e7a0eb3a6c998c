//! The directories that the file tools may use, and the way in which they open paths.
//!
//! Checking a path and then opening it leaves a moment in which a link can be swapped. So with
//! allowed roots, paths are not checked. Instead the kernel restricts each open to a directory that
//! was opened at the start (`openat2` with `RESOLVE_BENEATH`), and all further operations use the
//! resulting handles. Links work if their target is below a root. An absolute link is first
//! resolved by name, and the result is then opened from the handle like any other path: the lookup
//! by name decides nothing.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, openat, openat2, readlinkat,
};
use rustix::io::Errno;
use sa_node_sdk::ToolError;

use super::args::absolute;
use super::errors;
use super::hidden::{Hidden, HiddenNow, real_path};

pub(crate) struct Place {
    workspace: PathBuf,
    /// The allowed roots. If empty, every path that the user may access is allowed.
    roots: Vec<Root>,
    hidden: Hidden,
}

struct Root {
    path: PathBuf,
    handle: OwnedFd,
}

/// A file to write: its directory as an open handle, and its name there. The name is not a link.
pub(super) struct Target {
    pub(super) directory: OwnedFd,
    pub(super) name: OsString,
}

/// The flags prevent a read from waiting on a pipe without a writer, and a terminal from becoming
/// the node's own.
pub(super) const READ: OFlags =
    OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
pub(super) const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const LOOK_DIRECTORY: OFlags = LOOK.union(OFlags::DIRECTORY);

/// The maximum number of links, as in the kernel.
const MAX_LINKS: usize = 40;

impl Place {
    /// Opens the roots, and checks that the kernel supports confinement to them.
    pub(super) fn open(
        workspace: &Path,
        roots: &[PathBuf],
        hidden: &[PathBuf],
    ) -> Result<Self, (PathBuf, io::Error)> {
        let open = |path: &PathBuf| {
            let handle = rustix::fs::open(path, LOOK_DIRECTORY, Mode::empty())?;
            openat2(&handle, ".", LOOK_DIRECTORY, Mode::empty(), ResolveFlags::BENEATH)?;
            Ok(Root { path: path.clone(), handle })
        };
        let roots: Result<Vec<_>, _> = roots
            .iter()
            .map(|path| open(path).map_err(|errno: Errno| (path.clone(), errno.into())))
            .collect();
        let mut roots = roots?;
        // Sorts the roots so that the innermost root of a path is found first.
        roots.sort_by_key(|root| std::cmp::Reverse(root.path.as_os_str().len()));
        Ok(Self { workspace: workspace.to_owned(), roots, hidden: Hidden::new(workspace, hidden) })
    }

    /// Returns the path that an argument refers to.
    pub(super) fn resolve(&self, path: Option<&str>) -> PathBuf {
        path.map_or_else(
            || self.workspace.clone(),
            |path| absolute(&self.workspace, Path::new(path)),
        )
    }

    pub(super) fn hidden(&self) -> HiddenNow {
        self.hidden.now()
    }

    pub(super) fn is_confined(&self) -> bool {
        !self.roots.is_empty()
    }

    /// Returns the list of roots, for error messages.
    pub(super) fn roots(&self) -> String {
        let mut paths: Vec<_> =
            self.roots.iter().map(|root| root.path.display().to_string()).collect();
        paths.sort();
        paths.join(", ")
    }

    /// Opens a regular file for reading. Other files are not even opened, because opening a device
    /// can have effects.
    pub(super) fn open_file(&self, path: &Path) -> Result<(File, Stat), ToolError> {
        let hidden = self.hidden();
        let explain = |errno| errors::explain(self, path, errno);
        let look = self.open_at(path, LOOK).map_err(explain)?;
        allow(path, &look, &hidden)?;
        let file = self.open_at(path, READ).map_err(explain)?;
        // The file may have been replaced meanwhile.
        let stat = allow(path, &file, &hidden)?;
        Ok((File::from(file), stat))
    }

    /// Opens a file that a walk found, if it is a regular file that may be read.
    pub(super) fn open_candidate(&self, path: &Path, hidden: &HiddenNow) -> Result<File, Errno> {
        regular(self.open_at(path, READ)?, hidden)
    }

    /// Returns the metadata of a file that a walk found, within the roots.
    pub(super) fn look_at(&self, path: &Path) -> Result<Stat, Errno> {
        if self.is_confined() { fstat(self.open_at(path, LOOK)?) } else { rustix::fs::stat(path) }
    }

    pub(super) fn open_directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        self.open_at(path, LOOK_DIRECTORY)
    }

    /// Returns the target of a write, after following all links. With `create`, missing directories
    /// are created.
    pub(super) fn target(&self, named: &Path, create: bool) -> Result<Target, ToolError> {
        let explain = |errno| errors::explain(self, named, errno);
        let mut path = named.to_owned();
        for _ in 0..MAX_LINKS {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(explain(Errno::ISDIR));
            };
            let directory = match self.open_directory(parent) {
                Err(Errno::NOENT) if create => {
                    let (last, missing) = self.last_directory(parent).map_err(explain)?;
                    if self.is_secret(&last, &missing.join(name)) {
                        return Err(errors::secret(named));
                    }
                    make_directories(last, &missing).map_err(explain)?
                }
                opened => opened.map_err(explain)?,
            };
            match readlinkat(&directory, name, Vec::new()) {
                Ok(link) => {
                    // The link is relative to its real directory. The kernel resolves `..` there.
                    let real = real_path(&directory).unwrap_or_else(|| parent.to_owned());
                    path = real.join(OsStr::from_bytes(link.to_bytes()));
                }
                Err(Errno::INVAL | Errno::NOENT) => {
                    return Ok(Target { name: name.to_owned(), directory });
                }
                Err(errno) => return Err(explain(errno)),
            }
        }
        Err(explain(Errno::LOOP))
    }

    /// Returns the last existing directory of a path, and the missing rest of the path.
    fn last_directory(&self, path: &Path) -> Result<(OwnedFd, PathBuf), Errno> {
        for existing in path.ancestors() {
            match self.open_directory(existing) {
                Err(Errno::NOENT) => {}
                opened => {
                    return Ok((opened?, path.strip_prefix(existing).unwrap_or(path).to_owned()));
                }
            }
        }
        Err(Errno::NOENT)
    }

    /// Returns whether a directory, or a path to create in it, contains secrets.
    fn is_secret(&self, directory: &OwnedFd, below: &Path) -> bool {
        let hidden = self.hidden();
        real_path(directory)
            .is_none_or(|real| hidden.covers_directory(&real) || hidden.covers(&real.join(below)))
    }

    fn open_at(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        if self.roots.is_empty() {
            return openat(CWD, path, flags, Mode::empty());
        }
        match self.open_beneath(path, flags) {
            Err(Errno::XDEV) => {
                // This may be another spelling of an allowed path: through an absolute link, or a
                // link to the root.
                let last = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
                let real = path.canonicalize().ok().or_else(last).ok_or(Errno::XDEV)?;
                self.open_beneath(&real, flags)
            }
            opened => opened,
        }
    }

    fn open_beneath(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let inside =
            self.roots.iter().find_map(|root| Some((root, path.strip_prefix(&root.path).ok()?)));
        let (root, below) = inside.ok_or(Errno::XDEV)?;
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        loop {
            match openat2(&root.handle, below, flags, Mode::empty(), resolve) {
                // A rename happened during the lookup, so the kernel could not be sure. It asks the
                // caller to try again.
                Err(Errno::AGAIN | Errno::INTR) => {}
                opened => return opened,
            }
        }
    }
}

/// Creates nested directories below an open directory.
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

/// Returns an open file if it is a regular file that is not hidden.
pub(super) fn regular(file: OwnedFd, hidden: &HiddenNow) -> Result<File, Errno> {
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
        || hidden.forbids(&file, &stat)
    {
        return Err(Errno::PERM);
    }
    Ok(File::from(file))
}

/// Checks a file like [`regular`], with error messages for the caller.
fn allow(path: &Path, file: impl AsFd, hidden: &HiddenNow) -> Result<Stat, ToolError> {
    let stat = fstat(&file).map_err(|errno| {
        ToolError::Failed(format!("cannot get the status of {}: {errno}", path.display()))
    })?;
    errors::regular(path, &stat, errors::TO_READ)?;
    if hidden.forbids(file, &stat) {
        return Err(errors::secret(path));
    }
    Ok(stat)
}
