//! The system calls that a sandboxed command is refused.
//!
//! They are those that Landlock leaves open: sockets at paths, which a container's or the system's daemons listen on, and
//! with no network every socket; `io_uring`, which goes around such filters; files that run as whom they belong to; and
//! what could be done to other processes of the user, the keeper among them.

use std::collections::BTreeMap;

use nix::libc::{
    self, SYS_fchmod, SYS_fchmodat, SYS_fchmodat2, SYS_io_uring_setup, SYS_ioprio_set, SYS_kcmp, SYS_migrate_pages,
    SYS_mkdirat, SYS_mknodat, SYS_move_pages, SYS_openat, SYS_openat2, SYS_prlimit64, SYS_process_madvise,
    SYS_process_vm_readv, SYS_process_vm_writev, SYS_sched_setaffinity, SYS_sched_setattr, SYS_sched_setparam,
    SYS_sched_setscheduler, SYS_setpriority, SYS_socket,
};
use rustix::io::Errno;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{BpfProgram, Error, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule};

type Calls = BTreeMap<i64, Vec<SeccompRule>>;

/// The user's or the group's powers for whoever runs the file.
const SET_ID: [u64; 2] = [0o4000, 0o2000];
/// What makes `open` create a file, and so look at its mode.
const CREATING: [u64; 2] = [libc::O_CREAT.unsigned_abs() as u64, O_TMPFILE];
/// Without the bit that says that it is a directory.
const O_TMPFILE: u64 = (libc::O_TMPFILE & !libc::O_DIRECTORY).unsigned_abs() as u64;

/// Refuses them from here on, to this process and all that comes of it.
pub(super) fn filter(network: bool) -> Result<(), Error> {
    refuse(out_of_reach(network)?, Errno::ACCESS)?;
    refuse(set_id()?, Errno::PERM)?;
    refuse(on_others()?, Errno::PERM)?;
    // Its mode is where a filter cannot look. Programs that use it do without on older kernels.
    refuse(Calls::from([(SYS_openat2, Vec::new())]), Errno::NOSYS)?;
    #[cfg(target_arch = "x86_64")]
    seccompiler::apply_filter(&second_table())?;
    Ok(())
}

fn refuse(calls: Calls, error: Errno) -> Result<(), Error> {
    let refused = SeccompAction::Errno(error.raw_os_error().unsigned_abs());
    let arch = std::env::consts::ARCH.try_into()?;
    let filter: BpfProgram = SeccompFilter::new(calls, SeccompAction::Allow, refused, arch)?.try_into()?;
    seccompiler::apply_filter(&filter)
}

/// No rule at all refuses a call whatever its arguments are.
fn out_of_reach(network: bool) -> Result<Calls, Error> {
    let unix = libc::AF_UNIX.unsigned_abs().into();
    let sockets = if network { vec![rule([SeccompCondition::new(0, Dword, Eq, unix)?])?] } else { Vec::new() };
    Ok(Calls::from([(SYS_socket, sockets), (SYS_io_uring_setup, Vec::new())]))
}

/// Files that are made with such a mode, or given it.
fn set_id() -> Result<Calls, Error> {
    // Which of the arguments is the mode, and which says whether there is one.
    let mut modes = vec![(SYS_fchmod, 1), (SYS_fchmodat, 2), (SYS_fchmodat2, 2), (SYS_mknodat, 2), (SYS_mkdirat, 2)];
    let mut opens = vec![(SYS_openat, 2, 3)];
    #[cfg(target_arch = "x86_64")]
    {
        modes.extend([(libc::SYS_chmod, 1), (libc::SYS_mknod, 1), (libc::SYS_mkdir, 1), (libc::SYS_creat, 1)]);
        opens.push((libc::SYS_open, 1, 2));
    }
    let mut calls = Calls::new();
    for bit in SET_ID {
        for (call, mode) in &modes {
            calls.entry(*call).or_default().push(rule([SeccompCondition::new(*mode, Dword, MaskedEq(bit), bit)?])?);
        }
        for (call, flags, mode) in &opens {
            for creating in CREATING {
                let creates = SeccompCondition::new(*flags, Dword, MaskedEq(creating), creating)?;
                let powerful = SeccompCondition::new(*mode, Dword, MaskedEq(bit), bit)?;
                calls.entry(*call).or_default().push(rule([creates, powerful])?);
            }
        }
    }
    Ok(calls)
}

/// What starves, slows or looks into another process. A process names itself by 0.
fn on_others() -> Result<Calls, Error> {
    let other = |argument| SeccompCondition::new(argument, Dword, Ne, 0);
    let limits = rule([other(0)?, SeccompCondition::new(2, Qword, Ne, 0)?])?;
    let all_of_the_user = |which: u32| rule([SeccompCondition::new(0, Dword, Eq, which.into())?]);
    let mut calls = Calls::from([
        (SYS_prlimit64, vec![limits]),
        (SYS_setpriority, vec![rule([other(1)?])?, all_of_the_user(PRIO_USER)?]),
        (SYS_ioprio_set, vec![rule([other(1)?])?, all_of_the_user(IOPRIO_WHO_USER)?]),
        (SYS_process_madvise, Vec::new()),
        (SYS_kcmp, Vec::new()),
    ]);
    for call in [
        SYS_sched_setaffinity,
        SYS_sched_setscheduler,
        SYS_sched_setparam,
        SYS_sched_setattr,
        SYS_migrate_pages,
        SYS_move_pages,
        SYS_process_vm_readv,
        SYS_process_vm_writev,
    ] {
        calls.insert(call, vec![rule([other(0)?])?]);
    }
    Ok(calls)
}

const PRIO_USER: u32 = 2;
const IOPRIO_WHO_USER: u32 = 3;

fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, Error> {
    SeccompRule::new(conditions.into()).map_err(Error::from)
}

/// Some kernels know all calls by a second number (x32), which would not be found in the filters.
#[cfg(target_arch = "x86_64")]
fn second_table() -> BpfProgram {
    use libc::{BPF_ABS, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO};
    const SECOND: u32 = 0x4000_0000;
    let step = |code: u32, jump_if_not: u8, value: u32| seccompiler::sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt: 0,
        jf: jump_if_not,
        k: value,
    };
    vec![
        // The number is what comes first.
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0),
        step(BPF_JMP | BPF_JGE | BPF_K, 1, SECOND),
        step(BPF_RET | BPF_K, 0, SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
        step(BPF_RET | BPF_K, 0, SECCOMP_RET_ALLOW),
    ]
}
