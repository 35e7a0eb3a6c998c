use serde::{Deserialize, Serialize};

use crate::json;

/// The identity of a node, as it sends it in its hello.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The id: stable, and unique among the nodes of a gateway.
    pub id: String,
    /// A name for people.
    #[serde(default, deserialize_with = "json::null_as_default")]
    pub name: String,
    /// The platform: `macos`, `linux`, ...
    #[serde(default, deserialize_with = "json::null_as_default")]
    pub node_type: String,
    /// The version of the node's own software.
    #[serde(default, deserialize_with = "json::null_as_default")]
    pub version: String,
    /// Free-form tags to group and filter nodes by.
    #[serde(
        default,
        deserialize_with = "json::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub tags: Vec<String>,
}

impl NodeInfo {
    /// Reads `SA_NODE_ID`, `SA_NODE_NAME` and `SA_NODE_TAGS` (separated by commas).
    ///
    /// Without them the id is `{node_type}:{hostname}`, such as `office:laptop`, the name is
    /// `sa-node-{node_type}`, and there are no tags. The hostname is `HOSTNAME`, or else the one
    /// that the system reports. An empty variable counts as not set.
    ///
    /// A gateway distinguishes nodes by their ids. Two nodes of one type on one machine have the
    /// same id by default, and the second would replace the first: give each a `SA_NODE_ID`. A
    /// token that is bound to an id works with that id only.
    pub fn from_env(node_type: &str, version: &str) -> Self {
        Self::from_lookup(node_type, version, |name| std::env::var(name).ok(), host_name)
    }

    /// Implements [`NodeInfo::from_env`] without the environment, so that tests can run in
    /// parallel.
    fn from_lookup(
        node_type: &str,
        version: &str,
        variable: impl Fn(&str) -> Option<String>,
        host_name: impl Fn() -> Option<String>,
    ) -> Self {
        let set = |name| variable(name).filter(|value| !value.trim().is_empty());
        let host = || {
            set("HOSTNAME")
                .or_else(&host_name)
                .map_or_else(|| "unknown".to_owned(), |host| host.trim().to_owned())
        };
        Self {
            id: set("SA_NODE_ID").unwrap_or_else(|| format!("{node_type}:{}", host())),
            name: set("SA_NODE_NAME").unwrap_or_else(|| format!("sa-node-{node_type}")),
            node_type: node_type.to_owned(),
            version: version.to_owned(),
            tags: set("SA_NODE_TAGS").map(|list| split_tags(&list)).unwrap_or_default(),
        }
    }
}

fn split_tags(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|tag| !tag.is_empty()).map(str::to_owned).collect()
}

/// Returns the hostname. Shells set `HOSTNAME` but rarely export it, and services never have it.
fn host_name() -> Option<String> {
    ["/proc/sys/kernel/hostname", "/etc/hostname"]
        .into_iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .chain(std::env::var("COMPUTERNAME").ok())
        .map(|name| name.trim().to_owned())
        .find(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(variables: &[(&str, &str)], host: Option<&str>, id: &str, name: &str, tags: &[&str]) {
        let lookup = |wanted: &str| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
        };
        let info = NodeInfo::from_lookup("macos", "1.2.3", lookup, || host.map(str::to_owned));
        assert_eq!((info.id.as_str(), info.name.as_str()), (id, name));
        assert_eq!(info.tags, tags);
        assert_eq!((info.node_type.as_str(), info.version.as_str()), ("macos", "1.2.3"));
    }

    #[test]
    fn defaults() {
        check(&[], None, "macos:unknown", "sa-node-macos", &[]);
        check(&[], Some("studio\n"), "macos:studio", "sa-node-macos", &[]);
        check(&[("HOSTNAME", "desk")], Some("studio"), "macos:desk", "sa-node-macos", &[]);
    }

    #[test]
    fn variables_win() {
        let variables =
            [("SA_NODE_ID", "m1"), ("SA_NODE_NAME", "Mine"), ("SA_NODE_TAGS", "home, desk,,")];
        check(&variables, Some("studio"), "m1", "Mine", &["home", "desk"]);
    }

    #[test]
    fn empty_variables_count_as_absent() {
        let variables = [("SA_NODE_ID", ""), ("SA_NODE_NAME", " "), ("SA_NODE_TAGS", "")];
        check(&variables, Some("studio"), "macos:studio", "sa-node-macos", &[]);
    }

    #[test]
    fn from_env_reads_this_machine() {
        let info = NodeInfo::from_env("test", "0.0.1");
        assert!(!info.id.is_empty());
        assert_eq!(info.node_type, "test");
    }
}
