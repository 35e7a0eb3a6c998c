//! Secrets among the files of the operating system.

use std::collections::VecDeque;
use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// Directory trees in which the files that only this user or its groups can read are hidden. The
/// rest, such as most of `/usr`, contains the files of packages.
const SEARCHED: [&str; 3] = ["/etc", "/usr/local", "/opt"];

/// The same among the kernel's own files. A private `/proc` contains them, too.
const KERNEL: [&str; 4] = ["/proc/sys", "/proc/tty", "/proc/irq", "/proc/fs"];

/// Hidden for every user, whatever the modes of these files are.
const KNOWN: [&str; 14] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/security/opasswd",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/letsencrypt/live",
    "/etc/letsencrypt/archive",
    "/etc/krb5.keytab",
    "/etc/wireguard",
    "/etc/NetworkManager/system-connections",
];
const SSH: &str = "/etc/ssh";

/// The users of the system, with their home directories.
const USERS: &str = "/etc/passwd";

/// Files and directories of a home that hold keys and passwords for other systems.
const CREDENTIALS: [&str; 26] = [
    ".aws",
    ".azure",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/chromium",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/google-chrome",
    ".config/rclone",
    ".docker",
    ".gem/credentials",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".mozilla",
    ".netrc",
    ".npmrc",
    ".oci",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".ssh",
    ".terraform.d/credentials.tfrc.json",
    ".vault-token",
];

/// The maximum number of entries searched in one tree. Directories beyond it are hidden.
const MAX_ENTRIES: usize = 500_000;

/// Returns the known secrets that exist.
pub(crate) fn known() -> Vec<PathBuf> {
    let known = KNOWN.iter().map(PathBuf::from).filter(|path| path.symlink_metadata().is_ok());
    real(known.chain(entries(Path::new(SSH)).filter(|path| is_host_key(path))))
}

/// Returns everything in the searched trees that this user can read and other users cannot. A
/// command runs as the same user, and needs no capability to read these files.
pub(crate) fn not_public() -> Vec<PathBuf> {
    let trees = SEARCHED.iter().chain(&KERNEL);
    real(trees.flat_map(|tree| not_public_below(Path::new(tree), MAX_ENTRIES)))
}

/// Returns the real home directories of this user and of the users of the system.
pub fn homes() -> Vec<PathBuf> {
    let users = std::fs::read_to_string(USERS).unwrap_or_default();
    let listed = users.lines().filter_map(|line| line.split(':').nth(5)).map(PathBuf::from);
    let homes = listed.chain(std::env::var_os("HOME").map(PathBuf::from));
    let absolute = homes.filter(|home| home.is_absolute());
    let mut homes: Vec<PathBuf> = absolute.filter_map(|home| home.canonicalize().ok()).collect();
    homes.sort();
    homes.dedup();
    homes
}

/// Returns the real paths of credentials in homes that are in these directories, and the paths of
/// those that do not exist yet. A directory is not secret if it is given by name, or if something
/// in it is.
pub fn credentials(homes: &[PathBuf], given: &[PathBuf]) -> Vec<PathBuf> {
    let is_secret = |path: &PathBuf| {
        given.iter().any(|root| path.starts_with(root))
            && !given.iter().any(|root| root.starts_with(path))
    };
    let named = homes.iter().flat_map(|home| CREDENTIALS.iter().map(|name| home.join(name)));
    let found = named.filter(is_secret).map(|path| path.canonicalize().unwrap_or(path));
    // A link may lead to a path that is not visible, or to one that is given.
    found.filter(is_secret).collect()
}

/// The paths may be symbolic links, and a file is hidden at its real path.
fn real(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut real: Vec<PathBuf> = paths.map(|path| path.canonicalize().unwrap_or(path)).collect();
    real.sort();
    real.dedup();
    real
}

fn is_host_key(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(b"_key"))
}

/// Returns everything below a directory that this user can read and other users cannot. Such a
/// directory is hidden as a whole without a search. Directories beyond the limit are hidden, too.
fn not_public_below(tree: &Path, max_entries: usize) -> Vec<PathBuf> {
    let (mut found, mut directories, mut looked_at) =
        (Vec::new(), VecDeque::from([tree.to_owned()]), 0_usize);
    // The search is breadth-first, so that the limit only cuts off deep directories.
    while let Some(directory) = directories.pop_front() {
        let first = found.len();
        for path in entries(&directory) {
            looked_at += 1;
            if looked_at > max_entries {
                found.truncate(first);
                found.push(directory);
                found.extend(directories);
                return found;
            }
            let Ok(file) = path.symlink_metadata() else { continue };
            if file.is_symlink() {
                continue;
            }
            if gives_more(&path, &file) {
                found.push(path);
            } else if file.is_dir() {
                directories.push_back(path);
            }
        }
    }
    found
}

/// Returns whether this user can read a file, or list or enter a directory, and other users cannot.
/// The user may own it, be in its group, be on its access control list, or be root.
fn gives_more(path: &Path, file: &Metadata) -> bool {
    let mode = file.permissions().mode();
    let gives = |others: u32, access: Access| {
        mode & others == 0 && accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
    };
    gives(0o004, Access::READ_OK) || file.is_dir() && gives(0o001, Access::EXEC_OK)
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn what_others_cannot_read_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, mode| {
            fs::write(dir.path().join(name), "x").unwrap();
            fs::set_permissions(dir.path().join(name), Permissions::from_mode(mode)).unwrap();
        };
        fs::create_dir_all(dir.path().join("open")).unwrap();
        fs::create_dir_all(dir.path().join("closed/inner")).unwrap();
        fs::set_permissions(dir.path().join("open"), Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(dir.path().join("closed"), Permissions::from_mode(0o750)).unwrap();
        file("plain", 0o644);
        file("secret", 0o640);
        file("open/secret", 0o600);
        file("closed/inner/file", 0o600);
        std::os::unix::fs::symlink("secret", dir.path().join("link")).unwrap();
        let deep = dir.path().join("1/2/3/4/5/6/7/8/9/10/11/12");
        fs::create_dir_all(&deep).unwrap();
        file("1/2/3/4/5/6/7/8/9/10/11/12/key", 0o600);
        let mut found = not_public_below(dir.path(), 1_000);
        found.sort();
        let expected = ["closed", "open/secret", "secret"].map(|name| dir.path().join(name));
        assert_eq!(found, [&[deep.join("key")], &expected[..]].concat());
    }

    #[test]
    fn what_is_beyond_the_limit_is_hidden() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "a/b", "c"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("file"), "x").unwrap();
        }
        assert_eq!(not_public_below(dir.path(), 6), Vec::<PathBuf>::new());
        // The last directory is not searched, wherever the others are.
        for limit in 2..6 {
            let found = not_public_below(dir.path(), limit);
            assert!(
                found.iter().any(|path| dir.path().join("a/b").starts_with(path)),
                "{limit}: {found:?}"
            );
            assert!(!found.contains(&dir.path().to_owned()), "{limit}: {found:?}");
        }
        assert_eq!(not_public_below(dir.path(), 1)[0], dir.path());
    }

    #[test]
    fn private_keys_of_the_host_are_told_from_public_ones() {
        assert!(is_host_key(Path::new("/etc/ssh/ssh_host_rsa_key")));
        assert!(!is_host_key(Path::new("/etc/ssh/ssh_host_rsa_key.pub")));
        assert!(!is_host_key(Path::new("/etc/ssh/ssh_config")));
    }
}
