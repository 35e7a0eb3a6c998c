use std::fmt;

use sa_text::is_invisible;

use unicode_security::GeneralSecurityProfile as _;
use unicode_security::general_security_profile::IdentifierType;
use unicode_security::mixed_script::AugmentedScriptSet;

/// Checks the name of a tool or the prefix of several tools: lowercase words separated by dots.
///
/// ```
/// use sa_protocol::{CapabilityError, validate_capability};
///
/// assert_eq!(validate_capability("macos.notes.search"), Ok(()));
/// assert_eq!(validate_capability("macos..notes"), Err(CapabilityError::EmptySegment));
/// ```
pub fn validate_capability(name: &str) -> Result<(), CapabilityError> {
    validate_prefix(name)?;
    if name.chars().any(char::is_uppercase) {
        return Err(CapabilityError::Uppercase);
    }
    Ok(())
}

/// Checks a capability by the rules that a gateway applies to every node: words separated by dots.
/// Capital letters are allowed, because some host tools have them.
pub fn validate_prefix(name: &str) -> Result<(), CapabilityError> {
    validate_tool_name(name)?;
    if name.starts_with('.') || name.ends_with('.') {
        return Err(CapabilityError::DotAtEdge);
    }
    if name.contains("..") {
        return Err(CapabilityError::EmptySegment);
    }
    Ok(())
}

/// Checks the name of a tool by the rules that a gateway applies to every node.
///
/// Nodes that provide a host's own tools send names such as `Bash`, so capital letters and odd dots
/// are allowed. A name has at most 128 characters. [`validate_name`] lists the other rules.
pub fn validate_tool_name(name: &str) -> Result<(), CapabilityError> {
    validate_name(name)?;
    if name.chars().count() > 128 {
        return Err(CapabilityError::TooLong);
    }
    Ok(())
}

/// Checks a name that people distinguish by sight: of a token, a node, or a tool.
///
/// A name must not break a log line, a header or an index, nor look like another name. So it is not
/// empty and has no whitespace, no control characters, no invisible characters, no variants of
/// other characters (such as full-width letters), and no letters of several scripts. Latin letters
/// beside Chinese, Japanese or Korean ones are allowed: they do not look alike, and such names are
/// common (the "highly restrictive" level of Unicode's UTS 39).
///
/// ```
/// use sa_protocol::validate_name;
///
/// assert!(validate_name("Übersetzer-2").is_ok());
/// assert_eq!(
///     validate_name("p\u{430}ypal").unwrap_err().to_string(),
///     "the name mixes scripts: U+0430 at position 2 belongs to another script than the letters before it; use one script"
/// );
/// ```
pub fn validate_name(name: &str) -> Result<(), CapabilityError> {
    if name.is_empty() {
        return Err(CapabilityError::Empty);
    }
    let find = |wanted: fn(char) -> bool| {
        let found = name.chars().enumerate().find(|(_, character)| wanted(*character));
        found.map(|(at, character)| Place { character, position: at + 1 })
    };
    if let Some(place) = find(char::is_whitespace) {
        return Err(CapabilityError::Whitespace(place));
    }
    if let Some(place) = find(char::is_control) {
        return Err(CapabilityError::Control(place));
    }
    if let Some(place) = find(is_invisible) {
        return Err(CapabilityError::Invisible(place));
    }
    if let Some(place) = find(is_variant) {
        return Err(CapabilityError::Variant(place));
    }
    first_of_another_script(name).map_or(Ok(()), |place| Err(CapabilityError::MixedScripts(place)))
}

/// Returns whether a letter is another form of other letters and looks like them: full-width
/// and mathematical letters, ligatures.
fn is_variant(c: char) -> bool {
    c.is_alphabetic() && c.identifier_type() == Some(IdentifierType::Not_NFKC)
}

/// Returns the first letter of a name that belongs to another script than the letters before it.
fn first_of_another_script(name: &str) -> Option<Place> {
    if name.is_ascii() {
        return None;
    }
    let latin = AugmentedScriptSet::for_char('a');
    let (mut all, mut but_latin) = (AugmentedScriptSet::default(), AugmentedScriptSet::default());
    name.chars().enumerate().find_map(|(at, character)| {
        let scripts = AugmentedScriptSet::for_char(character);
        all.intersect_with(scripts);
        if scripts != latin {
            but_latin.intersect_with(scripts);
        }
        let east_asian = but_latin.hanb || but_latin.jpan || but_latin.kore;
        (all.is_empty() && !east_asian).then_some(Place { character, position: at + 1 })
    })
}

/// Returns whether a character can make a name look like another one in a list or a log. Such
/// characters are invisible or control the display.
pub fn is_unseen(c: char) -> bool {
    c.is_control() || is_invisible(c)
}

/// The position of an invalid character in a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub character: char,
    /// The position in characters, starting at 1.
    pub position: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "U+{:04X} at position {}", u32::from(self.character), self.position)
    }
}

/// The reason why a name is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CapabilityError {
    /// The name is empty.
    Empty,
    /// The name has more than 128 characters.
    TooLong,
    /// The name contains a space, a tab, or a line break.
    Whitespace(Place),
    /// The name contains a control character.
    Control(Place),
    /// The name contains an invisible character.
    Invisible(Place),
    /// The name contains another form of a character, such as a full-width letter.
    Variant(Place),
    /// The name mixes letters of several scripts, some of which look alike.
    MixedScripts(Place),
    /// The name begins or ends with a dot.
    DotAtEdge,
    /// The name contains two dots in a row.
    EmptySegment,
    /// The name contains a capital letter.
    Uppercase,
}

impl fmt::Display for CapabilityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => {
                f.write_str("the name is empty; use lowercase words with dots between them, such as `macos.notes`")
            }
            Self::TooLong => f.write_str("the name has more than 128 characters; shorten it"),
            Self::Whitespace(place) => {
                write!(f, "the name contains whitespace ({place}); use dots, underscores or hyphens instead")
            }
            Self::Control(place) => write!(f, "the name contains a control character ({place}); remove it"),
            Self::Invisible(place) => {
                write!(f, "the name contains an invisible character ({place}); remove it")
            }
            Self::Variant(place) => {
                write!(f, "the name contains a variant of another character ({place}); use the usual character")
            }
            Self::MixedScripts(place) => write!(
                f,
                "the name mixes scripts: {place} belongs to another script than the letters before it; use one script"
            ),
            Self::DotAtEdge => f.write_str("the name begins or ends with a dot; remove it"),
            Self::EmptySegment => f.write_str("the name has two dots in a row; put a word between them or remove one"),
            Self::Uppercase => f.write_str("the name contains capital letters; write it in lowercase"),
        }
    }
}

impl std::error::Error for CapabilityError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        name: &str,
        capability: Result<(), CapabilityError>,
        tool: Result<(), CapabilityError>,
    ) {
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
        let at = |character, position| Place { character, position };
        let both = |name: &str, error| check(name, Err(error), Err(error));
        check("macos", Ok(()), Ok(()));
        check("macos.notes_2.read-all", Ok(()), Ok(()));
        check("Bash", Err(Uppercase), Ok(()));
        both("", Empty);
        both("a b", Whitespace(at(' ', 2)));
        both("a\n", Whitespace(at('\n', 2)));
        both("é\u{a0}b", Whitespace(at('\u{a0}', 2)));
        both("a\0b", Control(at('\0', 2)));
        both("a\u{61c}b", Invisible(at('\u{61c}', 2)));
        both("a\u{3164}", Invisible(at('\u{3164}', 2)));
        both("\u{e0041}", Invisible(at('\u{e0041}', 1)));
        both("\u{ff2d}ail", Variant(at('\u{ff2d}', 1)));
        both("ma\u{fb01}a", Variant(at('\u{fb01}', 3)));
        both("\u{1d5fa}ail", Variant(at('\u{1d5fa}', 1)));
        check(".a", Err(DotAtEdge), Ok(()));
        check("a.", Err(DotAtEdge), Ok(()));
        check("a..b", Err(EmptySegment), Ok(()));
        check(&"é".repeat(128), Ok(()), Ok(()));
        check(&"é".repeat(129), Err(TooLong), Err(TooLong));
    }

    #[test]
    fn scripts() {
        let mixed = |name: &str, character, position| {
            assert_eq!(
                validate_name(name),
                Err(CapabilityError::MixedScripts(Place { character, position })),
                "{name}"
            );
        };
        for name in [
            "übersetzer",
            "поиск.файлов",
            "αναζήτηση",
            "بحث",
            "חיפוש",
            "खोज",
            "検索",
            "ファイルを検索",
            "검색",
            "搜索",
            "slack通知",
            "file検索_2",
            "git-검색",
            "a🔧",
            "naïve",
            "x₂",
            "№1",
            "a/b@c",
        ] {
            assert_eq!(validate_name(name), Ok(()), "{name}");
        }
        mixed("p\u{430}ypal", '\u{430}', 2);
        mixed("\u{430}dmin", 'd', 2);
        mixed("demo.\u{435}cho", '\u{435}', 6);
        mixed("\u{3bf}ps", 'p', 2);
        mixed("搜\u{430}", '\u{430}', 2);
        mixed("검索א", 'א', 3);
    }
}
