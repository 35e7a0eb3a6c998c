//! Installs the programs that a machine lacks.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::{cargo, npm_in, root, run, target};

/// Programs, each with its Debian package.
const COMPILER: [(&str, &str); 2] = [("cc", "build-essential"), ("c++", "build-essential")];
const PACKAGES: [(&str, &str); 2] = [("npm", "npm"), ("node", "nodejs")];
const TESTS: [(&str, &str); 6] = [
    ("curl", "curl"),
    ("unshare", "util-linux"),
    ("openssl", "openssl"),
    ("bash", "bash"),
    ("chromium", "chromium"),
    ("faketime", "faketime"),
];

pub(crate) fn compiler() -> Result<()> {
    packages(&COMPILER)
}

/// The programs with which searching is compared.
const SEARCHERS: [(&str, &str); 2] = [("rg", "ripgrep"), ("fdfind", "fd-find")];

pub(crate) fn for_benchmarks() -> Result<()> {
    compiler()?;
    packages(&SEARCHERS)?;
    // Without Node.js the report has a note instead of that comparison.
    if has_npm() { npm_packages("xtask/plugin-gateway", "plugin-gateway") } else { Ok(()) }
}

/// Installs the requirements for compiling the tests.
pub(crate) fn for_tests() -> Result<()> {
    compiler()?;
    packages(&PACKAGES)?;
    workspace_packages()
}

/// Runs this work while the requirements for running tests are installed, because that mostly waits
/// for downloads.
pub(crate) fn while_installing(work: impl FnOnce() -> Result<()>) -> Result<()> {
    std::thread::scope(|scope| {
        let installing = scope.spawn(what_tests_run_with);
        let worked = work();
        let installed = installing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        worked.and(installed)
    })
}

fn what_tests_run_with() -> Result<()> {
    packages(&TESTS)?;
    // Debian's Python does not include virtual environments.
    if !succeeds(Command::new("python3").args(["-m", "ensurepip", "--version"])) {
        debian(&["python3-venv"])?;
    }
    if !succeeds(cargo().args(["nextest", "--version"])) {
        eprintln!("installing cargo-nextest, the test runner");
        run(cargo().args(["install", "cargo-nextest", "--locked"]))?;
    }
    npm_packages("xtask/mcp", "mcp-peers")?;
    npm_packages("xtask/upstream", "upstream-servers")?;
    npm_packages("xtask/openai", "openai-clients")?;
    npm_packages("xtask/plugin-pages", "plugin-pages")?;
    python_package("mcp==2.3.0", "mcp-peers/venv")?;
    // Most deployed clients use the previous major version.
    python_package("mcp==1.30.0", "mcp-peers/venv1")?;
    python_package("openai==3.49.0", "openai-clients/venv")?;
    python_package("schemathesis==4.32.5", "schemathesis/venv")?;
    // The suite needs packages of an unsupported Debian release, which may disappear. The other
    // tests must still run then. The suite's own tests fail and explain how to skip them.
    if let Err(error) = crate::autobahn::install() {
        eprintln!("Autobahn's test suite for WebSockets cannot be installed: {error:#}");
    }
    Ok(())
}

pub(crate) fn has_npm() -> bool {
    exists("npm") && exists("node")
}

pub(crate) fn has_cargo_deny() -> bool {
    succeeds(cargo().args(["deny", "--version"]))
}

/// Installs the build and test dependencies of the TypeScript packages and the console, in the
/// root's `node_modules`.
pub(crate) fn workspace_packages() -> Result<()> {
    let wanted = fs::read_to_string(root().join("package-lock.json"))?;
    let installed = root().join("node_modules/.installed");
    if fs::read_to_string(&installed).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    eprintln!("installing the build tools of the TypeScript packages");
    install(root())?;
    Ok(fs::write(installed, wanted)?)
}

/// Installs exactly the versions of the lock file. `npm ci` never changes that file, so a fresh
/// clone stays clean.
fn install(place: &Path) -> Result<()> {
    run(npm_in(place).args(["ci", "--no-audit", "--no-fund", "--loglevel", "error"]))
}

/// Installs third-party programs against which the gateway is tested or measured. These are MCP's
/// conformance suite, the official SDKs, the Inspector, the reference server, SDKs for plugin
/// pages, OpenAI's client, and a plugin gateway. They go into the target directory, once for each
/// set of versions.
fn npm_packages(source: &str, place: &str) -> Result<()> {
    let (source, place) = (root().join(source), target().join(place));
    let wanted = fs::read_to_string(source.join("package-lock.json"))?;
    let installed = place.join("installed");
    if fs::read_to_string(&installed).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    eprintln!("installing third-party programs into {}", place.display());
    fs::create_dir_all(&place)?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(source.join(file), place.join(file))?;
    }
    install(&place)?;
    Ok(fs::write(installed, wanted)?)
}

/// Installs Python packages: the official MCP SDK, OpenAI's client, and a tester for OpenAPI
/// documents.
fn python_package(package: &str, place: &str) -> Result<()> {
    let venv = target().join(place);
    let installed = venv.join("installed");
    if fs::read_to_string(&installed).is_ok_and(|found| found == package) {
        return Ok(());
    }
    eprintln!("installing {package} into {}", venv.display());
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    run(Command::new(venv.join("bin/pip")).args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        package,
    ]))?;
    Ok(fs::write(installed, package)?)
}

/// Installs the packages of the missing programs.
fn packages(programs: &[(&str, &str)]) -> Result<()> {
    let mut missing: Vec<&str> = programs
        .iter()
        .filter(|(program, _)| !exists(program))
        .map(|(_, package)| *package)
        .collect();
    missing.dedup();
    if missing.is_empty() { Ok(()) } else { debian(&missing) }
}

fn debian(packages: &[&str]) -> Result<()> {
    eprintln!("installing {}", packages.join(" "));
    let apt = |args: &[&str]| {
        let mut command =
            if exists("sudo") && !is_root() { Command::new("sudo") } else { Command::new("env") };
        run(command.arg("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    let install = apt(&["update", "--quiet"])
        .and_then(|()| apt(&[&["install", "--yes", "--quiet"], packages].concat()));
    install
        .with_context(|| format!("install these yourself, then try again: {}", packages.join(" ")))
}

fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
