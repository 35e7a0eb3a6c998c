//! Rules of the house that a compiler does not check.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which crates of ours each crate may see. Direction is what keeps the model one model.
const SEES: [(&str, &[&str]); 31] = [
    ("sa-protocol", &[]),
    ("sa-core", &[]),
    ("sa-socket", &["sa-core"]),
    ("sa-sse", &[]),
    ("sa-openapi", &[]),
    ("sa-lines", &["sa-core"]),
    ("sa-store", &["sa-core"]),
    ("sa-nodes", &["sa-core", "sa-protocol", "sa-socket"]),
    ("sa-mcp", &["sa-core", "sa-lines"]),
    ("sa-upstream", &["sa-core", "sa-lines", "sa-protocol", "sa-vault"]),
    ("sa-chat", &["sa-core", "sa-sse", "sa-vault"]),
    ("sa-sandbox", &["sa-vault"]),
    ("sa-relay", &["sa-core", "sa-protocol", "sa-sandbox"]),
    ("sa-caller", &["sa-sse"]),
    ("sa-channels", &["sa-core", "sa-protocol", "sa-socket"]),
    ("sa-egress", &[]),
    ("sa-vault", &[]),
    ("sa-plugins", &["sa-core", "sa-egress", "sa-openapi", "sa-protocol", "sa-vault"]),
    ("sa-messaging", &["sa-protocol"]),
    ("sa-node-sdk", &["sa-protocol"]),
    ("sa-hello-node", &["sa-protocol"]),
    ("sa-node", &["sa-node-sdk", "sa-sandbox", "sa-vault"]),
    ("sa-sim", &["sa-core", "sa-node-sdk", "sa-nodes", "sa-protocol", "sa-socket"]),
    ("sa-store-faults", &["sa-core", "sa-store"]),
    (
        "switchboard",
        &[
            "sa-channels",
            "sa-chat",
            "sa-core",
            "sa-lines",
            "sa-mcp",
            "sa-node",
            "sa-node-sdk",
            "sa-nodes",
            "sa-plugins",
            "sa-protocol",
            "sa-relay",
            "sa-socket",
            "sa-sse",
            "sa-store",
            "sa-upstream",
            "sa-vault",
        ],
    ),
    ("sa-hostile", &[]),
    ("sa-test-needs", &[]),
    ("sa-testkit", &["*"]),
    ("sa-e2e", &["*"]),
    ("sa-bench", &["*"]),
    ("xtask", &[]),
];

#[test]
fn crates_see_only_what_lies_below_them() {
    let seen: BTreeMap<&str, &[&str]> = SEES.into_iter().collect();
    for manifest in tracked(&["*Cargo.toml"]) {
        let text = fs::read_to_string(&manifest).unwrap();
        let Some(name) = text.lines().find_map(|line| line.strip_prefix("name = \"")) else { continue };
        let name = name.trim_end_matches('"');
        let allowed = seen.get(name).unwrap_or_else(|| panic!("{name}: say in tidy.rs what it may see"));
        let dependencies =
            text.split("[dependencies]").nth(1).unwrap_or_default().split("\n[").next().unwrap_or_default();
        for line in dependencies.lines() {
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
            let ours = dependency.starts_with("sa-") || dependency == "switchboard";
            assert!(
                !ours || allowed.contains(&"*") || allowed.contains(&dependency),
                "{name} must not see {dependency}"
            );
        }
    }
}

#[test]
fn nothing_is_left_for_later_in_the_code() {
    // Spelled apart, so that this file does not find itself.
    let words = [["TO", "DO"].concat(), ["FIX", "ME"].concat(), ["todo", "!("].concat(), ["#[ign", "ore]"].concat()];
    for file in tracked(&["*.rs", "*.ts", "*.tsx", "*.html"]) {
        let text = fs::read_to_string(&file).unwrap();
        for word in &words {
            assert!(!text.contains(word.as_str()), "{} has {word}", file.display());
        }
    }
}

#[test]
fn the_core_does_no_io() {
    for file in tracked(&["crates/core/src/*.rs"]) {
        let text = fs::read_to_string(&file).unwrap();
        for banned in
            ["std::fs", "std::net", "tokio::net", "tokio::fs", "axum", "hyper", "rusqlite", "println!", "Serialize"]
        {
            let used = text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(banned));
            assert!(!used, "{} uses {banned}", file.display());
        }
    }
}

#[test]
fn files_stay_readable() {
    for file in tracked(&["*.rs"]) {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 600, "{} has {lines} lines; cut it where it tells two stories", file.display());
    }
}

#[test]
fn links_in_the_docs_lead_somewhere() {
    for file in tracked(&["*.md"]) {
        let text = fs::read_to_string(&file).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            let target = file.parent().unwrap().join(path);
            assert!(target.exists(), "{} links to {link}, which is not there", file.display());
        }
    }
}

/// `npm ci` refuses a lock file without the packages of other platforms: an `npm` that finds them calls the file out of date.
#[test]
fn lock_files_hold_every_platform_and_no_registry() {
    for file in tracked(&["*package-lock.json"]) {
        let name = file.display();
        let lock: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let packages = lock["packages"].as_object().unwrap();
        for (path, package) in packages {
            for optional in package["optionalDependencies"].as_object().into_iter().flatten() {
                let end = format!("node_modules/{}", optional.0);
                let is_locked = packages.keys().any(|key| key.ends_with(&end));
                assert!(
                    is_locked,
                    "{name} lacks {} of {path}: delete the file and node_modules, write it again",
                    optional.0
                );
            }
            let is_ours = !path.contains("node_modules/") || package["link"] == true;
            assert!(
                is_ours || package["resolved"].is_null(),
                "{name} names a registry for {path}: see CONTRIBUTING.md"
            );
            assert!(is_ours || package["integrity"].is_string(), "{name} has no integrity for {path}");
        }
    }
}

/// Files of the project, as git knows them, new ones included.
fn tracked(patterns: &[&str]) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "--"])
        .args(patterns)
        .output()
        .unwrap();
    let files = String::from_utf8(output.stdout).unwrap();
    let files: Vec<PathBuf> = files.lines().map(|line| root.join(line)).filter(|file| file.exists()).collect();
    assert!(!files.is_empty(), "git lists no file for {patterns:?}");
    files
}
