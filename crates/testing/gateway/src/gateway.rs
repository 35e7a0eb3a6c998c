//! A gateway for one test.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use sa_gateway::config::Config;
use sa_gateway::config::layers::Layers;
use sa_gateway::http::HttpService;
use sa_gateway::{assemble, journal, serve};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use sa_testkit::{Server, soon};

use crate::Cli;

/// The settings of a gateway.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    config: String,
    env: Vec<(String, String)>,
    args: Vec<String>,
    dir: Option<Arc<TempDir>>,
    demo: bool,
    listen: Option<String>,
    log: Option<Arc<OwnedFd>>,
    vfs: Option<&'static str>,
}

impl Setup {
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends lines to the configuration file (TOML).
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

    /// Adds arguments for the program.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Uses the data directory of an earlier gateway.
    #[must_use]
    pub fn on(self, former: &Gateway) -> Self {
        self.in_dir(&former.dir)
    }

    /// Uses the data directory of an earlier gateway that has ended.
    #[must_use]
    pub fn in_dir(mut self, dir: &Arc<TempDir>) -> Self {
        self.dir = Some(Arc::clone(dir));
        self
    }

    /// Listens on the address of an earlier gateway instead of a free port.
    #[must_use]
    pub fn at(mut self, address: &str) -> Self {
        self.listen = Some(address.into());
        self
    }

    /// Starts the demo node too, like `switchboard up`.
    #[must_use]
    pub fn demo(mut self) -> Self {
        self.demo = true;
        self
    }

    /// Sends the program's log to this file instead of to the test.
    #[must_use]
    pub fn log_to(mut self, file: impl Into<OwnedFd>) -> Self {
        self.log = Some(Arc::new(file.into()));
        self
    }

    /// Uses this SQLite file layer, in a gateway in this process.
    #[must_use]
    pub fn vfs(mut self, name: &'static str) -> Self {
        self.vfs = Some(name);
        self
    }

    /// Starts a gateway in this process.
    pub async fn start(self) -> Gateway {
        self.start_behind(HttpService::new).await
    }

    /// Starts a gateway in this process with an HTTP service that the test creates.
    pub async fn start_behind(
        self,
        service: impl FnOnce(Arc<assemble::Gateway>) -> HttpService,
    ) -> Gateway {
        if let Some(program) = supervisor() {
            sa_process::set_program(program);
        }
        let (dir, file) = self.prepare();
        let flags = [
            ("server.listen", "127.0.0.1:0".into()),
            ("data.dir", dir.path().join("data").into_os_string()),
        ];
        let layers = Layers::read(
            Some(&file),
            self.env.iter().map(|(name, value)| (name.into(), value.into())),
            &flags,
        )
        .unwrap();
        let config = Config::resolve(&layers).unwrap();
        let listener = TcpListener::bind(config.listen).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut store = journal::store_options(config.store_file());
        if let Some(vfs) = self.vfs {
            vfs.clone_into(&mut store.vfs);
        }
        let inner = assemble::assemble_on(config, store).await.unwrap();
        let stop = CancellationToken::new();
        let service = service(Arc::clone(&inner));
        let task =
            tokio::spawn(serve::serve_behind(service, Arc::clone(&inner), listener, stop.clone()));
        Gateway::new(dir, url, Running::Here { task: Some(task), stop, inner })
    }

    /// Starts a gateway as a separate process from the program at this path.
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
        // The command holds a copy of the log's file descriptor, which would keep the log open.
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
        // Keeps reading, so that the program never blocks on a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = out.next_line().await {} });
        Gateway::new(
            dir,
            url,
            Running::There { child: Box::new(child), said, program: program.into() },
        )
    }

    fn prepare(&self) -> (Arc<TempDir>, PathBuf) {
        let dir = self.dir.clone().unwrap_or_else(|| Arc::new(tempfile::tempdir().unwrap()));
        let file = dir.path().join("switchboard.toml");
        std::fs::write(&file, &self.config).unwrap();
        (dir, file)
    }
}

/// Keeps a developer's own environment variables out of the tests.
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

/// A running gateway, which ends when this value is dropped.
#[derive(Debug)]
pub struct Gateway {
    pub dir: Arc<TempDir>,
    server: Server,
    running: Running,
}

impl Deref for Gateway {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

#[derive(Debug)]
enum Running {
    Here {
        task: Option<JoinHandle<anyhow::Result<()>>>,
        stop: CancellationToken,
        inner: Arc<assemble::Gateway>,
    },
    There {
        child: Box<Child>,
        said: Said,
        program: String,
    },
}

impl Gateway {
    fn new(dir: Arc<TempDir>, url: String, running: Running) -> Self {
        let token = std::fs::read_to_string(dir.path().join("data/operator.token")).unwrap();
        let server = Server { url, operator: token.trim().to_owned() };
        Self { dir, server, running }
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn config_file(&self) -> PathBuf {
        self.dir.path().join("switchboard.toml")
    }

    /// Builds a command of the program that uses this gateway.
    pub fn cli(&self, args: &[&str]) -> Cli {
        let Running::There { program, .. } = &self.running else { panic!("only beside a program") };
        // The directory goes into the environment, because commands repeat their typed arguments in
        // suggestions.
        Cli::new(program).env("SWITCHBOARD_DATA_DIR", self.data_dir()).args(args)
    }

    /// Returns the components of a gateway in this process.
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

    /// Returns everything that the program has written to stderr.
    pub fn stderr(&self) -> String {
        let Running::There { said, .. } = &self.running else { panic!("it is not a program") };
        said.text()
    }

    /// Waits until the program ends and returns its exit code.
    pub async fn exit_code(&mut self) -> Option<i32> {
        let Running::There { child, said, .. } = &mut self.running else {
            panic!("it is not a program")
        };
        let code = soon(child.wait()).await.unwrap().code();
        soon(said.end()).await;
        code
    }

    /// Kills the program, like `kill -9`.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.exit_code().await;
    }

    /// Begins the shutdown.
    pub fn begin_stop(&self) {
        let Running::Here { stop, .. } = &self.running else { return self.signal(Signal::TERM) };
        stop.cancel();
    }

    /// Shuts the gateway down and waits for its end.
    pub async fn stop(mut self) {
        self.begin_stop();
        match &mut self.running {
            Running::Here { task, inner, .. } => {
                soon(task.take().unwrap()).await.unwrap().unwrap();
                inner.store.shutdown().await.unwrap();
            }
            Running::There { .. } => {
                assert_eq!(self.exit_code().await, Some(0), "{}", self.stderr());
            }
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

/// Returns the newest supervisor beside the test's own program. A test cannot be one itself.
fn supervisor() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let programs = test.parent()?.parent()?.read_dir().ok()?.flatten();
    let supervisors =
        programs.filter(|entry| entry.file_name().as_encoded_bytes().ends_with(b"-supervisor"));
    supervisors
        .max_by_key(|entry| entry.metadata().and_then(|file| file.modified()).ok())
        .map(|entry| entry.path())
}

pub(crate) fn send_signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// The output of a program so far.
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
                into.lock().push_str(&String::from_utf8_lossy(&line));
                line.clear();
                // The end of a terminal is reported as an error, but the output before it is valid.
                if !more {
                    break;
                }
            }
        });
        Self { text, reader }
    }

    pub(crate) fn text(&self) -> String {
        self.text.lock().clone()
    }

    /// Waits until the stream has ended. A child of the program may hold it open a moment longer.
    pub(crate) async fn end(&mut self) {
        let _ = tokio::time::timeout(Duration::from_secs(2), &mut self.reader).await;
    }
}
