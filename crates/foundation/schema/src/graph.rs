//! A schema as a graph: its subschemas, the values to which they apply, and resolved references.

use std::collections::HashMap;

use serde_json::Value;

/// The value to which a subschema applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The value of the surrounding schema.
    Here,
    /// A member or an item of that value, or a member's name.
    Below,
    /// No value, unless a reference leads to the subschema.
    Nowhere,
}

/// How a keyword contains subschemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    List,
    Map,
}

/// Returns how a keyword contains subschemas, if it does.
pub(crate) fn shape(keyword: &str, value: &Value) -> Option<(Shape, Place)> {
    Some(match keyword {
        "allOf" | "anyOf" | "oneOf" => (Shape::List, Place::Here),
        "not" | "if" | "then" | "else" | "contentSchema" => (Shape::One, Place::Here),
        "dependentSchemas" | "dependencies" => (Shape::Map, Place::Here),
        "properties" | "patternProperties" => (Shape::Map, Place::Below),
        "prefixItems" => (Shape::List, Place::Below),
        "items" if value.is_array() => (Shape::List, Place::Below),
        "additionalProperties"
        | "unevaluatedProperties"
        | "propertyNames"
        | "items"
        | "additionalItems"
        | "unevaluatedItems"
        | "contains" => (Shape::One, Place::Below),
        "$defs" | "definitions" => (Shape::Map, Place::Nowhere),
        _ => return None,
    })
}

pub(crate) struct Graph<'s> {
    root: &'s Value,
    /// The possible bases of a reference: the document, and every part of it with its own id.
    bases: Vec<&'s Value>,
    /// By `$anchor` or `$dynamicAnchor`.
    anchors: HashMap<&'s str, Vec<&'s Value>>,
}

impl<'s> Graph<'s> {
    pub(crate) fn new(root: &'s Value) -> Self {
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

    /// Returns the subschemas that apply to the same value as a schema, or to a value below it.
    pub(crate) fn parts(&self, schema: &'s Value) -> Vec<(Place, &'s Value)> {
        let mut parts = Vec::new();
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            if let "$ref" | "$dynamicRef" | "$recursiveRef" = keyword.as_str() {
                let targets = self.follow(value.as_str().unwrap_or_default());
                parts.extend(targets.into_iter().map(|target| (Place::Here, target)));
                continue;
            }
            match shape(keyword, value) {
                None | Some((_, Place::Nowhere)) => {}
                Some((Shape::One, place)) => parts.push((place, value)),
                Some((Shape::List, place)) => {
                    parts.extend(value.as_array().into_iter().flatten().map(|part| (place, part)));
                }
                Some((Shape::Map, place)) => {
                    let fields = value.as_object().into_iter().flatten();
                    parts.extend(fields.map(|(_, part)| (place, part)));
                }
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
