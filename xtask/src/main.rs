//! The project's own chores: `cargo xtask up`, `test`, `ci`, `bench`, `prove`, `web`, `docs`.
//!
//! They install what they need, so that a fresh Debian machine with Rust, Node.js and npm is enough.

mod autobahn;
mod docs;
mod prove;
mod setup;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's own chores")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Build the gateway and start it with a demo node and example plugins; prints what to do next.
    Up {
        /// Optimised, as in production; takes longer to build.
        #[arg(long)]
        release: bool,
        /// Passed on to `switchboard up`, such as `--listen 127.0.0.1:4000`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        more: Vec<String>,
    },
    /// Install what the tests need, and run every test.
    Test {
        /// Only tests whose name contains this.
        filter: Option<String>,
    },
    /// Format, lints, generated files, then every test: what has to pass before a change lands.
    Ci,
    /// Measure the gateway beside its peers; prints a table of ratios.
    Bench {
        /// Passed on to the load driver, such as `--quick` or `--json`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        more: Vec<String>,
    },
    /// The long versions of the fault and crash tests: hundreds of kills, a thousand damaged files. Takes hours.
    Prove {
        /// Only these.
        proofs: Vec<prove::Proof>,
    },
    /// Build the web console, which the gateway's program has inside.
    Web,
    /// Write the generated documentation anew.
    Docs,
}

fn main() -> ExitCode {
    match run_chore(Cli::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        // Without a backtrace, whatever the environment says: the tool that failed has said why.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_chore(chore: Chore) -> Result<()> {
    match chore {
        Chore::Up { release, more } => up(release, &more),
        Chore::Test { filter } => test(filter.as_deref()),
        Chore::Ci => ci(),
        Chore::Bench { more } => bench(&more),
        Chore::Prove { proofs } => prove::run_all(&proofs),
        Chore::Web => web(),
        Chore::Docs => docs::write(),
    }
}

fn up(release: bool, more: &[String]) -> Result<()> {
    setup::compiler()?;
    web()?;
    let (profile, folder) = if release { ("release", "release") } else { ("dev", "debug") };
    let binary = target().join(folder).join("switchboard");
    if !binary.exists() {
        eprintln!("building the gateway; the first time takes a few minutes");
    }
    run(cargo().args(["build", "--profile", profile, "--package", "switchboard"]))?;
    let mut gateway = Command::new(&binary);
    gateway.arg("up").arg("--examples").arg(root().join("examples")).args(more);
    // In place of this process, so that Ctrl-C is the gateway's alone and its exit code is the last word.
    Err(gateway.exec()).with_context(|| format!("cannot run {}", binary.display()))
}

fn test(filter: Option<&str>) -> Result<()> {
    prepare()?;
    if filter.is_none() {
        npm("check")?;
        npm("test")?;
    }
    // The examples in the docs first: the last line is then the one that counts.
    if filter.is_none() {
        run(cargo().args(["test", "--workspace", "--doc", "--quiet"]))?;
    }
    // More than there are cores: the tests with real processes wait for a third of their time.
    let cores = std::thread::available_parallelism()?.get();
    let at_once = (cores + cores / 2).to_string();
    let tests = ["nextest", "run", "--workspace", "--no-fail-fast", "--no-tests=pass", "--test-threads", &at_once];
    // Machine nodes start login shells. The profile of a developer's own shell may be slow, or wait for a lock.
    run(cargo().args(tests).args(filter).env("SHELL", "/bin/sh"))
}

/// What has to be there before a test runs.
fn prepare() -> Result<()> {
    setup::for_tests()?;
    setup::while_installing(|| {
        // Built first: tests in Rust start programs that use the packages.
        npm("build")?;
        // The end-to-end tests start these as processes of their own.
        run(cargo().args(["build", "--workspace", "--bins", "--examples"]))
    })
}

fn ci() -> Result<()> {
    run(cargo().args(["fmt", "--all", "--check"])).context("run: cargo fmt --all")?;
    setup::for_tests()?;
    // Before anything is compiled: it becomes part of the program.
    web()?;
    setup::while_installing(|| {
        run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
        // A test checks the same rules everywhere; advisories need the internet, and somebody who reads them.
        if setup::has_cargo_deny() {
            run(cargo().args(["deny", "--offline", "check", "bans", "licenses", "sources"]))?;
        }
        docs::check()
    })?;
    test(None)
}

fn bench(more: &[String]) -> Result<()> {
    setup::for_benchmarks()?;
    web()?;
    // As it is shipped; what it is compared with is built in the same way.
    run(cargo().args(["build", "--release", "--package", "switchboard", "--package", "sa-bench"]))?;
    let folder = target().join("release");
    run(Command::new(folder.join("sa-bench")).arg("--switchboard").arg(folder.join("switchboard")).args(more))
}

/// Builds the console, when there is something to build it with. Without, the gateway has a page that says so.
fn web() -> Result<()> {
    if !setup::has_npm() {
        eprintln!("Node.js and npm are not here, so the gateway is built without its web console");
        return Ok(());
    }
    setup::workspace_packages()?;
    run(npm_in(root()).args(["run", "--silent", "build", "--workspace", "console"]))
}

/// Runs a script of every TypeScript package that has it.
fn npm(script: &str) -> Result<()> {
    run(npm_in(root()).args(["run", "--silent", script]))
}

/// npm, without a word on newer versions of itself.
pub(crate) fn npm_in(place: &Path) -> Command {
    let mut npm = Command::new("npm");
    npm.env("npm_config_update_notifier", "false").current_dir(place);
    npm
}

pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// Runs a command in the foreground; its failure is ours.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}").replace('"', "");
    let status = command.status().with_context(|| format!("cannot run {shown}"))?;
    ensure!(status.success(), "failed: {shown}");
    Ok(())
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_up_is_the_gateways() {
        for typed in [&["--listen", "127.0.0.1:0"][..], &["--", "--listen", "127.0.0.1:0"]] {
            let cli = Cli::try_parse_from(["xtask", "up", "--release"].iter().chain(typed)).unwrap();
            let Chore::Up { release, more } = cli.chore else { panic!("it is another chore") };
            assert!(release && more == ["--listen", "127.0.0.1:0"], "{more:?}");
        }
    }
}
