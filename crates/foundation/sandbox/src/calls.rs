//! The system calls that a sandboxed command may not use.
//!
//! Most of them need a capability, or act on something that a namespace already isolates. They are
//! refused nevertheless, because each is a way into kernel code that an attack could use.

use std::collections::BTreeMap;
use std::io;

use nix::libc::{self, c_long};
use rustix::io::Errno;
use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{BpfProgram, Error, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule};

use crate::policy::Policy;

type Calls = BTreeMap<i64, Vec<SeccompRule>>;

/// System calls that are refused with every argument.
const REFUSED: [c_long; 58] = [
    // Keys of the kernel, which belong to a user and not to a namespace.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // Shared memory, semaphores and message queues of System V.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    STATMOUNT,
    LISTMOUNT,
    // Access to files by handle instead of path, which bypasses the view.
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // Parts of the kernel with many vulnerabilities in the past.
    libc::SYS_bpf,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    // Watches all files of the machine, and takes from the instances of its user.
    libc::SYS_fanotify_init,
    // The machine as a whole.
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_lookup_dcookie,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
];

/// File attributes cannot be changed. Otherwise a command could mark a file as a gateway's secret,
/// and so prevent the node from starting commands. Programs that copy files ignore `EOPNOTSUPP`,
/// because some file systems have no attributes.
const ATTRIBUTES: [c_long; 6] = [
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];

/// This call (`setxattrat`) and all with a higher number do not exist in a sandbox. Each of them
/// came with Linux 6.13 or later, and programs work without them on older kernels. Among them are
/// `open_tree_attr`, and calls that are newer than this list. On x86_64, the numbers of a second
/// table of all calls (x32) are higher, too.
const FIRST_MISSING: u32 = 463;

/// Namespaces that `clone` can create. `clone3` passes its flags in memory, which a filter cannot
/// read, so it is disabled.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWCGROUP,
];

/// The `ioctl` requests for simulated terminal input and for commands of the console.
const TERMINAL_INPUT: [u64; 2] = [0x5412, 0x541C];

/// The `fcntl` commands `F_SETLEASE` and `F_NOTIFY`. A lease on a file of the host delays every
/// other program that opens it.
const LEASES: [u64; 2] = [1024, 1026];

/// The setuid and setgid bits: every user runs the file with the rights of its user or group.
const SET_ID: [u64; 2] = [0o4000, 0o2000];
/// The flags with which `open` creates a file, and so uses its mode.
const CREATING: [u64; 2] = [libc::O_CREAT.unsigned_abs() as u64, O_TMPFILE];
/// These calls have the same numbers on every architecture. Some architectures do not list them
/// yet.
const FCHMODAT2: c_long = 452;
const STATMOUNT: c_long = 457;
const LISTMOUNT: c_long = 458;
/// Without the `O_DIRECTORY` bit, which `O_TMPFILE` includes.
const O_TMPFILE: u64 = (libc::O_TMPFILE & !libc::O_DIRECTORY).unsigned_abs() as u64;

/// Refuses these calls from now on, to this process and all processes that it starts.
pub(crate) fn filter(policy: &Policy) -> io::Result<()> {
    let missing = |error: Error| {
        io::Error::other(format!(
            "seccomp filters are not available (the kernel needs CONFIG_SECCOMP_FILTER): {error}"
        ))
    };
    install(policy).map_err(missing)
}

fn install(policy: &Policy) -> Result<(), Error> {
    refuse(sockets(policy)?, Errno::ACCESS)?;
    refuse(forbidden()?, Errno::PERM)?;
    refuse(ATTRIBUTES.into_iter().map(|call| (call, Vec::new())).collect(), Errno::OPNOTSUPP)?;
    // Programs work without these calls on older kernels. `openat2` passes the mode of a file in
    // memory, like the flags of `clone3`.
    refuse(
        Calls::from([(libc::SYS_clone3, Vec::new()), (libc::SYS_openat2, Vec::new())]),
        Errno::NOSYS,
    )?;
    seccompiler::apply_filter(&newer_calls())
}

fn refuse(calls: Calls, error: Errno) -> Result<(), Error> {
    let refused = SeccompAction::Errno(error.raw_os_error().unsigned_abs());
    let arch = std::env::consts::ARCH.try_into()?;
    let filter: BpfProgram =
        SeccompFilter::new(calls, SeccompAction::Allow, refused, arch)?.try_into()?;
    seccompiler::apply_filter(&filter)
}

/// Allows only the usual socket families. Others bypass network namespaces (`AF_VSOCK` reaches the
/// host of a virtual machine) or are rarely used parts of the kernel.
fn sockets(policy: &Policy) -> Result<Calls, Error> {
    let mut families = Vec::new();
    // Without a network, the sandbox has a network namespace of its own.
    if policy.network || policy.unix_sockets {
        families.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    if policy.unix_sockets {
        families.push(libc::AF_UNIX);
    }
    let others: Result<Vec<_>, _> = families
        .iter()
        .map(|family| SeccompCondition::new(0, Dword, Ne, family.unsigned_abs().into()))
        .collect();
    let others = others?;
    // A call without any rule is refused whatever its arguments are.
    let rules = if others.is_empty() { Vec::new() } else { vec![SeccompRule::new(others)?] };
    let mut calls = Calls::from([(libc::SYS_socket, rules)]);
    if !policy.unix_sockets {
        calls.insert(libc::SYS_socketpair, unconnected_pairs()?);
    }
    Ok(calls)
}

/// Programs use pairs of connected sockets between their own processes. A datagram socket of a pair
/// can still send to every other socket.
fn unconnected_pairs() -> Result<Vec<SeccompRule>, Error> {
    const TYPE: u64 = 0xf;
    let of_type = |kind: i32| {
        rule([SeccompCondition::new(1, Dword, MaskedEq(TYPE), kind.unsigned_abs().into())?])
    };
    let family = libc::AF_UNIX.unsigned_abs().into();
    Ok(vec![
        rule([SeccompCondition::new(0, Dword, Ne, family)?])?,
        of_type(libc::SOCK_DGRAM)?,
        // The kernel treats a raw socket of this family as a datagram socket.
        of_type(libc::SOCK_RAW)?,
    ])
}

fn forbidden() -> Result<Calls, Error> {
    let mut calls: Calls = REFUSED.into_iter().map(|call| (call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    calls.extend([libc::SYS_ioperm, libc::SYS_iopl].map(|call| (call, Vec::new())));
    for flag in NAMESPACES {
        let flag = flag.unsigned_abs().into();
        let made = SeccompCondition::new(0, Dword, MaskedEq(flag), flag)?;
        calls.entry(libc::SYS_clone).or_default().push(rule([made])?);
    }
    for request in TERMINAL_INPUT {
        calls
            .entry(libc::SYS_ioctl)
            .or_default()
            .push(rule([SeccompCondition::new(1, Dword, Eq, request)?])?);
    }
    for command in LEASES {
        let condition = SeccompCondition::new(1, Dword, Eq, command)?;
        calls.entry(libc::SYS_fcntl).or_default().push(rule([condition])?);
    }
    set_id(&mut calls)?;
    Ok(calls)
}

/// Refuses to create files with setuid or setgid bits, or to set these bits. They would be
/// effective outside of the sandbox.
fn set_id(calls: &mut Calls) -> Result<(), Error> {
    // The index of the mode argument, and of the argument that decides whether there is a mode.
    const MODES: &[(c_long, u8)] = &[
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (FCHMODAT2, 2),
        (libc::SYS_mknodat, 2),
        (libc::SYS_mkdirat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mkdir, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_creat, 1),
    ];
    const OPENS: &[(c_long, u8, u8)] = &[
        (libc::SYS_openat, 2, 3),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, 1, 2),
    ];
    for bit in SET_ID {
        for (call, mode) in MODES {
            calls.entry(*call).or_default().push(rule([SeccompCondition::new(
                *mode,
                Dword,
                MaskedEq(bit),
                bit,
            )?])?);
        }
        for (call, flags, mode) in OPENS {
            for creating in CREATING {
                let creates = SeccompCondition::new(*flags, Dword, MaskedEq(creating), creating)?;
                let powerful = SeccompCondition::new(*mode, Dword, MaskedEq(bit), bit)?;
                calls.entry(*call).or_default().push(rule([creates, powerful])?);
            }
        }
    }
    Ok(())
}

fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, Error> {
    SeccompRule::new(conditions.into()).map_err(Error::from)
}

/// Makes newer calls fail with `ENOSYS`. The other filters check that the call is one of this
/// architecture.
fn newer_calls() -> BpfProgram {
    use libc::{
        BPF_ABS, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW,
        SECCOMP_RET_ERRNO,
    };
    let step = |code: u32, jump_if_not: u8, value: u32| seccompiler::sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt: 0,
        jf: jump_if_not,
        k: value,
    };
    vec![
        // The call's number is at offset 0.
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0),
        step(BPF_JMP | BPF_JGE | BPF_K, 1, FIRST_MISSING),
        step(BPF_RET | BPF_K, 0, SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
        step(BPF_RET | BPF_K, 0, SECCOMP_RET_ALLOW),
    ]
}
