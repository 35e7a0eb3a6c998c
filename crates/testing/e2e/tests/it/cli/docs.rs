//! Every command in the docs works. Blocks marked `sh test` run one after another against a gateway
//! with a demo node. Blocks marked `sh node` and `sh server` keep running during the rest of their
//! page. The README's node compiles and answers, and the guide's code is that of tested programs.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use sa_gateway_kit::{Gateway, Setup, soon};
use tokio::process::Command;

use crate::SWITCHBOARD;

const README_NODE: &str = env!("CARGO_BIN_EXE_e2e-readme-node");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap()
}

/// Returns the fenced blocks of a page with exactly one of these info strings, in order.
fn fenced(page: &str, fences: &[&'static str]) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let mut open: Option<(&'static str, String)> = None;
    for line in page.lines() {
        match &mut open {
            Some(_) if line == "```" => found.extend(open.take()),
            Some((_, block)) => {
                block.push_str(line);
                block.push('\n');
            }
            None => {
                let fence = fences.iter().find(|fence| line.strip_prefix("```") == Some(**fence));
                open = fence.map(|fence| (*fence, String::new()));
            }
        }
    }
    found
}

fn blocks(page: &str, fence: &'static str) -> Vec<String> {
    fenced(page, &[fence]).into_iter().map(|(_, block)| block).collect()
}

/// The port for a server of the docs, in place of the port that they name.
static PORT: LazyLock<String> = LazyLock::new(|| {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port().to_string()
});

/// Builds a block's command as a user would run it, with this test's gateway in place of the
/// user's.
fn command(gateway: &Gateway, bin: &Path, block: &str) -> (String, Command) {
    let data = gateway.data_dir();
    let script = block
        .replace("http://127.0.0.1:3210", &gateway.url)
        .replace("3400", &PORT)
        .replace("~/.local/share/switchboard", &data.display().to_string());
    let mut command = Command::new("bash");
    // The folder is temporary, so files from the commands do not matter.
    command.args(["-e", "-o", "pipefail", "-c", &script]).current_dir(bin).kill_on_drop(true);
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    command.env("SWITCHBOARD_DATA_DIR", &data).env("SWITCHBOARD_URL", &gateway.url);
    command.env("SA_GATEWAY_WS_URL", gateway.nodes_url()).env("HOME", bin);
    (script, command)
}

async fn run(gateway: &Gateway, bin: &Path, block: &str) {
    let (script, mut command) = command(gateway, bin, block);
    let output = soon(command.output()).await.unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "this fails:\n{script}\nwith:\n{said}");
    assert!(!said.contains("urn:switchboard:problem"), "this is refused:\n{script}\nwith:\n{said}");
}

#[tokio::test]
async fn commands_do_what_the_docs_say() {
    let gateway = Setup::new().demo().spawn(SWITCHBOARD).await;
    // The program under its usual name, as in the docs.
    let bin = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(SWITCHBOARD, bin.path().join("switchboard")).unwrap();
    sa_gateway_kit::eventually("the demo node", || async {
        gateway.operator().tool_names().await.iter().any(|name| name == "demo_echo").then_some(())
    })
    .await;
    let mut pages: Vec<PathBuf> = vec![root().join("README.md")];
    pages
        .extend(std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let mut ran = 0;
    for page in pages {
        let is_readme = page.ends_with("README.md");
        let page = std::fs::read_to_string(&page).unwrap();
        // The program that `cargo run` starts there.
        let _node = is_readme.then(|| {
            command(&gateway, bin.path(), &format!("exec {README_NODE}")).1.spawn().unwrap()
        });
        if is_readme {
            sa_gateway_kit::eventually("the README's node", || async {
                gateway
                    .operator()
                    .tool_names()
                    .await
                    .iter()
                    .any(|name| name == "office_greet")
                    .then_some(())
            })
            .await;
        }
        let machines: Vec<_> = blocks(&page, "sh node")
            .iter()
            .map(|block| command(&gateway, bin.path(), &format!("exec {block}")).1.spawn().unwrap())
            .collect();
        if !machines.is_empty() {
            sa_gateway_kit::eventually("the machine in the docs", || async {
                // A node from an earlier page may be listed, but it is offline.
                let list = gateway.operator().get("/v1/nodes").await.body;
                let mut nodes = list["nodes"].as_array().unwrap().iter();
                nodes.any(|node| node["id"] == "laptop" && node["online"] == true).then_some(())
            })
            .await;
        }
        let mut servers = Vec::new();
        for (fence, block) in fenced(&page, &["sh test", "sh server"]) {
            if fence == "sh test" {
                run(&gateway, bin.path(), &block).await;
                ran += 1;
                continue;
            }
            servers
                .push(command(&gateway, bin.path(), &format!("exec {block}")).1.spawn().unwrap());
            sa_gateway_kit::eventually("the server in the docs", || async {
                tokio::net::TcpStream::connect(format!("127.0.0.1:{}", *PORT)).await.ok()
            })
            .await;
        }
    }
    assert!(ran >= 4, "only {ran} blocks were found");
}

#[test]
fn the_readmes_node_is_the_example_that_is_compiled() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let example =
        std::fs::read_to_string(root().join("crates/node-sdk/examples/readme_node.rs")).unwrap();
    let (_, code) = example.split_once("\n\n").unwrap();
    assert_eq!(blocks(&readme, "rust"), [code]);
    // It also declares all the dependencies that it uses.
    let [manifest] = &blocks(&readme, "toml")[..] else { panic!("one block of TOML") };
    for name in
        ["sa_node_sdk", "anyhow", "async_trait", "serde_json", "tokio", "tracing_subscriber"]
    {
        let declared =
            manifest.lines().any(|line| line.replace('-', "_").starts_with(&format!("{name} =")));
        assert_eq!(declared, code.contains(&format!("{name}::")), "{name}");
    }
    assert_eq!(manifest.lines().count(), 7, "and no others");
    // `cargo new` has written the table already, and a manifest with two is invalid.
    let (before, _) = readme.split_once("```toml").unwrap();
    assert!(manifest.starts_with("[dependencies]\n"), "{manifest}");
    assert!(before.trim_end().ends_with("replace the line `[dependencies]` with:"), "{before}");
}

#[test]
fn the_guides_code_is_in_the_examples_that_are_run() {
    let guide = std::fs::read_to_string(root().join("docs/nodes.md")).unwrap();
    let folder = root().join("crates/node-sdk/examples");
    let examples: Vec<String> = ["report_node.rs", "readme_node.rs", "text_node.rs"]
        .map(|name| std::fs::read_to_string(folder.join(name)).unwrap())
        .into();
    let quoted = blocks(&guide, "rust");
    assert!(!quoted.is_empty());
    for block in quoted {
        assert!(
            examples.iter().any(|example| example.contains(&block)),
            "this is in no example:\n{block}"
        );
    }
    // The guide names every example.
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(guide.contains(name.trim_end_matches(".rs")), "the guide does not name {name}");
    }
}

#[test]
fn the_readme_names_the_versions_that_are_needed() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let said = |file: &str, before: &str| {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let (_, after) = text.split_once(before).unwrap();
        after.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect::<String>()
    };
    let rust = said("Cargo.toml", "rust-version = \"");
    let node = said("package.json", "\"node\": \">=");
    for words in [format!("Rust {rust} or newer"), format!("Node.js {node} or newer")] {
        assert!(readme.contains(&words), "{words}");
    }
}

#[test]
fn the_readmes_chores_exist() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let chores = std::fs::read_to_string(root().join("xtask/src/main.rs")).unwrap();
    for (chore, variant) in [("cargo xtask up", "Up {"), ("cargo xtask test", "Test {")] {
        assert!(readme.contains(chore) && chores.contains(variant), "{chore}");
    }
}
