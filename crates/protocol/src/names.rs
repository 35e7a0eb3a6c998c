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
/// pass is what would break a log line, a header or an index, or look like another name: nothing at all, more than 128
/// characters, whitespace, control characters, characters that nobody sees.
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
    if name.chars().any(is_invisible) {
        return Err(CapabilityError::Invisible);
    }
    if name.chars().count() > 128 {
        return Err(CapabilityError::TooLong);
    }
    Ok(())
}

/// Whether a character leaves nothing to be seen, or turns around what is beside it: a name with one looks like another name.
///
/// These are Unicode's default-ignorable code points and its bidirectional marks, and the few beside them that break a line
/// or annotate it. Control characters are for [`char::is_control`].
pub const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Whether a character makes a name look like another one, in a list or a log: nobody sees it, or it steers whatever shows it.
pub fn is_unseen(c: char) -> bool {
    c.is_control() || is_invisible(c)
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
    /// A character that nobody sees.
    Invisible,
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
            Self::Invisible => "the name contains a character that cannot be seen; remove it",
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
    fn what_nobody_sees_has_no_place_in_a_name() {
        for c in ['\0', '\n', '\u{9b}', '\u{200d}', '\u{202e}', '\u{e0041}'] {
            assert!(is_unseen(c), "{c:?}");
        }
        assert!(!" aé.🔧".contains(is_unseen));
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
        check("a\u{61c}b", Err(Invisible), Err(Invisible));
        check("a\u{3164}", Err(Invisible), Err(Invisible));
        check("a\u{e0041}", Err(Invisible), Err(Invisible));
        check(".a", Err(DotAtEdge), Ok(()));
        check("a.", Err(DotAtEdge), Ok(()));
        check("a..b", Err(EmptySegment), Ok(()));
        check(&"é".repeat(128), Ok(()), Ok(()));
        check(&"é".repeat(129), Err(TooLong), Err(TooLong));
    }
}
