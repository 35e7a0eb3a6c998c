//! The measurements.

pub(crate) mod against;
mod beside;
mod calls;
mod channels;
mod chat;
mod durable;
mod machine;
mod mcp;
mod memory;
mod plugins;
mod start;
mod upstream;

use std::path::Path;
use std::time::Duration;

use crate::args::Args;
use crate::report::Report;

pub(crate) use calls::Subject;

/// The inputs of every measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bench<'a> {
    pub(crate) args: &'a Args,
    pub(crate) nats: Option<&'a Path>,
    pub(crate) dir: &'a Path,
}

impl Bench<'_> {
    /// Returns the number and the length of alternating rounds. On a shared machine, a disturbance
    /// affects neighbouring rounds alike, and the median ignores it.
    fn rounds(&self) -> (usize, Duration) {
        if self.args.quick {
            (3, Duration::from_millis(150))
        } else {
            (20, Duration::from_millis(350))
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    Calls,
    Memory,
    Durable,
    Start,
    Machine,
    Mcp,
    Channels,
    Chat,
    Plugins,
}

impl Part {
    pub(crate) const ALL: [Self; 9] = [
        Self::Calls,
        Self::Mcp,
        Self::Chat,
        Self::Plugins,
        Self::Channels,
        Self::Memory,
        Self::Durable,
        Self::Start,
        Self::Machine,
    ];

    pub(crate) async fn measure(
        self,
        bench: &Bench<'_>,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        match self {
            Self::Calls => calls::measure(bench, report).await,
            Self::Memory => memory::measure(bench, report).await,
            Self::Durable => durable::measure(bench, report).await,
            Self::Start => start::measure(bench, report).await,
            Self::Machine => machine::measure(bench, report).await,
            Self::Mcp => mcp::measure(bench, report).await,
            Self::Channels => channels::measure(bench, report).await,
            Self::Chat => chat::measure(bench, report).await,
            Self::Plugins => plugins::measure(bench, report).await,
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// Returns the median of the ratios of each round, which is steadier than the ratio of two medians.
fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect())
}
