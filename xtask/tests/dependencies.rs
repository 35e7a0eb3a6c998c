//! Rule: deny.toml allows every dependency.
//!
//! cargo-deny checks the same and more, where it is installed, but building it takes minutes. This
//! test reads the rules from cargo-deny's file, so that they exist only once. An unknown rule is an
//! error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

struct Rules(toml::Table);

impl Rules {
    fn read() -> Self {
        let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
        Self(toml::from_str(&text).unwrap())
    }

    fn list(&self, section: &str, key: &str) -> Vec<&str> {
        let list = self.0[section][key].as_array().unwrap().iter();
        list.map(|item| item.as_str().or_else(|| item.get("crate")?.as_str()).unwrap()).collect()
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Returns all packages that are built here, including the project's own.
fn packages() -> Vec<Value> {
    let version = Command::new("rustc").arg("-vV").output().unwrap().stdout;
    let version = String::from_utf8(version).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    // Packages for other systems are not downloaded, and a test must not download anything.
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["metadata", "--format-version", "1", "--all-features", "--offline", "--locked"])
        .args(["--filter-platform", host])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let Value::Object(mut metadata) = serde_json::from_slice(&output.stdout).unwrap() else {
        panic!("no object")
    };
    let Some(Value::Array(packages)) = metadata.remove("packages") else { panic!("no packages") };
    assert!(packages.len() > 100, "{} packages", packages.len());
    packages
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or_default()
}

#[test]
fn every_rule_is_checked() {
    let known = [
        ("licenses", "allow", None),
        // Only cargo-deny reads licence texts.
        ("licenses", "confidence-threshold", None),
        ("bans", "multiple-versions", Some("deny")),
        ("bans", "skip", None),
        ("bans", "wildcards", Some("deny")),
        ("bans", "allow-wildcard-paths", None),
        ("bans", "deny", None),
        ("sources", "unknown-registry", Some("deny")),
        ("sources", "unknown-git", Some("deny")),
    ];
    let rules = Rules::read();
    for (section, keys) in &rules.0 {
        // Only cargo-deny checks the graph settings and the advisories, which need the internet.
        if ["graph", "advisories"].contains(&section.as_str()) {
            continue;
        }
        for (key, value) in keys.as_table().unwrap() {
            let rule = known.iter().find(|(known, name, _)| known == section && name == key);
            let (_, _, expected) = rule.unwrap_or_else(|| panic!("nothing checks {section}.{key}"));
            assert!(
                expected.is_none_or(|expected| value.as_str() == Some(expected)),
                "{section}.{key} is {value}"
            );
        }
    }
}

#[test]
fn every_licence_is_allowed() {
    let rules = Rules::read();
    let allowed = rules.list("licenses", "allow");
    for package in packages() {
        let (name, licence) = (text(&package, "name"), text(&package, "license"));
        assert!(
            is_allowed(licence, &allowed),
            "the licence of {name} is {licence:?}, which deny.toml does not allow"
        );
    }
}

#[test]
fn every_source_is_the_registry() {
    for package in packages() {
        let is_ours = package["source"].is_null()
            && text(&package, "manifest_path").starts_with(root().to_str().unwrap());
        let source = text(&package, "source");
        let is_registry = source.starts_with("registry+") && source.ends_with("/crates.io-index");
        assert!(is_ours || is_registry, "{} comes from {source:?}", text(&package, "name"));
    }
}

#[test]
fn nothing_banned_and_no_version_of_any_kind() {
    let rules = Rules::read();
    let banned = rules.list("bans", "deny");
    for package in packages() {
        let name = text(&package, "name");
        assert!(!banned.contains(&name), "{name} is banned");
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_wild = dependency["req"] == "*" && dependency["path"].is_null();
            assert!(!is_wild, "{name} takes any version of {}", dependency["name"]);
        }
    }
}

#[test]
fn no_second_version_but_those_that_are_listed() {
    let rules = Rules::read();
    let mut versions = BTreeMap::<String, BTreeSet<String>>::new();
    for package in packages() {
        versions
            .entry(text(&package, "name").to_owned())
            .or_default()
            .insert(text(&package, "version").to_owned());
    }
    let many = |versions: &BTreeMap<String, BTreeSet<String>>| {
        let many = versions.iter().filter(|(_, versions)| versions.len() > 1);
        many.map(|(name, versions)| format!("{name} {versions:?}")).collect::<Vec<_>>()
    };
    for skip in rules.list("bans", "skip") {
        let (name, wanted) =
            skip.split_once('@').unwrap_or_else(|| panic!("{skip} names no version"));
        let found = versions.get_mut(name).filter(|versions| versions.len() > 1);
        let found =
            found.unwrap_or_else(|| panic!("{name} has one version: take it out of deny.toml"));
        let begins = format!("{wanted}.");
        let version = found.iter().find(|version| version.starts_with(&begins)).cloned();
        let version =
            version.unwrap_or_else(|| panic!("there is no {skip}: take it out of deny.toml"));
        found.remove(&version);
    }
    assert!(many(&versions).is_empty(), "more than one version of {:?}", many(&versions));
}

/// Returns whether the licences in this list are sufficient.
fn is_allowed(licence: &str, allowed: &[&str]) -> bool {
    let spaced = licence.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let is_well = any(&mut words, allowed);
    is_well && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    let mut is_well = all(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        is_well |= all(words, allowed);
    }
    is_well
}

fn all(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    let mut is_well = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        is_well &= one(words, allowed);
    }
    is_well
}

fn one(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    let Some(word) = words.next() else { return false };
    if word == "(" {
        let is_well = any(words, allowed);
        return words.next() == Some(")") && is_well;
    }
    if words.next_if_eq(&"WITH").is_none() {
        return allowed.contains(&word);
    }
    let exception = format!("{word} WITH {}", words.next().unwrap_or_default());
    allowed.contains(&exception.as_str())
}

#[test]
fn licences_are_read_as_they_are_meant() {
    let check = |licence: &str, expected: bool| {
        let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"];
        assert_eq!(is_allowed(licence, &allowed), expected, "{licence}");
    };
    check("MIT", true);
    check("GPL-3.0 OR MIT", true);
    check("GPL-3.0/MIT", true);
    check("MIT AND ISC", true);
    check("(MIT OR GPL-3.0) AND ISC", true);
    check("Apache-2.0 WITH LLVM-exception", true);
    check("", false);
    check("GPL-3.0", false);
    check("Apache-2.0", false);
    check("MIT AND GPL-3.0", false);
    check("MIT WITH LLVM-exception", false);
    check("GPL-3.0 OR MIT AND GPL-3.0", false);
    check("MIT ISC", false);
}
