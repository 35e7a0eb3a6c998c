//! Reads arguments in the forms in which agents write them.

use std::path::{Component, Path, PathBuf};

use sa_node_sdk::ToolError;
use serde_json::{Map, Value};

/// The maximum length of a path. No system accepts longer paths, and no other text except a file's
/// content needs more.
const MAX_PATH_BYTES: usize = 4096;

/// The largest whole number that every JSON implementation represents exactly.
const MAX_NUMBER: f64 = 9_007_199_254_740_991.0;

pub(super) struct Args(Map<String, Value>);

impl Args {
    pub(super) fn new(args: Value) -> Result<Self, ToolError> {
        match args {
            Value::Object(args) => Ok(Self(args)),
            Value::Null => Ok(Self(Map::new())),
            other => Err(invalid(format!("the arguments must be an object, not {}", kind(&other)))),
        }
    }

    pub(super) fn optional_text(&mut self, name: &str) -> Result<Option<String>, ToolError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(invalid(format!("`{name}` must be a string, not {}", kind(&other)))),
        }
    }

    pub(super) fn text(&mut self, name: &str) -> Result<String, ToolError> {
        self.optional_text(name)?.ok_or_else(|| invalid(format!("`{name}` is missing")))
    }

    /// Reads a text that names files: not empty, of limited length, and without zero bytes.
    pub(super) fn optional_path(&mut self, name: &str) -> Result<Option<String>, ToolError> {
        let Some(path) = self.optional_text(name)? else { return Ok(None) };
        if path.is_empty() {
            return Err(invalid(format!("`{name}` is empty")));
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(invalid(format!("`{name}` is longer than {MAX_PATH_BYTES} bytes")));
        }
        if path.contains('\0') {
            return Err(invalid(format!("`{name}` contains a NUL character")));
        }
        crate::home::refuse(name, &path)?;
        Ok(Some(path))
    }

    pub(super) fn path(&mut self, name: &str) -> Result<String, ToolError> {
        self.optional_path(name)?.ok_or_else(|| invalid(format!("`{name}` is missing")))
    }

    /// Reads a whole number from zero up, written as 3 or as 3.0.
    pub(super) fn count(&mut self, name: &str) -> Result<Option<u64>, ToolError> {
        let number = match self.0.remove(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => number,
            Some(other) => {
                return Err(invalid(format!("`{name}` must be a number, not {}", kind(&other))));
            }
        };
        let value = number.as_f64().unwrap_or(f64::NAN);
        if value.fract() == 0.0 && value >= 0.0 {
            // Larger numbers are clamped: no file has that many lines.
            return Ok(Some(value.min(MAX_NUMBER) as u64));
        }
        Err(invalid(format!("`{name}` must be a whole number of at least 0, not {number}")))
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<bool, ToolError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(other) => {
                Err(invalid(format!("`{name}` must be true or false, not {}", kind(&other))))
            }
        }
    }
}

/// Returns a schema in which every optional property may also be `null`, as many agents write it.
pub(super) fn optional(mut schema: Value) -> Value {
    let required = schema["required"].clone();
    let required = |name: &str| {
        required.as_array().is_some_and(|names| names.iter().any(|known| known == name))
    };
    for (name, property) in schema["properties"].as_object_mut().into_iter().flatten() {
        if !required(name) && property["type"].is_string() {
            property["type"] = Value::Array(vec![property["type"].take(), "null".into()]);
        }
    }
    schema
}

pub(super) fn invalid(why: String) -> ToolError {
    ToolError::InvalidArgs(why)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Returns the absolute path as seen from `base`. `.` and `..` are resolved as text: `a/../b` is
/// `b`, even if `a` is a link.
pub(super) fn absolute(base: &Path, path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for component in base.join(path).components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check_count(value: Value, expected: Result<Option<u64>, ()>) {
        let mut args = Args::new(json!({ "limit": value })).unwrap();
        let count = args.count("limit");
        if let Err(error) = &count {
            assert!(
                matches!(error, ToolError::InvalidArgs(why) if why.contains("limit")),
                "{error}"
            );
        }
        assert_eq!(count.map_err(drop), expected, "{value}");
    }

    #[test]
    fn counts_are_whole_and_not_negative() {
        check_count(json!(3), Ok(Some(3)));
        check_count(json!(3.0), Ok(Some(3)));
        check_count(json!(0), Ok(Some(0)));
        check_count(Value::Null, Ok(None));
        check_count(json!(1e300), Ok(Some(MAX_NUMBER as u64)));
        for bad in [json!(-1), json!(3.5), json!("3"), json!([3]), json!(true)] {
            check_count(bad, Err(()));
        }
    }

    #[test]
    fn arguments_have_names_and_types() {
        assert!(Args::new(json!({ "pth": "x" })).unwrap().path("path").is_err());
        assert!(Args::new(json!(["x"])).is_err());
        assert!(Args::new(Value::Null).unwrap().path("path").is_err());
        for bad in
            [json!(""), json!("a\0b"), json!("x".repeat(5000)), json!(1), json!("~"), json!("~/x")]
        {
            assert!(Args::new(json!({ "path": bad })).unwrap().path("path").is_err());
        }
        for good in ["./~/x", "~x", "a~", "*~"] {
            assert!(Args::new(json!({ "path": good })).unwrap().path("path").is_ok(), "{good}");
        }
        assert!(Args::new(json!({ "all": "yes" })).unwrap().flag("all").is_err());
    }

    #[track_caller]
    fn check_absolute(path: &str, expected: &str) {
        assert_eq!(absolute(Path::new("/work/space"), Path::new(path)), Path::new(expected));
    }

    #[test]
    fn paths_are_taken_as_text() {
        check_absolute("a/b", "/work/space/a/b");
        check_absolute("./a//b/.", "/work/space/a/b");
        check_absolute("../a", "/work/a");
        check_absolute("/etc/../../x", "/x");
        check_absolute(".", "/work/space");
    }

    proptest::proptest! {
        #[test]
        fn arguments_keep_to_the_rules_or_are_refused_in_few_words(
            args in sa_hostile::json(&["path", "limit", "all", "a", "~", "\0", "", "x/../y"]), long in sa_hostile::long(),
        ) {
            let odd = [json!({ "path": &long }), json!({ &long: 1 }), json!({ "limit": &long }), args];
            for args in odd {
                let read = || -> Result<(), ToolError> {
                    let mut args = Args::new(args.clone())?;
                    let path = args.path("path")?;
                    assert!((1..=MAX_PATH_BYTES).contains(&path.len()) && !path.contains('\0'), "{path:?}");
                    assert!(absolute(Path::new("/work"), Path::new(&path)).components().all(|part| part != Component::ParentDir));
                    assert!(args.count("limit")?.is_none_or(|count| count <= MAX_NUMBER as u64));
                    args.flag("all").map(drop)
                };
                if let Err(error) = read() {
                    proptest::prop_assert!(matches!(&error, ToolError::InvalidArgs(why) if why.len() < sa_hostile::SHORT), "{error:?}");
                }
            }
        }
    }
}
