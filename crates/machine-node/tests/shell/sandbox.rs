//! The limits of a sandboxed command.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use sa_node::{Machine, Options, Sandbox, StartError};
use serde_json::json;

use crate::support::{Rig, repeat_as_nobody, supervisor};

fn sandboxed(network: bool, change: impl FnOnce(&mut Options)) -> Rig {
    Rig::with(|options| {
        options.sandbox = Some(Sandbox { network });
        change(options);
    })
}

async fn output(rig: &Rig, command: &str) -> String {
    rig.bash(command).await["output"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn it_writes_to_the_workspace_and_to_its_own_directory_alone() {
    let rig = sandboxed(true, |_| {});
    let elsewhere = tempfile::tempdir().unwrap();
    let elsewhere = elsewhere.path().display();
    assert_eq!(output(&rig, "echo in > file && cat file").await, "in\n");
    assert_eq!(
        output(&rig, "cd && echo home > x && cat x && echo temp > $TMPDIR/y && cat $TMPDIR/y")
            .await,
        "home\ntemp\n"
    );
    let said = output(
        &rig,
        &format!("echo out > {elsewhere}/x; echo out > /etc/x; echo out > /usr/x; mkdir /srv /var"),
    )
    .await;
    assert_eq!(said.matches("Read-only file system").count(), 4, "{said}");
    assert_eq!(said.matches("No such file or directory").count(), 1, "{said}");
    // The directory for temporary files is private as well, under the usual name.
    let temporary = format!("/tmp/sandbox-test-{}", std::process::id());
    assert_eq!(output(&rig, &format!("echo own > {temporary} && cat {temporary}")).await, "own\n");
    assert!(!std::path::Path::new(&temporary).exists());
}

#[tokio::test]
async fn it_sees_the_system_and_nothing_of_the_user() {
    let secret = tempfile::tempdir().unwrap();
    let token = secret.path().join("token");
    std::fs::write(&token, "geheim").unwrap();
    let rig = sandboxed(true, |options| options.hidden.push(token.clone()));
    let said = output(
        &rig,
        &format!("cat {}; ls {} /var/log /run /srv", token.display(), secret.path().display()),
    )
    .await;
    assert!(!said.contains("geheim"), "{said}");
    assert_eq!(said.matches("No such file or directory").count(), 5, "{said}");
    assert_eq!(output(&rig, "ls -A ~root /home").await, "/home:\n\n/root:\n");
    assert_eq!(
        output(&rig, "head -c 5 /etc/passwd; cat /etc/shadow 2>&1 | grep -c 'ermission denied'")
            .await,
        "root:1\n"
    );
    assert_eq!(output(&rig, "echo x > /dev/null && head -c 3 /dev/zero | wc -c").await, "3\n");
}

#[tokio::test]
async fn it_learns_nothing_of_the_node_and_cannot_signal_it() {
    let rig = sandboxed(true, |_| {});
    let node = std::process::id();
    // Neither has a number there: the parent is the first process of the sandbox, which cannot be
    // inspected.
    let said = output(
        &rig,
        &format!("cat /proc/{node}/environ; kill -0 {node}; cat /proc/$PPID/environ; echo $PPID"),
    )
    .await;
    assert!(
        said.contains("No such file or directory") && said.contains("No such process"),
        "{said}"
    );
    assert!(said.contains("ermission denied") && said.ends_with("\n1\n"), "{said}");
    let processes = output(&rig, "cd /proc; echo [0-9]*; cat [0-9]*/cmdline | tr '\\0' ' '").await;
    assert!(processes.starts_with("1 2"), "{processes}");
    assert!(!processes.contains("__supervisor"), "{processes}");
    let variables = output(&rig, "env | cut -d= -f1").await;
    for name in variables.lines() {
        let known = [
            "PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TZ", "USER", "SHELL", "TMPDIR", "PWD",
            "SHLVL", "_", "OLDPWD",
        ];
        assert!(
            known.contains(&name) || name.starts_with("LC_") || name == "SA_SHELL_SESSION",
            "{name}"
        );
    }
}

#[tokio::test]
async fn root_has_no_powers_in_it() {
    let rig = sandboxed(true, |_| {});
    let said = output(&rig, "grep -E '^Cap|NoNewPrivs|Seccomp:' /proc/self/status").await;
    let values: Vec<&str> = said.split_whitespace().skip(1).step_by(2).collect();
    let none = "0000000000000000";
    assert_eq!(values, [none, none, none, none, none, "1", "2"], "{said}");
    assert_eq!(output(&rig, "ulimit -c; ulimit -n").await, "0\n4096\n");
}

/// Returns the number of processes on this machine that were started under this name.
fn running(name: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let commands = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    commands
        .filter(|command| command.split(|byte| *byte == 0).next() == Some(name.as_bytes()))
        .count()
}

/// Returns a command that prints yes if a connection of this kind succeeds.
fn attempt(kind: &str, address: &str) -> String {
    format!(
        "perl -e 'use IO::Socket::INET; use IO::Socket::UNIX; print(({kind}) ? \"yes\" : \"no\")' {address}"
    )
}

#[tokio::test]
async fn sockets_at_paths_are_out_of_reach() {
    let rig = sandboxed(true, |_| {});
    let path = rig.workspace().join("socket");
    let _listener = UnixListener::bind(&path).unwrap();
    let connect = attempt("IO::Socket::UNIX->new(Peer => $ARGV[0])", path.to_str().unwrap());
    assert_eq!(output(&rig, &connect).await, "no");
    assert_eq!(
        output(&Rig::with(|options| options.workspace = rig.workspace()), &connect).await,
        "yes"
    );
}

#[tokio::test]
async fn there_is_a_network_unless_there_is_to_be_none() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    let to_tcp = attempt(
        "IO::Socket::INET->new(PeerAddr => $ARGV[0])",
        &tcp.local_addr().unwrap().to_string(),
    );
    let to_udp = attempt(
        "$s = IO::Socket::INET->new(PeerAddr => $ARGV[0], Proto => \"udp\") and $s->send(\"x\")",
        &udp.local_addr().unwrap().to_string(),
    );
    let with = sandboxed(true, |_| {});
    assert_eq!(
        (output(&with, &to_tcp).await, output(&with, &to_udp).await),
        ("yes".into(), "yes".into())
    );
    assert!(udp.recv(&mut [0]).is_ok());
    let without = sandboxed(false, |_| {});
    assert_eq!(
        (output(&without, &to_tcp).await, output(&without, &to_udp).await),
        ("no".into(), "no".into())
    );
    assert!(udp.recv(&mut [0]).is_err(), "nothing came");
    // Pipes and pairs of sockets do not use the network.
    assert_eq!(output(&without, "echo a | cat").await, "a\n");
}

#[tokio::test]
async fn read_only_is_read_only() {
    let rig = sandboxed(true, |options| {
        std::fs::write(options.workspace.join("file"), "old").unwrap();
        options.read_only = true;
    });
    let said = output(
        &rig,
        "cat file; echo new > file; rm -f file; touch other; echo x > $TMPDIR/x && cat $TMPDIR/x",
    )
    .await;
    assert!(said.starts_with("old") && said.ends_with("x\n"), "{said}");
    assert_eq!(said.matches("Read-only file system").count(), 3, "{said}");
    assert_eq!(std::fs::read_to_string(rig.workspace().join("file")).unwrap(), "old");
}

#[tokio::test]
async fn without_a_sandbox_read_only_means_no_commands() {
    let rig = Rig::with(|options| options.read_only = true);
    assert!(rig.tools.get("Bash").is_none() && rig.tools.get("Process").is_none());
}

#[tokio::test]
async fn it_keeps_processes_as_well_as_any() {
    let rig = sandboxed(false, |_| {});
    // The name identifies the processes from outside, where they have other numbers.
    let name = format!("{}", rig.workspace().display());
    let family = r#"(exec -a "$PWD" sleep 1000) & setsid bash -c 'trap "" TERM; exec -a "$PWD" sleep 1000' & sleep 1000"#;
    std::fs::write(rig.workspace().join("family.sh"), family).unwrap();
    let session = rig.background("exec bash family.sh").await;
    crate::support::eventually("its processes", || async { (running(&name) >= 2).then_some(()) })
        .await;
    rig.process("kill", &session).await;
    assert_eq!(running(&name), 0, "the answer comes when they are gone");
    let args = json!({ "command": "sleep 1000", "timeout": 300 });
    assert_eq!(rig.call("Bash", args).await["timedOut"], true);
    let result = rig.call("Bash", json!({ "command": "test -t 1 && tty", "pty": true })).await;
    assert_eq!(result["exitCode"], 0, "{result}");
}

#[tokio::test]
async fn a_secret_in_reach_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("token"), "geheim").unwrap();
    let mut options = Options::new(dir.path());
    options.supervisor = Some(supervisor());
    options.sandbox = Some(Sandbox { network: true });
    options.hidden = vec![dir.path().join("token")];
    let error = Machine::new(options).unwrap_err();
    assert!(matches!(&error, StartError::Secret { why } if why.contains("token")), "{error}");
}

#[tokio::test]
async fn a_sandbox_that_cannot_be_had_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new(dir.path());
    options.sandbox = Some(Sandbox { network: true });
    options.supervisor = Some("/bin/false".into());
    let error = Machine::new(options).unwrap_err();
    assert!(
        error.to_string().contains("cannot be run in a sandbox: /bin/false ended with"),
        "{error}"
    );
}

/// A supervisor program on a system without available namespaces.
const POOR_KEEPER: &str = r#"#!/bin/sh
exec unshare -Ur sh -c 'echo 0 > /proc/sys/user/max_user_namespaces
exec setpriv --inh-caps=-all --bounding-set=-all "$@"' sh "KEEPER" "$@"
"#;

#[tokio::test]
async fn a_kernel_without_namespaces_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let keeper = dir.path().join("keeper");
    std::fs::write(&keeper, POOR_KEEPER.replace("KEEPER", supervisor().to_str().unwrap())).unwrap();
    std::fs::set_permissions(&keeper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut options = Options::new(dir.path());
    options.sandbox = Some(Sandbox { network: true });
    options.supervisor = Some(keeper);
    let error = Machine::new(options).unwrap_err();
    assert!(
        error.to_string().contains("user namespaces are not available to this user"),
        "{error}"
    );
}

#[tokio::test]
async fn a_program_that_cannot_keep_commands_does_not_start_a_sandbox() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new(dir.path());
    options.sandbox = Some(Sandbox { network: true });
    assert!(Machine::new(options).unwrap_err().to_string().contains("run_if_asked"));
}

#[tokio::test]
async fn the_directory_of_its_own_is_gone_with_the_node() {
    let rig = sandboxed(true, |_| {});
    let session = rig.background("echo $HOME; sleep 1000").await;
    let home = rig.says(&session, "\n").await;
    let home = std::path::Path::new(home.trim()).to_owned();
    let all = home.parent().unwrap().to_owned();
    assert!(
        home.is_dir()
            && all.file_name().unwrap().to_str().unwrap().starts_with("switchboard-command-")
    );
    let Rig { dir, machine, tools } = rig;
    machine.shut_down().await;
    drop((machine, tools));
    assert!(!all.exists());
    drop(dir);
}

#[test]
fn all_of_this_holds_for_an_unprivileged_user() {
    repeat_as_nobody(module_path!());
}
