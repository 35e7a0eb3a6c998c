//! Converts the channel's methods into tools for a language model.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::{Attachment, CallOptions, Client, DiscoveredMethod, Error};

/// The maximum length of a tool's name that model providers accept.
const MAX_NAME: usize = 64;

/// Options for the conversion of methods into tools.
#[derive(Debug, Clone)]
pub struct AgentToolsOptions {
    /// The prefix of the tools' names. `pubsub` by default.
    pub name_prefix: String,
}

impl Default for AgentToolsOptions {
    fn default() -> Self {
        Self { name_prefix: "pubsub".into() }
    }
}

/// The methods of all participants in a channel, as tools.
#[derive(Debug, Clone)]
pub struct AgentTools {
    client: Client,
    definitions: Vec<ToolDefinition>,
    methods: BTreeMap<String, DiscoveredMethod>,
}

/// A tool in the form that model providers require.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// The name: at most 64 letters, digits, `_` and `-`.
    pub name: String,
    pub description: String,
    /// JSON Schema.
    pub parameters: Value,
}

/// The output of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    pub content: Value,
    pub content_type: Option<String>,
    /// Images and other files, unchanged.
    pub attachments: Vec<Attachment>,
}

/// Creates tools for all methods that other participants in the channel offer at the moment.
///
/// A tool's name is `PREFIX_PARTICIPANT_METHOD`. If that is too long, contains invalid characters,
/// or would be the name of two tools, the name ends in a number. The number is a hash of
/// participant and method, so that a method always has the same name and no tool replaces another.
pub fn tools_for_agent(client: &Client, options: &AgentToolsOptions) -> AgentTools {
    let own = client.client_id();
    let others = client.discover_methods().into_iter().filter(|found| found.provider_id != own);
    let methods = name(others.collect(), &options.name_prefix);
    let definition = |(name, found): (&String, &DiscoveredMethod)| ToolDefinition {
        name: name.clone(),
        description: found
            .method
            .description
            .clone()
            .unwrap_or_else(|| format!("{} of {}", found.method.name, found.provider_name)),
        parameters: found.method.parameters.clone(),
    };
    AgentTools {
        client: client.clone(),
        definitions: methods.iter().map(definition).collect(),
        methods,
    }
}

impl AgentTools {
    pub fn definitions(&self) -> &[ToolDefinition] {
        &self.definitions
    }

    /// Returns the method behind a tool.
    pub fn method(&self, name: &str) -> Option<&DiscoveredMethod> {
        self.methods.get(name)
    }

    /// Calls a tool and waits for its result.
    pub async fn execute(
        &self,
        name: &str,
        args: Value,
        options: CallOptions,
    ) -> Result<ToolOutput, Error> {
        let Some(found) = self.methods.get(name) else {
            let why = format!(
                "there is no tool \"{}\"; create the tools again if the roster has changed",
                name.escape_debug()
            );
            return Err(Error::MethodNotFound(why));
        };
        let call = self.client.call_method(&found.provider_id, &found.method.name, args, options);
        let value = call.result().await?;
        Ok(ToolOutput {
            content: value.content,
            content_type: value.content_type,
            attachments: value.attachments,
        })
    }
}

/// Gives each method a unique name.
fn name(methods: Vec<DiscoveredMethod>, prefix: &str) -> BTreeMap<String, DiscoveredMethod> {
    let plain =
        |found: &DiscoveredMethod| format!("{prefix}_{}_{}", found.provider_id, found.method.name);
    let mut uses: HashMap<String, usize> = HashMap::new();
    for found in &methods {
        *uses.entry(plain(found)).or_default() += 1;
    }
    let mut named = BTreeMap::new();
    for found in methods {
        let plain = plain(&found);
        let usable = plain.len() <= MAX_NAME && plain.chars().all(is_usable) && uses[&plain] == 1;
        let mut name = if usable { plain.clone() } else { numbered(&plain, &found, 0) };
        // A collision of two numbers is very rare; the later name then gets another number.
        let mut salt = 0;
        while named.contains_key(&name) {
            salt += 1;
            name = numbered(&plain, &found, salt);
        }
        named.insert(name, found);
    }
    named
}

fn is_usable(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn numbered(plain: &str, found: &DiscoveredMethod, salt: u64) -> String {
    let number =
        fnv(&[found.provider_id.as_bytes(), found.method.name.as_bytes(), &salt.to_le_bytes()]);
    let letters = plain.chars().map(|c| if is_usable(c) { c } else { '_' });
    let beginning: String = letters.take(MAX_NAME - 9).collect();
    format!("{beginning}_{:08x}", (number >> 32) as u32 ^ number as u32)
}

/// Returns the FNV-1a hash of several texts. It is the same in every program and at all times, as
/// names require.
fn fnv(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        // The end of a part is hashed too, so that "a", "bc" differs from "ab", "c".
        for byte in part.iter().copied().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::AdvertisedMethod;

    fn found(provider: &str, method: &str) -> DiscoveredMethod {
        let method =
            serde_json::from_value::<AdvertisedMethod>(serde_json::json!({ "name": method }))
                .unwrap();
        DiscoveredMethod { provider_id: provider.into(), provider_name: provider.into(), method }
    }

    #[test]
    fn ordinary_names_stay_readable_and_others_get_a_number() {
        let named = name(vec![found("worker", "search"), found("wörker", "search")], "pubsub");
        let names: Vec<&String> = named.keys().collect();
        assert_eq!(names[1], "pubsub_worker_search");
        assert!(names[0].starts_with("pubsub_w_rker_search_"), "{names:?}");
    }

    #[test]
    fn no_tool_takes_anothers_place() {
        let named = name(vec![found("a_b", "c"), found("a", "b_c")], "p");
        assert_eq!(named.len(), 2);
        assert!(named.keys().all(|name| name.starts_with("p_a_b_c_")), "{named:?}");
        for (name, method) in &named {
            assert_eq!(*name, super::numbered("p_a_b_c", method, 0), "other participants");
        }
    }

    proptest! {
        #[test]
        fn all_names_are_usable_and_none_is_lost(
            prefix in ".{0,80}",
            methods in proptest::collection::btree_set(("[a_é]{1,4}|.{0,90}", "[a_é]{1,4}|.{0,90}"), 0..12)
        ) {
            let named = name(methods.iter().map(|(provider, method)| found(provider, method)).collect(), &prefix);
            prop_assert_eq!(named.len(), methods.len());
            for name in named.keys() {
                prop_assert!(name.len() <= MAX_NAME && name.chars().all(is_usable), "{}", name);
            }
        }
    }
}
