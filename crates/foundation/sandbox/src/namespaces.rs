//! The supervisor's part: enters new namespaces and starts the first process in them.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};

use nix::sched::{CloneFlags, unshare};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    set_capabilities, set_thread_groups,
};
use serde::{Deserialize, Serialize};

use crate::init::{Ended, Launch, Report};
use crate::{INIT, Policy, files, handover};

/// The command to run. It uses the supervisor's directory and environment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Command {
    pub program: OsString,
    pub args: Vec<OsString>,
    /// Whether the input is a terminal, which becomes the command's controlling terminal.
    pub terminal: bool,
}

/// The namespaces of a sandbox in which nothing runs yet.
#[derive(Debug)]
pub struct Namespaces {
    policy: Policy,
    landlock: i32,
}

/// A command that runs in a sandbox.
#[derive(Debug)]
pub struct Started {
    /// The first process of the sandbox. Killing it kills all others. It ends shortly after the
    /// command, with the command's exit code. If a signal ended the command, the exit code is 128
    /// plus its number.
    pub init: Child,
    report: BufReader<UnixStream>,
}

const FORBIDDEN: &str = "user namespaces are not available to this user (see the settings user.max_user_namespaces, \
kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns; most container runtimes forbid them \
by default, and root needs CAP_SETFCAP)";

/// The namespaces besides the user namespace: flag, name, and the middle part of the setting with
/// their maximum number.
const OTHERS: [(CloneFlags, &str, &str); 3] = [
    (CloneFlags::CLONE_NEWNS, "mount", "mnt"),
    (CloneFlags::CLONE_NEWIPC, "IPC", "ipc"),
    (CloneFlags::CLONE_NEWUTS, "UTS", "uts"),
];
const NETWORK: [(CloneFlags, &str, &str); 1] = [(CloneFlags::CLONE_NEWNET, "network", "net")];

/// The maximum length of a report's line, in bytes.
const MAX_REPORT: u64 = 16 * 1024;

/// The capabilities that `init` needs to build the view. It drops them before it starts the
/// command.
const NEEDED: [CapabilitySet; 2] = [CapabilitySet::SYS_ADMIN, CapabilitySet::SETPCAP];

impl Namespaces {
    /// Moves this process to new user, mount, IPC and host name namespaces. Without a network, it
    /// also gets a new network namespace. The process must not have other threads yet: the kernel
    /// refuses a user namespace to a process with several threads.
    pub fn enter(policy: Policy) -> io::Result<Self> {
        let policy = policy.resolved();
        policy.check().map_err(io::Error::other)?;
        let (user, group) =
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        // Only root can do this. Otherwise the groups stay, and `secrets` hides the files that they
        // give.
        let _ = set_thread_groups(&[]);
        let forbidden =
            |error: &dyn std::fmt::Display| io::Error::other(format!("{FORBIDDEN}: {error}"));
        unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| forbidden(&error))?;
        // Maps one user and one group to the same numbers as outside, so files of the workspace
        // keep their owner.
        std::fs::write("/proc/self/setgroups", "deny").map_err(|error| forbidden(&error))?;
        std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))
            .map_err(|error| forbidden(&error))?;
        std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
            .map_err(|error| forbidden(&error))?;
        let network = NETWORK.into_iter().filter(|_| !policy.network);
        // One after the other, so that the error names the missing one.
        for (flag, name, setting) in OTHERS.into_iter().chain(network) {
            unshare(flag).map_err(|error| missing(name, setting, error))?;
        }
        if !policy.network {
            // Programs that connect to themselves need the loopback device. Without it, the sandbox
            // is still secure.
            let _ = raise_loopback();
        }
        Ok(Self { policy, landlock: files::NEWEST })
    }

    /// Uses no newer version of Landlock than this one. Only tests need this: they run on a newer
    /// kernel than the oldest that is supported.
    #[must_use]
    pub fn with_landlock(self, highest: i32) -> Self {
        Self { landlock: highest, ..self }
    }

    /// Starts a command with this input, output and error output. The process can start no thread
    /// after this, because its children are in another PID namespace. The calling thread must live
    /// at least as long as the command.
    pub fn start(
        self,
        command: Option<Command>,
        files: [BorrowedFd<'_>; 3],
    ) -> io::Result<Started> {
        unshare(CloneFlags::CLONE_NEWPID).map_err(|error| missing("PID", "pid", error))?;
        pass_on_capabilities()?;
        let (ours, theirs) = UnixStream::pair()?;
        let init = std::process::Command::new("/proc/self/exe")
            .arg0("switchboard-sandbox")
            .arg(INIT)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let launch =
            handover::in_memory(&Launch { policy: self.policy, command, landlock: self.landlock })?;
        let [input, output, errors] = files;
        handover::send(&ours, &[launch.as_fd(), input, output, errors])?;
        let mut report = BufReader::new(ours);
        match Report::read(&mut report)? {
            Some(Report::Started) => Ok(Started { init, report }),
            Some(Report::Failed(why)) => Err(io::Error::other(why)),
            _ => Err(io::Error::other(
                "the sandbox's first process ended before it started the command",
            )),
        }
    }
}

impl Started {
    /// Returns how the command ended, after `init` has ended. Returns `None` if `init` was killed.
    pub fn ended(&mut self) -> Option<Ended> {
        match Report::read(&mut self.report) {
            Ok(Some(Report::Ended(ended))) => Some(ended),
            _ => None,
        }
    }
}

impl Report {
    /// Reads the next report of `init`.
    fn read(lines: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        lines.take(MAX_REPORT).read_line(&mut line)?;
        Ok(serde_json::from_str(&line).ok())
    }
}

fn missing(name: &str, setting: &str, error: nix::Error) -> io::Error {
    io::Error::other(format!(
        "{name} namespaces are not available in a user namespace (see the settings user.max_{setting}_namespaces and \
         kernel.apparmor_restrict_unprivileged_userns; a container's runtime may also forbid them): {error}"
    ))
}

/// Lets the next program keep the required capabilities. When a program starts, the kernel drops
/// all capabilities of users other than root, except those in the ambient set.
fn pass_on_capabilities() -> io::Result<()> {
    let needed: CapabilitySet = NEEDED.into_iter().collect();
    let own = capabilities(None)?;
    let inheritable = own.inheritable | needed;
    let denied = |error| {
        io::Error::other(format!("capabilities are not available in a user namespace: {error}"))
    };
    set_capabilities(None, CapabilitySets { inheritable, ..own }).map_err(denied)?;
    for capability in NEEDED {
        configure_capability_in_ambient_set(capability, true).map_err(denied)?;
    }
    Ok(())
}

/// Sets the flag `IFF_UP` of the loopback device with an rtnetlink message: `RTM_NEWLINK` for
/// device 1.
fn raise_loopback() -> io::Result<()> {
    const LENGTH: u32 = 32;
    const RTM_NEWLINK: u16 = 16;
    const REQUEST_AND_ACK: u16 = 1 | 4;
    const LOOPBACK: i32 = 1;
    const IFF_UP: u32 = 1;
    let mut message = Vec::with_capacity(LENGTH as usize);
    message.extend(LENGTH.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(REQUEST_AND_ACK.to_ne_bytes());
    // Sequence number, port; then family, padding and kind of device.
    message.extend([0; 4 + 4 + 4]);
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    // The default protocol of this family is rtnetlink.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &message, SendFlags::empty())?;
    recv(&socket, &mut [0; 1024], RecvFlags::empty())?;
    Ok(())
}
