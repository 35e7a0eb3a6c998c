use std::fmt;

/// Checks the name of a tool or the prefix of several: lowercase words with dots between them.
///
/// ```
/// use sa_protocol::{CapabilityError, validate_capability};
///
/// assert_eq!(validate_capability("macos.notes.search"), Ok(()));
/// assert_eq!(validate_capability("macos..notes"), Err(CapabilityError::EmptySegment));
/// ```
pub fn validate_capability(name: &str) -> Result<(), CapabilityError> {
    validate_tool_name(name)?;
    if name.starts_with('.') || name.ends_with('.') {
        return Err(CapabilityError::DotAtEdge);
    }
    if name.contains("..") {
        return Err(CapabilityError::EmptySegment);
    }
    if name.chars().any(char::is_uppercase) {
        return Err(CapabilityError::Uppercase);
    }
    Ok(())
}

/// Checks the name of a tool as a gateway must accept it from any node.
///
/// Nodes that offer a host's own tools send names such as `Bash`, so capitals and odd dots pass here. What cannot
/// pass is what would break a log line, a header or an index: nothing at all, more than 128 characters,
/// whitespace, control characters.
pub fn validate_tool_name(name: &str) -> Result<(), CapabilityError> {
    if name.is_empty() {
        return Err(CapabilityError::Empty);
    }
    if name.chars().any(char::is_whitespace) {
        return Err(CapabilityError::Whitespace);
    }
    if name.chars().any(char::is_control) {
        return Err(CapabilityError::Control);
    }
    if name.chars().count() > 128 {
        return Err(CapabilityError::TooLong);
    }
    Ok(())
}

/// What is wrong with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CapabilityError {
    /// There is no name.
    Empty,
    /// More than 128 characters.
    TooLong,
    /// A space, a tab, a line break.
    Whitespace,
    /// A control character.
    Control,
    /// A dot at the beginning or at the end.
    DotAtEdge,
    /// Two dots in a row.
    EmptySegment,
    /// A capital letter.
    Uppercase,
}

impl fmt::Display for CapabilityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the name is empty; use lowercase words with dots between them, such as `macos.notes`",
            Self::TooLong => "the name has more than 128 characters; shorten it",
            Self::Whitespace => "the name contains whitespace; put dots or underscores there",
            Self::Control => "the name contains a control character; remove it",
            Self::DotAtEdge => "the name begins or ends with a dot; remove it",
            Self::EmptySegment => "the name has two dots in a row; put a word between them or remove one",
            Self::Uppercase => "the name has capital letters; write it in lowercase",
        })
    }
}

impl std::error::Error for CapabilityError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, capability: Result<(), CapabilityError>, tool: Result<(), CapabilityError>) {
        assert_eq!(validate_capability(name), capability, "capability {name:?}");
        assert_eq!(validate_tool_name(name), tool, "tool {name:?}");
    }

    #[test]
    fn names() {
        use CapabilityError::*;
        check("macos", Ok(()), Ok(()));
        check("macos.notes_2.read-all", Ok(()), Ok(()));
        check("Bash", Err(Uppercase), Ok(()));
        check("", Err(Empty), Err(Empty));
        check("a b", Err(Whitespace), Err(Whitespace));
        check("a\n", Err(Whitespace), Err(Whitespace));
        check("a\u{a0}b", Err(Whitespace), Err(Whitespace));
        check("a\0b", Err(Control), Err(Control));
        check(".a", Err(DotAtEdge), Ok(()));
        check("a.", Err(DotAtEdge), Ok(()));
        check("a..b", Err(EmptySegment), Ok(()));
        check(&"é".repeat(128), Ok(()), Ok(()));
        check(&"é".repeat(129), Err(TooLong), Err(TooLong));
    }
}
