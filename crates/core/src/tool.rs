//! Tools, and the catalogues in which providers offer them.

pub mod invisible;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::budget::Permit;
use crate::directory::ToolPage;
use crate::json::RawJson;
use crate::naming;
use crate::provider::ProviderId;
use crate::schema::Schema;

/// A named function that one provider offers.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The provider's own name for it, which is what the provider is sent.
    pub name: Arc<str>,
    /// The name it would like to be exposed under; made to fit, and unique, by the directory.
    pub preferred_name: String,
    /// What it is called where its own name carries its provider's: it may be called so while nobody else's is.
    pub short: Option<Arc<str>>,
    pub title: Option<String>,
    pub description: Option<String>,
    pub input: Option<Schema>,
    pub output_schema: Option<RawJson>,
    pub annotations: Option<RawJson>,
    /// What else its provider says of it (icons, metadata), in the words of MCP, for a surface that speaks them.
    pub extras: Option<RawJson>,
    /// What the tool stands for in eligibility questions, such as `shell.exec`.
    pub capabilities: Vec<String>,
    /// How long a call of it may take without a sign of life.
    pub timeout: Option<Duration>,
    /// Whether its definition has changed and an operator has not accepted that yet: calls of it fail.
    pub held: bool,
    /// Whether it stands for every tool below its name, which its provider does not describe: see [`Tool::open`].
    pub open: bool,
    /// Whether models are offered it. One that is there for its provider's own page alone is not.
    pub for_models: bool,
}

impl Tool {
    /// Whether the tool says of itself that repeating a call does more than the call did. One that says nothing may be
    /// harmless, and is for the caller to judge.
    pub fn is_unrepeatable(&self) -> bool {
        let hints = self.annotations.as_ref().and_then(|hints| hints.to_value().ok()).unwrap_or_default();
        hints["idempotentHint"] == false && hints["readOnlyHint"] != true
    }

    /// About how many bytes it takes in memory, and in a list.
    pub fn weight(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let json = |json: &Option<RawJson>| json.as_ref().map_or(0, RawJson::len);
        let schema = self.input.as_ref().map_or(0, |schema| schema.raw().len());
        let capabilities: usize = self.capabilities.iter().map(String::len).sum();
        let texts = self.name.len() + self.preferred_name.len() + text(&self.title) + text(&self.description);
        256 + texts + schema + json(&self.output_schema) + json(&self.annotations) + json(&self.extras) + capabilities
    }

    /// Every name that the tool has, claims or could get: the exposed ones with and without a suffix, its own and the short
    /// one; and those of a dotted name in lowercase, because nodes ignore case there.
    pub fn all_names(&self, provider: &ProviderId) -> Vec<String> {
        let (plain, suffixed) = self.exposed_names(provider);
        let mut names = vec![plain, suffixed, self.name.to_string()];
        names.extend(self.short.as_deref().map(str::to_owned));
        if self.name.contains('.') && self.name.contains(char::is_uppercase) {
            let lower = Self::undescribed(&self.name.to_lowercase(), provider);
            names.extend(lower.all_names(provider));
        }
        names
    }

    /// The plain exposed name, and the one with a suffix. The two differ.
    pub(crate) fn exposed_names(&self, provider: &ProviderId) -> (String, String) {
        let address = self.address(provider);
        let plain = naming::expose(&self.preferred_name, &address);
        let suffixed = naming::with_hash(&plain, &address);
        // A name that was too long has that suffix already.
        let suffixed = if suffixed == plain { naming::with_hash(&plain, &format!("{address}#1")) } else { suffixed };
        (plain, suffixed)
    }

    /// Which tool it is, whatever it goes by: no other one has the same. The suffix of an exposed name is made from it.
    pub(crate) fn address(&self, provider: &ProviderId) -> String {
        // Where a slash is part of an id, it must not look like the one behind it.
        let id = provider.id.replace('%', "%25").replace('/', "%2F");
        format!("{}/{id}/{}", provider.kind, self.name)
    }

    /// A tool below a provider's open prefix, of which only the name is known. It would be exposed as a described one is: a
    /// dotted name is its whole address, and another one goes with its provider's id.
    pub(crate) fn undescribed(name: &str, provider: &ProviderId) -> Self {
        let preferred_name = if name.contains('.') { name.to_owned() } else { format!("{}__{name}", provider.id) };
        Self { preferred_name, ..Self::named(name) }
    }

    /// A tool of which only the name is known.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            preferred_name: name.into(),
            short: None,
            title: None,
            description: None,
            input: None,
            output_schema: None,
            annotations: None,
            extras: None,
            capabilities: Vec::new(),
            timeout: None,
            held: false,
            open: false,
            for_models: true,
        }
    }

    /// Stands for a prefix of which its provider describes no tool. A call says in its arguments which tool below the prefix
    /// it is for: `{"tool": "rest.of.its.name", "args": {…}}`. Arguments of any other form are for the tool that is named like
    /// the prefix.
    pub fn open(prefix: &str, description: String) -> Self {
        Self { open: true, description: Some(description), input: Some(OPEN.clone()), ..Self::named(prefix) }
    }

    /// Whether a schema is that of an open tool.
    pub(crate) fn is_open_schema(schema: &serde_json::Value) -> bool {
        OPEN.raw().to_value().is_ok_and(|open| open == *schema)
    }

    /// The schema that arguments are checked by. That of an open tool only describes one of their forms.
    pub(crate) fn validated_by(&self) -> Option<&Schema> {
        self.input.as_ref().filter(|_| !self.open)
    }
}

const OPEN_SCHEMA: &str = r#"{"type":"object","properties":{"tool":{"type":"string","description":"rest of the dotted name, empty for the capability itself"},"args":{"type":"object"}}}"#;

/// Shared by all of them.
static OPEN: LazyLock<Schema> = LazyLock::new(|| Schema::new(RawJson::from_checked(OPEN_SCHEMA)));

/// What one provider offers.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// Tools that are described, and therefore listed.
    pub tools: Vec<Tool>,
    /// Open prefixes: any tool at or below one (`macos.notes` covers `macos.notes.search`) may be called, though
    /// the gateway cannot list it. A prefix of which no tool is described is listed as an open tool, see [`Tool::open`].
    pub prefixes: Vec<String>,
    /// Whether the provider's undotted names (`Bash`) may be called bare, without saying on which provider. One that
    /// describes such tools is a host, and the first of the hosts is where bare names run.
    pub bare_names: bool,
    /// Whether the operator wants bare names to run here, while it is here.
    pub preferred: bool,
    /// Whether what it has is not known yet. Names that begin with its id (`mail__send`) are asked of it, until it lists
    /// what it has, or another provider has a tool of such a name.
    pub unlisted: bool,
    /// Whether changes of its tools' definitions are noticed, see [`crate::directory::ToolChange`].
    pub watched: bool,
    /// Whether the provider is remembered over a restart of the gateway, see [`crate::directory::SavedProvider`].
    pub saved: bool,
    /// Its place below a ceiling that providers share, held for as long as the directory keeps what is offered here, and so
    /// also while its provider is away.
    pub room: Option<Arc<Permit>>,
}

impl Catalog {
    /// About how many bytes it takes in memory.
    pub fn weight(&self) -> usize {
        self.tools.iter().map(Tool::weight).sum::<usize>()
            + self.prefixes.iter().map(|prefix| Self::prefix_weight(prefix)).sum::<usize>()
    }

    pub(crate) fn prefix_weight(prefix: &str) -> usize {
        64 + prefix.len()
    }
}

impl ToolPage {
    /// How many bytes its tools have in a list.
    pub fn weight(&self) -> usize {
        self.tools.iter().map(|view| view.tool.weight()).sum()
    }

    /// The beginning of it, up to the tool that goes beyond so many bytes. The rest is on the next page.
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
        let address = |id: &str, name: &str| Tool::named(name).address(&ProviderId::new("node", id));
        assert_eq!(address("mac-01", "notes.search"), "node/mac-01/notes.search");
        let all = [("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c"), ("a%b", "c")].map(|(id, name)| address(id, name));
        assert!((1..all.len()).all(|n| !all[..n].contains(&all[n])), "{all:?}");
    }
}
