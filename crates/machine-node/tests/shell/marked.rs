//! Sandboxed commands cannot read the secret files of a gateway that the node does not know.

use std::fs;
use std::path::Path;
use std::time::Duration;

use sa_node::{Machine, Options, Sandbox, StartError};
use sa_node_sdk::ErrorKind;
use sa_vault::secret_file;
use serde_json::json;

use crate::support::{Rig, later, repeat_as_nobody, supervisor};

/// A time after which a search result is no longer cached.
const LATER: Duration = Duration::from_secs(3600);

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

#[tokio::test]
async fn a_secret_that_appears_in_the_workspace_stops_commands_until_it_is_gone() {
    let rig = sandboxed(false);
    assert_eq!(rig.bash("echo fine").await["output"], "fine\n");
    let outside = rig.dir.path().join("data");
    gateway_data(&outside);
    gateway_data(&rig.workspace().join("data"));
    fs::hard_link(outside.join("operator.token"), rig.workspace().join("link")).unwrap();
    for (secret, read) in [("data", "cat data/operator.token"), ("link", "cat link")] {
        later(LATER).await;
        for background in [false, true] {
            let args = json!({ "command": read, "background": background });
            let error = rig.try_call("Bash", args).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotAllowed, "{error}");
            assert!(error.message().contains("secret files of a Switchboard gateway"), "{error}");
        }
        fs::rename(
            rig.workspace().join(secret),
            rig.dir.path().join(format!("{secret}-elsewhere")),
        )
        .unwrap();
    }
    later(LATER).await;
    assert_eq!(rig.bash("echo fine; ls").await["output"], "fine\n");
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
    later(LATER).await;
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

#[test]
fn all_of_this_holds_for_an_unprivileged_user() {
    repeat_as_nobody(module_path!());
}
