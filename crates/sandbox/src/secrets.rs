//! Secrets among the system's files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const CONFIGURATION: &str = "/etc";

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

/// The deepest directory that is searched.
const MAX_DEPTH: usize = 8;

/// The known secrets that exist. For root also whatever other users cannot read in `/etc`: root owns these files, and
/// needs no capability to read them.
pub(crate) fn of_the_system() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        KNOWN.iter().map(PathBuf::from).filter(|path| path.symlink_metadata().is_ok()).collect();
    let keys = entries(Path::new(SSH)).filter(|path| is_host_key(path));
    found.extend(keys);
    if rustix::process::geteuid().is_root() {
        unreadable(Path::new(CONFIGURATION), MAX_DEPTH, &mut found);
    }
    // A link may lead to them, and a file is hidden where it is.
    let mut found: Vec<PathBuf> =
        found.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())).collect();
    found.sort();
    found.dedup();
    found
}

fn is_host_key(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(b"_key"))
}

/// What other users cannot read in a directory. Such a directory is not searched, it is hidden as a whole.
fn unreadable(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for path in entries(directory) {
        let Ok(file) = path.symlink_metadata() else { continue };
        let needed = if file.is_dir() { 0o005 } else { 0o004 };
        if file.is_symlink() {
            continue;
        }
        if file.permissions().mode() & needed != needed {
            found.push(path);
        } else if file.is_dir() && depth > 0 {
            unreadable(&path, depth - 1, found);
        }
    }
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
        let mut found = Vec::new();
        unreadable(dir.path(), MAX_DEPTH, &mut found);
        found.sort();
        assert_eq!(found, ["closed", "open/secret", "secret"].map(|name| dir.path().join(name)));
    }

    #[test]
    fn private_keys_of_the_host_are_told_from_public_ones() {
        assert!(is_host_key(Path::new("/etc/ssh/ssh_host_rsa_key")));
        assert!(!is_host_key(Path::new("/etc/ssh/ssh_host_rsa_key.pub")));
        assert!(!is_host_key(Path::new("/etc/ssh/ssh_config")));
    }
}
