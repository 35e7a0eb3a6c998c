//! What takes too long for every change: the same tests as ever, with more of everything.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use crate::{autobahn, cargo, prepare, run, target};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Proof {
    /// Power loss, kills and damage, of the store; random histories of the core.
    Store,
    /// Kills, cuts and slow readers, of channels.
    Channels,
    /// A thousand clients of a channel, cut off at random for minutes.
    Storm,
    /// Ten thousand that come back after a restart, of a gateway as it is shipped.
    Restart,
    /// All of Autobahn's test suite, of the gateway and its clients: messages of 16 MiB, and such of 4 MiB in fragments of 64 bytes, included.
    Websocket,
    /// Half an hour of clients that come and go. The live bytes of the heap must not grow from the second third of the
    /// rounds to the last one: the first third fills caches, and resident memory also has what the allocator keeps.
    Leaks,
    /// Thousands of simulated runs that nobody has seen before. A seed that breaks a rule is printed, and kept.
    Simulation,
}

/// Runs these, or all, each to its end: an hour's work of one is not lost because another has failed.
pub(crate) fn run_all(proofs: &[Proof]) -> Result<()> {
    prepare()?;
    let proofs = if proofs.is_empty() { Proof::value_variants() } else { proofs };
    let results = proofs.iter().map(|proof| {
        let start = Instant::now();
        (proof, proof.run(), start.elapsed().as_secs() / 60)
    });
    let results: Vec<_> = results.collect();
    for (proof, result, minutes) in &results {
        let result = result.as_ref().map_or_else(|error| format!("{error:#}"), |()| "holds".to_owned());
        eprintln!("{proof:?}, {minutes} min: {result}");
    }
    let failed = results.iter().filter(|(_, result, _)| result.is_err()).count();
    ensure!(failed == 0, "{failed} of {} proofs failed", results.len());
    Ok(())
}

impl Proof {
    fn run(self) -> Result<()> {
        match self {
            Self::Store => tests(
                "package(sa-store) | package(sa-store-faults) | package(sa-core)",
                &[
                    ("SWITCHBOARD_POWER_LOSSES", "1000"),
                    ("SWITCHBOARD_CRASH_KILLS", "200"),
                    ("SWITCHBOARD_DAMAGE_PLACES", "1000"),
                    ("PROPTEST_CASES", "5000"),
                ],
            ),
            // One at a time: each has as many processes and connections as a machine likes to have.
            Self::Channels => tests_with(
                &["--test-threads", "1"],
                "package(sa-e2e) & test(/^channel_/)",
                &[
                    ("SWITCHBOARD_CHANNEL_KILLS", "200"),
                    ("SWITCHBOARD_CHANNEL_STORED", "1000000"),
                    ("SWITCHBOARD_CHANNEL_CLIENT_KILLS", "50"),
                    ("SWITCHBOARD_CHANNEL_READERS", "1000"),
                    ("SWITCHBOARD_CHANNEL_LATENCY_PAIRS", "7"),
                    ("SWITCHBOARD_CHANNEL_CLIENTS", "1000"),
                    ("SWITCHBOARD_CHANNEL_CUT_SECONDS", "180"),
                    ("SWITCHBOARD_CHANNEL_CUT_MS", "5000"),
                    ("SWITCHBOARD_CHANNEL_NOTES", "2000"),
                ],
            ),
            Self::Storm => tests(
                "package(sa-e2e) & test(/^messaging_storm/)",
                &[("SWITCHBOARD_STORM_CLIENTS", "1000"), ("SWITCHBOARD_STORM_MESSAGES", "1000")],
            ),
            Self::Restart => {
                run(cargo().args(["build", "--release", "--package", "switchboard"]))?;
                let program = target().join("release/switchboard").into_os_string();
                tests(
                    "package(sa-e2e) & test(/^reconnect_storm/)",
                    &[
                        ("SWITCHBOARD_RESTART_CLIENTS", OsString::from("10000")),
                        ("SWITCHBOARD_RESTART_SECONDS", "15".into()),
                        ("SWITCHBOARD_RESTART_PROGRAM", program),
                    ],
                )
            }
            Self::Websocket => {
                autobahn::install()?;
                tests("package(sa-e2e) & test(/^websocket_conformance/)", &[("SWITCHBOARD_AUTOBAHN_ALL", "1")])
            }
            Self::Leaks => tests(
                "package(sa-e2e) & test(/^leaks/)",
                &[("SWITCHBOARD_CHURN_SECONDS", "1800"), ("SWITCHBOARD_CHURN_WIDTH", "6")],
            ),
            Self::Simulation => {
                let first = RandomState::new().hash_one("a new place to begin") >> 16;
                tests(
                    "package(sa-sim)",
                    &[("SWITCHBOARD_SIM_SEEDS", "5000".to_owned()), ("SWITCHBOARD_SIM_FIRST", first.to_string())],
                )
            }
        }
    }
}

/// Runs the tests that a filter of nextest's names.
fn tests<V: AsRef<OsStr>>(which: &str, how_much: &[(&str, V)]) -> Result<()> {
    tests_with(&[], which, how_much)
}

fn tests_with<V: AsRef<OsStr>>(options: &[&str], which: &str, how_much: &[(&str, V)]) -> Result<()> {
    let mut nextest = cargo();
    // Of the whole workspace, however few they are: on its own a package has dependencies with other features, built anew.
    nextest.args(["nextest", "run", "--workspace", "--no-fail-fast", "--filterset", which]).args(options);
    // The ordinary limit on a test's time is for the ordinary runs.
    nextest.env("NEXTEST_PROFILE", "prove").envs(how_much.iter().map(|(name, value)| (name, value)));
    run(&mut nextest)
}
