//! Every command in the docs works: blocks marked `sh test` are run, one after another, against a gateway with a demo node;
//! those marked `sh node` go on while the rest of their page is run; and the README's node is a program that compiles and answers.

use std::path::{Path, PathBuf};

use sa_testkit::{Gateway, Setup, soon};
use tokio::process::Command;

use crate::SWITCHBOARD;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// The fenced blocks of a page that are opened with exactly this word.
fn blocks(page: &str, fence: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<String> = None;
    for line in page.lines() {
        match &mut open {
            Some(block) if line == "```" => {
                found.push(std::mem::take(block));
                open = None;
            }
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
            None if line == format!("```{fence}") => open = Some(String::new()),
            None => {}
        }
    }
    found
}

/// A block as a person would run it, with the gateway of this test in place of the one on their machine.
fn command(gateway: &Gateway, bin: &Path, block: &str) -> (String, Command) {
    let data = gateway.data_dir();
    let script = block
        .replace("http://127.0.0.1:3210", &gateway.url)
        .replace("~/.local/share/switchboard", &data.display().to_string())
        .replace("~/project", &bin.display().to_string());
    let mut command = Command::new("bash");
    command.args(["-e", "-o", "pipefail", "-c", &script]).kill_on_drop(true);
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    command.env("SWITCHBOARD_DATA_DIR", &data).env("SWITCHBOARD_URL", &gateway.url);
    command.env("SA_GATEWAY_WS_URL", gateway.nodes_url()).env("HOME", bin);
    (script, command)
}

async fn run(gateway: &Gateway, bin: &Path, block: &str) {
    let (script, mut command) = command(gateway, bin, block);
    let output = soon(command.output()).await.unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "this fails:\n{script}\nwith:\n{said}");
    assert!(!said.contains("urn:switchboard:problem"), "this is refused:\n{script}\nwith:\n{said}");
}

#[tokio::test]
async fn commands_do_what_the_docs_say() {
    let gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    // Under its own name, as the docs call it.
    let bin = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(SWITCHBOARD, bin.path().join("switchboard")).unwrap();
    sa_testkit::eventually("the demo node", || async {
        gateway.operator().tool_names().await.iter().any(|name| name == "demo_echo").then_some(())
    })
    .await;
    let mut pages: Vec<PathBuf> = vec![root().join("README.md")];
    pages.extend(std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let mut ran = 0;
    for page in pages {
        let page = std::fs::read_to_string(&page).unwrap();
        let machines: Vec<_> = blocks(&page, "sh node")
            .iter()
            .map(|block| command(&gateway, bin.path(), &format!("exec {block}")).1.spawn().unwrap())
            .collect();
        if !machines.is_empty() {
            sa_testkit::eventually("the machine in the docs", || async {
                // One of an earlier page is remembered, and is not here.
                let list = gateway.operator().get("/v1/nodes").await.body;
                let mut nodes = list["nodes"].as_array().unwrap().iter();
                nodes.any(|node| node["id"] == "laptop" && node["online"] == true).then_some(())
            })
            .await;
        }
        for block in blocks(&page, "sh test") {
            run(&gateway, bin.path(), &block).await;
            ran += 1;
        }
    }
    assert!(ran >= 4, "only {ran} blocks were found");
}

#[test]
fn the_readmes_node_is_the_example_that_is_compiled() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let example = std::fs::read_to_string(root().join("crates/node-sdk/examples/readme_node.rs")).unwrap();
    let (_, code) = example.split_once("\n\n").unwrap();
    assert_eq!(blocks(&readme, "rust"), [code]);
}

#[test]
fn the_readmes_chores_exist() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let chores = std::fs::read_to_string(root().join("xtask/src/main.rs")).unwrap();
    for (chore, variant) in [("cargo xtask up", "Up {"), ("cargo xtask test", "Test {")] {
        assert!(readme.contains(chore) && chores.contains(variant), "{chore}");
    }
}
