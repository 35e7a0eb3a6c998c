//! Exposed names: names that LLM APIs and clients accept, `^[a-zA-Z0-9_-]{1,64}$`.

use std::borrow::Cow;

/// The maximum length that every client accepts.
pub const MAX_NAME: usize = 64;

/// The maximum length of a name that is resolved below an open tool.
pub(crate) const MAX_DOTTED: usize = 512;

/// Enough to distinguish two tools, and short enough to leave most of the length for the name.
const HASH_CHARS: usize = 8;

/// Returns whether a name can be exposed unchanged.
pub fn is_exposable(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// Converts a preferred name into an exposed one. Every character that is not allowed becomes `_`.
/// A name gets a hash of `address` if it is then too long. The same applies if it lost a character
/// other than a dot or a colon, which are common in names and ids. So two different tools never
/// share a name by accident.
pub fn expose(preferred_name: &str, address: &str) -> String {
    let mut lossy = preferred_name.is_empty();
    let name: String = preferred_name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
                c
            } else {
                lossy |= c != '.' && c != ':';
                '_'
            }
        })
        .collect();
    if lossy || name.len() > MAX_NAME { with_hash(&name, address) } else { name }
}

/// Returns the name with a suffix that depends on the tool's address alone, so it is the same after
/// every restart. `name` must be ASCII.
pub fn with_hash(name: &str, address: &str) -> String {
    let keep = name.len().min(MAX_NAME - HASH_CHARS - 1);
    format!("{}_{:08x}", &name[..keep], fnv1a(address.as_bytes()) as u32)
}

/// Returns a provider's id as written in exposed names, or `None` if it is unchanged.
pub(crate) fn space(id: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (!id.chars().all(fits)).then(|| id.chars().map(|c| if fits(c) { c } else { '_' }).collect())
}

/// Returns a provider's id as written in exposed names. Ids with the same result share these names.
pub fn exposed_id(id: &str) -> Cow<'_, str> {
    space(id).map_or(Cow::Borrowed(id), Cow::Owned)
}

/// Yields the provider ids that can own this exposed name: each part of it that `__` follows.
pub(crate) fn spaces(name: &str) -> impl Iterator<Item = &str> {
    let bytes = name.as_bytes();
    (1..bytes.len()).filter(move |at| bytes[*at..].starts_with(b"__")).map(|at| &name[..at])
}

/// Returns the spelling of a dotted name with underscores.
pub(crate) fn underscored(name: &str) -> String {
    name.replace('.', "_")
}

/// Returns whether a name can be a dotted name in its spelling with underscores. The part before
/// two underscores is a provider's id.
pub(crate) fn may_be_dotted(name: &str) -> bool {
    name.len() <= MAX_DOTTED && !name.contains('.') && !name.contains("__")
}

/// Returns whether a name has the style of hosts' tool names: `Bash`, `WebFetch`. Hardly any other
/// names have it.
pub(crate) fn is_of_host(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase())
        && !name.contains('.')
        && !name.contains("__")
}

/// FNV-1a, folded. It is stable across releases and platforms, unlike the standard hasher.
fn fnv1a(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(preferred_name: &str, expected: &str) {
        assert_eq!(expose(preferred_name, &format!("test/{preferred_name}")), expected);
    }

    #[test]
    fn names_that_fit_stay() {
        check("laptop__Bash", "laptop__Bash");
        check("macos.notes.search", "macos_notes_search");
        check("mac-01__Bash", "mac-01__Bash");
        check(&"a".repeat(64), &"a".repeat(64));
    }

    #[test]
    fn shortened_names_differ_by_a_hash() {
        assert_ne!(expose("a b", "x/a b"), expose("a/b", "x/a/b"));
        assert_ne!(expose(&"a".repeat(65), "x/1"), expose(&"a".repeat(65), "x/2"));
        // Stable across releases, because clients remember these names.
        check("héllo wörld", "h_llo_w_rld_58fe1fd2");
        check("", "_527853b6");
    }

    proptest! {
        #[test]
        fn any_preferred_name_becomes_a_name_that_clients_accept(preferred_name in any::<String>(), address in any::<String>()) {
            let name = expose(&preferred_name, &address);
            prop_assert!(is_exposable(&name), "{name:?}");
            prop_assert!(is_exposable(&with_hash(&name, &address)));
            prop_assert_eq!(&name, &expose(&preferred_name, &address), "the same tool has the same name each time");
        }

        #[test]
        fn a_suffixed_name_depends_on_the_address(name in "[a-z_]{1,64}", a in "[a-z]{1,20}", b in "[a-z]{1,20}") {
            prop_assume!(a != b);
            prop_assert_ne!(with_hash(&name, &a), with_hash(&name, &b));
        }
    }
}
