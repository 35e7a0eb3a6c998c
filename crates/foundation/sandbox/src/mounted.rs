//! Restriction of the mounts in the new root.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, mount_remount};

/// The permitted uses of a mount. Setuid bits have no effect on any mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    ReadOnly,
    Writable,
    Device,
    ReadOnlyDevice,
}

impl Access {
    fn flags(self) -> MountFlags {
        let flags = match self {
            Self::ReadOnly => MountFlags::RDONLY | MountFlags::NODEV,
            Self::Writable => MountFlags::NODEV,
            Self::Device => MountFlags::NOEXEC,
            Self::ReadOnlyDevice => MountFlags::RDONLY | MountFlags::NOEXEC,
        };
        flags | MountFlags::NOSUID
    }
}

/// Sets the required flags on every mount.
pub(crate) fn protect(access: impl Fn(&Path) -> Access) -> io::Result<()> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    for mounted in table.split(|byte| *byte == b'\n').filter_map(parse) {
        mounted.add(access(&mounted.path).flags())?;
    }
    Ok(())
}

/// An existing mount.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    path: PathBuf,
    flags: MountFlags,
}

impl Mounted {
    fn add(&self, flags: MountFlags) -> io::Result<()> {
        if self.flags.contains(flags) {
            return Ok(());
        }
        let Err(error) = mount_remount(&self.path, MountFlags::BIND | flags | self.flags, "")
        else {
            return Ok(());
        };
        // The command cannot reach a mount that is covered by another one or not accessible to this
        // user.
        match statvfs(&self.path) {
            Ok(found)
                if flags.contains(MountFlags::RDONLY)
                    && !found.f_flag.contains(StatVfsMountFlags::RDONLY) =>
            {
                Err(io::Error::other(format!(
                    "cannot make {} read-only: {error}",
                    self.path.display()
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Parses a line of the table: the fifth field is the path, the sixth the flags. Flags for access
/// times that are not repeated stay as they are.
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

/// Decodes white space and backslashes, which are written as three octal digits.
pub(crate) fn unescape(mut field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while let Some((first, rest)) = field.split_first() {
        let digits = rest
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok());
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
        fn a_path_is_read_as_the_kernel_writes_it(name in sa_hostile::noise(), line in sa_hostile::noise()) {
            let _ = parse(&line);
            let written: Vec<u8> = name.iter().flat_map(|byte| match byte {
                b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
                byte => vec![*byte],
            }).collect();
            proptest::prop_assert_eq!(unescape(&written), name);
        }
    }
}
