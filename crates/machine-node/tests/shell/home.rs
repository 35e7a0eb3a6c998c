//! Keys and passwords in a home are hidden from sandboxed commands and from the file tools, even if
//! the workspace contains the home.

use std::fs;
use std::path::Path;

use sa_node::{Options, Sandbox};
use sa_node_sdk::ErrorKind::NotAllowed;
use serde_json::{Value, json};

use crate::support::{Rig, repeat_as_nobody};

const SECRETS: [&str; 4] =
    [".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", ".netrc"];

/// Returns a machine whose workspace is the home of its user, or a directory above it.
fn at_home(home: &str, change: impl FnOnce(&mut Options, &Path)) -> Rig {
    Rig::with(|options| {
        let home = options.workspace.join(home);
        for name in SECRETS {
            let path = home.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "s3cret").unwrap();
        }
        fs::write(home.join("plain"), "plain").unwrap();
        options.environment.0.push(("HOME".into(), home.clone().into()));
        options.sandbox = Some(Sandbox { network: true });
        change(options, &home);
    })
}

async fn output(rig: &Rig, command: &str) -> String {
    rig.bash(command).await["output"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_command_in_a_home_sees_no_keys() {
    for is_read_only in [false, true] {
        for home in [".", "users/me"] {
            let rig = at_home(home, |options, _| options.read_only = is_read_only);
            let said = output(&rig, &format!("cd {home} && cat plain {}", SECRETS.join(" "))).await;
            assert!(said.starts_with("plain"), "{said}");
            assert_eq!(said.matches("ermission denied").count(), 4, "{said}");
            let said = output(&rig, "mv users x; grep -rs s3cret . ; echo x > .ssh/x").await;
            assert!(!said.contains("s3cret"), "{said}");
        }
    }
}

#[tokio::test]
async fn the_file_tools_are_no_way_around_it() {
    for home in [".", "users/me"] {
        let rig = at_home(home, |_, _| {});
        let refused = async |tool: &str, args: Value| {
            let error = rig.try_call(tool, args.clone()).await.unwrap_err();
            assert_eq!(error.kind(), NotAllowed, "{tool} {args}: {error}");
        };
        for name in SECRETS {
            let path = format!("{home}/{name}");
            refused("Read", json!({ "path": path })).await;
            refused("Write", json!({ "path": path, "content": "x" })).await;
            refused("Edit", json!({ "path": path, "oldString": "s", "newString": "x" })).await;
            refused("Grep", json!({ "pattern": "s", "path": path })).await;
        }
        // It does not exist yet.
        refused("Write", json!({ "path": format!("{home}/.kube/config"), "content": "x" })).await;
        refused("Glob", json!({ "pattern": "*", "path": format!("{home}/.ssh") })).await;
        let found = rig.call("Grep", json!({ "pattern": "s3cret|plain" })).await;
        assert_eq!(found["count"], 1, "{found}");
    }
}

#[tokio::test]
async fn a_link_that_a_command_removes_keeps_its_target_hidden() {
    let rig = at_home(".", |_, home| {
        fs::create_dir_all(home.join("dotfiles")).unwrap();
        fs::rename(home.join(".ssh"), home.join("dotfiles/ssh")).unwrap();
        std::os::unix::fs::symlink("dotfiles/ssh", home.join(".ssh")).unwrap();
        std::os::unix::fs::symlink(".", home.join(".docker")).unwrap();
    });
    let said =
        output(&rig, "cat .ssh/*; rm .ssh; mv dotfiles x; cat dotfiles/ssh/id_ed25519").await;
    assert!(!said.contains("s3cret"), "{said}");
    let said = output(&rig, "cat dotfiles/ssh/id_ed25519; cat plain").await;
    assert!(said.contains("ermission denied") && said.ends_with("plain"), "{said}");
    let read = rig.try_call("Read", json!({ "path": "dotfiles/ssh/id_ed25519" })).await;
    assert_eq!(read.unwrap_err().kind(), NotAllowed);
}

#[tokio::test]
async fn a_path_that_is_given_by_name_is_visible() {
    let rig = at_home(".", |options, home| options.workspace = home.join(".ssh"));
    assert_eq!(output(&rig, "cat id_ed25519").await, "s3cret");
    assert_eq!(rig.call("Read", json!({ "path": "id_ed25519" })).await["content"], "1\ts3cret");
    let rig = at_home(".", |options, home| {
        options.allow_roots = vec![home.to_owned(), home.join(".aws")];
    });
    let read = rig.call("Read", json!({ "path": ".aws/credentials" })).await;
    assert_eq!(read["content"], "1\ts3cret");
    let read = rig.try_call("Read", json!({ "path": ".ssh/id_ed25519" })).await;
    assert_eq!(read.unwrap_err().kind(), NotAllowed);
}

#[tokio::test]
async fn without_a_sandbox_nothing_is_hidden() {
    let rig = at_home(".", |options, _| options.sandbox = None);
    assert_eq!(output(&rig, "cat .ssh/id_ed25519").await, "s3cret");
    assert_eq!(rig.call("Read", json!({ "path": ".netrc" })).await["content"], "1\ts3cret");
}

#[test]
fn all_of_this_holds_for_an_unprivileged_user() {
    repeat_as_nobody(module_path!());
}
