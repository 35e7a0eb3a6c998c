//! Drops all privileges beyond those of the user, and limits the resources of a process.

use std::io;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits, set_no_new_privs,
};

/// The limit of data memory. The address space is not limited, because many runtimes reserve more
/// than the machine has.
const MAX_DATA: u64 = 8 << 30;
const MAX_FILE: u64 = 8 << 30;
const MAX_DESCRIPTORS: u64 = 4_096;
const MAX_THREADS: u64 = 8_192;

pub(crate) fn limit_resources() -> io::Result<()> {
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

/// Drops all capabilities and every way to get one. User 0 has no special rights from now on.
pub(crate) fn drop_all() -> io::Result<()> {
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        // The first number that the kernel does not know follows its last capability.
        match capability_is_in_bounding_set(one) {
            Ok(true) => remove_capability_from_bounding_set(one)?,
            Ok(false) => {}
            Err(_) => break,
        }
    }
    let locked = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    set_capabilities_secure_bits(locked)?;
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    // The command can neither trace this process nor read its memory.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}
