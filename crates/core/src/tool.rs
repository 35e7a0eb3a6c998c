//! Tools, and the catalogs in which providers offer them.

pub mod invisible;

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::directory::ToolPage;
use crate::naming;
use crate::passthrough::Passthrough;
use crate::provider::ProviderId;
use sa_limits::budget::Permit;
use sa_schema::Schema;
use sa_text::json::RawJson;

/// A named function that one provider offers.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The provider's own name for the tool, which is sent to the provider.
    pub name: Arc<str>,
    /// The preferred exposed name. The directory makes it valid and unique.
    pub preferred_name: String,
    /// The short name, if the own name contains the provider's id. It may be used while it is
    /// unambiguous.
    pub short: Option<Arc<str>>,
    pub title: Option<String>,
    pub description: Option<String>,
    pub input: Option<Schema>,
    pub output: Option<Schema>,
    /// Hints for clients, as the provider wrote them. The core does not interpret them.
    pub annotations: Option<RawJson>,
    /// Further details from the provider, such as icons.
    pub passthrough: Option<Passthrough>,
    /// The capabilities that the tool represents in eligibility checks, such as `shell.exec`.
    pub capabilities: Vec<String>,
    /// The idle timeout of its calls.
    pub timeout: Option<Duration>,
    /// Whether that is a hard limit, which progress does not extend.
    pub hard_timeout: bool,
    /// Whether a call may be repeated after a timeout. `false` if the provider declares that a
    /// repeated call has a further effect.
    pub repeatable: bool,
    /// Whether its definition has changed and an operator has not accepted that yet: calls of it
    /// fail.
    pub held: bool,
    /// Whether it represents every tool below its name, which its provider does not describe: see
    /// [`Tool::open`].
    pub open: bool,
    /// Whether models may use it. A tool for its provider's own page only is not offered to them.
    pub for_models: bool,
}

impl Tool {
    /// Why one of its schemas cannot be used, as far as that has shown. With such an input schema
    /// every call fails; such an output schema is not listed.
    pub fn schema_problem(&self) -> Option<Cow<'_, str>> {
        let input = self.input.as_ref().and_then(Schema::flaw).map(Cow::Borrowed);
        let output = || {
            let why = self.output.as_ref().and_then(Schema::flaw)?;
            Some(Cow::Owned(format!("the output schema is not used: {why}")))
        };
        input.or_else(output)
    }

    /// Returns the approximate size in memory, and in a list, in bytes.
    pub fn weight(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let json = |json: &Option<RawJson>| json.as_ref().map_or(0, RawJson::len);
        let schema =
            |schema: &Option<Schema>| schema.as_ref().map_or(0, |schema| schema.raw().len());
        let capabilities: usize = self.capabilities.iter().map(String::len).sum();
        let texts = self.name.len()
            + self.preferred_name.len()
            + text(&self.title)
            + text(&self.description);
        256 + texts
            + schema(&self.input)
            + schema(&self.output)
            + json(&self.annotations)
            + self.passthrough.as_ref().map_or(0, |passthrough| passthrough.json.len())
            + capabilities
    }

    /// Returns every name that the tool has, claims or could get, apart from case. These are the
    /// exposed names with and without a suffix, its own name, the preferred name as it is written,
    /// and the short name. For a dotted name, also the spelling with underscores, and the names of
    /// its lowercase spelling, because nodes ignore case there.
    pub fn all_names(&self, provider: &ProviderId) -> Vec<String> {
        let (plain, suffixed) = self.exposed_names(provider);
        let mut names = vec![plain, suffixed, self.name.to_string(), self.preferred_name.clone()];
        names.extend(self.short.as_deref().map(str::to_owned));
        if self.name.contains('.') {
            names.push(naming::underscored(&self.name));
            if self.name.contains(char::is_uppercase) {
                let lower = Self::undescribed(&self.name.to_lowercase(), provider);
                names.extend(lower.all_names(provider));
            }
        }
        names
    }

    /// Returns the plain exposed name, and the one with a suffix. The two differ.
    pub(crate) fn exposed_names(&self, provider: &ProviderId) -> (String, String) {
        let address = self.address(provider);
        let plain = naming::expose(&self.preferred_name, &address);
        let suffixed = naming::with_hash(&plain, &address);
        // A name that was too long already has that suffix.
        let suffixed = if suffixed == plain {
            naming::with_hash(&plain, &format!("{address}#1"))
        } else {
            suffixed
        };
        (plain, suffixed)
    }

    /// Returns the unique identifier of the tool, independent of its names. The suffix of an
    /// exposed name is derived from it.
    pub(crate) fn address(&self, provider: &ProviderId) -> String {
        // A slash in an id must differ from the separator after it.
        let id = provider.id.replace('%', "%25").replace('/', "%2F");
        format!("{}/{id}/{}", provider.kind, self.name)
    }

    /// Creates a tool below a provider's open prefix, with only a name. It is exposed like a
    /// described tool. A dotted name is its whole address, and any other name is prefixed with its
    /// provider's id.
    pub(crate) fn undescribed(name: &str, provider: &ProviderId) -> Self {
        let preferred_name =
            if name.contains('.') { name.to_owned() } else { format!("{}__{name}", provider.id) };
        Self { preferred_name, ..Self::named(name) }
    }

    /// Creates a tool with only a name.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            preferred_name: name.into(),
            short: None,
            title: None,
            description: None,
            input: None,
            output: None,
            annotations: None,
            passthrough: None,
            capabilities: Vec::new(),
            timeout: None,
            hard_timeout: false,
            repeatable: true,
            held: false,
            open: false,
            for_models: true,
        }
    }

    /// Creates an open tool, which represents a prefix without described tools. A call names the
    /// tool below the prefix in its arguments: `{"tool": "rest.of.its.name", "args": {…}}`.
    /// Arguments of any other form are for the tool with the same name as the prefix.
    pub fn open(prefix: &str, description: String) -> Self {
        Self {
            open: true,
            description: Some(description),
            input: Some(OPEN.clone()),
            ..Self::named(prefix)
        }
    }

    /// Returns whether a schema is that of an open tool.
    pub(crate) fn is_open_schema(schema: &serde_json::Value) -> bool {
        OPEN.raw().to_value().is_ok_and(|open| open == *schema)
    }

    /// Returns the schema that validates the arguments. The schema of an open tool only describes
    /// one of their forms.
    pub(crate) fn validated_by(&self) -> Option<&Schema> {
        self.input.as_ref().filter(|_| !self.open)
    }
}

/// Covers everything that a list shows or a call depends on.
impl Hash for Tool {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            name,
            preferred_name,
            short,
            title,
            description,
            input,
            output,
            annotations,
            passthrough,
            capabilities,
            timeout,
            hard_timeout,
            repeatable,
            held,
            open,
            for_models,
        } = self;
        (name, preferred_name, short, title, description, capabilities).hash(state);
        let schemas = [input, output].map(|schema| schema.as_ref().map(Schema::raw));
        schemas.map(|schema| schema.map(RawJson::as_str)).hash(state);
        annotations.as_ref().map(RawJson::as_str).hash(state);
        passthrough
            .as_ref()
            .map(|Passthrough { format, json }| (format, json.as_str()))
            .hash(state);
        (timeout, hard_timeout, repeatable, held, open, for_models).hash(state);
    }
}

const OPEN_SCHEMA: &str = r#"{"type":"object","properties":{"tool":{"type":"string","description":"rest of the dotted name, empty for the capability itself"},"args":{"type":"object"}}}"#;

/// Shared by all open tools.
static OPEN: LazyLock<Schema> = LazyLock::new(|| Schema::new(RawJson::from_checked(OPEN_SCHEMA)));

/// The tools that one provider offers.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// Described tools, which are listed.
    pub tools: Vec<Tool>,
    /// Open prefixes: any tool at or below one (`macos.notes` covers `macos.notes.search`) may be
    /// called, although the gateway cannot list it. A prefix without a described tool is listed as
    /// an open tool, see [`Tool::open`].
    pub prefixes: Vec<String>,
    /// Whether the provider's undotted names (`Bash`) may be called bare, without naming the
    /// provider. A provider that describes such tools is a host, and bare names run on the first
    /// host.
    pub bare_names: bool,
    /// Whether the operator prefers bare names to run here, while it is online.
    pub preferred: bool,
    /// Whether its tools are not known yet. Calls of names that begin with its id (`mail__send`)
    /// are sent to it. This ends when it lists its tools, or another provider has a tool with such
    /// a name.
    pub unlisted: bool,
    /// Whether changes of its tools' definitions are detected, see
    /// [`crate::directory::ToolChange`].
    pub watched: bool,
    /// Whether the provider is remembered across a restart of the gateway, see
    /// [`crate::directory::SavedProvider`].
    pub saved: bool,
    /// Its permit of a budget that providers share. It is held while the directory stores this
    /// catalog, and so also while the provider is offline.
    pub permit: Option<Arc<Permit>>,
}

impl Catalog {
    /// Returns the approximate size in memory, in bytes.
    pub fn weight(&self) -> usize {
        self.tools.iter().map(Tool::weight).sum::<usize>()
            + self.prefixes.iter().map(|prefix| Self::prefix_weight(prefix)).sum::<usize>()
    }

    pub(crate) fn prefix_weight(prefix: &str) -> usize {
        64 + prefix.len()
    }
}

impl ToolPage {
    /// Returns the size of its tools in a list, in bytes.
    pub fn weight(&self) -> usize {
        self.tools.iter().map(|view| view.tool.weight()).sum()
    }

    /// Truncates the page after the tool that exceeds the size limit. The rest is on the next page.
    #[must_use]
    pub fn within(mut self, bytes: usize) -> Self {
        let mut sum = 0;
        let beyond = self.tools.iter().position(|view| {
            sum += view.tool.weight();
            sum > bytes
        });
        if let Some(last) = beyond.filter(|last| last + 1 < self.tools.len()) {
            self.tools.truncate(last + 1);
            self.next = self.tools.last().map(|view| view.name.to_string());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tools_have_one_address() {
        let address =
            |id: &str, name: &str| Tool::named(name).address(&ProviderId::new("node", id));
        assert_eq!(address("mac-01", "notes.search"), "node/mac-01/notes.search");
        let all = [("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c"), ("a%b", "c")]
            .map(|(id, name)| address(id, name));
        assert!((1..all.len()).all(|n| !all[..n].contains(&all[n])), "{all:?}");
    }
}
