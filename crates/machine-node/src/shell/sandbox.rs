//! What a sandboxed command may do, and how it is kept to that.
//!
//! Landlock confines files, signals and abstract sockets; a mount namespace and a seccomp filter close what Landlock
//! leaves open (see [`mounts`] and [`calls`]); root loses its capabilities; limits bound what one process can take. All
//! of it is inherited by whatever the command starts and cannot be undone. What the kernel cannot do is an error, never a
//! weaker sandbox.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, RestrictionStatus,
    Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};
use serde::{Deserialize, Serialize};

use super::mounts::{Extras, OWN_TERMINAL, SHARED_MEMORY};
use super::{calls, mounts};

/// Where a command may read, where it may write, and whether it has a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Policy {
    pub(crate) readable: Vec<PathBuf>,
    pub(crate) writable: Vec<PathBuf>,
    /// What is not even readable, wherever it lies. Nothing of it lies in a writable directory.
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) network: bool,
}

/// The version with signals and abstract sockets.
const LANDLOCK: ABI = ABI::V6;

/// What programs are and what they need to run. Everything else is out of sight: homes, /root, /var, /srv, /run, /tmp.
const SYSTEM: [&str; 12] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store", "/proc", "/sys"];

/// What root may read there and a command has no business with.
const SYSTEM_SECRETS: [&str; 9] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/security/opasswd",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssh",
    "/etc/ssl/private",
];

const DEVICES: [&str; 8] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts"];

/// Memory that a process writes to; address space is no measure, since many a runtime reserves more than there is.
const MAX_DATA: u64 = 8 << 30;
const MAX_FILE: u64 = 8 << 30;
const MAX_DESCRIPTORS: u64 = 4_096;
/// Counts all threads of the user, not only those of the command, and root is exempt. The keeper is what ends a fork bomb.
const MAX_THREADS: u64 = 8_192;

impl Policy {
    /// The system's directories readable, the workspace writable, or not.
    pub(crate) fn new(workspace: &Path, read_only: bool, network: bool) -> Self {
        let mut readable: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
        // Often a link to a file of the resolver's, which lives among the daemons' sockets.
        readable.extend(Path::new("/etc/resolv.conf").canonicalize());
        let mut writable = Vec::new();
        if read_only { &mut readable } else { &mut writable }.push(workspace.to_owned());
        Self { readable, writable, hidden: Vec::new(), network }
    }

    /// Takes these out of what is readable.
    #[must_use]
    pub(crate) fn hiding(mut self, files: &[PathBuf]) -> Self {
        self.hidden.extend(files.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())));
        self
    }

    /// Takes a home out of it that lies among the system's directories. The workspace may lie in it.
    #[must_use]
    pub(crate) fn hiding_home(mut self, home: Option<&Path>) -> Self {
        let among = |home: &PathBuf| SYSTEM.iter().any(|root| home.starts_with(root) && home != Path::new(root));
        let outside = |home: &PathBuf| !self.writable.iter().any(|root| home.starts_with(root));
        let home = home.and_then(|home| home.canonicalize().ok()).filter(among).filter(outside);
        self.hidden.extend(home);
        self
    }

    /// The same, with a directory that is one command's own.
    pub(crate) fn with_private(&self, directory: &Path) -> Self {
        let mut policy = self.clone();
        policy.writable.push(directory.to_owned());
        policy
    }

    /// A secret that has another name as well, which no rule about names would keep from anybody.
    pub(crate) fn linked(&self) -> Option<&Path> {
        let linked = |path: &&PathBuf| path.metadata().is_ok_and(|file| file.is_file() && file.nlink() > 1);
        self.hidden.iter().find(linked).map(PathBuf::as_path)
    }

    /// A secret in a directory where everything can be read.
    pub(crate) fn exposed(&self) -> Option<&Path> {
        self.hidden.iter().map(PathBuf::as_path).find(|path| self.writable.iter().any(|root| path.starts_with(root)))
    }
}

/// Enters the sandbox, for good, with the terminal that the command was given.
pub(crate) fn enter(policy: &Policy, terminal: Option<&Path>) -> io::Result<()> {
    let missing = |what: &str, error: &dyn std::fmt::Display| io::Error::other(format!("{what}: {error}"));
    limit_resources()?;
    let extras = mounts::confine(&policy.writable, terminal)
        .map_err(|error| missing("commands cannot have a view of their own of the file systems", &error))?;
    drop_capabilities()?;
    set_no_new_privs(true)?;
    confine_files(policy, &extras)
        .map_err(|error| missing("this kernel cannot confine files with Landlock (6.12 can)", &error))?;
    calls::filter(policy.network).map_err(|error| missing("this kernel cannot filter system calls", &error))
}

fn limit_resources() -> io::Result<()> {
    let limits = [
        (Resource::Core, 0),
        (Resource::Data, MAX_DATA),
        (Resource::Fsize, MAX_FILE),
        (Resource::Nofile, MAX_DESCRIPTORS),
        (Resource::Nproc, MAX_THREADS),
    ];
    for (resource, limit) in limits {
        let limit = Some(getrlimit(resource).maximum.map_or(limit, |maximum| maximum.min(limit)));
        setrlimit(resource, Rlimit { current: limit, maximum: limit })?;
    }
    Ok(())
}

/// Root without its powers owns what root owns, and no more. Everybody else has those of a user namespace to lose.
fn drop_capabilities() -> io::Result<()> {
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        // The kernel's last one is where it no longer knows the number.
        match capability_is_in_bounding_set(one) {
            Ok(true) => remove_capability_from_bounding_set(one)?,
            Ok(false) => {}
            Err(_) => break,
        }
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}

fn confine_files(policy: &Policy, extras: &Extras) -> Result<(), landlock::RulesetError> {
    let all = AccessFs::from_all(LANDLOCK);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?
        .set_compatibility(CompatLevel::BestEffort);
    let mut secrets = policy.hidden.clone();
    secrets.extend(SYSTEM_SECRETS.iter().map(PathBuf::from));
    for path in &policy.readable {
        for path in without(path, &secrets) {
            rules = allow(rules, &path, AccessFs::from_read(LANDLOCK))?;
        }
    }
    // What lists terminals begins here, to find the one that it has.
    rules = allow(rules, Path::new("/dev"), AccessFs::ReadDir.into())?;
    for path in DEVICES.into_iter().chain(extras.terminal.then_some(OWN_TERMINAL)) {
        let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev;
        rules = allow(rules, Path::new(path), device)?;
    }
    // No device is made there, even by root.
    let writable = all & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let shared_memory = extras.shared_memory.then_some(Path::new(SHARED_MEMORY));
    for path in policy.writable.iter().map(PathBuf::as_path).chain(shared_memory) {
        rules = allow(rules, path, writable)?;
    }
    let status: RestrictionStatus = rules.restrict_self()?;
    assert!(status.ruleset == RulesetStatus::FullyEnforced, "a hard requirement that is not kept");
    Ok(())
}

/// Allows something in a place, if there is such a place.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    let Ok(handle) = PathFd::new(path) else { return Ok(rules) };
    // Rights over directories mean nothing for a file, and are refused.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(LANDLOCK) };
    rules.add_rule(PathBeneath::new(handle, access))
}

/// A place without the secrets in it. Rules only ever allow, and allow all that lies below; so a directory with a secret
/// in it is allowed entry by entry.
fn without(path: &Path, secrets: &[PathBuf]) -> Vec<PathBuf> {
    if secrets.iter().any(|secret| path.starts_with(secret)) {
        return Vec::new();
    }
    if !secrets.iter().any(|secret| secret.starts_with(path)) {
        return vec![path.to_owned()];
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.flat_map(|entry| without(&entry.path(), secrets)).collect()
}
