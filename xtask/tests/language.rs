//! Language rules: standard terms, short paragraphs, and lines of a readable length.

mod support;

use std::fs;
use std::path::PathBuf;

use regex::Regex;
use support::tracked;

/// Phrases that make comments hard to read, and the limit of each per 1,000 comment lines.
const PHRASES: [&str; 4] = [
    r"\b(who|whom|whoever|whose)\b",
    r"\bwhat (is|was|are|were|has|had|it|they)\b",
    r"\bso (many|much)\b",
    r"\b(is|are|was|were) told\b",
];
const MAX_RATE: f64 = 2.0;

/// Identifiers that have a standard term, with that term. A part of a name counts, too.
const BANNED: [(&str, &str); 9] = [
    ("patience", "timeout"),
    ("foremost", "best"),
    ("errand", "extensions"),
    ("seat", "slot, connection"),
    ("seats", "slots, pool"),
    ("ghosts", "stale presence"),
    ("placed", "slot"),
    ("wishes", "preferred names"),
    ("keepers", "supervisors"),
];

/// Identifiers with a standard term that are left in some folders, but in none of [`CLEAN`].
const BANNED_IN_CLEAN: [(&str, &str); 31] = [
    ("asker", "requester"),
    ("attend", "reader, monitor"),
    ("attendance", "readers"),
    ("ceiling", "limit, budget"),
    ("complaint", "error"),
    ("crowd", "excess"),
    ("door", "middleware"),
    ("doubt", "problem"),
    ("farewell", "close"),
    ("handed", "passed"),
    ("heard", "received, seen"),
    ("keeper", "supervisor"),
    ("life", "state"),
    ("manner", "capabilities, mode"),
    ("news", "changes, notices, events"),
    ("pace", "backpressure"),
    ("pay", "consume"),
    ("poke", "notify"),
    ("purse", "fuel"),
    ("restless", "debounce"),
    ("rubbish", "invalid"),
    ("said", "body, text, message"),
    ("shelf", "cache"),
    ("sole", "only"),
    ("talkative", "verbose"),
    ("tell", "send, notify"),
    ("tells", "sends, reports"),
    ("trouble", "error"),
    ("unasked", "notification"),
    ("unkept", "not stored"),
    ("whoever", "caller, client"),
];
const CLEAN: [&str; 5] = [
    "crates/core/*.rs",
    "crates/providers/relay/*.rs",
    "crates/providers/upstream/*.rs",
    "crates/surfaces/chat/*.rs",
    "crates/surfaces/mcp/*.rs",
];

/// Phrases that have a standard term, in comments, messages and documentation.
const BANNED_PHRASES: [(&str, &str); 4] = [
    ("unless told", "by default"),
    ("whoever", "the caller, the client"),
    ("as it pleases", "at any time"),
    ("is no json", "is not valid JSON"),
];

const MAX_WORDS: usize = 80;
const MAX_COLUMNS: usize = 100;

#[test]
fn comments_use_standard_phrases() {
    let files = tracked(&["*.rs"]);
    let texts: Vec<String> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let comments: Vec<&str> =
        texts.iter().flat_map(|text| text.lines()).filter(|line| is_comment(line)).collect();
    for phrase in PHRASES {
        let pattern = Regex::new(&format!("(?i){phrase}")).unwrap();
        let found: usize = comments.iter().map(|line| pattern.find_iter(line).count()).sum();
        let rate = 1_000.0 * found as f64 / comments.len() as f64;
        assert!(rate < MAX_RATE, "{phrase} is used {rate:.1} times per 1,000 comment lines");
    }
}

#[test]
fn names_are_standard_terms() {
    let mut findings = banned_names(&["*.rs"], &BANNED);
    findings.extend(banned_names(&CLEAN, &BANNED_IN_CLEAN));
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

fn banned_names(patterns: &[&str], banned: &[(&str, &str)]) -> Vec<String> {
    let word = Regex::new(r"[A-Za-z_][A-Za-z0-9_]*").unwrap();
    let mut findings = Vec::new();
    for file in code(patterns) {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().filter(|line| !is_comment(line));
        for name in lines.flat_map(|line| word.find_iter(line)).map(|found| found.as_str()) {
            let parts = parts_of(name);
            for (banned, standard) in banned {
                if parts.iter().any(|part| part == banned) {
                    findings.push(format!("{}: {name}; use {standard}", file.display()));
                }
            }
        }
    }
    findings
}

#[test]
fn texts_use_standard_phrases() {
    let banned = BANNED_PHRASES
        .map(|(phrase, standard)| (Regex::new(&format!(r"(?i)\b{phrase}\b")).unwrap(), standard));
    let mut findings = Vec::new();
    for file in code(&["*.rs", "*.md", "*.ts", "*.tsx"]) {
        let text = fs::read_to_string(&file).unwrap();
        for (banned, standard) in banned.iter().filter(|(banned, _)| banned.is_match(&text)) {
            findings.push(format!("{}: {banned}; write {standard}", file.display()));
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn comments_have_short_lines() {
    let mut findings = Vec::new();
    for file in tracked(&["*.rs"]) {
        let text = fs::read_to_string(&file).unwrap();
        let mut is_code = false;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| is_comment(line)) {
            is_code ^= line.contains("```");
            let columns = line.chars().count();
            if columns > MAX_COLUMNS && !is_code {
                findings.push(format!("{}:{} has {columns} columns", file.display(), number + 1));
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn paragraphs_are_short() {
    let mut findings = Vec::new();
    for file in tracked(&["*.md"]) {
        let text = fs::read_to_string(&file).unwrap();
        for paragraph in paragraphs(&text) {
            let words = paragraph.split_whitespace().count();
            if words > MAX_WORDS {
                let begin: String = paragraph.chars().take(60).collect();
                let file = file.display();
                findings.push(format!("{file}: the paragraph \"{begin}\" has {words} words"));
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// A reader who lists the files of a crate sees which of them are tests.
#[test]
fn test_modules_are_named_tests() {
    let module =
        Regex::new(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([a-z]+\))? )?mod (\w+)");
    let module = module.unwrap();
    for file in tracked(&["*/src/*.rs"]) {
        let text = fs::read_to_string(&file).unwrap();
        for found in module.captures_iter(&text) {
            let name = &found[1];
            assert!(name.contains("tests"), "{}: mod {name}; add tests to it", file.display());
        }
    }
}

/// Returns the paragraphs and list items of a Markdown text, without code and tables.
fn paragraphs(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut is_code = false;
    for line in text.lines() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            is_code = !is_code;
            continue;
        }
        let is_item = trimmed.starts_with("- ")
            || trimmed.split_once(". ").is_some_and(|(number, _)| number.parse::<u8>().is_ok());
        if trimmed.is_empty() || is_item {
            found.push(String::new());
        }
        let is_prose = !is_code && !trimmed.starts_with(['|', '#', '<']);
        if let Some(last) = found.last_mut().filter(|_| is_prose) {
            last.push_str(trimmed);
            last.push(' ');
        }
    }
    found
}

/// Returns the lowercase parts of an identifier in snake case or camel case.
fn parts_of(name: &str) -> Vec<String> {
    let (mut parts, mut was_upper) = (vec![String::new()], true);
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && !was_upper) {
            parts.push(String::new());
        }
        was_upper = c == '_' || c.is_uppercase();
        if let Some(part) = parts.last_mut().filter(|_| c != '_') {
            part.extend(c.to_lowercase());
        }
    }
    parts
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Returns the tracked files but this one, which contains the banned words.
fn code(patterns: &[&str]) -> Vec<PathBuf> {
    let mut files = tracked(patterns);
    files.retain(|file| !file.ends_with("xtask/tests/language.rs"));
    files
}

#[test]
fn names_are_cut_into_parts() {
    for (name, expected) in [
        ("in_flight", ["in", "flight"]),
        ("MaxRunning", ["max", "running"]),
        ("MAX_RATE", ["max", "rate"]),
    ] {
        assert_eq!(parts_of(name), expected);
    }
}
