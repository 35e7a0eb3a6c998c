//! Project rules that the compiler does not check.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use support::{root, tracked};

/// The layers, and the layers on which the crates of each may depend. A crate belongs to the layer
/// with the longest matching folder prefix in this list.
const LAYERS: [(&str, &[&str]); 16] = [
    ("crates/foundation", &["crates/foundation"]),
    ("crates/protocol", &["crates/foundation"]),
    ("crates/core", &["crates/foundation"]),
    ("crates/http", &["crates/foundation", "crates/protocol", "crates/core"]),
    ("crates/store", &["crates/foundation", "crates/core"]),
    ("crates/providers", &["crates/foundation", "crates/protocol", "crates/core", "crates/http"]),
    ("crates/surfaces", &["crates/foundation", "crates/protocol", "crates/core", "crates/http"]),
    (
        "crates/gateway",
        &[
            "crates/foundation",
            "crates/protocol",
            "crates/core",
            "crates/http",
            "crates/store",
            "crates/providers",
            "crates/surfaces",
        ],
    ),
    ("crates/cli", &["crates"]),
    ("crates/node-sdk", &["crates/foundation", "crates/protocol"]),
    ("crates/hello-node", &["crates/foundation", "crates/protocol"]),
    ("crates/sdk", &["crates/foundation", "crates/protocol"]),
    ("crates/machine-node", &["crates/foundation", "crates/protocol", "crates/node-sdk"]),
    ("crates/testing", &["crates"]),
    ("bench", &["crates"]),
    ("xtask", &[]),
];

#[test]
fn crates_depend_only_on_the_layers_below_them() {
    let root = root();
    let manifests: Vec<_> = tracked(&["*Cargo.toml"])
        .into_iter()
        .filter_map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let name = text.lines().find_map(|line| line.strip_prefix("name = \""))?;
            let name = name.trim_end_matches('"').to_owned();
            let folder = path.parent().unwrap().strip_prefix(root).unwrap().to_owned();
            Some((name, folder, text))
        })
        .collect();
    let folders: BTreeMap<&str, &Path> =
        manifests.iter().map(|(name, folder, _)| (&**name, &**folder)).collect();
    for (name, folder, text) in &manifests {
        let (_, below) = LAYERS
            .iter()
            .find(|(layer, _)| folder.starts_with(layer))
            .unwrap_or_else(|| panic!("add the layer of {name} to tidy.rs"));
        let dependencies = text.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        for line in dependencies.lines() {
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
            let Some(its_folder) = folders.get(dependency) else { continue };
            let is_below = below.iter().any(|layer| its_folder.starts_with(layer));
            // Only tests may use the test support crates.
            let is_for_tests = its_folder.starts_with("crates/testing")
                && !folder.starts_with("crates/testing")
                && !folder.starts_with("bench");
            assert!(is_below && !is_for_tests, "{name} must not depend on {dependency}");
        }
    }
}

/// A dependency that only the `tests` folder uses belongs into `[dev-dependencies]`, so that
/// programs are built without it.
#[test]
fn every_dependency_is_used() {
    for manifest in tracked(&["*Cargo.toml"]) {
        let table: toml::Table = toml::from_str(&fs::read_to_string(&manifest).unwrap()).unwrap();
        let folder = manifest.parent().unwrap();
        let place = folder.strip_prefix(root()).unwrap();
        // A program may have its source in another crate's folder, with modules beside it.
        let programs = table.get("bin").and_then(|bins| bins.as_array()).into_iter().flatten();
        let folders = programs.filter_map(|program| {
            Some(folder.join(program.get("path")?.as_str()?).parent()?.to_owned())
        });
        let programs: Vec<PathBuf> = folders
            .flat_map(|folder| fs::read_dir(folder).unwrap())
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
            .collect();
        for (section, within) in [
            ("dependencies", "src/*.rs"),
            ("dev-dependencies", "*.rs"),
            ("build-dependencies", "build.rs"),
        ] {
            let Some(dependencies) = table.get(section).and_then(|section| section.as_table())
            else {
                continue;
            };
            let mut files = tracked(&[&place.join(within).to_string_lossy()]);
            files.extend(programs.clone());
            let sources: Vec<String> = files.iter().map(|file| code_of(file)).collect();
            for name in dependencies.keys() {
                let name = name.replace('-', "_");
                let is_used = sources.iter().any(|code| uses(code, &name));
                assert!(is_used, "{}: {name} in [{section}] is not used there", manifest.display());
            }
        }
    }
}

/// Returns the lines of a file that are not comments.
fn code_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| [line, "\n"]).collect()
}

/// Returns whether code names a crate, in a path, a macro call or a `use`.
fn uses(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let is_word = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let is_path = after.starts_with("::") || after.starts_with('!');
        let is_import =
            before.ends_with("use ") && (after.starts_with(';') || after.starts_with(" as "));
        is_word && (is_path || is_import)
    })
}

#[test]
fn a_use_of_a_crate_is_found() {
    for (code, expected) in [
        ("let url = url::Url::parse(text);", true),
        ("use url as address;", true),
        ("    use url;", true),
        ("url!(x)", true),
        ("let url = text; parse(url)", false),
        ("curl::easy()", false),
    ] {
        assert_eq!(uses(code, "url"), expected, "{code}");
    }
}

#[test]
fn nothing_is_left_for_later_in_the_code() {
    // Split, so that this file does not match itself.
    let words = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["todo", "!("].concat(),
        ["#[ign", "ore]"].concat(),
    ];
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
        for banned in [
            "std::fs",
            "std::net",
            "tokio::net",
            "tokio::fs",
            "axum",
            "hyper",
            "rusqlite",
            "println!",
            "Serialize",
        ] {
            let used = text
                .lines()
                .any(|line| !line.trim_start().starts_with("//") && line.contains(banned));
            assert!(!used, "{} uses {banned}", file.display());
        }
    }
}

/// Other formats pass through the core as [`Passthrough`], which it does not read.
#[test]
fn the_core_names_no_wire_format() {
    let words = [
        r"\bmcp",
        r"\b_meta\b",
        "jsonrpc",
        "structured_?content",
        "is_?error\"",
        "(mime|input|output)(Type|Schema)",
        "(idempotent|read_?only|destructive)_?hint",
        "elicit",
        r"\bsampling",
        r"\b(tools|resources|prompts)/[a-z]",
        r"\bhttp",
        "websocket",
    ];
    let words = regex::RegexBuilder::new(&words.join("|")).case_insensitive(true).build().unwrap();
    for file in tracked(&["crates/core/src/*.rs"]) {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = words.find(line) {
                panic!("{}:{} names {}", file.display(), number + 1, word.as_str());
            }
        }
    }
}

#[test]
fn files_stay_readable() {
    for file in tracked(&["*.rs"]) {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(
            lines <= 600,
            "{} has {lines} lines; cut it where it tells two stories",
            file.display()
        );
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

/// Lock files must contain the packages of all platforms. Otherwise `npm ci` on another platform
/// reports the file as out of date.
#[test]
fn lock_files_hold_every_platform_and_no_registry() {
    for file in tracked(&["*package-lock.json"]) {
        let name = file.display();
        let lock: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
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
            assert!(
                is_ours || package["integrity"].is_string(),
                "{name} has no integrity for {path}"
            );
        }
    }
}
