//! Project tasks: `cargo xtask up`, `test`, `ci`, `bench`, `prove`, `web`, `docs`.
//!
//! They install their requirements, so a fresh Debian machine needs only Rust, Node.js and npm.

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
#[command(name = "cargo xtask", about = "Run the project's development tasks")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Build the gateway, start it with a demo node and example plugins, and print the next steps.
    Up {
        /// Build with optimisations, as in production; takes longer.
        #[arg(long)]
        release: bool,
        /// Arguments for `switchboard up`, such as `--listen 127.0.0.1:4000`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        more: Vec<String>,
    },
    /// Install the test requirements and run every test.
    Test {
        /// Run only tests with this text in their name.
        filter: Option<String>,
    },
    /// Run all checks for a change: format, lints, generated files, and every test.
    Ci,
    /// Measure the gateway against comparable programs and print a table of ratios.
    Bench {
        /// Arguments for the load driver, such as `--quick` or `--json`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        more: Vec<String>,
    },
    /// Run the long versions of the fault and crash tests: hundreds of kills, a thousand damaged
    /// files. Takes hours.
    Prove {
        /// Run only these.
        proofs: Vec<prove::Proof>,
    },
    /// Build the web console, which is embedded in the gateway's program.
    Web,
    /// Write the generated documentation.
    Docs,
}

fn main() -> ExitCode {
    match run_chore(Cli::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        // Without a backtrace, regardless of the environment: the failed tool has already printed
        // the reason.
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
    // Replaces this process, so that Ctrl-C reaches only the gateway and its exit code is returned.
    Err(gateway.exec()).with_context(|| format!("cannot run {}", binary.display()))
}

fn test(filter: Option<&str>) -> Result<()> {
    prepare()?;
    if filter.is_none() {
        npm("check")?;
        npm("test")?;
    }
    // Runs the documentation examples first, so that the last line shows the main result.
    if filter.is_none() {
        run(cargo().args(["test", "--workspace", "--doc", "--quiet"]))?;
    }
    // More tests than cores run at once, because tests with real processes spend a third of their
    // time waiting.
    let cores = std::thread::available_parallelism()?.get();
    let at_once = (cores + cores / 2).to_string();
    let tests = [
        "nextest",
        "run",
        "--workspace",
        "--no-fail-fast",
        "--no-tests=pass",
        "--test-threads",
        &at_once,
    ];
    // Machine nodes start login shells. The profile of a developer's own shell may be slow or wait
    // for a lock.
    run(cargo().args(tests).args(filter).env("SHELL", "/bin/sh"))
}

/// Prepares everything that the tests need.
fn prepare() -> Result<()> {
    setup::for_tests()?;
    setup::while_installing(|| {
        // Built first, because Rust tests start programs that use the packages.
        npm("build")?;
        // The end-to-end tests start these as separate processes.
        run(cargo().args(["build", "--workspace", "--bins", "--examples"]))
    })
}

fn ci() -> Result<()> {
    run(cargo().args(["fmt", "--all", "--check"])).context("run `cargo fmt --all`")?;
    setup::for_tests()?;
    // Built before compilation, because the console becomes part of the program.
    web()?;
    setup::while_installing(|| {
        run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
        // A test checks the same rules on every machine. Advisories need the internet and a person
        // to read them.
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
    // Built like a release; the reference programs use the same profile.
    run(cargo().args(["build", "--release", "--package", "switchboard", "--package", "sa-bench"]))?;
    let folder = target().join("release");
    run(Command::new(folder.join("sa-bench"))
        .arg("--switchboard")
        .arg(folder.join("switchboard"))
        .args(more))
}

/// Builds the console if npm is installed. Without it, the gateway serves a page that explains
/// this.
fn web() -> Result<()> {
    if !setup::has_npm() {
        eprintln!("Node.js or npm was not found, so the gateway is built without its web console");
        return Ok(());
    }
    setup::workspace_packages()?;
    run(npm_in(root()).args(["run", "--silent", "build", "--workspace", "console"]))
}

/// Runs a script in every TypeScript package that has it.
fn npm(script: &str) -> Result<()> {
    run(npm_in(root()).args(["run", "--silent", script]))
}

/// Returns npm without its notices about newer versions.
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

/// Runs a command in the foreground and returns an error if it fails.
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
            let cli =
                Cli::try_parse_from(["xtask", "up", "--release"].iter().chain(typed)).unwrap();
            let Chore::Up { release, more } = cli.chore else { panic!("it is another task") };
            assert!(release && more == ["--listen", "127.0.0.1:0"], "{more:?}");
        }
    }
}
