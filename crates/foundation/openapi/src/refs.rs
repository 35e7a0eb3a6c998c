//! Resolves `$ref`s, inside the document only.

use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::error::{Problem, ProblemKind};

/// The maximum length of a chain of references.
const MAX_HOPS: usize = 32;

/// The maximum length of names, references and similar texts.
pub(crate) const MAX_TEXT: usize = 1_024;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Root<'a>(pub(crate) &'a Value);

impl<'a> Root<'a> {
    /// Follows the `$ref`s of a value. A value without one is returned as it is.
    pub(crate) fn follow(self, value: &'a Value, pointer: &str) -> Result<&'a Value, Problem> {
        let mut value = value;
        for _ in 0..MAX_HOPS {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else {
                return Ok(value);
            };
            value = self.target(reference, Trail::Start(pointer))?;
        }
        let message = "the $ref refers back to itself; make it end at a definition";
        Err(Problem::new(ProblemKind::BrokenReference, pointer, message))
    }

    pub(crate) fn target(self, reference: &str, trail: Trail<'_>) -> Result<&'a Value, Problem> {
        let Some(fragment) = reference.strip_prefix('#') else {
            let message = format!(
                "the $ref \"{}\" points outside of the document, and external documents are not fetched; copy its \
                 target into \"components\" and refer to that",
                shown(reference)
            );
            return Err(Problem::new(ProblemKind::RemoteReference, trail.pointer(), message));
        };
        let path = percent_decode_str(fragment).decode_utf8_lossy();
        let target = if reference.len() <= MAX_TEXT { self.0.pointer(&path) } else { None };
        target.ok_or_else(|| {
            let message =
                format!("the $ref \"{}\" has no target in this document", shown(reference));
            Problem::new(ProblemKind::BrokenReference, trail.pointer(), message)
        })
    }
}

/// The position of a schema, as a lazily built path. It is rarely needed, and a pointer for each
/// schema of a large document would cost more than the schemas.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trail<'t> {
    Start(&'t str),
    Name(&'t Trail<'t>, &'t str),
    Index(&'t Trail<'t>, usize),
}

impl Trail<'_> {
    pub(crate) fn pointer(&self) -> String {
        match self {
            Self::Start(pointer) => (*pointer).to_owned(),
            Self::Name(parent, name) => join(&parent.pointer(), name),
            Self::Index(parent, index) => join(&parent.pointer(), index),
        }
    }
}

/// Returns the JSON pointer to a member of the value at `pointer`.
pub(crate) fn join(pointer: &str, key: impl std::fmt::Display) -> String {
    format!("{pointer}/{}", key.to_string().replace('~', "~0").replace('/', "~1"))
}

/// Returns a text of the document for a message: truncated, and on one line.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}
