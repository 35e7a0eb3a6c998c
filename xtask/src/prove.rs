//! The long tests: the ordinary tests with larger numbers, too slow to run for every change.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use crate::{autobahn, cargo, prepare, run, target};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Proof {
    /// Run power loss, kills and damage of the store, and random histories of the core.
    Store,
    /// Run kills, cut connections and slow readers of channels.
    Channels,
    /// Run a thousand channel clients that are disconnected at random for minutes.
    Storm,
    /// Run ten thousand clients that reconnect after a restart of a release build.
    Restart,
    /// Run all of Autobahn's test suite against the gateway and its clients. Includes messages of
    /// 16 MiB, and of 4 MiB in fragments of 64 bytes.
    Websocket,
    /// Run an hour of clients that connect and disconnect. The live heap must not grow from the
    /// second third of the rounds to the last. The first third fills caches, and resident memory
    /// includes the allocator's reserve.
    Leaks,
    /// Run thousands of simulations with new seeds. A seed that breaks a rule is printed and
    /// stored.
    Simulation,
}

/// Runs the given proofs, or all of them. A failure does not stop the others, because a proof can
/// take an hour.
pub(crate) fn run_all(proofs: &[Proof]) -> Result<()> {
    prepare()?;
    let proofs = if proofs.is_empty() { Proof::value_variants() } else { proofs };
    let results = proofs.iter().map(|proof| {
        let start = Instant::now();
        (proof, proof.run(), start.elapsed().as_secs() / 60)
    });
    let results: Vec<_> = results.collect();
    for (proof, result, minutes) in &results {
        let result =
            result.as_ref().map_or_else(|error| format!("{error:#}"), |()| "holds".to_owned());
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
            // One test at a time, because each uses many processes and connections.
            Self::Channels => tests_with(
                &["--test-threads", "1"],
                "package(sa-e2e) & test(/^channels::/)",
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
                "package(sa-e2e) & test(/^messaging::storm/)",
                &[("SWITCHBOARD_STORM_CLIENTS", "1000"), ("SWITCHBOARD_STORM_MESSAGES", "1000")],
            ),
            Self::Restart => {
                run(cargo().args(["build", "--release", "--package", "switchboard"]))?;
                let program = target().join("release/switchboard").into_os_string();
                tests(
                    "package(sa-e2e) & test(/^process::reconnect_storm/)",
                    &[
                        ("SWITCHBOARD_RESTART_CLIENTS", OsString::from("10000")),
                        ("SWITCHBOARD_RESTART_SECONDS", "15".into()),
                        ("SWITCHBOARD_RESTART_PROGRAM", program),
                    ],
                )
            }
            Self::Websocket => {
                autobahn::install()?;
                tests(
                    "package(sa-e2e) & test(/^websocket::/)",
                    &[("SWITCHBOARD_AUTOBAHN_ALL", "1")],
                )
            }
            Self::Leaks => tests(
                "package(sa-e2e) & test(/^limits::leaks/)",
                &[("SWITCHBOARD_CHURN_SECONDS", "3600"), ("SWITCHBOARD_CHURN_WIDTH", "6")],
            ),
            Self::Simulation => {
                let first = RandomState::new().hash_one("a new place to begin") >> 16;
                tests(
                    "package(sa-sim)",
                    &[
                        ("SWITCHBOARD_SIM_SEEDS", "5000".to_owned()),
                        ("SWITCHBOARD_SIM_FIRST", first.to_string()),
                    ],
                )
            }
        }
    }
}

/// Runs the tests that match a nextest filter.
fn tests<V: AsRef<OsStr>>(which: &str, how_much: &[(&str, V)]) -> Result<()> {
    tests_with(&[], which, how_much)
}

fn tests_with<V: AsRef<OsStr>>(
    options: &[&str],
    which: &str,
    how_much: &[(&str, V)],
) -> Result<()> {
    let mut nextest = cargo();
    // Builds the whole workspace even for few tests. A single package would have dependencies with
    // other features, which would be built again.
    nextest
        .args(["nextest", "run", "--workspace", "--no-fail-fast", "--filterset", which])
        .args(options);
    // The profile has a higher time limit than the ordinary runs.
    nextest
        .env("NEXTEST_PROFILE", "prove")
        .envs(how_much.iter().map(|(name, value)| (name, value)));
    run(&mut nextest)
}
