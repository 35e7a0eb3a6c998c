//! What a sandboxed command sees of the file systems: all of them, and none that it can change but its own.
//!
//! Landlock has no right over a file's mode, its times and its attributes, and knows terminals by their directory only.
//! So each command has a mount namespace in which everything but what it may write to is mounted read-only, the
//! terminals are those that it makes itself, and shared memory is its own.

use std::ffi::{CStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::StatVfsMountFlags;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change, mount_remount,
};

pub(super) const SHARED_MEMORY: &str = "/dev/shm";
const TERMINALS: &str = "/dev/pts";
/// Where a command finds the terminal that it was given, which is not among its own.
pub(super) const OWN_TERMINAL: &str = "/dev/console";

const FORBIDDEN: &str = "this user may have neither a mount namespace (CAP_SYS_ADMIN) nor a user namespace to make one \
in (see user.max_user_namespaces, kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns; a \
container's runtime may forbid it, too)";

/// What the namespace has that not every one has.
#[derive(Debug)]
pub(super) struct Extras {
    /// The terminal that the command was given, by a name.
    pub(super) terminal: bool,
    /// Shared memory of the command's own.
    pub(super) shared_memory: bool,
}

/// Moves this process to a mount namespace where only these directories can be written to. Takes capabilities, or else a
/// user namespace, which gives them to everybody.
pub(super) fn confine(writable: &[PathBuf], terminal: Option<&Path>) -> io::Result<Extras> {
    let here = std::env::current_dir()?;
    leave_namespace()?;
    // Some kernels give a user namespace to everybody, and nothing that could be done with it.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| io::Error::other(format!("{FORBIDDEN}: {error}")))?;
    for path in writable.iter().filter(|path| path.parent().is_some()) {
        mount_bind_recursive(path, path).map_err(|error| failed("bind", path, error))?;
    }
    let mut own: Vec<&Path> = writable.iter().map(PathBuf::as_path).collect();
    let terminal = terminal.is_some_and(|terminal| mount_bind(terminal, OWN_TERMINAL).is_ok());
    if cover(TERMINALS, "devpts", MountFlags::NOEXEC, c"newinstance,ptmxmode=0666,mode=0620")? {
        own.push(Path::new(TERMINALS));
    }
    // A workspace in there would be covered with it.
    let free = !writable.iter().any(|path| path.starts_with(SHARED_MEMORY));
    let shared_memory = free && cover(SHARED_MEMORY, "tmpfs", MountFlags::NODEV, c"size=64m,mode=1777")?;
    if shared_memory {
        own.push(Path::new(SHARED_MEMORY));
    }
    for mounted in mounted()? {
        if !own.iter().any(|path| mounted.path.starts_with(path)) {
            mounted.make_read_only()?;
        }
    }
    // The directory of this process is still the one below what was bound over it.
    std::env::set_current_dir(&here)?;
    Ok(Extras { terminal, shared_memory })
}

fn leave_namespace() -> io::Result<()> {
    if unshare(CloneFlags::CLONE_NEWNS).is_ok() {
        return Ok(());
    }
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
        .map_err(|error| io::Error::other(format!("{FORBIDDEN}: {error}")))?;
    // Everybody stays who they are.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Mounts something new over a directory, if there is such a directory.
fn cover(path: &str, kind: &str, flags: MountFlags, options: &CStr) -> io::Result<bool> {
    if !Path::new(path).is_dir() {
        return Ok(false);
    }
    mount(kind, path, kind, flags | MountFlags::NOSUID, options)
        .map_err(|error| failed("mount something new over", Path::new(path), error))?;
    Ok(true)
}

fn failed(what: &str, path: &Path, error: rustix::io::Errno) -> io::Error {
    io::Error::other(format!("cannot {what} {}: {error}", path.display()))
}

/// Something that is mounted.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    path: PathBuf,
    flags: MountFlags,
}

impl Mounted {
    fn make_read_only(&self) -> io::Result<()> {
        if self.flags.contains(MountFlags::RDONLY) {
            return Ok(());
        }
        let Err(error) = mount_remount(&self.path, MountFlags::BIND | MountFlags::RDONLY | self.flags, "") else {
            return Ok(());
        };
        // What lies below another mount, or where this user cannot go, is out of the command's reach as well.
        match rustix::fs::statvfs(&self.path) {
            Ok(found) if !found.f_flag.contains(StatVfsMountFlags::RDONLY) => {
                Err(failed("make read-only", &self.path, error))
            }
            _ => Ok(()),
        }
    }
}

fn mounted() -> io::Result<Vec<Mounted>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// A line of the table: the fifth field is where, the sixth how. What is not said about access times stays as it is.
fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ').skip(4);
    let path = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
    let flags = fields.next()?.split(|byte| *byte == b',').map(|option| match option {
        b"ro" => MountFlags::RDONLY,
        b"nosuid" => MountFlags::NOSUID,
        b"nodev" => MountFlags::NODEV,
        b"noexec" => MountFlags::NOEXEC,
        b"nosymfollow" => MountFlags::NOSYMFOLLOW,
        _ => MountFlags::empty(),
    });
    Some(Mounted { path, flags: flags.collect() })
}

/// White space and backslashes are written as three octal digits.
fn unescape(mut field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while let Some((first, rest)) = field.split_first() {
        let digits = rest.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            plain.push(byte);
            field = &rest[3..];
        } else {
            plain.push(*first);
            field = rest;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_read() {
        let line = br"36 35 98:0 /mnt1 /mnt\040a\134 rw,nosuid,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let expected = Mounted { path: r"/mnt a\".into(), flags: MountFlags::NOSUID };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse(b"1 2 0:1 / / ro - x y rw").unwrap().flags, MountFlags::RDONLY);
        assert_eq!(parse(b""), None);
    }

    proptest::proptest! {
        #[test]
        fn a_place_is_read_as_the_kernel_writes_it(name in sa_hostile::noise(), line in sa_hostile::noise()) {
            let _ = parse(&line);
            let written: Vec<u8> = name.iter().flat_map(|byte| match byte {
                b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
                byte => vec![*byte],
            }).collect();
            proptest::prop_assert_eq!(unescape(&written), name);
        }
    }
}
