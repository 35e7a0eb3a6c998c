//! Process and file system information from Linux.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use nix::time::ClockId;
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Describes the machine in one line, because figures mean little without it.
pub(crate) fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim_start_matches([' ', '\t', ':']).to_owned()
    };
    let memory =
        field(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0_u64);
    format!(
        "{} × {}, {} GB of memory, Linux {}",
        std::thread::available_parallelism().map_or(1, usize::from),
        field(&read("/proc/cpuinfo"), "model name"),
        memory.div_ceil(1 << 20),
        read("/proc/sys/kernel/osrelease").trim(),
    )
}

/// Returns the CPU time of a process so far, over all its threads, in user and kernel mode.
pub(crate) fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    // The clock counts nanoseconds. The resolution of /proc/PID/stat is 10 ms, which is a few
    // percent of a short round.
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid.cast_signed()));
    Ok(clock.and_then(ClockId::now).context("cannot read the CPU time of a process")?.into())
}

/// Returns the resident memory of a process, in bytes.
pub(crate) fn resident(pid: u32) -> anyhow::Result<u64> {
    memory(pid, "VmRSS:")
}

/// Returns the highest resident memory that a process ever had, in bytes.
pub(crate) fn peak_resident(pid: u32) -> anyhow::Result<u64> {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, what: &str) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let line = line.with_context(|| format!("no {what} in /proc/{pid}/status"))?;
    let kb: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kb * 1024)
}

/// Raises the limit on file descriptors. Ten thousand connections need as many descriptors, here
/// and in the gateway, which inherits the limit.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Returns the limit on file descriptors of this process.
pub(crate) fn file_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns whether the file system of this directory is in memory only.
pub(crate) fn is_in_memory(dir: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    rustix::fs::statfs(dir).is_ok_and(|stat| stat.f_type as u64 == TMPFS)
}
