//! Ranked search over tools with BM25. A word in a tool's name has more weight than one in its
//! schema.

use std::collections::{BTreeMap, HashMap};

use sa_core::directory::ToolView;
use serde_json::Value;

/// The weight of a word, by its position.
const NAME: f32 = 4.0;
const TITLE: f32 = 3.0;
const DESCRIPTION: f32 = 1.5;
const SCHEMA: f32 = 0.5;
/// The weight of a word of which the query contains only a prefix.
const BEGINNING: f32 = 0.4;
/// The minimum length of a prefix; shorter ones match too many words.
const SHORTEST_BEGINNING: usize = 3;
/// The parameters of BM25: the saturation of repeated words, and the penalty for long texts.
const SATURATION: f32 = 1.2;
const LENGTH: f32 = 0.6;
/// Longer words and deeper schemas are not indexed.
const MAX_WORD: usize = 40;
const MAX_DEPTH: usize = 6;

pub(super) struct Index {
    tools: Vec<ToolView>,
    /// The total weight of each tool's words.
    lengths: Vec<f32>,
    average: f32,
    /// For each word, the tools that contain it, with its weight there. The map is sorted, so that
    /// prefixes can be looked up.
    words: BTreeMap<String, Vec<(u32, f32)>>,
}

impl Index {
    pub(super) fn new(tools: Vec<ToolView>) -> Self {
        let mut words: BTreeMap<String, Vec<(u32, f32)>> = BTreeMap::new();
        let mut lengths = Vec::with_capacity(tools.len());
        for (number, tool) in (0_u32..).zip(&tools) {
            let weights = weigh(tool);
            lengths.push(weights.values().sum());
            for (word, weight) in weights {
                words.entry(word).or_default().push((number, weight));
            }
        }
        let average = lengths.iter().sum::<f32>() / lengths.len().max(1) as f32;
        Self { tools, lengths, average: average.max(1.0), words }
    }

    /// Returns the best matches among the tools for which `keep` returns true. Equal matches are
    /// sorted by name.
    pub(super) fn find(
        &self,
        query: &str,
        limit: usize,
        keep: impl Fn(&ToolView) -> bool,
    ) -> Vec<&ToolView> {
        let mut scores: HashMap<u32, f32> = HashMap::new();
        let mut terms = words(query);
        terms.sort();
        terms.dedup();
        for word in &terms {
            self.score(word, &mut scores);
        }
        for (number, score) in &mut scores {
            // An exact name is the best match.
            if self.tools[*number as usize].name.eq_ignore_ascii_case(query.trim()) {
                *score += 1_000.0;
            }
        }
        let mut ranked: Vec<_> = scores.into_iter().collect();
        ranked.sort_by(|(a, first), (b, second)| second.total_cmp(first).then(a.cmp(b)));
        ranked
            .into_iter()
            .map(|(number, _)| &self.tools[number as usize])
            .filter(|tool| keep(tool))
            .take(limit)
            .collect()
    }

    /// Adds the score of one query word for each tool: as an exact match, or as a prefix.
    fn score(&self, word: &str, scores: &mut HashMap<u32, f32>) {
        let mut best: HashMap<u32, f32> = HashMap::new();
        let from = self
            .words
            .range::<str, _>((std::ops::Bound::Included(word), std::ops::Bound::Unbounded));
        for (found, tools) in from.take_while(|(found, _)| found.starts_with(word)) {
            let exact = found.len() == word.len();
            if !exact && word.len() < SHORTEST_BEGINNING {
                break;
            }
            let share =
                if exact { 1.0 } else { BEGINNING * word.len() as f32 / found.len() as f32 };
            let (all, having) = (self.tools.len() as f32, tools.len() as f32);
            let rarity = (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
            for &(number, weight) in tools {
                let length = 1.0 - LENGTH + LENGTH * self.lengths[number as usize] / self.average;
                let score =
                    share * rarity * weight * (SATURATION + 1.0) / (weight + SATURATION * length);
                let known = best.entry(number).or_default();
                *known = known.max(score);
            }
        }
        for (number, score) in best {
            *scores.entry(number).or_default() += score;
        }
    }
}

fn weigh(tool: &ToolView) -> HashMap<String, f32> {
    let mut weights = HashMap::new();
    let mut add = |text: &str, weight: f32| {
        for word in words(text) {
            *weights.entry(word).or_insert(0.0) += weight;
        }
    };
    add(&tool.name, NAME);
    if let Some(title) = &tool.tool.title {
        add(title, TITLE);
    }
    if let Some(description) = &tool.tool.description {
        add(description, DESCRIPTION);
    }
    let schema = tool
        .tool
        .input
        .as_ref()
        .and_then(|schema| serde_json::from_str(schema.raw().as_str()).ok());
    if let Some(schema) = schema {
        texts(&schema, 0, &mut |text| add(text, SCHEMA));
    }
    weights
}

/// Passes the words of a schema to `take`: names of properties, descriptions, and enum values.
fn texts(schema: &Value, depth: usize, take: &mut impl FnMut(&str)) {
    let Value::Object(fields) = schema else { return };
    if depth > MAX_DEPTH {
        return;
    }
    for (field, value) in fields {
        match (field.as_str(), value) {
            ("title" | "description", Value::String(text)) => take(text),
            ("enum", Value::Array(values)) => {
                values.iter().filter_map(Value::as_str).for_each(&mut *take);
            }
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    take(name);
                    texts(property, depth + 1, take);
                }
            }
            ("anyOf" | "oneOf" | "allOf", Value::Array(parts)) => {
                for part in parts {
                    texts(part, depth + 1, take);
                }
            }
            ("items" | "additionalProperties", part) => texts(part, depth + 1, take),
            _ => {}
        }
    }
}

/// Returns the words of a text in lowercase. `readFile`, `read_file` and `READ-file` are two words
/// each, and a plural becomes its singular.
fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut word = String::new();
    let mut end = |word: &mut String| {
        let whole = std::mem::take(word);
        if !whole.is_empty() && whole.len() <= MAX_WORD {
            found.push(singular(whole));
        }
    };
    let letters: Vec<char> = text.chars().collect();
    for (at, letter) in letters.iter().enumerate() {
        if !letter.is_alphanumeric() {
            end(&mut word);
            continue;
        }
        let before = at.checked_sub(1).map(|before| letters[before]);
        let small_before =
            before.is_some_and(|before| before.is_lowercase() || before.is_numeric());
        // The last capital letter of `HTTPServer` begins the next word.
        let small_after = letters.get(at + 1).is_some_and(|after| after.is_lowercase());
        let capital_before = before.is_some_and(char::is_uppercase);
        if letter.is_uppercase() && (small_before || (capital_before && small_after)) {
            end(&mut word);
        }
        word.extend(letter.to_lowercase());
    }
    end(&mut word);
    found
}

fn singular(word: String) -> String {
    match word.strip_suffix("ies") {
        Some(stem) if stem.len() > 2 => return format!("{stem}y"),
        _ => {}
    }
    match word.strip_suffix('s') {
        Some(stem) if stem.len() > 2 && !stem.ends_with(['s', 'u', 'i']) => stem.to_owned(),
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sa_core::{ProviderId, Scope, Tool};

    use super::*;

    fn view(name: &str, description: &str) -> ToolView {
        let tool = Tool { description: Some(description.into()), ..Tool::named(name) };
        ToolView {
            name: name.into(),
            leading: Vec::new(),
            tool: Arc::new(tool),
            provider: ProviderId::new("test", "t"),
            scope: Scope::Everyone,
            online: true,
        }
    }

    fn sample_index() -> Index {
        Index::new(vec![
            view("calendar__createEvent", "Adds an event to a calendar."),
            view("mail__send_message", "Sends a mail to somebody, with files if you like."),
            view("files__read", "Reads a file."),
            view("weather__forecast", "What the weather will be like. Can be sent by mail."),
        ])
    }

    #[track_caller]
    fn check(query: &str, first: &str) {
        let index = sample_index();
        let found = index.find(query, 10, |_| true);
        assert_eq!(found.first().map(|tool| &*tool.name), Some(first), "{query}");
    }

    #[test]
    fn the_best_match_comes_first() {
        check("send mail", "mail__send_message");
        check("sending a message", "mail__send_message");
        check("create events", "calendar__createEvent");
        check("forec", "weather__forecast");
        check("READ FILES", "files__read");
        check("files__read", "files__read");
    }

    #[test]
    fn the_right_one_of_thousands_comes_first() {
        let (verbs, things) = (["create", "delete", "list", "search", "update"], 1_000);
        let many = verbs.iter().flat_map(|verb| {
            (0..things).map(move |n| {
                view(&format!("app{n}__{verb}_item"), &format!("Will {verb} an item of app {n}."))
            })
        });
        let special = view(
            "invoices__export_pdf",
            "Writes an invoice as a PDF file that can be sent to a customer.",
        );
        let index = Index::new(many.chain([special]).collect());
        for (query, first) in [
            ("export an invoice as pdf", "invoices__export_pdf"),
            ("pdf", "invoices__export_pdf"),
            ("search items of app737", "app737__search_item"),
            ("app12 delete item", "app12__delete_item"),
        ] {
            let found = index.find(query, 5, |_| true);
            assert_eq!(found.first().map(|tool| &*tool.name), Some(first), "{query}");
            assert!(found.len() <= 5, "a context is not to be filled");
        }
    }

    #[test]
    fn no_match_or_no_permission_finds_nothing() {
        assert!(sample_index().find("zebra", 10, |_| true).is_empty());
        assert!(sample_index().find("", 10, |_| true).is_empty());
        assert!(
            sample_index()
                .find("mail", 10, |tool| !tool.name.contains("mail")
                    && !tool.name.contains("weather"))
                .is_empty()
        );
        assert_eq!(sample_index().find("mail", 1, |_| true).len(), 1);
    }

    #[track_caller]
    fn check_words(text: &str, expected: &[&str]) {
        assert_eq!(words(text), expected, "{text}");
    }

    #[test]
    fn names_are_taken_apart() {
        check_words("readFile", &["read", "file"]);
        check_words("notes__search_all-2", &["note", "search", "all", "2"]);
        check_words("HTTPServer", &["http", "server"]);
        check_words("queries status glass", &["query", "status", "glass"]);
        check_words("Größe Ünder", &["größe", "ünder"]);
        check_words(&"x".repeat(100), &[]);
    }

    #[test]
    fn schemas_are_searched_too() {
        let schema = serde_json::json!({ "type": "object", "properties": {
            "zipCode": { "type": "string", "description": "Postal code" },
            "units": { "enum": ["kelvin"] } } });
        let raw = sa_core::RawJson::of(&schema);
        let mut tool = Tool::named("w");
        tool.input = Some(sa_core::Schema::new(raw));
        let view = ToolView {
            name: "w".into(),
            leading: Vec::new(),
            tool: Arc::new(tool),
            provider: ProviderId::new("test", "t"),
            scope: Scope::Everyone,
            online: true,
        };
        let index = Index::new(vec![view]);
        for query in ["zip", "postal", "kelvin"] {
            assert_eq!(index.find(query, 1, |_| true).len(), 1, "{query}");
        }
    }
}
