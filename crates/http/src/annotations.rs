//! The annotations of tools, in the JSON format of MCP that our own protocols use, too.

use sa_core::RawJson;
use sa_text::json::object;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Returns whether a call of a tool may be repeated, according to its annotations. A tool without
/// annotations may be harmless, and the caller decides.
pub fn is_repeatable(annotations: Option<&RawJson>) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Hints<'a> {
        #[serde(borrow)]
        idempotent_hint: Option<&'a RawValue>,
        #[serde(borrow)]
        read_only_hint: Option<&'a RawValue>,
    }
    let Some(Ok(hints)) = annotations.map(|json| object::<Hints<'_>>(json.as_str().as_bytes()))
    else {
        return true;
    };
    let is = |hint: Option<&RawValue>, value| hint.is_some_and(|hint| hint.get() == value);
    !is(hints.idempotent_hint, "false") || is(hints.read_only_hint, "true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(annotations: &str, expected: bool) {
        let annotations = RawJson::parse(annotations).unwrap();
        assert_eq!(is_repeatable(Some(&annotations)), expected, "{annotations:?}");
    }

    #[test]
    fn only_a_declared_effect_prevents_a_repetition() {
        assert!(is_repeatable(None));
        check(r#"{"idempotentHint":false}"#, false);
        check(r#"{"idempotentHint":false,"readOnlyHint":"yes"}"#, false);
        check(r#"{"idempotentHint":false,"readOnlyHint":true}"#, true);
        check(r#"{"idempotentHint":true}"#, true);
        check(r#"{"title":"a","destructiveHint":true}"#, true);
        check(r#"{"idempotentHint":0}"#, true);
        check("[false]", true);
        check("null", true);
    }
}
