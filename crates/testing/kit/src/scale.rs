//! Scales the work of a test: small by default, and large in the long runs of `cargo xtask prove`.

/// Returns a count that the long runs raise with an environment variable.
pub fn count(variable: &str, ordinary: usize) -> usize {
    std::env::var(variable).map_or(ordinary, |n| n.parse().expect("a number"))
}

/// A small random number generator. The seed is enough to repeat a test.
#[derive(Debug, Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

/// Returns the resident memory of a process, in bytes.
pub fn resident(pid: u32) -> u64 {
    status(pid, "VmRSS:")
}

/// Returns the resident memory that belongs to no file, in bytes: heap and stacks.
pub fn resident_anonymous(pid: u32) -> u64 {
    status(pid, "RssAnon:")
}

/// Returns the highest resident memory that a process ever had, in bytes.
pub fn peak_resident(pid: u32) -> u64 {
    status(pid, "VmHWM:")
}

fn status(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

/// Raises the file limit of this process, and of the gateways that it starts, to the system's
/// maximum.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
