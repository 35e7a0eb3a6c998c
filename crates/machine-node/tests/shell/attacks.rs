//! A sandboxed command cannot reach beyond its workspace.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use sa_node::{Machine, Options, Sandbox};
use serde_json::json;

use crate::support::{Rig, eventually, repeat_as_nobody, supervisor};

fn sandboxed(change: impl FnOnce(&mut Options)) -> Rig {
    Rig::with(|options| {
        options.sandbox = Some(Sandbox { network: true });
        change(options);
    })
}

async fn output(rig: &Rig, command: &str) -> String {
    rig.bash(command).await["output"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn it_cannot_starve_or_slow_its_keeper() {
    let rig = sandboxed(|_| {});
    let session = rig.background("sleep 1000").await;
    let supervisor = parent(rig.process("poll", &session).await["pid"].as_i64().unwrap());
    let before = state(supervisor);
    // The command cannot name its supervisor. It can name the first process of the sandbox, but
    // that process is its own.
    let attempts = [
        "prlimit --pid PID --nofile=0:0",
        "renice -n 19 -p PID",
        "renice -n 19 -u $(id -u)",
        "ionice -c 3 -p PID",
        "taskset -p 1 PID",
        "chrt --idle -p 0 PID",
        "kill -STOP PID",
        "kill -KILL PID",
    ];
    for attempt in attempts {
        let attack = [attempt.replace("PID", &supervisor.to_string()), attempt.replace("PID", "1")]
            .join("; ");
        let result = rig.bash(&format!("{attack}; echo survived; exit 3")).await;
        assert!(result["output"].as_str().unwrap().ends_with("survived\n"), "{attempt}: {result}");
        assert_eq!(result["exitCode"], 3, "{attempt}: {result}");
    }
    assert_eq!(state(supervisor), before);
    // It may also change itself. Niceness is inherited, and the tests may run at any value.
    let inherited: i32 = output(&rig, "nice").await.trim().parse().unwrap();
    let own = "prlimit --nofile=100:100 nice -n 5 ionice -c 3 taskset 1 sh -c 'ulimit -n; nice'";
    assert_eq!(output(&rig, own).await, format!("100\n{}\n", (inherited + 5).min(19)));
}

/// Returns the process that started this one.
fn parent(pid: i64) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

/// Returns the limits, niceness and processors of a process.
fn state(pid: i64) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let processors = status.lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let niceness = stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap();
    format!("{limits}{processors} niceness {niceness}")
}

/// Creates files with the given mode in every possible way.
const MAKE: &str = r#"
use Fcntl; my $mode = oct $ARGV[0]; umask 0;
my ($plain, $noded, $created, $here) = qw(plain noded created .);
sub made { my ($name, $done) = @_; print "$name ", $done ? "done" : "refused", "\n" }
open F, ">plain"; close F; open F, "<plain";
made("chmod", chmod $mode, "plain"); made("fchmod", chmod $mode, *F);
made("open", sysopen G, "opened", O_CREAT | O_WRONLY, $mode);
made("mknod", syscall(133, $noded, 0100000 | $mode, 0) == 0);
made("creat", syscall(85, $created, $mode) >= 0);
made("fchmodat", syscall(268, -100, $plain, $mode) == 0);
made("fchmodat2", syscall(452, -100, $plain, $mode, 0) == 0);
made("tmpfile", syscall(257, -100, $here, 020200002, $mode) >= 0);
"#;

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn it_makes_no_file_that_runs_as_its_owner() {
    let rig = sandboxed(|_| {});
    std::fs::write(rig.workspace().join("make.pl"), MAKE).unwrap();
    for mode in ["4755", "2755", "6711"] {
        let said =
            output(&rig, &format!("rm -f plain opened noded created; perl make.pl {mode}")).await;
        assert_eq!(
            (said.matches("refused").count(), said.lines().count()),
            (8, 8),
            "{mode}: {said}"
        );
        assert_eq!(output(&rig, "find . -perm /6000").await, "");
    }
    let said = output(&rig, "rm -f plain opened noded created; perl make.pl 1755").await;
    assert_eq!(said.matches("done").count(), 8, "{said}");
    // The filter cannot inspect this mode.
    let said = output(
        &rig,
        "perl -e '$x = \"x\"; syscall(437, -100, $x, $how = pack(\"QQQ\", 0101, 04755, 0), 24); print $!'",
    )
    .await;
    assert_eq!(said, "Function not implemented");
}

#[tokio::test]
async fn it_has_no_terminal_of_anybody_elses() {
    let rig = sandboxed(|_| {});
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    // While no process has it open, reading it returns only an error.
    let _theirs =
        rustix::fs::open(name.as_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    rustix::io::ioctl_fionbio(&ours, true).unwrap();
    output(&rig, &format!("echo intruder > {name}")).await;
    assert_eq!(
        rustix::io::read(&ours, &mut [0; 64]).unwrap_err(),
        rustix::io::Errno::AGAIN,
        "nothing came"
    );
    assert_eq!(output(&rig, "ls /dev/pts").await, "ptmx\n");
    // A command may create its own terminals, and the one that it was given has a name.
    let inner = output(&rig, "script -qc 'test -t 1 && tty' /dev/null </dev/null").await;
    assert!(inner.trim().starts_with("/dev/pts/"), "{inner}");
    let command = "test -t 0 && echo typed > /dev/tty && echo named > $(tty) && stty size";
    let given = rig.call("Bash", json!({ "command": command, "pty": true })).await;
    assert_eq!(given["output"], "typed\r\nnamed\r\n24 80\r\n");
}

/// Returns a command that tries to change a file's mode, times, attributes and owner.
fn change(file: &str) -> String {
    format!(
        "chmod 777 {file}; touch -d @1 {file}; chown $(id -u) {file}; chmod 777 $(dirname {file})"
    )
}

#[tokio::test]
async fn it_changes_nothing_about_files_elsewhere() {
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("file");
    std::fs::write(&file, "x").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    let before = file.metadata().unwrap();
    let rig = sandboxed(|_| {});
    let said = output(&rig, &change(file.to_str().unwrap())).await;
    assert_eq!(said.matches("No such file or directory").count(), 4, "{said}");
    // Root owns this file; other users are refused anyway.
    let said = output(&rig, &change("/etc/passwd")).await;
    let refused =
        said.matches("Read-only file system").count() + said.matches("ermission denied").count();
    assert_eq!(refused, 4, "{said}");
    let after = file.metadata().unwrap();
    assert_eq!(
        (after.mode(), after.mtime(), after.ctime()),
        (before.mode(), before.mtime(), before.ctime())
    );
    // The node has opened this file for it.
    let said = output(&rig, "touch /proc/self/fd/0").await;
    assert!(said.contains("Read-only") || said.contains("ermission denied"), "{said}");
    let said =
        output(&rig, "touch x && chmod 700 x && touch -d @1 x && chmod 700 ~ && stat -c %a%Y x")
            .await;
    assert_eq!(said, "7001\n");
}

#[tokio::test]
async fn read_only_is_so_for_modes_and_times() {
    let rig = sandboxed(|options| {
        std::fs::write(options.workspace.join("file"), "x").unwrap();
        options.read_only = true;
    });
    let said = output(&rig, &change("./file")).await;
    assert_eq!(said.matches("Read-only file system").count(), 4, "{said}");
}

#[tokio::test]
async fn shared_memory_is_its_own() {
    let rig = sandboxed(|_| {});
    assert_eq!(
        output(&rig, "echo shared > /dev/shm/x && cat /dev/shm/x; ls /dev/shm").await,
        "shared\nx\n"
    );
    assert_eq!(output(&rig, "ls -A /dev/shm").await, "");
}

#[tokio::test]
async fn it_leaves_nothing_to_the_next() {
    let rig = sandboxed(|_| {});
    let first =
        output(&rig, "echo 'exit 7' > ~/.bash_profile; mkdir -m 0 $TMPDIR/locked; echo $HOME")
            .await;
    assert!(!std::path::Path::new(first.trim()).exists(), "it goes with its command");
    let second = rig.bash("ls -A ~ $TMPDIR | grep -v :").await;
    assert_eq!(second["output"], "\n", "{second}");
    // A running command keeps its own home.
    let session = rig.background("echo $HOME; sleep 1000").await;
    let home = rig.says(&session, "\n").await;
    let home = std::path::Path::new(home.trim());
    assert!(home.is_dir());
    rig.process("kill", &session).await;
    eventually("its end", || async { (!home.parent().unwrap().exists()).then_some(()) }).await;
}

#[tokio::test]
async fn a_secret_with_two_names_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let (workspace, token) = (dir.path().join("workspace"), dir.path().join("token"));
    std::fs::create_dir(&workspace).unwrap();
    std::fs::write(&token, "geheim").unwrap();
    std::fs::hard_link(&token, workspace.join("innocent")).unwrap();
    let mut options = Options::new(&workspace);
    options.supervisor = Some(supervisor());
    options.sandbox = Some(Sandbox { network: true });
    options.hidden = vec![token];
    let error = Machine::new(options.clone()).unwrap_err();
    assert!(error.to_string().contains("token has a second name"), "{error}");
    std::fs::remove_file(workspace.join("innocent")).unwrap();
    Machine::new(options).unwrap();
}

#[test]
fn all_of_this_holds_for_an_unprivileged_user() {
    repeat_as_nobody(module_path!());
}
