//! Installing what a machine lacks.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::{cargo, run};

/// A program, and the Debian package that has it.
const COMPILER: [(&str, &str); 2] = [("cc", "build-essential"), ("c++", "build-essential")];
const TESTS: [(&str, &str); 6] = [
    ("curl", "curl"),
    ("unshare", "util-linux"),
    ("openssl", "openssl"),
    ("bash", "bash"),
    ("bwrap", "bubblewrap"),
    ("node", "nodejs"),
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
