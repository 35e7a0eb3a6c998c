//! Exposed names: what LLM APIs and MCP clients accept, `^[a-zA-Z0-9_-]{1,64}$`.

/// The longest name that every client accepts.
pub const MAX_NAME: usize = 64;

/// The longest name that is looked for below an open tool.
pub(crate) const MAX_DOTTED: usize = 512;

/// Enough to tell two tools apart, short enough to leave room for the name itself.
const HASH_CHARS: usize = 8;

/// Whether a name can be exposed as it is.
pub fn is_exposable(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// Turns a preferred name into one that can be exposed. What fits stays as it is; every other character becomes
/// `_`, and a name that is then too long, or that lost a character other than a dot or a
/// colon (which names and ids commonly have), gets a hash of `address`
/// so that two different tools never share it by accident.
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

/// The name with a suffix that depends on the tool's address alone, so that it is the same after every restart.
/// `name` must be made of ASCII characters.
pub fn with_hash(name: &str, address: &str) -> String {
    let keep = name.len().min(MAX_NAME - HASH_CHARS - 1);
    format!("{}_{:08x}", &name[..keep], fnv1a(address.as_bytes()) as u32)
}

/// A provider's id as it appears in exposed names; `None` when it appears as it is.
pub(crate) fn space(id: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (!id.chars().all(fits)).then(|| id.chars().map(|c| if fits(c) { c } else { '_' }).collect())
}

/// The ids of providers whose tools can have this exposed name: each part of it that `__` follows.
pub(crate) fn spaces(name: &str) -> impl Iterator<Item = &str> {
    let bytes = name.as_bytes();
    (1..bytes.len()).filter(move |at| bytes[*at..].starts_with(b"__")).map(|at| &name[..at])
}

/// Whether a name can be a dotted one that is written with underscores. What comes before two underscores is a provider's id.
pub(crate) fn may_be_dotted(name: &str) -> bool {
    name.len() <= MAX_DOTTED && !name.contains('.') && !name.contains("__")
}

/// Whether a name is written as hosts write the names of their tools: `Bash`, `WebFetch`. Hardly any others are.
pub(crate) fn is_of_host(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_uppercase()) && !name.contains('.') && !name.contains("__")
}

/// FNV-1a, folded: stable over releases and platforms, which the standard hasher does not promise to be.
fn fnv1a(bytes: &[u8]) -> u64 {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
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
    fn what_does_not_fit_is_told_apart_by_a_hash() {
        assert_ne!(expose("a b", "x/a b"), expose("a/b", "x/a/b"));
        assert_ne!(expose(&"a".repeat(65), "x/1"), expose(&"a".repeat(65), "x/2"));
        // Stable over releases: clients remember these names.
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
