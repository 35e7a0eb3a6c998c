//! Which processors things run on. Where driver, node and what they use share all of them, the scheduler decides from run to
//! run who waits for whom, and the same program is a third faster or slower for it. So what is measured has one half of the
//! machine, whatever it is, and those who use it have the other one.

use std::fs;

use anyhow::Context as _;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// The halves, until this is dropped. Processes run where this one is when they are started.
pub(crate) struct Halves {
    all: CpuSet,
    /// `None` where everything may be everywhere, as it is on a machine that has nothing to halve.
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

    /// From here on, this process and those it starts are where what is measured is.
    pub(crate) fn with_what_is_measured(&self) -> anyhow::Result<()> {
        self.both.as_ref().map_or(Ok(()), |(first, _)| go(first))
    }

    /// From here on, they are where those are who use it.
    pub(crate) fn with_its_users(&self) -> anyhow::Result<()> {
        self.both.as_ref().map_or(Ok(()), |(_, second)| go(second))
    }
}

impl Drop for Halves {
    fn drop(&mut self) {
        let _ = go(&self.all);
    }
}

/// Every thread of this process; what they start goes with them.
fn go(processors: &CpuSet) -> anyhow::Result<()> {
    for thread in fs::read_dir("/proc/self/task")? {
        let id = thread?.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        match sched_setaffinity(id, processors) {
            // It has ended meanwhile.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error).context("cannot choose processors"),
        }
    }
    Ok(())
}
