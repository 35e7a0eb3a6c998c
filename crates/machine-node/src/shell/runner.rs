//! Supervises one command: reads its output, enforces its time limit, and records its end.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sa_node_sdk::ToolError;
use sa_process::{Order, Report, Supervisor};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::input::Stdin;
use super::launch::{self, Input, Plan};
use super::output::Decoder;
use super::private::PrivateDir;
use super::session::{End, Identity, Session};
use super::signals::signal_name;
use super::{Shell, orphans};

/// The time that all other processes have to end after the shell. A process that cannot be killed
/// (such as one of another user) is left to the supervisor, which keeps trying.
const GRACE: Duration = Duration::from_secs(3);

/// The time that a supervisor has to carry out an order before it counts as lost.
const OBEDIENCE: Duration = Duration::from_secs(10);

const BUFFER: usize = 128 * 1024;

/// The maximum number of bytes that a pipe can contain after its last writer has closed it.
const LEFT_OVER: usize = 4 << 20;

/// Starts a command and supervises it in a new task.
pub(super) async fn start(
    shell: &Arc<Shell>,
    plan: Plan,
    timeout: Option<Duration>,
) -> Result<Arc<Session>, ToolError> {
    let launched = launch::launch(shell, &plan).await?;
    let stdin = Stdin::new(launched.input, matches!(plan.input, Input::Terminal { .. }));
    let Plan { session: id, owner, slot, command, workdir, .. } = plan;
    let who = Identity { id, owner, command, workdir, pid: launched.pid, slot };
    let (session, orders) = Session::new(who, stdin);
    let reader = Reader::new(launched.output);
    let runner = Runner {
        shell: Arc::clone(shell),
        session: Arc::clone(&session),
        supervisor: launched.supervisor,
        reader,
        private: launched.private,
        hidden: launched.hidden,
    };
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    shell.runners.spawn(runner.run(orders, deadline));
    Ok(session)
}

struct Runner {
    shell: Arc<Shell>,
    session: Arc<Session>,
    supervisor: Supervisor,
    reader: Reader,
    private: Option<PrivateDir>,
    hidden: Vec<PathBuf>,
}

impl Runner {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>, deadline: Option<Instant>) {
        let (shell, hidden) = (Arc::clone(&self.shell), std::mem::take(&mut self.hidden));
        let mut revoked = pin!(revoked(&shell, &hidden));
        let mut is_revoked = false;
        let mut end: Option<End> = None;
        let mut timed_out = false;
        let mut stopping = false;
        let mut timeout = None;
        loop {
            tokio::select! {
                () = self.reader.read(&self.session), if self.reader.open => {}
                report = self.supervisor.report() => match report {
                    Some(Report::Exited { code, signal }) => {
                        end = Some(self.ended(code, signal.map(signal_name), timed_out));
                        timeout = Instant::now().checked_add(GRACE);
                    }
                    Some(Report::Started { .. } | Report::Failed(_)) => {}
                    Some(Report::Gone) | None => break,
                },
                Some(order) = orders.recv() => self.order(order, &mut timeout),
                () = at(deadline), if end.is_none() && !timed_out => {
                    timed_out = true;
                    self.order(Order::Terminate, &mut timeout);
                }
                why = &mut revoked, if end.is_none() && !is_revoked => {
                    is_revoked = true;
                    self.session.write(&format!("\n[the command was ended: {why}]\n"));
                    self.order(Order::Kill, &mut timeout);
                }
                () = at(timeout) => break,
                () = self.shell.stop.cancelled(), if !stopping => {
                    stopping = true;
                    self.order(Order::Kill, &mut timeout);
                }
            }
        }
        let end = if let Some(end) = end {
            end
        } else {
            // The supervisor was killed, or does not respond. Its shell is killed with it; the
            // other processes are found by their environment.
            let id = self.session.id.clone();
            let _ = tokio::task::spawn_blocking(move || orphans::kill(&id)).await;
            self.ended(None, Some("SIGKILL".to_owned()), timed_out)
        };
        // A supervisor that ended normally has already removed it.
        let private = self.private.take();
        let _ = tokio::task::spawn_blocking(move || drop(private)).await;
        self.reader.drain(&self.session);
        let events = &self.shell.events;
        if self.session.finish(end, |name, data| events.send(name, data)) {
            self.shell.sessions.finished(&self.session);
        }
        self.session.stdin.close().await;
    }

    fn order(&self, order: Order, timeout: &mut Option<Instant>) {
        self.supervisor.order(order);
        *timeout = timeout.or_else(|| Instant::now().checked_add(OBEDIENCE));
    }

    fn ended(&self, code: Option<i32>, signal: Option<String>, timed_out: bool) -> End {
        End { code, signal, timed_out, after: self.session.elapsed() }
    }
}

/// Waits until a command with a sandbox must be ended, and returns the reason.
async fn revoked(shell: &Shell, hidden: &[PathBuf]) -> String {
    match &shell.sandbox {
        Some(guarded) => guarded.revoked(hidden).await,
        None => std::future::pending().await,
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Reads a command's output as text.
struct Reader {
    file: Receiver,
    buffer: Vec<u8>,
    text: String,
    decoder: Decoder,
    open: bool,
}

impl Reader {
    fn new(file: Receiver) -> Self {
        Self {
            file,
            buffer: vec![0; BUFFER],
            text: String::new(),
            decoder: Decoder::default(),
            open: true,
        }
    }

    /// Waits for output and forwards it.
    async fn read(&mut self, session: &Session) {
        let ready = self.file.readable().await;
        let read = ready.and_then(|()| self.file.try_read(&mut self.buffer));
        self.take(session, read);
    }

    /// Reads the available output without waiting for more.
    fn drain(&mut self, session: &Session) {
        let mut left = LEFT_OVER;
        while self.open && left > 0 {
            // Reads without the runtime, which may not know of the latest output yet.
            let read = rustix::io::read(&self.file, &mut self.buffer[..]).map_err(io::Error::from);
            match &read {
                Ok(count) => left = left.saturating_sub(*count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {}
            }
            self.take(session, read);
        }
        self.text.clear();
        self.decoder.finish(&mut self.text);
        session.write(&self.text);
    }

    fn take(&mut self, session: &Session, read: io::Result<usize>) {
        match read {
            Ok(count @ 1..) => {
                self.text.clear();
                self.decoder.push(&self.buffer[..count], &mut self.text);
                session.write(&self.text);
            }
            Err(error)
                if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {}
            // Reading a terminal that no process has open is an error, which also means the end.
            Ok(0) | Err(_) => self.open = false,
        }
    }
}
