//! Sandboxed commands cannot read the secret files of a gateway that the node does not know, even
//! if the files appear later.

use std::fs;
use std::path::Path;
use std::time::Duration;

use sa_node::{Machine, Options, Sandbox, StartError};
use sa_node_sdk::ErrorKind;
use sa_vault::secret_file;
use serde_json::json;

use crate::support::{Rig, later, repeat_as_nobody, supervisor};

/// A time after which a search result is no longer cached, and running commands are checked again.
const LATER: Duration = Duration::from_secs(3600);

/// The number of files that a search before a command does not finish.
const MANY: usize = 10_000;

/// Creates the data directory of a gateway.
fn gateway_data(at: &Path) {
    fs::create_dir(at).unwrap();
    fs::write(at.join("operator.token"), "s3cret").unwrap();
    secret_file::mark_directory(at).unwrap();
}

fn sandboxed(read_only: bool) -> Rig {
    Rig::with(|options| {
        options.sandbox = Some(Sandbox { network: true });
        options.read_only = read_only;
    })
}

#[track_caller]
fn refused_at_the_start(prepare: impl FnOnce(&Path, &Path), named: &str) {
    let dir = tempfile::tempdir().unwrap();
    let workspace = dir.path().join("workspace");
    fs::create_dir_all(workspace.join("deep/er")).unwrap();
    prepare(dir.path(), &workspace);
    let mut options = Options::new(&workspace);
    options.supervisor = Some(supervisor());
    options.sandbox = Some(Sandbox { network: true });
    let error = Machine::new(options).unwrap_err();
    assert!(matches!(&error, StartError::Secret { why } if why.contains(named)), "{error}");
}

#[test]
fn a_secret_in_the_workspace_is_refused_at_the_start() {
    refused_at_the_start(|_, workspace| gateway_data(&workspace.join("deep/data")), "deep/data ");
    let link = |dir: &Path, workspace: &Path| {
        gateway_data(&dir.join("data"));
        fs::hard_link(dir.join("data/operator.token"), workspace.join("deep/er/link")).unwrap();
    };
    refused_at_the_start(link, "deep/er/link ");
    let moved = |dir: &Path, workspace: &Path| {
        gateway_data(&dir.join("data"));
        fs::rename(dir.join("data/operator.token"), workspace.join("moved")).unwrap();
    };
    refused_at_the_start(moved, "workspace/moved ");
    // The workspace lies in a marked directory.
    let around = |dir: &Path, _: &Path| secret_file::mark_directory(dir).unwrap();
    refused_at_the_start(around, "workspace ");
}

/// Checks that commands are refused, and that the error names the file.
async fn refused(rig: &Rig, named: &str) {
    for background in [false, true] {
        let args = json!({ "command": "true", "background": background });
        let error = rig.try_call("Bash", args).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAllowed, "{error}");
        assert!(error.message().contains("secret files of a Switchboard gateway"), "{error}");
        assert!(error.message().contains(&format!("/{named} ")), "{named}: {error}");
    }
}

#[tokio::test]
async fn a_secret_that_appears_in_the_workspace_stops_commands_until_it_is_gone() {
    let rig = sandboxed(false);
    assert_eq!(rig.bash("echo fine").await["output"], "fine\n");
    let outside = rig.dir.path().join("data");
    gateway_data(&outside);
    fs::write(rig.workspace().join("config.toml"), "s3cret").unwrap();
    let appear: [(&str, &dyn Fn()); 3] = [
        ("data", &|| gateway_data(&rig.workspace().join("data"))),
        ("link", &|| {
            fs::hard_link(outside.join("operator.token"), rig.workspace().join("link")).unwrap();
        }),
        ("config.toml", &|| secret_file::mark_file(&rig.workspace().join("config.toml")).unwrap()),
    ];
    for (secret, appear) in appear {
        appear();
        refused(&rig, secret).await;
        let elsewhere = rig.dir.path().join(format!("{secret}-elsewhere"));
        fs::rename(rig.workspace().join(secret), elsewhere).unwrap();
        assert_eq!(rig.bash("echo fine").await["output"], "fine\n", "{secret}");
    }
}

/// Only the files nearest to the top are searched before every command.
#[tokio::test]
async fn a_secret_that_appears_in_a_large_workspace_stops_commands() {
    let rig = sandboxed(false);
    let many = rig.workspace().join("many");
    fs::create_dir_all(many.join("deep")).unwrap();
    for number in 0..MANY {
        fs::write(many.join(number.to_string()), "").unwrap();
    }
    let top = rig.workspace().join("data");
    later(LATER).await;
    rig.bash("true").await;
    for at in [top, many.join("deep/data")] {
        let session = rig.call("Bash", endless("")).await;
        gateway_data(&at);
        if at.ends_with("deep/data") {
            later(LATER).await;
        }
        refused(&rig, "data").await;
        ended_with_reason(&rig, session["sessionId"].as_str().unwrap()).await;
        fs::rename(&at, rig.dir.path().join("elsewhere")).unwrap();
        fs::remove_dir_all(rig.dir.path().join("elsewhere")).unwrap();
        assert_eq!(rig.bash("echo fine").await["output"], "fine\n");
    }
}

/// Returns the arguments of a background command that runs until it is ended.
fn endless(command: &str) -> serde_json::Value {
    json!({ "command": format!("{command}sleep 1000"), "background": true, "timeout": 0 })
}

/// Waits until a background command has been ended, and checks that its output has the reason.
async fn ended_with_reason(rig: &Rig, session: &str) {
    later(LATER).await;
    let poll = rig.ended(session).await;
    assert_eq!((&poll["signal"], &poll["status"]), (&json!("SIGKILL"), &json!("failed")), "{poll}");
    let tail = poll["tail"].as_str().unwrap();
    assert!(tail.contains("[the command was ended: "), "{tail}");
    assert!(tail.contains("secret files of a Switchboard gateway"), "{tail}");
}

#[tokio::test]
async fn a_running_command_is_ended_when_it_could_read_a_new_secret() {
    for is_read_only in [false, true] {
        let rig = sandboxed(is_read_only);
        fs::write(rig.workspace().join("config.toml"), "s3cret").unwrap();
        let outside = rig.dir.path().join("data");
        gateway_data(&outside);
        let appear: [&dyn Fn(); 3] = [
            &|| gateway_data(&rig.workspace().join("data")),
            &|| {
                fs::hard_link(outside.join("operator.token"), rig.workspace().join("link"))
                    .unwrap();
            },
            &|| secret_file::mark_file(&rig.workspace().join("config.toml")).unwrap(),
        ];
        for appear in appear {
            let mut sessions = Vec::new();
            for _ in 0..2 {
                let args = endless("trap '' TERM HUP; ");
                let started = rig.call("Bash", args).await;
                sessions.push(started["sessionId"].as_str().unwrap().to_owned());
            }
            appear();
            for session in &sessions {
                ended_with_reason(&rig, session).await;
            }
            for secret in ["data", "link"] {
                let _ = fs::rename(rig.workspace().join(secret), rig.dir.path().join("old"));
                let _ = fs::remove_dir_all(rig.dir.path().join("old"));
            }
        }
    }
}

/// Waits until the node has looked for secrets at least once more.
async fn searched_again(rig: &Rig) {
    let before = rig.call("Bash", endless("")).await["sessionId"].as_str().unwrap().to_owned();
    let secret = rig.workspace().join("data");
    gateway_data(&secret);
    ended_with_reason(rig, &before).await;
    fs::remove_dir_all(secret).unwrap();
}

#[tokio::test]
async fn commands_from_which_the_secrets_are_hidden_go_on() {
    let rig = sandboxed(true);
    gateway_data(&rig.workspace().join("hidden"));
    let session = rig.call("Bash", endless("")).await["sessionId"].as_str().unwrap().to_owned();
    let unlimited = Rig::with(|options| options.workspace = rig.workspace());
    let other = unlimited.call("Bash", endless("")).await["sessionId"].as_str().unwrap().to_owned();
    fs::write(rig.workspace().join("hidden/later"), "s3cret").unwrap();
    later(LATER).await;
    assert_eq!(rig.bash("cat hidden/later").await["exitCode"], 1);
    assert_eq!(rig.process("poll", &session).await["running"], true);
    assert_eq!(unlimited.process("poll", &other).await["running"], true);
    searched_again(&rig).await;
    assert_eq!(unlimited.process("poll", &other).await["running"], true);
}

#[tokio::test]
async fn a_secret_in_a_directory_that_is_only_read_is_hidden() {
    let rig = sandboxed(true);
    fs::write(rig.workspace().join("plain"), "plain").unwrap();
    let outside = rig.dir.path().join("data");
    gateway_data(&outside);
    gateway_data(&rig.workspace().join("data"));
    // Made after the mark, like a store's log.
    fs::create_dir(rig.workspace().join("data/attachments")).unwrap();
    fs::write(rig.workspace().join("data/attachments/one"), "s3cret").unwrap();
    fs::hard_link(outside.join("operator.token"), rig.workspace().join("link")).unwrap();
    let result = rig
        .bash(
            "cat plain; cat data/operator.token; cat data/attachments/one; cat link; \
             cp link $TMPDIR/copy; cat $TMPDIR/copy",
        )
        .await;
    let output = result["output"].as_str().unwrap();
    assert!(output.starts_with("plain") && !output.contains("s3cret"), "{output}");
    assert_eq!(output.matches("ermission denied").count(), 4, "{output}");
}

/// Mounts a file or directory at another path, until the value is dropped.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(from: &Path, to: &'a Path) -> Option<Self> {
        match rustix::mount::mount_bind(from, to) {
            Ok(()) => Some(Self(to)),
            Err(errno) => {
                sa_test_needs::missing("mount", &format!("a bind mount needs root: {errno}"));
                None
            }
        }
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::empty()).unwrap();
    }
}

#[tokio::test]
async fn a_bind_mount_of_a_secret_counts() {
    for is_read_only in [false, true] {
        let rig = sandboxed(is_read_only);
        let (data, workspace) = (rig.dir.path().join("data"), rig.workspace());
        gateway_data(&data);
        fs::write(workspace.join("file"), "").unwrap();
        fs::create_dir(workspace.join("dir")).unwrap();
        for (from, to, read) in [
            (data.join("operator.token"), "file", "cat file"),
            (data.clone(), "dir", "cat dir/operator.token"),
        ] {
            let session = rig.call("Bash", endless("")).await;
            let to = workspace.join(to);
            let Some(_mounted) = Mounted::new(&from, &to) else { return };
            if is_read_only {
                let output = rig.bash(read).await["output"].as_str().unwrap().to_owned();
                assert!(output.contains("ermission denied"), "{read}: {output}");
            } else {
                refused(&rig, to.file_name().unwrap().to_str().unwrap()).await;
            }
            ended_with_reason(&rig, session["sessionId"].as_str().unwrap()).await;
        }
        assert_eq!(rig.bash("echo fine; cat file").await["output"], "fine\n");
    }
}

#[test]
fn marker_files_count_where_attributes_are_not_supported() {
    sa_test_needs::run_without_attributes("shell::marked::without_attributes");
}

#[tokio::test]
#[ignore = "runs on the file system that the other test mounts"]
async fn without_attributes() {
    if sa_test_needs::small_disk().is_none() {
        return;
    }
    refused_at_the_start(|_, workspace| gateway_data(&workspace.join("deep/data")), "deep/data ");
    let rig = sandboxed(false);
    let session = rig.call("Bash", endless("")).await;
    let data = rig.workspace().join("data");
    gateway_data(&data);
    assert!(data.join(".switchboard-secret").exists());
    refused(&rig, "data").await;
    ended_with_reason(&rig, session["sessionId"].as_str().unwrap()).await;
    let rig = sandboxed(true);
    gateway_data(&rig.workspace().join("data"));
    let output = rig.bash("cat data/operator.token").await["output"].as_str().unwrap().to_owned();
    assert!(output.contains("ermission denied"), "{output}");
}

#[test]
fn all_of_this_holds_for_an_unprivileged_user() {
    repeat_as_nobody(module_path!());
}
