//! A gateway for one test.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use switchboard::config::Config;
use switchboard::config::layers::Layers;
use switchboard::http::FrontDoor;
use switchboard::{assemble, serve};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Agent, Cli, soon};

/// What a gateway is to be.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    config: String,
    env: Vec<(String, String)>,
    args: Vec<String>,
    dir: Option<Arc<TempDir>>,
    demo: bool,
    listen: Option<String>,
    log: Option<Arc<OwnedFd>>,
}

impl Setup {
    pub fn new() -> Self {
        Self::default()
    }

    /// More lines of the configuration file (TOML).
    #[must_use]
    pub fn config(mut self, toml: &str) -> Self {
        self.config.push_str(toml);
        self.config.push('\n');
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// More arguments for the program.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// The data directory of a former gateway.
    #[must_use]
    pub fn on(self, former: &Gateway) -> Self {
        self.in_dir(&former.dir)
    }

    /// The same for one that has ended.
    #[must_use]
    pub fn in_dir(mut self, dir: &Arc<TempDir>) -> Self {
        self.dir = Some(Arc::clone(dir));
        self
    }

    /// The address of a former gateway, instead of a free port.
    #[must_use]
    pub fn at(mut self, address: &str) -> Self {
        self.listen = Some(address.into());
        self
    }

    /// With the demo node, as `switchboard up` has it.
    #[must_use]
    pub fn demo(mut self) -> Self {
        self.demo = true;
        self
    }

    /// Where the program logs to, instead of to the test.
    #[must_use]
    pub fn log_to(mut self, file: impl Into<OwnedFd>) -> Self {
        self.log = Some(Arc::new(file.into()));
        self
    }

    /// A gateway in this process.
    pub async fn start(self) -> Gateway {
        self.start_behind(FrontDoor::new).await
    }

    /// The same with a front door of the test's making.
    pub async fn start_behind(self, door: impl FnOnce(Arc<assemble::Gateway>) -> FrontDoor) -> Gateway {
        let (dir, file) = self.prepare();
        let flags = [("server.listen", "127.0.0.1:0".into()), ("data.dir", dir.path().join("data").into_os_string())];
        let layers =
            Layers::read(Some(&file), self.env.iter().map(|(name, value)| (name.into(), value.into())), &flags)
                .unwrap();
        let config = Config::resolve(&layers).unwrap();
        let listener = TcpListener::bind(config.listen).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let inner = assemble::assemble(config).await.unwrap();
        let stop = CancellationToken::new();
        let door = door(Arc::clone(&inner));
        let task = tokio::spawn(serve::serve_behind(door, Arc::clone(&inner), listener, stop.clone()));
        Gateway::new(dir, url, Running::Here { task: Some(task), stop, inner })
    }

    /// A gateway as a program of its own, the one at this path.
    pub async fn spawn(self, program: &str) -> Gateway {
        let (dir, file) = self.prepare();
        let mut command = Command::new(program);
        command.arg(if self.demo { "up" } else { "serve" });
        command
            .args(["--listen", self.listen.as_deref().unwrap_or("127.0.0.1:0")])
            .arg("--data-dir")
            .arg(dir.path().join("data"));
        command.arg("--config").arg(file).args(&self.args);
        clean(&mut command);
        let log = self.log.map_or_else(Stdio::piped, |file| file.try_clone().unwrap().into());
        command.envs(self.env.clone()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        // It has a copy of where it logs to, which would keep that open.
        drop(command);
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = child.stderr.take().map_or_else(|| Said::of(tokio::io::empty()), Said::of);
        let url = loop {
            let Some(line) = soon(out.next_line()).await.unwrap() else {
                panic!("the gateway ended before it listened: {}", said.text());
            };
            if let Some(url) = line.strip_prefix("listening on ") {
                break url.to_owned();
            }
        };
        // Goes on reading, so that the program never waits for us.
        tokio::spawn(async move { while let Ok(Some(_)) = out.next_line().await {} });
        Gateway::new(dir, url, Running::There { child: Box::new(child), said, program: program.into() })
    }

    fn prepare(&self) -> (Arc<TempDir>, PathBuf) {
        let dir = self.dir.clone().unwrap_or_else(|| Arc::new(tempfile::tempdir().unwrap()));
        let file = dir.path().join("switchboard.toml");
        std::fs::write(&file, &self.config).unwrap();
        (dir, file)
    }
}

/// Keeps what a developer has set for daily use out of the tests.
pub(crate) fn clean(command: &mut Command) {
    for (name, _) in std::env::vars() {
        if ["SWITCHBOARD_", "SA_NODE", "RUST_LOG", "NO_COLOR", "HTTP_PROXY", "http_proxy"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            command.env_remove(name);
        }
    }
}

/// A running gateway. Dropping it ends it.
#[derive(Debug)]
pub struct Gateway {
    pub dir: Arc<TempDir>,
    /// `http://127.0.0.1:PORT`, or `https`.
    pub url: String,
    /// The operator's token.
    pub operator: String,
    running: Running,
}

#[derive(Debug)]
enum Running {
    Here { task: Option<JoinHandle<anyhow::Result<()>>>, stop: CancellationToken, inner: Arc<assemble::Gateway> },
    There { child: Box<Child>, said: Said, program: String },
}

impl Gateway {
    fn new(dir: Arc<TempDir>, url: String, running: Running) -> Self {
        let token = std::fs::read_to_string(dir.path().join("data/operator.token")).unwrap();
        Self { dir, url, operator: token.trim().to_owned(), running }
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn config_file(&self) -> PathBuf {
        self.dir.path().join("switchboard.toml")
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> &str {
        self.url.split_once("//").unwrap().1
    }

    pub fn port(&self) -> u16 {
        self.address().rsplit_once(':').unwrap().1.parse().unwrap()
    }

    pub fn nodes_url(&self) -> String {
        format!("{}/v1/nodes/ws", self.url.replacen("http", "ws", 1))
    }

    /// An agent with the operator's token.
    pub fn operator(&self) -> Agent {
        self.agent(&self.operator)
    }

    pub fn agent(&self, token: &str) -> Agent {
        Agent::new(&self.url, token)
    }

    /// Makes a token and gives back its id and itself.
    pub async fn token(&self, body: Value) -> (String, String) {
        let reply = self.operator().post("/v1/tokens", &body).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        (reply.body["id"].as_str().unwrap().into(), reply.body["token"].as_str().unwrap().into())
    }

    /// An agent with a token of its own.
    pub async fn new_agent(&self, name: &str) -> Agent {
        let (_, token) = self.token(json!({ "name": name, "role": "agent" })).await;
        self.agent(&token)
    }

    /// How often something was refused, as `/metrics` has it.
    pub async fn refused(&self, at: &str, reason: &str) -> u64 {
        self.metric(&format!("switchboard_refused_total{{at=\"{at}\",reason=\"{reason}\"}}")).await
    }

    /// A number of `/metrics`; what has not happened yet has none there.
    pub async fn metric(&self, name: &str) -> u64 {
        let text = self.operator().get_text("/metrics").await;
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        text.lines().find_map(value).unwrap_or(0)
    }

    pub async fn running_calls(&self) -> usize {
        let list = self.operator().get("/v1/calls?state=running&limit=1").await.body;
        list["calls"].as_array().unwrap().len() + list["more_running"].as_u64().unwrap_or(0) as usize
    }

    /// A command of the program, against this gateway.
    pub fn cli(&self, args: &[&str]) -> Cli {
        let Running::There { program, .. } = &self.running else { panic!("only beside a program") };
        // In the environment: what is typed is a part of what commands tell people to type next.
        Cli::new(program).env("SWITCHBOARD_DATA_DIR", self.data_dir()).args(args)
    }

    /// What a gateway in this process is made of.
    pub fn inner(&self) -> &Arc<assemble::Gateway> {
        let Running::Here { inner, .. } = &self.running else { panic!("it is a program") };
        inner
    }

    pub fn pid(&self) -> u32 {
        let Running::There { child, .. } = &self.running else { panic!("it is not a program") };
        child.id().expect("it has ended")
    }

    pub fn signal(&self, signal: Signal) {
        send_signal(self.pid(), signal);
    }

    /// Everything that the program has written to stderr.
    pub fn stderr(&self) -> String {
        let Running::There { said, .. } = &self.running else { panic!("it is not a program") };
        said.text()
    }

    /// Waits for the program's end and gives back its exit code.
    pub async fn exit_code(&mut self) -> Option<i32> {
        let Running::There { child, said, .. } = &mut self.running else { panic!("it is not a program") };
        let code = soon(child.wait()).await.unwrap().code();
        soon(said.end()).await;
        code
    }

    /// `kill -9`
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.exit_code().await;
    }

    /// Begins the shutdown of a gateway in this process.
    pub fn begin_stop(&self) {
        let Running::Here { stop, .. } = &self.running else { return self.signal(Signal::TERM) };
        stop.cancel();
    }

    /// Ends it in good order.
    pub async fn stop(mut self) {
        self.begin_stop();
        match &mut self.running {
            Running::Here { task, inner, .. } => {
                soon(task.take().unwrap()).await.unwrap().unwrap();
                inner.store.shutdown().await.unwrap();
            }
            Running::There { .. } => assert_eq!(self.exit_code().await, Some(0), "{}", self.stderr()),
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Running::Here { stop, .. } = &self.running {
            stop.cancel();
        }
    }
}

pub(crate) fn send_signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// What a program has said so far.
#[derive(Debug)]
pub(crate) struct Said {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Said {
    pub(crate) fn of(stream: impl tokio::io::AsyncRead + Unpin + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&text);
        let reader = tokio::spawn(async move {
            let mut lines = BufReader::new(stream);
            let mut line = Vec::new();
            loop {
                let more = matches!(lines.read_until(b'\n', &mut line).await, Ok(1..));
                into.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(&line));
                line.clear();
                // The end of a terminal is an error, and what came before it is none.
                if !more {
                    break;
                }
            }
        });
        Self { text, reader }
    }

    pub(crate) fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the stream has ended; a child of the program may hold it open for a moment longer.
    pub(crate) async fn end(&mut self) {
        let _ = tokio::time::timeout(Duration::from_secs(2), &mut self.reader).await;
    }
}

/// Whether only its owner can use it.
pub fn is_private(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o077 == 0
}
