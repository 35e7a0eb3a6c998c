//! `$ref`s, inside the document and nowhere else.

use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::error::{Problem, ProblemKind};

/// A chain of references that is longer than this leads nowhere.
const MAX_HOPS: usize = 32;

/// Names, references and the like that are longer than this are nobody's.
pub(crate) const MAX_TEXT: usize = 1_024;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Root<'a>(pub(crate) &'a Value);

impl<'a> Root<'a> {
    /// What a value stands for: itself, or what its `$ref` leads to.
    pub(crate) fn follow(self, value: &'a Value, pointer: &str) -> Result<&'a Value, Problem> {
        let mut value = value;
        for _ in 0..MAX_HOPS {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else { return Ok(value) };
            value = self.target(reference, Trail::Start(pointer))?;
        }
        let message = "the $ref leads back to itself; let it end at a definition";
        Err(Problem::new(ProblemKind::BrokenReference, pointer, message))
    }

    pub(crate) fn target(self, reference: &str, trail: Trail<'_>) -> Result<&'a Value, Problem> {
        let Some(fragment) = reference.strip_prefix('#') else {
            let message = format!(
                "the $ref \"{}\" leaves the document, and nothing is fetched for it; copy what it means into \
                 \"components\" and refer to that",
                shown(reference)
            );
            return Err(Problem::new(ProblemKind::RemoteReference, trail.pointer(), message));
        };
        let path = percent_decode_str(fragment).decode_utf8_lossy();
        let target = if reference.len() <= MAX_TEXT { self.0.pointer(&path) } else { None };
        target.ok_or_else(|| {
            let message = format!("the $ref \"{}\" leads to nothing in this document", shown(reference));
            Problem::new(ProblemKind::BrokenReference, trail.pointer(), message)
        })
    }
}

/// Where a schema stands, as long as nobody asks. Nearly nobody does, and a pointer for each schema of a large document
/// would cost more than the schemas.
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

/// A JSON pointer to a member of what `pointer` points to.
pub(crate) fn join(pointer: &str, key: impl std::fmt::Display) -> String {
    format!("{pointer}/{}", key.to_string().replace('~', "~0").replace('/', "~1"))
}

/// Text of the document in a message: short, on one line.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}
