//! Calls of open tools, which represent every tool below their names.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Router;
use crate::call::CallRequest;
use crate::directory::{Route, Unresolved};
use sa_limits::offload;
use sa_text::json::RawJson;

/// The route and the arguments of a call.
pub(super) struct Target {
    pub(super) route: Route,
    pub(super) args: RawJson,
}

/// A name that cannot be resolved.
pub(super) struct Missing {
    pub(super) name: String,
    pub(super) unresolved: Unresolved,
}

impl Router {
    /// Finds the tool of a request among those that the principal may see. A tool that is named in
    /// the arguments of an open tool is resolved by its own name, so that every rule about it
    /// applies.
    pub(super) fn target(&self, request: &CallRequest) -> Result<Target, Missing> {
        let CallRequest { tool, args, view, .. } = request;
        let missing = |unresolved| Missing { name: tool.clone(), unresolved };
        let open = self.resolve(tool, view).map_err(missing)?;
        let below = if open.tool.open { below(args) } else { None };
        let Some((rest, args)) = below else {
            return Ok(Target { route: open, args: args.clone() });
        };
        if rest.is_empty() {
            return Ok(Target { route: open, args });
        }
        let (name, found) = self.directory.resolve_below(&open, tool, &rest, view);
        match self.visible(found, view) {
            Ok(route) => Ok(Target { route, args }),
            Err(unresolved) => Err(Missing { name, unresolved }),
        }
    }
}

/// Returns the rest of the name and the arguments from a call of an open tool, if its arguments
/// have that form.
fn below(args: &RawJson) -> Option<(String, RawJson)> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Form<'a> {
        tool: Option<String>,
        #[serde(borrow)]
        args: Option<&'a RawValue>,
    }
    let form =
        offload::run_if_free(args.len(), || serde_json::from_str::<Form<'_>>(args.as_str()).ok())?;
    if form.tool.is_none() && form.args.is_none() {
        return None;
    }
    let args = match form.args {
        Some(args) if args.get().starts_with('{') => RawJson::from_checked(args.get()),
        Some(_) => return None,
        None => RawJson::empty_object(),
    };
    Some((form.tool.unwrap_or_default(), args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(args: &str, expected: Option<(&str, &str)>) {
        let found = below(&RawJson::parse(args).unwrap());
        let found = found.as_ref().map(|(rest, args)| (rest.as_str(), args.as_str()));
        assert_eq!(found, expected, "{args}");
    }

    #[test]
    fn arguments_of_open_tools_have_one_form() {
        check(r#"{"tool":"search","args":{"q":1.0}}"#, Some(("search", r#"{"q":1.0}"#)));
        check(r#"{"tool":"a\u002eb"}"#, Some(("a.b", "{}")));
        check(r#"{"tool":"","args": {} }"#, Some(("", "{}")));
        check(r#"{"args":{"q":1}}"#, Some(("", r#"{"q":1}"#)));
        for other in [
            "{}",
            "null",
            "[]",
            r#"{"q":1}"#,
            r#"{"tool":1}"#,
            r#"{"tool":"a","args":[]}"#,
            r#"{"tool":"a","args":{},"q":1}"#,
            r#"{"tool":"a","tool":"b"}"#,
        ] {
            check(other, None);
        }
    }
}
