//! Rule: under any network and host faults, every call ends once and truthfully, runs at most once,
//! and leaves nothing behind. A run that breaks this can be repeated by its seed.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write as _;

use sa_sim::{Report, run};

/// Runs only this seed and prints all its events.
const ONE: &str = "SWITCHBOARD_SIM_SEED";
/// The number of seeds to run, and the first seed.
const COUNT: &str = "SWITCHBOARD_SIM_SEEDS";
const FIRST: &str = "SWITCHBOARD_SIM_FIRST";

/// Seeds that once broke a rule.
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds.txt");

/// Runs first, and always.
#[test]
fn seeds_that_once_broke_a_rule() {
    let Some(seed) = number(ONE) else { return check(kept()) };
    let report = run(seed);
    println!("{}", report.trace.join("\n"));
    assert!(report.broken.is_empty(), "{}", told(seed, &report));
}

// A process runs one simulation at a time, and the test runner starts a process for each test.

#[test]
fn first_quarter() {
    quarter(0);
}

#[test]
fn second_quarter() {
    quarter(1);
}

#[test]
fn third_quarter() {
    quarter(2);
}

#[test]
fn last_quarter() {
    quarter(3);
}

#[track_caller]
fn quarter(which: u64) {
    let first = number(FIRST).unwrap_or(0);
    let seeds = first..first.saturating_add(number(COUNT).unwrap_or(32));
    check(seeds.filter(|seed| seed % 4 == which));
}

#[track_caller]
fn check(seeds: impl IntoIterator<Item = u64>) {
    let mut failed = 0;
    for seed in seeds {
        let report = run(seed);
        if !report.broken.is_empty() {
            eprintln!("{}", told(seed, &report));
            keep(seed, &report);
            failed += 1;
        }
    }
    assert!(failed == 0, "{failed} seeds broke a rule");
}

#[test]
fn the_same_seed_is_the_same_run_and_another_one_is_not() {
    let mut traces = HashSet::new();
    for seed in 0..4 {
        let (once, again) = (run(seed), run(seed));
        let differs = once.trace.iter().zip(&again.trace).position(|(once, again)| once != again);
        if let Some(line) = differs {
            let around = |trace: &[String]| {
                trace[line.saturating_sub(5)..trace.len().min(line + 5)].join("\n")
            };
            panic!(
                "seed {seed}, line {line}:\n{}\n--- and then\n{}",
                around(&once.trace),
                around(&again.trace)
            );
        }
        assert_eq!(once, again);
        assert!(traces.insert(once.trace), "seed {seed} is the run of another one");
    }
}

fn told(seed: u64, report: &Report) -> String {
    format!(
        "seed {seed} broke {} rules:\n  {}\nTo see all of it: {ONE}={seed} cargo nextest run --package sa-sim --no-capture once_broke",
        report.broken.len(),
        report.broken.join("\n  "),
    )
}

/// Returns the first word of each line that is not a comment.
fn kept() -> Vec<u64> {
    let text = std::fs::read_to_string(KEPT).unwrap_or_else(|error| panic!("{KEPT}: {error}"));
    let seeds = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    seeds
        .map(|line| line.split(' ').next().unwrap_or(line).parse().expect("a seed is a number"))
        .collect()
}

/// Adds a seed to those that run first from now on.
fn keep(seed: u64, report: &Report) {
    if kept().contains(&seed) {
        return;
    }
    // Appended with one write, because other tests may append too.
    let mut file = OpenOptions::new().append(true).open(KEPT).unwrap();
    file.write_all(format!("{seed} {}\n", report.broken[0]).as_bytes()).unwrap();
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}
