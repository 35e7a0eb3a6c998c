//! Installing what a machine lacks.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::{cargo, root, run, target};

/// A program, and the Debian package that has it.
const COMPILER: [(&str, &str); 2] = [("cc", "build-essential"), ("c++", "build-essential")];
const TESTS: [(&str, &str); 6] = [
    ("curl", "curl"),
    ("unshare", "util-linux"),
    ("openssl", "openssl"),
    ("bash", "bash"),
    ("npm", "npm"),
    ("python3", "python3-venv"),
];

pub(crate) fn compiler() -> Result<()> {
    packages(&COMPILER)
}

/// Those that searching is compared with.
const SEARCHERS: [(&str, &str); 2] = [("rg", "ripgrep"), ("fdfind", "fd-find")];

pub(crate) fn for_benchmarks() -> Result<()> {
    compiler()?;
    packages(&SEARCHERS)
}

pub(crate) fn for_tests() -> Result<()> {
    compiler()?;
    packages(&TESTS)?;
    if !succeeds(cargo().args(["nextest", "--version"])) {
        eprintln!("installing cargo-nextest, the test runner");
        run(cargo().args(["install", "cargo-nextest", "--locked"]))?;
    }
    mcp_peers()
}

/// The official Python SDK for MCP; the versions of the rest are in `xtask/mcp`.
const PYTHON_SDK: &str = "mcp==2.3.0";

/// Other people's MCP programs, against which the gateway is tested: the conformance suite, the official SDKs, the
/// Inspector. They go into the target directory, once for each set of versions.
fn mcp_peers() -> Result<()> {
    let (place, source) = (target().join("mcp-peers"), root().join("xtask/mcp"));
    let wanted = fs::read_to_string(source.join("package-lock.json"))? + PYTHON_SDK;
    let installed = place.join("installed");
    if fs::read_to_string(&installed).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    eprintln!("installing the MCP conformance suite and clients into {}", place.display());
    fs::create_dir_all(&place)?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(source.join(file), place.join(file))?;
    }
    // Not `ci`, which stumbles over packages for other systems that the lock file leaves out.
    let quiet = ["install", "--no-audit", "--no-fund", "--loglevel", "error"];
    run(Command::new("npm").args(quiet).current_dir(&place))?;
    let venv = place.join("venv");
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    run(Command::new(venv.join("bin/pip")).args(["install", "--quiet", "--disable-pip-version-check", PYTHON_SDK]))?;
    fs::write(installed, wanted)?;
    Ok(())
}

/// Installs the packages of those programs that are missing.
fn packages(programs: &[(&str, &str)]) -> Result<()> {
    let mut missing: Vec<&str> =
        programs.iter().filter(|(program, _)| !exists(program)).map(|(_, package)| *package).collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("installing {}", missing.join(" "));
    let apt = |args: &[&str]| {
        let mut command = if exists("sudo") && !is_root() { Command::new("sudo") } else { Command::new("env") };
        run(command.arg("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    let install =
        apt(&["update", "--quiet"]).and_then(|()| apt(&[&["install", "--yes", "--quiet"], &*missing].concat()));
    install.with_context(|| format!("install these yourself, then try again: {}", missing.join(" ")))
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
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
