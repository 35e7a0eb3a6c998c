//! A schema as a graph: its subschemas, the values to which they apply, and resolved references.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// The location of a subschema's value, relative to the value of the surrounding schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place<'s> {
    /// The value itself.
    Here,
    /// One member of an object.
    Member(&'s str),
    /// Any member of an object.
    Members,
    /// Any item of an array.
    Items,
    /// The names of an object's members.
    Names,
}

pub(super) struct Graph<'s> {
    pub(super) root: &'s Value,
    /// The possible bases of a reference: the document, and every part of it with its own id.
    bases: Vec<&'s Value>,
    /// By `$anchor` or `$dynamicAnchor`.
    anchors: HashMap<&'s str, Vec<&'s Value>>,
}

impl<'s> Graph<'s> {
    pub(super) fn new(root: &'s Value) -> Self {
        let mut graph = Self { root, bases: vec![root], anchors: HashMap::new() };
        graph.index(root);
        graph
    }

    fn index(&mut self, value: &'s Value) {
        match value {
            Value::Object(map) => {
                let named =
                    ["$id", "id"].iter().any(|key| map.get(*key).is_some_and(Value::is_string));
                if named && !std::ptr::eq(value, self.root) {
                    self.bases.push(value);
                }
                for key in ["$anchor", "$dynamicAnchor"] {
                    if let Some(anchor) = map.get(key).and_then(Value::as_str) {
                        self.anchors.entry(anchor).or_default().push(value);
                    }
                }
                map.values().for_each(|value| self.index(value));
            }
            Value::Array(items) => items.iter().for_each(|value| self.index(value)),
            _ => {}
        }
    }

    /// Returns the subschemas of a schema and their locations.
    pub(super) fn parts(&self, schema: &'s Value) -> Vec<(Place<'s>, &'s Value)> {
        let mut parts = Vec::new();
        let Value::Object(map) = schema else { return parts };
        for (keyword, value) in map {
            match keyword.as_str() {
                "$ref" | "$dynamicRef" | "$recursiveRef" => {
                    let reference = value.as_str().unwrap_or_default();
                    parts.extend(
                        self.follow(reference).into_iter().map(|target| (Place::Here, target)),
                    );
                }
                _ => parts.extend(inner(keyword, value)),
            }
        }
        parts
    }

    /// Returns all possible targets of a reference. Ids decide between several targets; the cost
    /// includes all of them. A reference to another document has no target here: the compiler
    /// refuses unknown documents.
    fn follow(&self, reference: &str) -> Vec<&'s Value> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        if fragment.is_empty() && !document.is_empty() {
            return self.bases.iter().copied().filter(|base| is_named(base, document)).collect();
        }
        if fragment.is_empty() {
            return self.bases.clone();
        }
        let fragment = unescape(fragment);
        if fragment.starts_with('/') {
            return self.bases.iter().filter_map(|base| base.pointer(&fragment)).collect();
        }
        self.anchors.get(fragment.as_str()).cloned().unwrap_or_default()
    }
}

/// Returns the subschemas in a keyword, without following references.
pub(super) fn inner<'s>(keyword: &str, value: &'s Value) -> Vec<(Place<'s>, &'s Value)> {
    let one = |place| vec![(place, value)];
    let list =
        |place| value.as_array().into_iter().flatten().map(|schema| (place, schema)).collect();
    let map = || value.as_object().into_iter().flat_map(Map::iter);
    match keyword {
        "allOf" | "anyOf" | "oneOf" => list(Place::Here),
        "not" | "if" | "then" | "else" | "contentSchema" => one(Place::Here),
        "dependentSchemas" | "dependencies" => {
            map().map(|(_, schema)| (Place::Here, schema)).collect()
        }
        "properties" => map().map(|(name, schema)| (Place::Member(name), schema)).collect(),
        "patternProperties" => map().map(|(_, schema)| (Place::Members, schema)).collect(),
        "additionalProperties" | "unevaluatedProperties" => one(Place::Members),
        "propertyNames" => one(Place::Names),
        "items" if value.is_array() => list(Place::Items),
        "items" | "additionalItems" | "unevaluatedItems" | "contains" => one(Place::Items),
        "prefixItems" => list(Place::Items),
        _ => Vec::new(),
    }
}

fn is_named(schema: &Value, document: &str) -> bool {
    // An id may be relative to another one; the last segment must match.
    let last =
        |uri: &str| uri.trim_end_matches('#').rsplit('/').next().unwrap_or_default().to_owned();
    ["$id", "id"]
        .iter()
        .filter_map(|key| schema.get(*key)?.as_str())
        .any(|id| last(id) == last(document))
}

/// Decodes `%24defs` and the like, which JSON Pointers in URIs may contain.
fn unescape(fragment: &str) -> String {
    let bytes = fragment.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| fragment.get(at + 1..at + 3)).flatten();
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            plain.push(byte);
            at += 3;
        } else {
            plain.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}
