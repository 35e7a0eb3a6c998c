//! Installs Autobahn's test suite for WebSockets, which needs Python 2.7. Debian 11 was the last
//! release with that version. Its packages are unpacked into the target directory, and the system
//! stays unchanged.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{root, run, target};

/// The interpreter, its libraries, the headers for extensions, and pip.
const PACKAGES: [&str; 7] = [
    "python2.7-minimal",
    "libpython2.7-minimal",
    "libpython2.7-stdlib",
    "libpython2.7-dev",
    "libssl1.1",
    "libffi7",
    "python-pip-whl",
];

pub(crate) fn install() -> Result<()> {
    let (requirements, place) =
        (root().join("xtask/autobahn/requirements.txt"), target().join("autobahn"));
    let wanted = fs::read_to_string(&requirements)?;
    let installed = place.join("installed");
    if fs::read_to_string(&installed).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    eprintln!("installing Autobahn's test suite into {}", place.display());
    unpack(&place).context("cannot get Python 2.7 from the packages of Debian 11")?;
    let wheels = place.join("python/usr/share/python-wheels");
    let pip = |args: &[&str]| {
        let mut command = python(&place);
        command.arg(find(&wheels, "pip-")?.join("pip")).args([
            "install",
            "--user",
            "--no-deps",
            "--quiet",
        ]);
        command.args([
            "--no-warn-script-location",
            "--disable-pip-version-check",
            "--no-python-version-warning",
        ]);
        run(command.args(args))
    };
    // Build dependencies of the other packages, so they are installed first.
    pip(&["setuptools==44.1.1", "wheel==0.37.1"])?;
    pip(&["--requirement", &requirements.to_string_lossy()])?;
    Ok(fs::write(installed, wanted)?)
}

/// Returns the interpreter with its own libraries and packages. The test uses the same environment.
fn python(place: &Path) -> Command {
    let mut command = Command::new(place.join("python/usr/bin/python2.7"));
    let libraries = fs::read_dir(place.join("python/usr/lib")).into_iter().flatten().flatten();
    let libraries = libraries
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with("-linux-gnu"));
    command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries).unwrap_or_default());
    command.env("PYTHONUSERBASE", place.join("packages"));
    command
}

fn unpack(place: &Path) -> Result<()> {
    let (apt, downloads) = (place.join("apt"), place.join("downloads"));
    for directory in ["lists/partial", "archives/partial"] {
        fs::create_dir_all(apt.join(directory))?;
    }
    fs::create_dir_all(&downloads)?;
    fs::write(
        apt.join("sources.list"),
        format!("deb [signed-by={KEYRING}] {} bullseye main\n", mirror()?),
    )?;
    let apt_get = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        for (key, value) in [
            ("Dir::Etc::sourcelist", apt.join("sources.list")),
            ("Dir::Etc::sourceparts", "/dev/null".into()),
            ("Dir::State", apt.clone()),
            ("Dir::Cache", apt.clone()),
        ] {
            command.arg("-o").arg(format!("{key}={}", value.display()));
        }
        command.args([
            "-o",
            "Acquire::Languages=none",
            "-o",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
        ]);
        // The current user checks and unpacks the downloads, so the sandbox user and the locks are
        // not needed.
        command.args(["-o", "APT::Sandbox::User=", "-o", "Debug::NoLocking=1", "--quiet=2"]);
        run(command.args(args).current_dir(&downloads))
    };
    apt_get(&["update"])?;
    apt_get(&[&["download"], &PACKAGES[..]].concat())?;
    for package in PACKAGES {
        let file = find(&downloads, &format!("{package}_"))?;
        run(Command::new("dpkg").arg("-x").arg(file).arg(place.join("python")))?;
    }
    Ok(())
}

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Returns the mirror from which this machine gets its packages.
fn mirror() -> Result<String> {
    let mut command = Command::new("apt-get");
    command.args([
        "indextargets",
        "--format",
        "$(SITE)",
        "Origin: Debian",
        "Label: Debian",
        "Created-By: Packages",
    ]);
    let output = command.output().context("cannot run apt-get")?;
    let sites = String::from_utf8_lossy(&output.stdout);
    let site = sites.lines().next().map(str::to_owned);
    ensure!(
        output.status.success() && site.is_some(),
        "apt-get has no Debian mirror; run `apt-get update`"
    );
    Ok(site.unwrap_or_default())
}

/// Returns the file with this prefix.
fn find(place: &Path, prefix: &str) -> Result<std::path::PathBuf> {
    let mut files = fs::read_dir(place)?.flatten().map(|entry| entry.path());
    let found = files.find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    });
    found.with_context(|| format!("there is no {prefix} in {}", place.display()))
}
