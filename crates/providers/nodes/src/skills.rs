//! Reads skills: folders with a `SKILL.md`. The front matter lists the requirements for a host.
//!
//! Skills are read on each request because users edit them. Their content is not trusted. A skill
//! that cannot be read is listed with the reason and never hides another one.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::Deserialize;
use serde_json::Value;

use crate::hosts::Requirements;

/// The maximum number of skills in a directory.
const MAX_SKILLS: usize = 256;
/// The maximum number of directory entries that are searched for skills.
const MAX_ENTRIES: usize = 4_096;
/// The maximum size of the front matter.
const MAX_FRONT_MATTER: usize = 64 * 1024;
const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 1_024;

/// Keys below `metadata` where other programs store the same requirements.
const NAMESPACES: [&str; 5] = ["switchboard", "openclaw", "gsv", "clawdbot", "clawdis"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Skill {
    /// The name from the front matter, or the folder name if the front matter cannot be read.
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) path: PathBuf,
    pub(crate) requires: Requirements,
    /// The reason why the skill cannot be used.
    pub(crate) problem: Option<String>,
}

/// The skills found in the directories.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Sorted by name.
    pub(crate) skills: Vec<Skill>,
    /// Problems with the directories themselves.
    pub(crate) problems: Vec<String>,
}

/// Reads the skills of these directories. If two have the same name, the one in the earlier
/// directory is used.
pub(crate) fn read(dirs: &[PathBuf]) -> Found {
    let mut found = Found::default();
    for dir in dirs {
        match folders(dir) {
            Ok((folders, more)) => {
                if more {
                    let dir = dir.display();
                    found.problems.push(format!(
                        "{dir} contains more than {MAX_SKILLS} skills; the others are ignored"
                    ));
                }
                for folder in folders {
                    let mut skill = read_skill(dir, &folder);
                    if found
                        .skills
                        .iter()
                        .any(|other| other.name == skill.name && other.problem.is_none())
                    {
                        skill.problem.get_or_insert_with(|| {
                            "another skill with the same name takes precedence".into()
                        });
                    }
                    found.skills.push(skill);
                }
            }
            // A missing directory is not an error, because skills are optional.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => found.problems.push(format!("{} cannot be read: {error}", dir.display())),
        }
    }
    found.skills.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Returns the folders with a `SKILL.md`, sorted by name, and whether there are more than the
/// limit.
fn folders(dir: &Path) -> io::Result<(Vec<String>, bool)> {
    let mut entries = fs::read_dir(dir)?;
    let mut folders = Vec::new();
    for entry in entries.by_ref().take(MAX_ENTRIES) {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        // `exists` is not used, because a broken link must be listed as a problem.
        if !name.starts_with('.') && dir.join(&name).join("SKILL.md").symlink_metadata().is_ok() {
            folders.push(name);
        }
    }
    folders.sort_unstable();
    let more = folders.len() > MAX_SKILLS || entries.next().is_some();
    folders.truncate(MAX_SKILLS);
    Ok((folders, more))
}

fn read_skill(dir: &Path, folder: &str) -> Skill {
    let path = dir.join(folder).join("SKILL.md");
    let skill = Skill {
        name: folder.to_owned(),
        description: String::new(),
        path: path.clone(),
        requires: Requirements::default(),
        problem: None,
    };
    match beginning(dir, &path).map_err(|error| error.to_string()).and_then(|text| parse(&text)) {
        Ok(matter) => Skill {
            problem: matter.problem.map(|problem| format!("{folder}/SKILL.md: {problem}")),
            name: matter.name.unwrap_or(skill.name),
            description: matter.description,
            requires: matter.requires,
            path,
        },
        Err(problem) => Skill { problem: Some(format!("{folder}/SKILL.md: {problem}")), ..skill },
    }
}

/// Reads the beginning of a file. After resolving links, the file must be within the directory.
fn beginning(dir: &Path, path: &Path) -> io::Result<String> {
    let (dir, real) = (dir.canonicalize()?, path.canonicalize()?);
    if !real.starts_with(&dir) {
        return Err(io::Error::other(
            "a link points outside of the skills directory; copy the folder there instead",
        ));
    }
    // Opened without blocking, because opening a pipe would block until it has a writer.
    let file = rustix::fs::open(
        &real,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
    )?;
    let file = fs::File::from(file);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FRONT_MATTER as u64 + 8).read_to_end(&mut bytes)?;
    // The text may be cut within a character. Everything before that character is used.
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) if error.utf8_error().error_len().is_none() => {
            let whole = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(whole);
            String::from_utf8(bytes).map_err(io::Error::other)
        }
        Err(_) => Err(io::Error::other("it is not UTF-8 text")),
    }
}

#[derive(Debug, Default)]
struct Matter {
    name: Option<String>,
    description: String,
    requires: Requirements,
    problem: Option<String>,
}

/// The known keys of the front matter. Other keys belong to other programs.
#[derive(Debug, Deserialize)]
struct Written {
    name: Option<String>,
    description: Option<String>,
    requires: Option<Requirements>,
    metadata: Option<Value>,
}

fn parse(text: &str) -> Result<Matter, String> {
    let yaml = front_matter(text)?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_events: 20_000, max_aliases: 64, max_anchors: 64, max_depth: 32 },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 20_000 },
        with_snippet: false,
    };
    let written: Written = serde_saphyr::from_str_with_options(yaml, options)
        .map_err(|error| located(yaml, &error))?;
    let mut matter = Matter {
        name: written.name,
        description: written.description.unwrap_or_default(),
        ..Matter::default()
    };
    matter.requires = match written.requires {
        Some(requires) => requires,
        None => written.metadata.as_ref().map(elsewhere).transpose()?.flatten().unwrap_or_default(),
    };
    matter.problem = complaint(&matter);
    if matter.name.as_ref().is_some_and(|name| !usable(name)) {
        matter.name = None;
    }
    if matter.description.len() > MAX_DESCRIPTION {
        matter.description.truncate(matter.description.floor_char_boundary(MAX_DESCRIPTION));
    }
    Ok(matter)
}

fn usable(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && !name.contains(|c: char| c.is_control() || c.is_whitespace() || c == '/')
}

fn complaint(matter: &Matter) -> Option<String> {
    match &matter.name {
        None => return Some("the key \"name\" is missing".into()),
        Some(name) if !usable(name) => {
            return Some(format!(
                "the key \"name\" must be one word of 1 to {MAX_NAME} bytes, such as deploy-site"
            ));
        }
        Some(_) => {}
    }
    if matter.description.trim().is_empty() {
        return Some("the key \"description\" is missing".into());
    }
    if matter.description.len() > MAX_DESCRIPTION {
        return Some(format!("the key \"description\" has more than {MAX_DESCRIPTION} bytes"));
    }
    matter.requires.check().err().map(|error| format!("the key \"requires\": {error}"))
}

/// Returns the text between the first two lines of three dashes.
fn front_matter(text: &str) -> Result<&str, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    if first.trim_end() != "---" {
        return Err("line 1: the file must begin with a line of three dashes, the front matter, and another line of \
                    three dashes".into());
    }
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Ok(&rest[..at]);
        }
        at += line.len();
    }
    if text.len() > MAX_FRONT_MATTER {
        return Err(format!("the front matter is larger than {MAX_FRONT_MATTER} bytes"));
    }
    Err("the front matter does not end: a line of three dashes is missing".into())
}

/// Returns the requirements in the metadata of another program, if any. Unknown keys are ignored.
fn elsewhere(metadata: &Value) -> Result<Option<Requirements>, String> {
    for namespace in NAMESPACES {
        let Some(theirs) = metadata.get(namespace).filter(|theirs| theirs.is_object()) else {
            continue;
        };
        let mut known = serde_json::Map::new();
        for key in ["capabilities", "bins", "any_bins", "anyBins", "env", "os"] {
            let value = theirs.get("requires").and_then(|requires| requires.get(key));
            // Some programs put the operating system next to the requirements.
            let value = value.or_else(|| theirs.get(key).filter(|_| key == "os"));
            known.extend(value.map(|value| (key.to_owned(), value.clone())));
        }
        let read = serde_json::from_value(Value::Object(known));
        return read
            .map(Some)
            .map_err(|error| format!("the key \"metadata.{namespace}.requires\": {error}"));
    }
    Ok(None)
}

/// Formats an error with its line in the file and the key on that line.
fn located(yaml: &str, error: &serde_saphyr::Error) -> String {
    let message = error.without_snippet().to_string();
    let message = message.lines().next().unwrap_or_default().trim();
    let Some(location) = error.location() else { return message.to_owned() };
    let message = without_place(message);
    let line = location.line() as usize;
    let key = yaml.lines().nth(line.saturating_sub(1)).and_then(|text| text.split_once(':'));
    let key = key.map(|(key, _)| key.trim().trim_matches(['"', '\''])).filter(|key| usable(key));
    // The opening line of dashes is not part of the YAML text.
    let place = format!("line {}", line + 1);
    match key {
        Some(key) => format!("{place}, at the key \"{key}\": {message}"),
        None => format!("{place}: {message}"),
    }
}

/// Removes the parser's own line and column, which count from the start of the front matter.
fn without_place(message: &str) -> &str {
    let message = match message.split_once(": ") {
        Some((place, rest)) if is_place(place) => rest,
        _ => message,
    };
    match message.rsplit_once(" at line ") {
        Some((rest, place)) if is_place(&format!("line {place}")) => rest.trim_end_matches(','),
        _ => message,
    }
}

/// Reports whether the text is only a position, such as `error: line 3 column 4`. All parts except
/// the line are optional.
fn is_place(text: &str) -> bool {
    let known = |word: &str| {
        ["error", "line", "column", "at"].contains(&word)
            || word.bytes().all(|b| b.is_ascii_digit())
    };
    let mut words = text.split([' ', ',', ':']).filter(|word| !word.is_empty());
    text.contains("line ") && words.all(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn requires(yaml: &str) -> Requirements {
        let matter = parse(&format!("---\nname: a\ndescription: b\n{yaml}\n---\ntext")).unwrap();
        assert_eq!(matter.problem, None, "{yaml}");
        matter.requires
    }

    #[track_caller]
    fn problem(text: &str, words: &[&str]) {
        let problem = match parse(text) {
            Ok(matter) => matter.problem.expect("it is fine"),
            Err(problem) => problem,
        };
        assert!(words.iter().all(|word| problem.contains(word)), "{problem}");
    }

    #[test]
    fn requirements_in_their_own_key_or_in_another_programs() {
        let git = Requirements {
            bins: vec!["git".into()],
            os: vec!["linux".into()],
            ..Requirements::default()
        };
        assert_eq!(requires("requires:\n  bins: [git]\n  os: linux"), git);
        assert_eq!(requires("requires: {\"bins\": [\"git\"], \"os\": [\"linux\"]}"), git);
        assert_eq!(requires("metadata:\n  gsv:\n    requires: { bins: [git], os: [linux] }"), git);
        assert_eq!(
            requires(
                "metadata: {\"openclaw\": {\"os\": [\"linux\"], \"requires\": {\"bins\": [\"git\"], \"config\": [\"x\"]}}}"
            ),
            git
        );
        assert_eq!(
            requires("license: MIT\nmetadata:\n  author: me\nallowed-tools: Bash"),
            Requirements::default()
        );
        let any =
            Requirements { any_bins: vec!["npm".into(), "bun".into()], ..Requirements::default() };
        assert_eq!(requires("requires:\n  any_bins:\n    - npm\n    - bun"), any);
    }

    #[test]
    fn mistakes_are_named_with_their_line_and_key() {
        problem("name: a", &["line 1"]);
        let text = "---\nname: a\ndescription: b\nrequires:\n  bin: [git]\n---\n";
        let told = parse(text).unwrap_err();
        assert_eq!(told.matches("line").count(), 1, "one place, and no other: {told}");
        problem("---\nname: a\n", &["three dashes"]);
        problem("---\nname: a\ndescription: b\nrequires:\n  bin: [git]\n---\n", &["line 5", "bin"]);
        problem(
            "---\nname: a\ndescription: b\nrequires:\n  bins: {a: 1}\n---\n",
            &["line 5", "bins"],
        );
        problem("---\nname: [a]\ndescription: b\n---\n", &["line 2", "name"]);
        problem("---\nname: a\nname: b\n---\n", &["line 3", "name"]);
        problem("---\nname: a\n  bad: [\n---\n", &["line"]);
        problem("---\ndescription: b\n---\n", &["name"]);
        problem("---\nname: a b\ndescription: b\n---\n", &["name"]);
        problem("---\nname: a\n---\n", &["description"]);
        problem(
            "---\nname: a\ndescription: b\nrequires: {bins: [a/b]}\n---\n",
            &["requires", "bins"],
        );
    }

    #[test]
    fn a_bomb_of_aliases_is_refused() {
        let mut yaml = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..20 {
            let again = vec![format!("*a{}", n - 1); 9].join(", ");
            yaml.push_str(&format!("a{n}: &a{n} [{again}]\n"));
        }
        assert!(
            parse(&format!("---\nname: a\ndescription: b\nmetadata:\n  x: 1\n{yaml}---\n"))
                .is_err()
        );
        let deep = "[".repeat(5_000);
        assert!(parse(&format!("---\nname: a\ndescription: b\nmetadata: {deep}\n---\n")).is_err());
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_is_written_breaks_the_reader(text in "(---\n)?[ -~\n]{0,200}(---\n)?", yaml in "[a-z:\\[\\]{}&*\n \"'|>-]{0,80}") {
            let _ = parse(&text);
            let _ = parse(&format!("---\nname: a\n{yaml}\n---\n"));
        }
    }
}
