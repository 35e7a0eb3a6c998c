//! The permissions of a sandboxed command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::secrets;

/// Defines the files that a command sees, the files that it may change, and the sockets that it may
/// open. Where two paths overlap, the longer one applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Files and directories that can be read.
    pub readable: Vec<PathBuf>,
    /// Directories that can be written to.
    pub writable: Vec<PathBuf>,
    /// The real paths of some readable and writable paths, without symbolic links. Other paths are
    /// resolved when a command starts. A path must be here if a sandboxed command can change a
    /// directory above it: the command could replace a part of the path by a link.
    pub pinned: BTreeMap<PathBuf, PathBuf>,
    /// Files and directories that are hidden, even if their directory is readable.
    pub hidden: Vec<PathBuf>,
    /// Files and directories of the system that this user can read and other users cannot. They are
    /// hidden, except those that are given by name or by a directory above them.
    pub(crate) not_public: Vec<PathBuf>,
    /// Real home directories. Their well-known files with keys and passwords are hidden, even in a
    /// writable directory, except those that are given by name.
    pub homes: Vec<PathBuf>,
    /// Directories in memory that are empty at the start and deleted at the end.
    pub private: Vec<PathBuf>,
    /// Files that appear at another path.
    pub binds: Vec<Bind>,
    /// Whether the command uses the host's network. Without it, the command has a loopback device
    /// of its own.
    pub network: bool,
    /// Whether the command may open Unix sockets. Without them and without a network, it may open
    /// no socket at all.
    pub unix_sockets: bool,
}

/// A file of the host that appears at another path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    pub source: PathBuf,
    pub target: PathBuf,
}

/// Programs and their dependencies. The rest of the host is not visible: homes, `/var`, `/srv`,
/// `/run`, `/mnt`.
const SYSTEM: [&str; 12] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
    "/run/current-system",
    "/sys/devices/system/cpu",
];
const PRIVATE: [&str; 3] = ["/tmp", "/home", "/root"];
/// Directories that the sandbox creates itself.
const RESERVED: [&str; 3] = ["/proc", "/dev", "/sys"];

impl Policy {
    /// Creates a policy that allows to read the system's programs. `/tmp`, `/home` and `/root` are
    /// private.
    pub fn new(network: bool) -> Self {
        let mut readable: Vec<PathBuf> = SYSTEM
            .iter()
            .map(PathBuf::from)
            .filter(|path| path.symlink_metadata().is_ok())
            .collect();
        if network {
            readable.extend(resolver());
        }
        Self {
            readable,
            writable: Vec::new(),
            pinned: BTreeMap::new(),
            hidden: secrets::known(),
            not_public: secrets::not_public(),
            homes: secrets::homes(),
            private: PRIVATE.iter().map(PathBuf::from).collect(),
            binds: Vec::new(),
            network,
            unix_sockets: false,
        }
    }

    /// Hides more paths. Follows symbolic links, because the target is the secret.
    #[must_use]
    pub fn hiding(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.hidden.extend(paths.into_iter().map(|path| path.canonicalize().unwrap_or(path)));
        self
    }

    /// Returns this policy with one more writable directory. The path must have no symbolic links,
    /// and is not resolved again.
    #[must_use]
    pub fn with_writable(&self, directory: &Path) -> Self {
        let mut policy = self.clone();
        policy.writable.push(directory.to_owned());
        policy.pinned.insert(directory.to_owned(), directory.to_owned());
        policy
    }

    /// Returns whether a path of the host is visible under the same name.
    pub fn shows(&self, path: &Path) -> bool {
        let within = |paths: &[PathBuf]| {
            paths.iter().filter(|root| path.starts_with(root)).map(|root| depth(root)).max()
        };
        within(&self.readable).max(within(&self.writable))
            > within(&self.hidden).max(within(&self.private)).max(within(&self.not_given()))
    }

    /// Returns this policy with all hidden paths in one list. No path may be given after this.
    pub(crate) fn resolved(mut self) -> Self {
        let (not_given, credentials) = (self.not_given(), self.credentials());
        self.hidden.extend(not_given);
        self.hidden.extend(credentials);
        self.hidden.sort();
        // A path must not be covered twice.
        self.hidden.dedup();
        self.not_public.clear();
        self
    }

    /// Returns the real paths of the existing credentials in homes that a command would see.
    pub fn credentials(&self) -> Vec<PathBuf> {
        let found = secrets::credentials(&self.homes, &self.given()).into_iter();
        found.filter(|path| path.canonicalize().is_ok_and(|real| real == *path)).collect()
    }

    /// Returns the system's files that other users cannot read and that the policy does not give.
    fn not_given(&self) -> Vec<PathBuf> {
        let given = self.given();
        let is_given = |path: &PathBuf| given.iter().any(|root| path.starts_with(root));
        self.not_public.iter().filter(|path| !is_given(path)).cloned().collect()
    }

    /// Returns the paths that this policy gives besides the system's directories, and their real
    /// paths.
    fn given(&self) -> Vec<PathBuf> {
        let named = self.readable.iter().chain(&self.writable);
        let named = named.filter(|path| !SYSTEM.iter().any(|system| *path == Path::new(system)));
        named.flat_map(|path| [path.canonicalize().ok(), Some(path.clone())]).flatten().collect()
    }

    /// Returns the private directories that the sandbox creates. A private directory inside a bound
    /// directory is not created. The same applies if a bound directory below it contains a secret.
    /// Landlock cannot exclude a file from a writable directory.
    pub(crate) fn private_directories(&self) -> impl Iterator<Item = &PathBuf> {
        let bound = |inner: &Path| {
            self.readable.iter().chain(&self.writable).find(|root| inner.starts_with(root))
        };
        let secret_below = move |path: &Path| {
            let mut below = self.hidden.iter().filter(|hidden| hidden.starts_with(path));
            below.any(|hidden| bound(hidden).is_some_and(|root| root.starts_with(path)))
        };
        let free = move |path: &&PathBuf| {
            path.parent().is_some() && bound(path).is_none() && !secret_below(path)
        };
        self.private.iter().filter(free)
    }

    /// Checks that this policy can be enforced. The error describes why not.
    pub fn check(&self) -> Result<(), String> {
        for path in self.readable.iter().chain(&self.writable) {
            if path.parent().is_none() {
                return Err(
                    "the root directory cannot be a part of the sandbox; choose a directory below it".to_owned()
                );
            }
            if !path.is_absolute() {
                return Err(format!("{} is not an absolute path", path.display()));
            }
            if self.hidden.contains(path) {
                return Err(format!(
                    "{} is hidden and cannot also be a part of the sandbox",
                    path.display()
                ));
            }
        }
        let reserved = |path: &&PathBuf| {
            RESERVED.iter().any(|root| {
                path.starts_with(root) && !path.starts_with("/dev/shm")
                    || path == &&PathBuf::from(root)
            })
        };
        match self.writable.iter().find(reserved) {
            Some(path) => Err(format!(
                "{} cannot be written to in a sandbox; choose another directory",
                path.display()
            )),
            None => Ok(()),
        }
    }
}

pub(crate) fn depth(path: &Path) -> usize {
    path.components().count()
}

/// Returns the location of the resolver configuration, if it is outside of `/etc`. This is the
/// directory, because the file is replaced when the network changes.
fn resolver() -> Option<PathBuf> {
    let file = Path::new("/etc/resolv.conf")
        .canonicalize()
        .ok()
        .filter(|file| !file.starts_with("/etc"))?;
    let directory = file.parent().filter(|directory| depth(directory) > 2);
    Some(directory.map(Path::to_path_buf).unwrap_or(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_path_decides_what_is_visible() {
        let policy = Policy {
            readable: vec!["/usr".into(), "/srv".into()],
            writable: vec!["/data/work".into()],
            pinned: BTreeMap::new(),
            hidden: vec!["/data".into(), "/srv/secret".into()],
            not_public: vec!["/srv/closed".into(), "/data/work/own".into()],
            homes: Vec::new(),
            private: vec!["/tmp".into()],
            binds: Vec::new(),
            network: false,
            unix_sockets: false,
        };
        for visible in ["/usr", "/usr/bin/env", "/srv/x", "/data/work/file", "/data/work/own"] {
            assert!(policy.shows(Path::new(visible)), "{visible}");
        }
        // The directory `/srv` itself is given, so nothing below it is hidden as not public.
        assert!(policy.shows(Path::new("/srv/closed")));
        for hidden in
            ["/data", "/data/token", "/srv/secret", "/srv/secret/x", "/tmp/x", "/home", "/usrx"]
        {
            assert!(!policy.shows(Path::new(hidden)), "{hidden}");
        }
    }

    #[test]
    fn what_the_sandbox_makes_itself_cannot_be_given_away() {
        for refused in ["/", "/proc", "/proc/self", "/dev", "/dev/pts", "/sys/x", "relative"] {
            assert!(
                Policy::new(false).with_writable(Path::new(refused)).check().is_err(),
                "{refused}"
            );
        }
        let hidden = Policy::new(false).hiding(["/srv/secret".into()]);
        assert!(hidden.with_writable(Path::new("/srv/secret")).check().is_err());
        assert_eq!(hidden.with_writable(Path::new("/srv/secret/inner")).check(), Ok(()));
        for fine in ["/srv", "/tmp", "/dev/shm/x", "/usr/src/x"] {
            assert_eq!(Policy::new(false).with_writable(Path::new(fine)).check(), Ok(()), "{fine}");
        }
    }

    #[test]
    fn what_is_not_public_is_hidden_unless_it_is_given() {
        let mut policy = Policy::new(false);
        let paths =
            ["/opt/closed", "/opt/project", "/opt/tool/key", "/opt/file"].map(PathBuf::from);
        policy.not_public = paths.to_vec();
        assert!(policy.readable.contains(&"/opt".into()), "this test needs the directory /opt");
        assert_eq!(policy.not_given(), paths);
        policy.readable.extend(["/opt/tool".into(), "/opt/file".into()]);
        policy.writable.extend(["/opt/project".into(), "/opt/closed/inner".into()]);
        assert_eq!(policy.not_given(), ["/opt/closed"].map(PathBuf::from));
        for (path, is_shown) in [
            ("/opt/closed/x", false),
            ("/opt/closed/inner/x", true),
            ("/opt/project/x", true),
            ("/opt/tool/key", true),
        ] {
            assert_eq!(policy.shows(Path::new(path)), is_shown, "{path}");
        }
        assert_eq!(policy.check(), Ok(()));
        let resolved = policy.hiding(["/opt/closed".into()]).resolved();
        assert_eq!(resolved.hidden.iter().filter(|path| path.ends_with("closed")).count(), 1);
        assert_eq!(resolved.check(), Ok(()));
    }
}
