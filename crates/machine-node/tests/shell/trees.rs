//! No process of a command outlives it, in any session or process group.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::{Rig, gone, is_alive};

/// Starts a background child, a child in its own session, and a daemon: forked twice, in its own
/// session, and ignoring SIGTERM. Each writes its number to the file `pids`.
const FAMILY: &str = r#"
sleep 1000 & echo $! >> pids
setsid sh -c 'echo $$ >> pids; exec sleep 1000' &
(setsid sh -c 'trap "" TERM HUP INT; (sh -c "echo \$\$ >> pids; exec sleep 1000" </dev/null >/dev/null 2>&1 &)' &)
"#;

async fn assert_all_gone(pids: &[i32]) {
    for pid in pids {
        gone(*pid).await;
    }
}

#[tokio::test]
async fn the_end_of_the_shell_is_the_end_of_all() {
    let rig = Rig::new();
    let wait = "while [ $(wc -l < pids) -lt 3 ]; do :; done; echo last";
    let result = rig.bash(&format!("{FAMILY}{wait}")).await;
    assert_eq!((&result["status"], &result["output"]), (&json!("completed"), &json!("last\n")));
    let pids = rig.pids("pids", 3).await;
    assert_eq!(
        pids.iter().filter(|pid| is_alive(**pid)).count(),
        0,
        "the answer comes when they are gone"
    );
}

#[tokio::test]
async fn what_holds_the_output_does_not_hold_the_call() {
    let rig = Rig::new();
    let result = rig.bash("(sleep 1000; echo never) & echo now").await;
    assert_eq!(result["output"], "now\n");
}

#[tokio::test]
async fn a_timeout_reaches_all() {
    let rig = Rig::new();
    let (result, pids) = rig.time_out(&format!("{FAMILY} sleep 1000"), 3).await;
    assert_eq!(result["timedOut"], true);
    assert_all_gone(&pids).await;
}

#[tokio::test]
async fn a_cancel_reaches_all() {
    let rig = Rig::new();
    let (cancel, call) = rig.cancellable(json!({ "command": format!("{FAMILY} sleep 1000") }));
    let pids = rig.pids("pids", 3).await;
    cancel.cancel();
    call.await.unwrap().unwrap_err();
    assert_all_gone(&pids).await;
}

#[tokio::test]
async fn a_kill_reaches_all() {
    let rig = Rig::new();
    let session = rig.background(&format!("{FAMILY} sleep 1000")).await;
    let pids = rig.pids("pids", 3).await;
    rig.process("kill", &session).await;
    assert_all_gone(&pids).await;
}

#[tokio::test]
async fn the_nodes_end_reaches_all() {
    let rig = Rig::new();
    rig.background(&format!("{FAMILY} sleep 1000")).await;
    let pids = rig.pids("pids", 3).await;
    rig.machine.shut_down().await;
    assert_all_gone(&pids).await;
}

#[tokio::test]
async fn a_keeper_that_is_killed_leaves_nothing() {
    let rig = Rig::new();
    let session = rig.background(&format!("{FAMILY} echo $PPID > keeper; sleep 1000")).await;
    let pids = rig.pids("pids", 3).await;
    let supervisor = rig.pids("keeper", 1).await[0];
    kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL).unwrap();
    let poll = rig.ended(&session).await;
    assert_eq!((&poll["status"], &poll["signal"]), (&json!("failed"), &json!("SIGKILL")));
    assert_all_gone(&pids).await;
}

#[tokio::test]
async fn a_keeper_that_is_stopped_still_hears() {
    let rig = Rig::new();
    let session =
        rig.background("echo $$ > pids; kill -STOP $PPID; echo stopped; sleep 1000").await;
    rig.says(&session, "stopped").await;
    let killed = rig.process("kill", &session).await;
    assert_eq!(killed["running"], false);
    assert_all_gone(&rig.pids("pids", 1).await).await;
}

#[tokio::test]
async fn a_keeper_that_can_open_nothing_still_does_its_duty() {
    let rig = Rig::new();
    let escape = "(env -i setsid sh -c 'trap \"\" TERM; echo $$ >> pids; sleep 1000; sleep 1000' </dev/null >/dev/null 2>&1 &)";
    let wait = "while ! [ -s pids ]; do :; done";
    let starve = "prlimit --pid $PPID --nofile=0:0";
    let result = rig.bash(&format!("{starve}; {escape}; {wait}; echo bye")).await;
    assert_eq!((&result["exitCode"], &result["output"]), (&json!(0), &json!("bye\n")));
    assert_all_gone(&rig.pids("pids", 1).await).await;
    // A command that keeps running still receives orders.
    let session =
        rig.background(&format!("rm pids; {starve}; {escape}; {wait}; echo up; sleep 1000")).await;
    rig.says(&session, "up").await;
    assert_eq!(rig.process("kill", &session).await["running"], false);
    assert_all_gone(&rig.pids("pids", 1).await).await;
}

#[tokio::test]
async fn a_fork_bomb_is_outrun() {
    let rig = Rig::new();
    // Each process starts two children, up to a depth that a machine survives even if the test
    // fails.
    let bomb = "bomb() { echo $BASHPID >> pids; if [ $1 -gt 0 ]; then bomb $(($1-1)) & bomb $(($1-1)) & fi; sleep 1000; }; bomb 7";
    std::fs::write(rig.workspace().join("bomb.sh"), bomb).unwrap();
    let session = rig.background("exec bash bomb.sh").await;
    // The kill happens while the bomb is still forking.
    let some = rig.pids("pids", 20).await;
    rig.process("kill", &session).await;
    assert_all_gone(&some).await;
    for pid in rig.pids("pids", 20).await {
        gone(pid).await;
    }
}
