//! Pins processes to processors. If driver, node and gateway share all processors, results depend
//! on the scheduler and vary by a third from run to run. So the measured program runs on one half
//! of the processors, and its clients run on the other half.

use std::fs;

use anyhow::Context as _;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// The two halves, until this value is dropped. Child processes start on this process's half.
pub(crate) struct Halves {
    all: CpuSet,
    /// `None` without pinning, or on a machine with too few processors.
    both: Option<(CpuSet, CpuSet)>,
}

impl Halves {
    pub(crate) fn new(anywhere: bool) -> anyhow::Result<Self> {
        let all = sched_getaffinity(None).context("cannot see which processors there are")?;
        let there: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
        let set = |cpus: &[usize]| {
            let mut set = CpuSet::new();
            for cpu in cpus {
                set.set(*cpu);
            }
            set
        };
        let (first, second) = there.split_at(there.len().div_ceil(2));
        let both = (!anywhere && !second.is_empty()).then(|| (set(first), set(second)));
        Ok(Self { all, both })
    }

    /// Moves this process to the half of the measured program. New child processes start there.
    pub(crate) fn with_what_is_measured(&self) -> anyhow::Result<()> {
        self.both.as_ref().map_or(Ok(()), |(first, _)| go(first))
    }

    /// Moves this process to the half of the clients. New child processes start there.
    pub(crate) fn with_its_users(&self) -> anyhow::Result<()> {
        self.both.as_ref().map_or(Ok(()), |(_, second)| go(second))
    }
}

impl Drop for Halves {
    fn drop(&mut self) {
        let _ = go(&self.all);
    }
}

/// Moves every thread of this process; their child processes inherit the setting.
fn go(processors: &CpuSet) -> anyhow::Result<()> {
    for thread in fs::read_dir("/proc/self/task")? {
        let id = thread?.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        match sched_setaffinity(id, processors) {
            // The thread has ended meanwhile.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error).context("cannot choose processors"),
        }
    }
    Ok(())
}
