//! Landlock: the second layer around files. It holds even if something is mounted over or moved in the view.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};

use crate::policy::Policy;
use crate::view::{DEVICES, SHARED_MEMORY, TERMINAL, TERMINALS};

/// What is required: rights over files, as in Linux 5.13.
const REQUIRED: ABI = ABI::V1;
/// What is used if the kernel has it. Of what is newer than `REQUIRED`, read-only mounts give the same for truncation,
/// the PID namespace for signals, and the network namespace for abstract sockets.
const NEWEST: ABI = ABI::V9;

pub(crate) fn restrict(policy: &Policy, terminal: bool) -> io::Result<()> {
    let missing = |error: RulesetError| {
        io::Error::other(format!(
            "Landlock is not available (it needs Linux 5.13 and must be among the kernel's security modules, see \
             /sys/kernel/security/lsm): {error}"
        ))
    };
    let status = rules(policy, terminal).and_then(RulesetCreated::restrict_self).map_err(missing)?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(io::Error::other("Landlock is not enforced by this kernel"));
    }
    Ok(())
}

fn rules(policy: &Policy, terminal: bool) -> Result<RulesetCreated, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(REQUIRED))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let read = AccessFs::from_read(NEWEST) | AccessFs::ResolveUnix;
    for path in &policy.readable {
        for path in without(path, &policy.hidden) {
            rules = allow(rules, &path, read)?;
        }
    }
    for bind in &policy.binds {
        rules = allow(rules, &bind.target, read)?;
    }
    // The view has no names that are secret.
    rules = allow(rules, Path::new("/"), AccessFs::ReadDir.into())?;
    rules = allow(rules, Path::new("/proc"), AccessFs::ReadFile | AccessFs::ReadDir)?;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev;
    for path in DEVICES.into_iter().chain([TERMINALS]).chain(terminal.then_some(TERMINAL)) {
        rules = allow(rules, Path::new(path), device)?;
    }
    // No device is made there, even by root.
    let write = AccessFs::from_all(NEWEST) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let own = policy.writable.iter().chain(policy.private_directories()).map(PathBuf::as_path);
    for path in own.chain([Path::new(SHARED_MEMORY)]) {
        rules = allow(rules, path, write)?;
    }
    Ok(rules)
}

/// Allows something below a path, if there is such a path.
fn allow(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let Ok(handle) = PathFd::new(path) else { return Ok(rules) };
    // Rights over directories mean nothing for a file, and are refused.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    rules.add_rule(PathBeneath::new(handle, access))
}

/// A path without the secrets below it. Rules only allow, and they allow everything below; so a directory with a secret
/// in it is allowed entry by entry.
fn without(path: &Path, secrets: &[PathBuf]) -> Vec<PathBuf> {
    if secrets.iter().any(|secret| path.starts_with(secret)) {
        return Vec::new();
    }
    if !secrets.iter().any(|secret| secret.starts_with(path)) {
        return vec![path.to_owned()];
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    // A rule for a link would be one for its target, which may be a secret.
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    files.flat_map(|entry| without(&entry.path(), secrets)).collect()
}
