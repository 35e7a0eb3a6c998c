//! Rule: a program and all processes that it has started end with it, on an order, and with the
//! owner.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sa_process::{Command, Order, Pipes, Report, Supervisor};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const SUPERVISOR: &str = env!("CARGO_BIN_EXE_sa-supervisor");

/// Processes of every kind that may stay behind: in the group, in another session, without a
/// parent, and without handling signals. Each adds its number to the file `pids`.
const FAMILY: &str = r#"
sh -c 'echo $$ >> pids; exec sleep 1000' &
setsid sh -c 'echo $$ >> pids; exec sleep 1000' &
(setsid sh -c 'trap "" TERM HUP INT; (sh -c "echo \$\$ >> pids; exec sleep 1000" </dev/null >/dev/null 2>&1 &)' &)
while [ "$(wc -l < pids 2>/dev/null || echo 0)" -lt 3 ]; do sleep 0.01; done
echo ready
"#;

/// The time limit of every wait.
const SOON: Duration = Duration::from_secs(20);

struct Rig {
    dir: TempDir,
}

impl Rig {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("/bin/sh", ["-c", script]);
        command.supervisor(SUPERVISOR).current_dir(self.dir.path());
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command
    }

    /// Starts the family, and waits until it is complete.
    async fn family(&self, and_then: &str, grace: Duration) -> (Supervisor, Vec<Pid>) {
        let script = format!("{FAMILY} {and_then}");
        let (supervisor, mut pipes) = self.shell(&script).grace(grace).spawn_piped().unwrap();
        let mut line = [0; 6];
        pipes.stdout.read_exact(&mut line).await.unwrap();
        (supervisor, self.pids())
    }

    fn pids(&self) -> Vec<Pid> {
        let text = std::fs::read_to_string(self.dir.path().join("pids")).unwrap();
        text.lines().map(|line| Pid::from_raw(line.parse().unwrap()).unwrap()).collect()
    }
}

/// Waits until a process has ended.
fn ended(pid: Pid) {
    if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) {
        let mut handles = [PollFd::new(&handle, PollFlags::IN)];
        let limit = SOON.try_into().unwrap();
        assert_eq!(poll(&mut handles, Some(&limit)), Ok(1), "{pid:?} still runs");
    }
}

async fn reports(supervisor: &mut Supervisor) -> Vec<Report> {
    let mut reports = Vec::new();
    while let Some(report) = tokio::time::timeout(SOON, supervisor.report()).await.unwrap() {
        reports.push(report);
    }
    reports
}

#[tokio::test]
async fn a_program_has_its_own_pipes_environment_and_directory() {
    let rig = Rig::new();
    let script = "read line; echo $line; echo $KEY $HOME >&2; pwd; exit 3";
    let (mut supervisor, pipes) = rig.shell(script).env("KEY", "value").spawn_piped().unwrap();
    let Pipes { mut stdin, mut stdout, mut stderr } = pipes;
    stdin.write_all(b"hello\n").await.unwrap();
    let (mut output, mut errors) = (String::new(), String::new());
    stdout.read_to_string(&mut output).await.unwrap();
    stderr.read_to_string(&mut errors).await.unwrap();
    let dir = rig.dir.path().canonicalize().unwrap();
    assert_eq!((output, errors), (format!("hello\n{}\n", dir.display()), "value\n".to_owned()));
    let reports = reports(&mut supervisor).await;
    assert!(matches!(reports[0], Report::Started { .. }), "{reports:?}");
    assert_eq!(reports[1..], [Report::Exited { code: Some(3), signal: None }, Report::Gone]);
}

#[tokio::test]
async fn the_signal_that_ended_a_program_is_reported() {
    let rig = Rig::new();
    let (mut supervisor, _pipes) = rig.shell("kill -9 $$").spawn_piped().unwrap();
    supervisor.started().await.unwrap();
    let exited = Report::Exited { code: None, signal: Some(9) };
    assert_eq!(reports(&mut supervisor).await, [exited, Report::Gone]);
}

#[tokio::test]
async fn a_program_that_cannot_be_run_is_an_error_of_the_system() {
    let rig = Rig::new();
    let text = rig.dir.path().join("text");
    std::fs::write(&text, "echo a shell would run this\n").unwrap();
    let locked = rig.dir.path().join("locked");
    std::fs::write(&locked, "echo and not this\n").unwrap();
    std::fs::set_permissions(&text, Permissions::from_mode(0o700)).unwrap();
    for (program, expected) in [
        ("/nonexistent/program", Errno::NOENT),
        (locked.to_str().unwrap(), Errno::ACCESS),
        (text.to_str().unwrap(), Errno::NOEXEC),
    ] {
        let mut command = Command::new(program, [""; 0]);
        let (mut supervisor, _) = command.supervisor(SUPERVISOR).spawn_piped().unwrap();
        let failure = supervisor.started().await.unwrap_err();
        assert!(failure.why.contains(program), "{failure:?}");
        assert_eq!(std::io::Error::from(failure).raw_os_error(), Some(expected.raw_os_error()));
    }
}

#[tokio::test]
async fn nothing_outlives_a_program_that_ends() {
    let rig = Rig::new();
    let (mut supervisor, family) = rig.family("exit 0", Duration::ZERO).await;
    let reports = reports(&mut supervisor).await;
    assert_eq!(reports.last(), Some(&Report::Gone));
    family.into_iter().for_each(ended);
}

#[tokio::test]
async fn nothing_outlives_an_order() {
    for (order, grace) in [(Order::Kill, SOON), (Order::Terminate, Duration::from_millis(100))] {
        let rig = Rig::new();
        let (mut supervisor, family) = rig.family("sleep 1000", grace).await;
        let start = Instant::now();
        supervisor.order(order);
        assert_eq!(reports(&mut supervisor).await.last(), Some(&Report::Gone));
        family.into_iter().for_each(ended);
        assert!(start.elapsed() < SOON / 2, "{order:?} took {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn nothing_outlives_a_handle_that_is_dropped() {
    let rig = Rig::new();
    let (supervisor, family) = rig.family("kill -STOP $PPID; sleep 1000", Duration::ZERO).await;
    drop(supervisor);
    family.into_iter().for_each(ended);
}

#[tokio::test]
async fn a_program_has_the_grace_period_to_end_by_itself() {
    let rig = Rig::new();
    let script = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let (mut supervisor, mut pipes) = rig.shell(script).grace(SOON).spawn_piped().unwrap();
    pipes.stdout.read_exact(&mut [0; 6]).await.unwrap();
    supervisor.order(Order::Terminate);
    let mut output = String::new();
    pipes.stdout.read_to_string(&mut output).await.unwrap();
    assert_eq!(output, "bye\n");
    let exited = Report::Exited { code: Some(0), signal: None };
    assert_eq!(reports(&mut supervisor).await[1..], [exited, Report::Gone]);
}

#[tokio::test]
async fn a_directory_is_removed_with_the_program() {
    let rig = Rig::new();
    let private = rig.dir.path().join("private");
    std::fs::create_dir(&private).unwrap();
    std::fs::write(private.join("file"), "x").unwrap();
    let (mut supervisor, _pipes) = rig.shell("true").remove(&private).spawn_piped().unwrap();
    assert_eq!(reports(&mut supervisor).await.last(), Some(&Report::Gone));
    assert!(!private.exists());
}

#[tokio::test]
async fn a_program_that_is_not_prepared_cannot_supervise() {
    let error = Command::new("true", [""; 0]).spawn_piped().unwrap_err();
    assert!(error.to_string().contains("run_if_asked"), "{error}");
}

#[tokio::test]
#[ignore = "runs as the owner that the next test needs, and is killed"]
async fn an_owner() {
    let dir = std::env::var_os("SA_TEST_OWNER").unwrap();
    let mut command = Command::new("/bin/sh", ["-c", &format!("{FAMILY} sleep 1000")]);
    command.supervisor(SUPERVISOR).current_dir(dir);
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let (_supervisor, mut pipes) = command.spawn_piped().unwrap();
    pipes.stdout.read_exact(&mut [0; 6]).await.unwrap();
    let error = std::process::Command::new("sh").args(["-c", "kill -9 $$"]).exec();
    panic!("{error}");
}

#[tokio::test]
async fn nothing_outlives_an_owner_that_is_killed() {
    let rig = Rig::new();
    let mut owner = std::process::Command::new(std::env::current_exe().unwrap());
    owner.args(["--exact", "an_owner", "--ignored"]).env("SA_TEST_OWNER", rig.dir.path());
    owner.output().unwrap();
    rig.pids().into_iter().for_each(ended);
}
