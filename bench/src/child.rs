//! Child processes that end when their handle is dropped.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A running process, which is killed when this value is dropped. Helpers also end when their
/// standard input closes, so a killed driver leaves no processes behind.
pub(crate) struct Child {
    process: tokio::process::Child,
    name: String,
    lines: Lines<BufReader<ChildStdout>>,
    stdin: ChildStdin,
}

impl Child {
    /// Starts a program and writes its stderr to a file.
    pub(crate) fn spawn(
        program: &Path,
        set_up: impl FnOnce(&mut Command),
        log: &Path,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        set_up(&mut command);
        let stderr =
            File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).kill_on_drop(true);
        let name = program.file_name().and_then(OsStr::to_str).unwrap_or("a process").to_owned();
        let mut process =
            command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let stdout = process.stdout.take().context("no standard output")?;
        let stdin = process.stdin.take().context("no standard input")?;
        Ok(Self { process, name, lines: BufReader::new(stdout).lines(), stdin })
    }

    /// Starts this program again, as one of its helpers.
    pub(crate) fn helper(arguments: &[&str], log: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program itself")?;
        let mut child = Self::spawn(&program, |command| _ = command.args(arguments), log)?;
        child.name = format!("the helper {}", arguments.join(" "));
        Ok(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id().unwrap_or_default()
    }

    /// Waits for a line that begins with this text, and returns the rest of it.
    pub(crate) async fn line(&mut self, beginning: &str) -> anyhow::Result<String> {
        let wait = async {
            while let Some(line) = self.lines.next_line().await? {
                if let Some(rest) = line.strip_prefix(beginning) {
                    return Ok(rest.trim().to_owned());
                }
            }
            anyhow::bail!("{} ended before it printed \"{beginning}\"", self.name)
        };
        match tokio::time::timeout(TIMEOUT, wait).await {
            Ok(line) => line,
            Err(_) => anyhow::bail!("{} did not print \"{beginning}\" in time", self.name),
        }
    }

    pub(crate) async fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(())
    }

    /// Asks the process to shut down, and waits for its end.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let ended = tokio::time::timeout(TIMEOUT, self.process.wait()).await;
        ended.with_context(|| format!("{} did not exit in time", self.name))??;
        Ok(())
    }
}
