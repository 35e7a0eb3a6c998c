//! Rule: only `assemble` of the gateway names kinds of providers. A new kind needs one crate, and
//! one line for each of its parts there.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::{root, tracked};

/// The code that knows no kind of provider.
const NEUTRAL: [&str; 3] =
    ["crates/core/src/*.rs", "crates/surfaces/*/src/*.rs", "crates/gateway/src/*.rs"];
/// The exception, with its folder.
const ASSEMBLE: &str = "crates/gateway/src/assemble";

/// Texts that are kinds of providers, but have another meaning in this file.
const OTHER_MEANINGS: [(&str, &[&str]); 2] = [
    // Roles of tokens.
    ("crates/core/src/principal.rs", &["caller", "node", "participant"]),
    // Sessions of MCP clients.
    ("crates/surfaces/mcp/src/service.rs", &["sessions"]),
];

#[test]
fn only_assemble_names_kinds_of_providers() {
    let (crates, kinds, sections) = (crates(), kinds(), sections());
    assert!(crates.contains(&"sa_nodes".to_owned()), "{crates:?}");
    assert!(kinds.contains(&"node".to_owned()) && kinds.len() >= crates.len(), "{kinds:?}");
    assert!(sections.contains(&"nodes".to_owned()), "{sections:?}");
    let mut found = Vec::new();
    for file in tracked(&NEUTRAL) {
        let path = file.strip_prefix(root()).unwrap();
        let is_test = path.iter().any(|part| part.to_string_lossy().contains("tests"));
        if is_test || path.to_string_lossy().starts_with(ASSEMBLE) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in code(&text) {
            let named = named(line, &crates, &kinds, &sections);
            let other = OTHER_MEANINGS.iter().find(|(other, _)| path == Path::new(other));
            let other = other.map_or(&[][..], |(_, kinds)| kinds);
            if let Some(name) = named.filter(|name| !other.contains(&&**name)) {
                found.push(format!("{}:{number} names {name}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "move this to {ASSEMBLE} or to a provider:\n{}", found.join("\n"));
}

#[test]
fn names_of_kinds_are_found() {
    let (crates, kinds, sections) =
        (["sa_nodes".to_owned()], ["node".to_owned()], ["nodes".to_owned()]);
    let check = |line: &str, expected: Option<&str>| {
        let found = named(line, &crates, &kinds, &sections);
        assert_eq!(found.as_deref(), expected, "{line}");
    };
    check("    let nodes = directory.members(sa_nodes::KIND);", Some("sa_nodes"));
    check("use sa_nodes::Access;", Some("sa_nodes"));
    check(r#"    if member.kind == "node" {"#, Some("node"));
    check("    let limit = settings.nodes.max_tools;", Some("nodes"));
    check("    app.nodes", Some("nodes"));
    check(r#"    "use \"info\" or \"info,sa_nodes=debug\"""#, None);
    check(r#"    role.label("nodes_online")"#, None);
    check("    status.nodes_online", None);
    check("use sa_nodes_of_others::Access;", None);
}

/// Returns the provider's crate, kind or section that the line names.
fn named(line: &str, crates: &[String], kinds: &[String], sections: &[String]) -> Option<String> {
    let is_path = |name: &&String| line.contains(&format!("{name}::"));
    let is_text = |kind: &&String| line.contains(&format!("\"{kind}\""));
    let is_field = |section: &&String| {
        ["app", "gateway", "settings"].iter().any(|owner| {
            let field = format!("{owner}.{section}");
            line.match_indices(&field).any(|(at, _)| {
                let after = line[at + field.len()..].chars().next();
                !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
            })
        })
    };
    let named = crates.iter().find(is_path).or_else(|| kinds.iter().find(is_text));
    named.or_else(|| sections.iter().find(is_field)).cloned()
}

/// Returns the lines of code with their numbers, without comments and the tests at the end.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = text.lines().enumerate().map(|(number, line)| (number + 1, line));
    code.take_while(|(_, line)| *line != "#[cfg(test)]" || !text.contains("\nmod tests {"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Returns the crates of providers, as they are written in paths.
fn crates() -> Vec<String> {
    let manifests = tracked(&["crates/providers/*/Cargo.toml"]).into_iter();
    let name = |manifest: PathBuf| {
        let manifest: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
        manifest["package"]["name"].as_str().unwrap().replace('-', "_")
    };
    manifests.map(name).collect()
}

/// Returns the kinds that the providers define.
fn kinds() -> Vec<String> {
    let mut kinds = Vec::new();
    for file in tracked(&["crates/providers/*/src/lib.rs"]) {
        let text = fs::read_to_string(file).unwrap();
        let defined = text.lines().filter(|line| line.contains("KIND: &str = "));
        kinds.extend(defined.filter_map(|line| Some(line.split('"').nth(1)?.to_owned())));
    }
    kinds
}

/// Returns the sections of providers in the configuration. The parts of a running gateway have the
/// same names.
fn sections() -> Vec<String> {
    let crates = crates();
    let text = fs::read_to_string(root().join(ASSEMBLE).with_extension("rs")).unwrap();
    let sections = text.split("sections! {").nth(1).unwrap().split('}').next().unwrap();
    let of_provider = |line: &str| {
        let (name, section) = line.trim().split_once(": ")?;
        let owner = section.split("::").next()?;
        crates.iter().any(|name| name == owner).then(|| name.to_owned())
    };
    let mut sections: Vec<String> = sections.lines().filter_map(of_provider).collect();
    sections.extend(["node_access", "upstreams"].map(str::to_owned));
    sections
}
