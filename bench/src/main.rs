//! The load driver behind `cargo xtask bench`. It uses real processes over loopback, and the same
//! driver for the gateway and its references. `docs/benchmarks.md` explains each row.

mod args;
mod child;
mod gateway;
mod halves;
mod helper;
mod load;
mod measure;
mod nats;
mod proc;
mod report;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Args;
use crate::measure::Bench;
use crate::report::Report;

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.helper {
        Some(helper) => helper.run(),
        None => drive(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn drive(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            report = run(args) => report,
            // Returning runs the destructors, which end the started processes.
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
            _ = terminate.recv() => anyhow::bail!("terminated"),
        }
    })?;
    print!("{}", if args.json { report.json() } else { report.table() });
    Ok(())
}

async fn run(args: &Args) -> anyhow::Result<Report> {
    proc::raise_file_limit();
    anyhow::ensure!(
        args.switchboard.is_file(),
        "{} does not exist; run `cargo build --profile quick-release -p switchboard`",
        args.switchboard.display()
    );
    let base = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = tempfile::Builder::new().prefix("sa-bench-").tempdir_in(&base);
    let dir = dir.with_context(|| format!("cannot create a directory in {}", base.display()))?;
    let mut report = Report::default();
    if proc::is_in_memory(dir.path()) {
        report.note(format!(
            "{} is in memory, where a sync costs nothing; choose a directory on a disk with --dir",
            base.display()
        ));
    }
    if let Some(old) = &args.against {
        report.note(format!("on {}", proc::machine()));
        let bench = Bench { args, nats: None, dir: dir.path() };
        measure::against::measure(&bench, old, &mut report).await?;
        return Ok(report);
    }
    let nats = match nats::find(args.nats.as_deref()).await {
        Ok(path) => Some(path),
        Err(error) => {
            report.note(format!("nats-server is not available, so it is not measured: {error:#}"));
            None
        }
    };
    let programs = [Some(args.switchboard.as_path()), nats.as_deref(), Some(Path::new("node"))];
    let versions: Vec<String> = programs.into_iter().flatten().filter_map(version).collect();
    report.note(format!("on {}; {}", proc::machine(), versions.join(", ")));
    let bench = Bench { args, nats: nats.as_deref(), dir: dir.path() };
    for part in &args.parts() {
        part.measure(&bench, &mut report).await?;
    }
    Ok(report)
}

/// Returns the version that a program reports.
fn version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().replace(": ", " ");
    // Node.js prints its version without its name.
    Some(if said.starts_with('v') { format!("Node.js {said}") } else { said })
}
