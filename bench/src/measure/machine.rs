//! Measures a machine's own tools through the gateway, compared with common programs for the same
//! task.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Bench, median, ratio};
use crate::child::Child;
use crate::gateway::Gateway;
use crate::load::http;
use crate::proc;
use crate::report::{Report, Row};

const FILES: usize = 100_000;
const FILES_IN_DIRECTORY: usize = 50;
/// One file in this number contains a matching line. Every file must be searched to its end.
const FILES_TO_NEEDLE: usize = 1_250;
/// The highest duration, as a multiple of the reference program's.
const BUDGET: f64 = 1.2;
const MB: f64 = 1024.0 * 1024.0;
/// The highest increase of a node's memory after it has read much more than that.
const BUDGET_MB: f64 = 16.0;

pub(super) async fn measure(bench: &Bench<'_>, report: &mut Report) -> anyhow::Result<()> {
    let files = if bench.args.quick { FILES / 10 } else { FILES };
    let tree = bench.dir.join("tree");
    plant(&tree, files)?;
    let gateway = Gateway::start(&bench.args.switchboard, &bench.dir.join("machine")).await?;
    let node = Machine::start(bench, &gateway, &tree).await?;
    // Runs first. Later the node has held search results, and its peak memory would be useless
    // here.
    flood(bench, &node, report).await?;

    let pattern = r"needle_[0-9]+_\w+";
    let grep = Race {
        what: format!("Grep, {files} files"),
        tool: "Grep",
        args: json!({ "pattern": pattern }),
        found: files / FILES_TO_NEEDLE,
        rival: "ripgrep",
        programs: &["rg"],
        arguments: ["--hidden", "--no-ignore", "--follow", "--line-number", pattern]
            .map(Into::into)
            .into(),
    };
    let glob = Race {
        what: format!("Glob, {files} files"),
        tool: "Glob",
        args: json!({ "pattern": "**/*.rs" }),
        found: files / 10,
        rival: "fd",
        programs: &["fdfind", "fd"],
        arguments: ["--hidden", "--no-ignore", "--follow", "--type", "f", "--glob", "**/*.rs"]
            .map(Into::into)
            .into(),
    };
    let rounds = if bench.args.quick { 5 } else { 15 };
    for race in [grep, glob] {
        race.run(&node, &tree, rounds, report).await?;
    }
    node.process.stop().await?;
    gateway.stop().await
}

/// A machine node, called over HTTP.
struct Machine<'a> {
    process: Child,
    gateway: &'a Gateway,
}

impl<'a> Machine<'a> {
    async fn start(
        bench: &Bench<'_>,
        gateway: &'a Gateway,
        workspace: &Path,
    ) -> anyhow::Result<Self> {
        let socket = format!("ws://{}/v1/nodes/ws", gateway.address);
        let set_up = |command: &mut Command| {
            command
                .args(["node", "--gateway", &socket, "--id", "bench", "--workspace"])
                .arg(workspace);
        };
        let process =
            Child::spawn(&bench.args.switchboard, set_up, &bench.dir.join("machine-node.log"))?;
        for tool in ["Bash", "Glob", "Grep"] {
            gateway.wait_for_tool(tool).await?;
        }
        Ok(Self { process, gateway })
    }

    async fn call(&self, tool: &str, args: &Value) -> anyhow::Result<Value> {
        let path = format!("/v1/tools/bench__{tool}/call");
        let body = json!({ "args": args }).to_string();
        let mut answer = http::post(self.gateway.address, &path, &self.gateway.token, body).await?;
        Ok(answer["result"].take())
    }
}

/// A tool and a program that alternate with the same task.
struct Race {
    what: String,
    tool: &'static str,
    args: Value,
    /// The expected number of matches.
    found: usize,
    rival: &'static str,
    /// The names of the program on different systems.
    programs: &'static [&'static str],
    arguments: Vec<String>,
}

impl Race {
    async fn run(
        &self,
        node: &Machine<'_>,
        tree: &Path,
        rounds: usize,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let program = self.programs.iter().find_map(|name| on_path(name));
        if program.is_none() {
            report
                .note(format!("{} is not installed, so {} is not compared", self.rival, self.tool));
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // The first round meets a cold cache.
        for round in 0..=rounds {
            let start = Instant::now();
            let result = node.call(self.tool, &self.args).await?;
            let took = start.elapsed();
            anyhow::ensure!(
                result["count"] == self.found,
                "{} found {} of {}",
                self.tool,
                result["count"],
                self.found
            );
            let rival = match &program {
                Some(program) => Some(self.rival_time(program, tree).await?),
                None => None,
            };
            if round > 0 {
                ours.push(took.as_secs_f64() * 1e3);
                theirs.extend(rival.map(|took| took.as_secs_f64() * 1e3));
            }
        }
        let mut row = Row::new(&self.what, median(ours.clone()), "ms");
        if !theirs.is_empty() {
            let ratio = ratio(&ours, &theirs);
            row =
                row.beside(self.rival, ratio).at_most(ratio, BUDGET, &format!("of {}", self.rival));
        }
        report.row(row);
        Ok(())
    }

    async fn rival_time(&self, program: &Path, tree: &Path) -> anyhow::Result<Duration> {
        let start = Instant::now();
        let output = Command::new(program).args(&self.arguments).current_dir(tree).output().await?;
        let took = start.elapsed();
        let lines = output.stdout.split(|byte| *byte == b'\n').count() - 1;
        anyhow::ensure!(lines == self.found, "{} found {lines} of {}", self.rival, self.found);
        Ok(took)
    }
}

/// Measures a command with far more output than any limit keeps.
async fn flood(bench: &Bench<'_>, node: &Machine<'_>, report: &mut Report) -> anyhow::Result<()> {
    let bytes = if bench.args.quick { 100_000_000_u64 } else { 1_000_000_000 };
    let command = format!("yes 'a line of some thirty characters' | head -c {bytes}");
    let rounds = if bench.args.quick { 1 } else { 3 };
    node.call("Bash", &json!({ "command": "true" })).await?;
    let before = proc::peak_resident(node.process.pid())?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let start = Instant::now();
        let result = node.call("Bash", &json!({ "command": command })).await?;
        ours.push(start.elapsed().as_secs_f64());
        anyhow::ensure!(
            result["exitCode"] == 0 && result["truncated"] == true,
            "the command failed: {result}"
        );
        let start = Instant::now();
        let status = Command::new("sh")
            .arg("-c")
            .arg(format!("{command} | cat >/dev/null"))
            .status()
            .await?;
        anyhow::ensure!(status.success(), "the command also fails without a gateway");
        theirs.push(start.elapsed().as_secs_f64());
    }
    let gigabytes = bytes as f64 / 1e9;
    let row = Row::new(format!("Bash, {gigabytes} GB of output"), median(ours.clone()), "s");
    report.row(row.beside("cat", ratio(&ours, &theirs)));
    let more = (proc::peak_resident(node.process.pid())? - before) as f64 / MB;
    let row = Row::new(
        format!("peak memory of the node for {gigabytes} GB, more than before"),
        more,
        "MB",
    );
    report.row(row.at_most(more, BUDGET_MB, "MB"));
    Ok(())
}

/// Creates a tree that looks like source code: nested directories, and files of one to four
/// kilobytes.
fn plant(tree: &Path, files: usize) -> anyhow::Result<()> {
    let extensions = ["rs", "ts", "md", "json", "py", "txt", "toml", "c", "h", "html"];
    for number in 0..files {
        let directory = number / FILES_IN_DIRECTORY;
        let parent =
            tree.join(format!("part{}/module{}/d{directory}", directory % 10, directory % 100));
        if number % FILES_IN_DIRECTORY == 0 {
            fs::create_dir_all(&parent)
                .with_context(|| format!("cannot create {}", parent.display()))?;
        }
        let lines = 20 + number * 7 % 60;
        let mut text = String::new();
        for line in 0..lines {
            text += &format!("let value_{line} = compute({number}, {line}); // for the rest\n");
        }
        if number % FILES_TO_NEEDLE == 0 {
            text += &format!("needle_{number}_here\n");
        }
        fs::write(
            parent.join(format!("file{number}.{}", extensions[number % extensions.len()])),
            text,
        )?;
    }
    Ok(())
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}
