//! `Edit`: replaces a piece of text in a file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use sa_node_sdk::{NodeTool, ToolContext, ToolError, ToolResult};
use sa_vault::secret_file;
use serde_json::{Value, json};

use super::args::{Args, invalid, optional};
use super::hidden::identity;
use super::place::Target;
use super::replace::{Replaced, current, errno, replace};
use super::{Files, blocking, errors};

pub(super) struct Edit(pub(super) Arc<Files>);

/// The maximum size of an edited file. The whole file is in memory during the edit.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The maximum number of attempts when another process writes the file during the edit.
const MAX_TRIES: usize = 5;

#[async_trait::async_trait]
impl NodeTool for Edit {
    async fn call(&self, _: ToolContext, args: Value) -> ToolResult {
        let mut args = Args::new(args)?;
        let path = args.path("path")?;
        let change = Change {
            old: args.text("oldString")?,
            new: args.text("newString")?,
            all: args.flag("replaceAll")?,
        };
        if change.old.is_empty() {
            return Err(invalid(
                "`oldString` is empty; give the text to replace, or create a new file with Write"
                    .into(),
            ));
        }
        if change.old == change.new {
            return Err(invalid(
                "`oldString` and `newString` are equal, so there is nothing to change".into(),
            ));
        }
        let files = Arc::clone(&self.0);
        blocking(move || files.edit(&path, &change)).await
    }

    fn title(&self) -> Option<String> {
        Some("Edit a file".into())
    }

    fn description(&self) -> Option<String> {
        Some(
            "Replaces text in a file on this machine. `oldString` must match the text of the file exactly (without the \
             line numbers that Read adds), and must occur exactly once unless `replaceAll` is true."
                .into(),
        )
    }

    fn input_schema(&self) -> Option<Value> {
        Some(optional(json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "minLength": 1, "maxLength": 4096,
                    "description": "Path to the file. Relative paths resolve against the node workspace." },
                "oldString": { "type": "string", "minLength": 1, "description": "Exact text to find and replace." },
                "newString": { "type": "string", "description": "Replacement text." },
                "replaceAll": { "type": "boolean", "default": false,
                    "description": "Replace all occurrences. When false, there must be exactly one match." },
            },
            "required": ["path", "oldString", "newString"],
        })))
    }

    fn output_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": {
                "path": { "type": "string", "description": "The resolved absolute path." },
                "replacements": { "type": "integer", "description": "Number of replacements." },
            },
            "required": ["path", "replacements"],
        }))
    }

    fn annotations(&self) -> Option<Value> {
        Some(json!({ "title": "Edit a file", "readOnlyHint": false, "destructiveHint": true,
            "idempotentHint": false, "openWorldHint": false }))
    }

    fn capabilities(&self) -> Vec<String> {
        vec!["filesystem.edit".into()]
    }
}

struct Change {
    old: String,
    new: String,
    all: bool,
}

impl Files {
    fn edit(&self, path: &str, change: &Change) -> ToolResult {
        let path = self.place.resolve(Some(path));
        let explain = |errno| errors::explain(&self.place, &path, errno);
        let target = self.place.target(&path, false)?;
        let replacements = self
            .locks
            .with(&target, || self.edit_alone(&path, &target, change))
            .map_err(explain)??;
        Ok(json!({ "path": path.to_string_lossy(), "replacements": replacements }))
    }

    fn edit_alone(
        &self,
        path: &Path,
        target: &Target,
        change: &Change,
    ) -> Result<usize, ToolError> {
        let explain = |errno| errors::explain(&self.place, path, errno);
        for _ in 0..MAX_TRIES {
            if current(&self.place, path, target)?.is_none() {
                return Err(explain(Errno::NOENT));
            }
            let (before, stat) =
                content(target, path).map_err(|error| error.unwrap_or_else(explain))?;
            if self.place.hidden().is(&stat) {
                return Err(errors::secret(path));
            }
            let text = std::str::from_utf8(&before).map_err(|error| {
                let at = error.valid_up_to();
                ToolError::Failed(format!(
                    "{} is not UTF-8 text (the first invalid byte is at offset {at}); nothing was changed",
                    path.display()
                ))
            })?;
            let (after, replacements) = change.apply(text, path)?;
            let unchanged = || {
                content(target, path)
                    .is_ok_and(|(now, new)| identity(&new) == identity(&stat) && now == before)
            };
            if replace(target, Some(&stat), after.as_bytes(), unchanged).map_err(explain)?
                == Replaced::Yes
            {
                return Ok(replacements);
            }
        }
        Err(ToolError::Failed(format!(
            "{} was changed by another process during each attempt, so it was not edited; read it and try again",
            path.display()
        )))
    }
}

impl Change {
    fn apply(&self, text: &str, path: &Path) -> Result<(String, usize), ToolError> {
        let shown = path.display();
        let found = text.matches(&self.old).count();
        if found == 0 {
            let windows = text.contains(&self.old.replace('\n', "\r\n"));
            let hint = if windows {
                "its lines end with \\r\\n; use \\r\\n in `oldString` too"
            } else {
                "read the file again and copy the text exactly"
            };
            return Err(ToolError::Failed(format!("`oldString` was not found in {shown}; {hint}")));
        }
        if found > 1 && !self.all {
            return Err(ToolError::Failed(format!(
                "`oldString` was found {found} times in {shown}; use `replaceAll: true` to replace all of them, or \
                 include more of the surrounding text so that it matches only once"
            )));
        }
        let size = self
            .new
            .len()
            .saturating_mul(found)
            .saturating_add(text.len() - self.old.len() * found);
        if size > MAX_BYTES {
            return Err(ToolError::Failed(format!(
                "{shown} would be {size} bytes long after the edit; the limit is {MAX_BYTES} bytes"
            )));
        }
        Ok((text.replace(&self.old, &self.new), found))
    }
}

/// Reads the whole file. The error is a message for the caller or an error of the system.
fn content(target: &Target, path: &Path) -> Result<(Vec<u8>, Stat), Trouble> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(&target.directory, &target.name, flags, Mode::empty())?);
    let stat = fstat(&file)?;
    errors::regular(path, &stat, errors::TO_READ).map_err(Trouble::Said)?;
    // The file may have been swapped since the target was checked.
    if secret_file::is_marked(&file) {
        return Err(Trouble::Said(errors::secret(path)));
    }
    let mut content = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut content).map_err(|error| errno(&error))?;
    if content.len() > MAX_BYTES {
        let message = format!(
            "{} is larger than {MAX_BYTES} bytes, the limit of Edit; use Bash",
            path.display()
        );
        return Err(Trouble::Said(ToolError::Failed(message)));
    }
    Ok((content, stat))
}

enum Trouble {
    Said(ToolError),
    System(Errno),
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl Trouble {
    fn unwrap_or_else(self, explain: impl FnOnce(Errno) -> ToolError) -> ToolError {
        match self {
            Self::Said(error) => error,
            Self::System(errno) => explain(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_edit_is_what_a_naive_one_would_be(text in "[ab\r\né]{0,20}", old in "[ab\né]{1,3}", new in "[ab\né]{0,3}", all: bool) {
            let count = text.matches(&old).count();
            let change = Change { old: old.clone(), new: new.clone(), all };
            let applied = change.apply(&text, Path::new("x")).ok();
            let expected = match (count, all) {
                (0, _) | (2.., false) => None,
                _ => Some((text.split(&old).collect::<Vec<_>>().join(&new), count)),
            };
            prop_assert_eq!(applied, expected);
        }
    }

    #[test]
    fn a_replacement_has_a_bound() {
        let change = Change { old: "a".into(), new: "b".repeat(MAX_BYTES / 1000), all: true };
        assert!(change.apply(&"a".repeat(2000), Path::new("x")).is_err());
    }
}
