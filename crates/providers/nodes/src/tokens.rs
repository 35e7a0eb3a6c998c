//! Node tokens from environment variables.

const SHARED: &str = "SA_NODE_TOKEN";
const BOUND: &str = "SA_NODE_TOKENS";

/// Node tokens from environment variables.
#[derive(Clone, Default)]
pub struct NodeTokens {
    /// `SA_NODE_TOKEN`: valid for any node.
    pub shared: Option<String>,
    /// `SA_NODE_TOKENS`: each token is valid for one node id.
    pub bound: Vec<(String, String)>,
}

impl std::fmt::Debug for NodeTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeTokens(shared: {}, bound: {})", self.shared.is_some(), self.bound.len())
    }
}

impl NodeTokens {
    pub(crate) const VARIABLES: [&str; 2] = [SHARED, BOUND];

    /// Reads the environment. An error is the name of the variable and the message.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, (&'static str, String)> {
        let shared = variable(SHARED).filter(|token| !token.is_empty());
        if shared.as_ref().is_some_and(|token| !is_token(token)) {
            let message =
                "begins or ends with a space, or contains a line break, so no node can send it";
            return Err((SHARED, message.into()));
        }
        let bound = pairs(&variable(BOUND).unwrap_or_default());
        let bound = bound.map_err(|message| (BOUND, message))?;
        Ok(Self { shared, bound })
    }

    pub fn is_empty(&self) -> bool {
        self.shared.is_none() && self.bound.is_empty()
    }
}

/// Parses `id:token, id:token`. Errors name the position of an item, because the item itself
/// contains a secret.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (number, pair) in text.split(',').enumerate().filter(|(_, pair)| !pair.trim().is_empty()) {
        // An id may contain colons (`linux:laptop`); the gateway's tokens never do.
        let parts = pair.rsplit_once(':').map(|(id, token)| (id.trim(), token.trim()));
        let Some((id, token)) =
            parts.filter(|(id, token)| crate::check_id(id).is_ok() && is_token(token))
        else {
            let place = number + 1;
            return Err(format!(
                "must be a list of id:token pairs, separated by commas; its item {place} is invalid"
            ));
        };
        if let Some((other, _)) = pairs.iter().find(|(other, known)| known == token && other != id)
        {
            let (id, other) = (sa_text::printable(id), sa_text::printable(other));
            return Err(format!(
                "has the same token for two nodes, \"{other}\" and \"{id}\"; give each node its own token"
            ));
        }
        pairs.push((id.into(), token.into()));
    }
    Ok(pairs)
}

/// Reports whether the text can be sent as a token.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let expected =
            expected.iter().map(|(id, token)| ((*id).to_owned(), (*token).to_owned())).collect();
        assert_eq!(pairs(text), Ok(expected), "{text}");
    }

    #[test]
    fn pairs_with_commas_between_them() {
        check("", &[]);
        check(" , ,", &[]);
        check("a:t", &[("a", "t")]);
        check("linux:laptop:t1, two:t2,", &[("linux:laptop", "t1"), ("two", "t2")]);
        check("a : t", &[("a", "t")]);
        // Two tokens for one node are allowed while tokens are being rotated.
        check("a:old,a:new,a:new", &[("a", "old"), ("a", "new"), ("a", "new")]);
        for wrong in
            ["canary", "a:", ":canary", " :canary", "a:b,canary", "a:b,,c:", "a:canary,b:canary"]
        {
            let told = pairs(wrong).unwrap_err();
            assert!(!told.contains("canary"), "{told}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_or_refused(text in "[a-c:, \\PC]{0,30}") {
            if let Ok(pairs) = pairs(&text) {
                let items = text.split(',').filter(|item| !item.trim().is_empty()).count();
                prop_assert_eq!(pairs.len(), items, "all pairs are read");
                prop_assert!(pairs.iter().all(|(id, token)| !id.is_empty() && !token.is_empty()));
            }
        }

        #[test]
        fn what_is_written_is_read(
            written in proptest::collection::btree_map("[!-+\\--~]{1,12}", "[a-z]{1,12}", 0..6),
            break_at in proptest::option::of(any::<proptest::sample::Index>()),
        ) {
            // Keyed by token, because each token belongs to one node.
            let written: std::collections::BTreeMap<_, _> = written.into_iter().map(|(id, token)| (token, id)).collect();
            let mut items: Vec<String> = written.iter().map(|(token, id)| format!("{id}:{token}")).collect();
            let expected: Vec<_> = written.into_iter().map(|(token, id)| (id, token)).collect();
            match break_at.filter(|_| !items.is_empty()).map(|place| place.index(items.len())) {
                None => prop_assert_eq!(pairs(&items.join(", ")), Ok(expected)),
                Some(place) => {
                    items[place] = items[place].rsplit_once(':').map(|(id, _)| format!("{id}:")).unwrap_or_default();
                    let told = pairs(&items.join(",")).unwrap_err();
                    prop_assert!(told.contains(&format!("item {}", place + 1)), "{}", told);
                }
            }
        }
    }
}
