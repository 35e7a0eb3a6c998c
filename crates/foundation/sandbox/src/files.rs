//! Landlock: the second layer of file protection. It works even if something is mounted or moved in
//! the view.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus, Scope,
};

use crate::policy::Policy;
use crate::view::{DEVICES, SHARED_MEMORY, TERMINAL, TERMINALS};

/// The required version: file access rights, as in Linux 5.13.
const REQUIRED: ABI = ABI::V1;
/// The newest version, used if the kernel supports it. Other layers replace its missing features:
/// read-only mounts for truncation, the PID namespace for signals, and the network namespace for
/// abstract sockets.
pub(crate) const NEWEST: i32 = ABI::V9 as i32;

/// Restricts this process. `highest` is the highest version of Landlock to use.
pub(crate) fn restrict(policy: &Policy, terminal: bool, highest: i32) -> io::Result<()> {
    let missing = |error: RulesetError| {
        io::Error::other(format!(
            "Landlock is not available (it needs Linux 5.13 and must be among the kernel's security modules, see \
             /sys/kernel/security/lsm): {error}"
        ))
    };
    let status = rules(policy, terminal, highest.into())
        .and_then(RulesetCreated::restrict_self)
        .map_err(missing)?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(io::Error::other("Landlock is not enforced by this kernel"));
    }
    Ok(())
}

fn rules(policy: &Policy, terminal: bool, highest: ABI) -> Result<RulesetCreated, RulesetError> {
    let all = AccessFs::from_all(highest);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(REQUIRED))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?;
    let scopes = Scope::from_all(highest);
    if !scopes.is_empty() {
        rules = rules.scope(scopes)?;
    }
    let mut rules = rules.create()?;
    let read = (AccessFs::from_read(highest) | AccessFs::ResolveUnix) & all;
    for path in &policy.readable {
        for path in without(path, &policy.hidden) {
            rules = allow(rules, &path, read)?;
        }
    }
    for bind in &policy.binds {
        rules = allow(rules, &bind.target, read)?;
    }
    // File names in the view are not secret.
    rules = allow(rules, Path::new("/"), AccessFs::ReadDir.into())?;
    rules = allow(rules, Path::new("/proc"), AccessFs::ReadFile | AccessFs::ReadDir)?;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev;
    let device = device & all;
    for path in DEVICES.into_iter().chain([TERMINALS]).chain(terminal.then_some(TERMINAL)) {
        rules = allow(rules, Path::new(path), device)?;
    }
    // No device can be created there, even by root.
    let write = all & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let own = policy.writable.iter().chain(policy.private_directories()).map(PathBuf::as_path);
    for path in own.chain([Path::new(SHARED_MEMORY)]) {
        rules = allow(rules, path, write)?;
    }
    Ok(rules)
}

/// Allows access below a path, if the path exists.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(handle) = PathFd::new(path) else { return Ok(rules) };
    // Rights for directories are meaningless for a file, and the kernel refuses them.
    let access =
        if path.is_dir() { access } else { access & AccessFs::from_file(ABI::from(NEWEST)) };
    rules.add_rule(PathBeneath::new(handle, access))
}

/// Returns the paths that together cover `path` except for the secrets below it. Rules only allow,
/// and they cover everything below. So a directory with a secret is allowed entry by entry.
fn without(path: &Path, secrets: &[PathBuf]) -> Vec<PathBuf> {
    if secrets.iter().any(|secret| path.starts_with(secret)) {
        return Vec::new();
    }
    if !secrets.iter().any(|secret| secret.starts_with(path)) {
        return vec![path.to_owned()];
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    // A rule for a symbolic link would apply to its target, which may be a secret.
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    files.flat_map(|entry| without(&entry.path(), secrets)).collect()
}
