//! Rule: a sandbox ends with its command and with its supervisor, and reports the exit status.

use std::process::Stdio;

use crate::rig::{Rig, cases, eventually, running};

/// Starts processes that can be found from outside by an argument: a child, one in its own session,
/// and one that ignores signals.
fn family(mark: &str) -> String {
    format!(
        "sleep=$(command -v sleep)
         (exec -a {mark} $sleep 1000) & setsid bash -c 'exec -a {mark} sleep 1000' &
         (setsid bash -c 'trap \"\" TERM HUP INT; (exec -a {mark} sleep 1000) &' &)
         "
    )
}

#[test]
fn exit_codes_are_passed_on() {
    for case in cases() {
        let rig = Rig::new(case);
        for (script, code) in
            [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
        {
            assert_eq!(rig.run(script).status.code(), Some(code), "{script} as {case:?}");
        }
        assert_eq!(rig.output("echo in; echo err >&2; cat"), "in\nerr\n", "{case:?}");
    }
}

#[test]
fn nothing_outlives_the_command() {
    for case in cases() {
        let rig = Rig::new(case);
        let mark = rig.workspace().join("mark");
        let script = format!(
            "{} until [ $(cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c '^{}$') -ge 3 ]; do :; done; exit 7",
            family(&mark.display().to_string()),
            mark.display()
        );
        assert_eq!(rig.run(&script).status.code(), Some(7), "{case:?}");
        eventually("all of them gone", || running(&mark) == 0);
    }
}

#[test]
fn what_is_left_is_asked_to_end_first() {
    for case in cases() {
        let rig = Rig::new(case);
        let child = "trap 'echo asked > asked; exit' TERM; echo > up; while :; do sleep 0.01; done";
        let script = format!("bash -c \"{child}\" & until [ -e up ]; do :; done");
        assert!(rig.run(&script).status.success(), "{case:?}");
        assert!(rig.workspace().join("asked").exists(), "{case:?}");
    }
}

#[test]
fn nothing_outlives_a_supervisor_that_is_killed() {
    for case in cases() {
        let rig = Rig::new(case);
        let mark = rig.workspace().join("mark");
        let script = format!("{} sleep 1000", family(&mark.display().to_string()));
        let mut supervisor =
            rig.command(&script).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        eventually("they run", || running(&mark) >= 3);
        // setpriv has replaced itself by the supervisor.
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
        eventually("all of them gone", || running(&mark) == 0);
    }
}
