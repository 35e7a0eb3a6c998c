//! The file system that a command sees: a new root that contains only the parts of the host that
//! the policy names.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_bind, mount_change, move_mount, open_tree, unmount,
};
use rustix::process::pivot_root;

use crate::mounted::{self, Access};
use crate::policy::{Policy, depth};

/// The directory in which the new root is built. Nothing below it is a part of the new root, so no
/// required path is covered.
const BASE: &str = "/proc";

/// The path of the terminal that the command was given. It is not one of the sandbox's own
/// terminals.
pub(crate) const TERMINAL: &str = "/dev/console";
pub(crate) const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
pub(crate) const TERMINALS: &str = "/dev/pts";
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";

/// Entries of `/proc` about the whole machine that every user can read and that a command does not
/// need.
const MACHINE: [&str; 8] =
    ["acpi", "bus", "driver", "kallsyms", "key-users", "keys", "sched_debug", "scsi"];

/// An empty file and an empty directory that no user can read. They are mounted over hidden paths.
const EMPTY_FILE: &str = "/.hidden-file";
const EMPTY_DIRECTORY: &str = "/.hidden-directory";

const FORBIDDEN: &str = "mounts are not available in a user namespace (see the setting \
kernel.apparmor_restrict_unprivileged_userns; a container's runtime may also forbid them)";
const NO_PROC: &str = "a private /proc is not available: the kernel refuses it where parts of the outer /proc are covered, \
as most container runtimes do (start the container with an uncovered /proc, such as --security-opt systempaths=unconfined)";

/// Moves this process to the new root and detaches the old one.
pub(crate) fn enter(policy: &Policy, terminal: Option<&Path>) -> io::Result<()> {
    let here = std::env::current_dir()?;
    let plan = plan(policy)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| io::Error::other(format!("{FORBIDDEN}: {error}")))?;
    new("tmpfs", Path::new("/"), MountFlags::NODEV, c"mode=0755,size=16m")
        .map_err(|error| io::Error::other(format!("{FORBIDDEN}: {error}")))?;
    File::create(inside(EMPTY_FILE))?.set_permissions(Permissions::from_mode(0o000))?;
    DirBuilder::new().mode(0o000).create(inside(EMPTY_DIRECTORY))?;
    mount_processes()?;
    mount_devices(terminal)?;
    for step in &plan {
        step.apply(&plan)?;
    }
    std::env::set_current_dir(BASE)?;
    pivot_root(".", ".").map_err(|error| failed("switch the root to", Path::new(BASE), error))?;
    // Both roots are now mounted at the same path, the old one on top.
    unmount(".", UnmountFlags::DETACH).map_err(|error| failed("leave", Path::new("/"), error))?;
    std::env::set_current_dir("/")?;
    fs::remove_file(EMPTY_FILE)?;
    fs::remove_dir(EMPTY_DIRECTORY)?;
    mounted::protect(|path| access(&plan, path))?;
    std::env::set_current_dir(&here).map_err(|error| {
        let why =
            format!("the directory {} is not visible in the sandbox: {error}", here.display());
        io::Error::new(error.kind(), why)
    })
}

/// One entry of the new root. Entries with the same path are applied in the order of these
/// variants.
#[derive(Debug)]
enum Kind {
    Hidden,
    Private,
    Link {
        to: PathBuf,
    },
    /// The source is open, so that nothing can replace it by a link.
    Bound {
        source: OwnedFd,
        writable: bool,
    },
}

#[derive(Debug)]
struct Step {
    target: PathBuf,
    kind: Kind,
}

/// Returns all entries of the new root, parents before their children.
fn plan(policy: &Policy) -> io::Result<Vec<Step>> {
    let mut steps = Vec::new();
    let given = policy
        .readable
        .iter()
        .map(|path| (path, false))
        .chain(policy.writable.iter().map(|path| (path, true)));
    for (path, writable) in given {
        let source = match policy.pinned.get(path) {
            Some(source) => source.clone(),
            None => path.canonicalize().map_err(|error| no_part(path, &error))?,
        };
        if source != *path {
            if policy.hidden.iter().any(|hidden| source.starts_with(hidden)) {
                let (path, source) = (path.display(), source.display());
                return Err(io::Error::other(format!("{path} leads to {source}, which is hidden")));
            }
            // Add a link with the given name, unless a system link already leads there. For
            // example, `/bin` is a link on most systems.
            let known = policy.readable.iter().any(|root| root != path && path.starts_with(root));
            if !known {
                steps.push(Step { target: path.clone(), kind: Kind::Link { to: source.clone() } });
            }
            if policy
                .readable
                .iter()
                .any(|root| root != path && !writable && source.starts_with(root))
            {
                continue;
            }
        }
        let opened = open(&source).map_err(|error| no_part(path, &error))?;
        steps.push(Step { target: source, kind: Kind::Bound { source: opened, writable } });
    }
    drop_redundant(&mut steps, policy);
    for bind in &policy.binds {
        let source = bind.source.canonicalize()?;
        let covers = |step: &&Step| bind.target.starts_with(&step.target);
        if let Some(step) = steps.iter().find(covers) {
            let (path, target) = (step.target.display(), bind.target.display());
            return Err(io::Error::other(format!(
                "{path} cannot be a part of the sandbox, because the sandbox itself uses {target}"
            )));
        }
        steps.push(Step {
            target: bind.target.clone(),
            kind: Kind::Bound { source: open(&source)?, writable: false },
        });
    }
    steps.extend(
        policy.private_directories().map(|path| Step { target: path.clone(), kind: Kind::Private }),
    );
    steps.extend(fixed(&steps, policy)?);
    steps
        .extend(policy.hidden.iter().map(|path| Step { target: path.clone(), kind: Kind::Hidden }));
    steps.sort_by_key(|step| (depth(&step.target), step.kind.order()));
    Ok(steps)
}

/// Removes paths inside of other paths that show the same. A mount inside of a directory that
/// another command can change would follow links that this command makes.
fn drop_redundant(steps: &mut Vec<Step>, policy: &Policy) {
    let bound: Vec<(PathBuf, bool)> = steps
        .iter()
        .filter_map(|step| match step.kind {
            Kind::Bound { writable, .. } => Some((step.target.clone(), writable)),
            _ => None,
        })
        .collect();
    let covers = || policy.hidden.iter().chain(&policy.private);
    steps.retain(|step| {
        let Kind::Bound { writable, .. } = step.kind else { return true };
        let shows_same = |(outer, outer_writable): &(PathBuf, bool)| {
            step.target != *outer
                && step.target.starts_with(outer)
                && (*outer_writable || !writable)
                && !covers().any(|path| path.starts_with(outer) && step.target.starts_with(path))
        };
        !bound.iter().any(shows_same)
    });
}

/// Returns the directories between a writable directory and a hidden path in it. The command could
/// rename them, and the hidden path would be visible to the next command. The kernel renames no
/// mount point.
fn fixed(steps: &[Step], policy: &Policy) -> io::Result<Vec<Step>> {
    let writable: Vec<&Path> = steps
        .iter()
        .filter(|step| matches!(step.kind, Kind::Bound { writable: true, .. }))
        .map(|step| step.target.as_path())
        .collect();
    let above = |hidden: &Path| -> Vec<PathBuf> {
        let root = writable.iter().filter(|root| hidden.starts_with(root)).max();
        let between = hidden.ancestors().skip(1).take_while(|path| Some(path) != root);
        root.map(|_| between.map(Path::to_path_buf).collect()).unwrap_or_default()
    };
    let existing = policy.hidden.iter().filter(|path| path.symlink_metadata().is_ok());
    let paths: BTreeSet<PathBuf> = existing.flat_map(|hidden| above(hidden)).collect();
    let is_hidden = |path: &PathBuf| policy.hidden.iter().any(|hidden| path.starts_with(hidden));
    let paths = paths.into_iter().filter(|path| !is_hidden(path));
    let step = |path: PathBuf| {
        let source = open(&path).map_err(|error| no_part(&path, &error))?;
        Ok(Step { target: path, kind: Kind::Bound { source, writable: true } })
    };
    paths.map(step).collect()
}

fn no_part(path: &Path, error: &io::Error) -> io::Error {
    let why = format!("{} cannot be a part of the sandbox: {error}", path.display());
    io::Error::new(error.kind(), why)
}

/// Opens a path that has no symbolic links.
fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).map_err(|error| match error
    {
        Errno::LOOP => {
            io::Error::other(format!("a symbolic link has replaced a part of {}", path.display()))
        }
        error => error.into(),
    })
}

impl Kind {
    fn order(&self) -> u8 {
        match self {
            Self::Hidden => 0,
            Self::Private => 1,
            Self::Link { .. } => 2,
            Self::Bound { .. } => 3,
        }
    }
}

impl Step {
    fn apply(&self, plan: &[Self]) -> io::Result<()> {
        let at = inside(&self.target);
        match &self.kind {
            Kind::Hidden => self.hide(&at, plan)?,
            Kind::Private => {
                directory(&at)?;
                // All of them together must leave memory for other programs.
                let is_temporary = self.target == Path::new("/tmp");
                let options =
                    if is_temporary { c"mode=1777,size=20%" } else { c"mode=0755,size=5%" };
                new("tmpfs", &self.target, MountFlags::NODEV, options)?;
            }
            Kind::Link { to } if at.symlink_metadata().is_err() => {
                directory(at.parent().unwrap_or(&at))?;
                symlink(to, &at)?;
            }
            Kind::Link { .. } => {}
            Kind::Bound { source, .. } => {
                if FileType::from_raw_mode(fstat(source)?.st_mode).is_dir() {
                    directory(&at)?;
                } else {
                    file(&at)?;
                }
                let flags = OpenTreeFlags::OPEN_TREE_CLONE
                    | OpenTreeFlags::OPEN_TREE_CLOEXEC
                    | OpenTreeFlags::AT_RECURSIVE
                    | OpenTreeFlags::AT_EMPTY_PATH;
                let tree = open_tree(source, "", flags)
                    .map_err(|error| failed("bind", &self.target, error))?;
                cover(&at, tree, &self.target)?;
            }
        }
        Ok(())
    }

    fn hide(&self, at: &Path, plan: &[Self]) -> io::Result<()> {
        let bind = |empty: &str| {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let tree = open_tree(CWD, inside(empty), flags)
                .map_err(|error| failed("hide", &self.target, error))?;
            cover(at, tree, &self.target)
        };
        match at.symlink_metadata() {
            Ok(found) if found.is_dir() => {
                let holds_more = plan.iter().any(|step| {
                    step.target != self.target
                        && step.target.starts_with(&self.target)
                        && !matches!(step.kind, Kind::Hidden)
                });
                if holds_more {
                    new("tmpfs", &self.target, MountFlags::NODEV, c"mode=0711,size=1m")
                } else {
                    bind(EMPTY_DIRECTORY)
                }
            }
            // The target is hidden itself if it is a secret.
            Ok(found) if found.is_symlink() => Ok(()),
            Ok(_) => bind(EMPTY_FILE),
            // The path does not exist, or cannot be reached by any user.
            Err(_) => Ok(()),
        }
    }
}

/// Mounts a tree over a path. The path may be in a directory that another command can change, so no
/// link is followed.
fn cover(at: &Path, tree: OwnedFd, target: &Path) -> io::Result<()> {
    let over = open(at).map_err(|error| no_part(target, &error))?;
    let by_handle =
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", over, "", by_handle).map_err(|error| failed("mount over", target, error))
}

/// Returns the access of a mount. The longest path of the plan that contains it decides.
fn access(plan: &[Step], path: &Path) -> Access {
    match plan.iter().rfind(|step| path.starts_with(&step.target)).map(|step| &step.kind) {
        Some(Kind::Private | Kind::Bound { writable: true, .. }) => Access::Writable,
        Some(_) => Access::ReadOnly,
        None if path == Path::new(SHARED_MEMORY) => Access::Writable,
        None if path.starts_with(TERMINALS) => Access::Device,
        None if path.starts_with("/dev") => Access::ReadOnlyDevice,
        None => Access::ReadOnly,
    }
}

/// Mounts `/proc` of the new PID namespace, which contains this process.
fn mount_processes() -> io::Result<()> {
    directory(&inside("/proc"))?;
    let flags = MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    new("proc", Path::new("/proc"), flags, c"")
        .map_err(|error| io::Error::other(format!("{NO_PROC}: {error}")))?;
    for entry in fs::read_dir(inside("/proc"))?.flatten() {
        let (at, name) = (entry.path(), entry.file_name());
        let Ok(found) = at.symlink_metadata() else { continue };
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        // Root owns the entries that other users cannot read, and would need no capability to read
        // them.
        let is_open = found.permissions().mode() & 0o004 != 0;
        if is_process
            || found.is_symlink()
            || is_open && !MACHINE.iter().any(|machine| name == *machine)
        {
            continue;
        }
        let empty = if found.is_dir() { EMPTY_DIRECTORY } else { EMPTY_FILE };
        mount_bind(inside(empty), &at).map_err(|error| failed("hide", &at, error))?;
    }
    Ok(())
}

fn mount_devices(terminal: Option<&Path>) -> io::Result<()> {
    for path in DEVICES {
        if Path::new(path).exists() {
            file(&inside(path))?;
            mount_bind(path, inside(path))
                .map_err(|error| failed("bind", Path::new(path), error))?;
        }
    }
    if let Some(terminal) = terminal {
        file(&inside(TERMINAL))?;
        mount_bind(terminal, inside(TERMINAL)).map_err(|error| failed("bind", terminal, error))?;
    }
    directory(&inside(TERMINALS))?;
    new(
        "devpts",
        Path::new(TERMINALS),
        MountFlags::NOEXEC,
        c"newinstance,ptmxmode=0666,mode=0620",
    )?;
    directory(&inside(SHARED_MEMORY))?;
    new("tmpfs", Path::new(SHARED_MEMORY), MountFlags::NODEV, c"size=64m,mode=1777")?;
    for (name, to) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        symlink(to, inside("/dev").join(name))?;
    }
    Ok(())
}

fn inside(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    Path::new(BASE).join(path.strip_prefix("/").unwrap_or(path))
}

/// Mounts a new file system at a path of the new root.
fn new(kind: &str, path: &Path, flags: MountFlags, options: &CStr) -> io::Result<()> {
    mount(kind, inside(path), kind, flags | MountFlags::NOSUID, options)
        .map_err(|error| failed(&format!("mount a {kind} at"), path, error))
}

fn directory(at: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(at)
}

fn file(at: &Path) -> io::Result<()> {
    directory(at.parent().unwrap_or(at))?;
    if at.symlink_metadata().is_err() {
        File::create(at)?;
    }
    Ok(())
}

fn failed(what: &str, path: &Path, error: rustix::io::Errno) -> io::Error {
    io::Error::other(format!("cannot {what} {}: {error}", path.display()))
}
