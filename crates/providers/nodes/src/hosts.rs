//! Matches requirements with hosts: which connected hosts meet them, and what the others lack.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use sa_core::directory::MemberView;
use sa_core::{ToolView, View};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::time::Instant;

use crate::{KIND, MAX_BINS, Nodes, PROBE_TIMEOUT, ProbeError, check_bins};

/// The cache lifetime of a node's probe result.
const BELIEVED: Duration = Duration::from_secs(60);
/// The maximum number of words in each list of requirements, and the maximum length of a word.
const MAX_WORDS: usize = MAX_BINS;
const MAX_WORD: usize = 128;

/// Requirements for a host. All non-empty lists must be met.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Requirements {
    /// Required capabilities, such as `shell.exec`; all must be present.
    #[serde(deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Words>)]
    pub(crate) capabilities: Vec<String>,
    /// Required programs; all must be present.
    #[serde(deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Words>)]
    pub(crate) bins: Vec<String>,
    /// Alternative programs; at least one must be present.
    #[serde(alias = "anyBins", deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Words>)]
    pub(crate) any_bins: Vec<String>,
    /// Required environment variables; all must be present.
    #[serde(deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Words>)]
    pub(crate) env: Vec<String>,
    /// Accepted operating systems, such as `linux` or `darwin`.
    #[serde(deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Words>)]
    pub(crate) os: Vec<String>,
}

/// The two forms that [`words`] accepts, for the OpenAPI document.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what `words` reads")]
pub(crate) enum Words {
    List(Vec<String>),
    /// A list with one word.
    One(String),
}

/// Deserializes a list of words, or a single word as a list of one.
fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct Words;
    impl<'de> serde::de::Visitor<'de> for Words {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list of words")
        }

        fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Self::Value, E> {
            Ok(vec![word.to_owned()])
        }

        fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(
            self,
            mut list: A,
        ) -> Result<Self::Value, A::Error> {
            let mut words = Vec::new();
            while let Some(word) = list.next_element()? {
                words.push(word);
            }
            Ok(words)
        }
    }
    deserializer.deserialize_any(Words)
}

impl Requirements {
    /// Checks the limits of the requirements. Returns the problem, if any.
    pub(crate) fn check(&self) -> Result<(), String> {
        let lists = [
            ("capabilities", &self.capabilities),
            ("bins", &self.bins),
            ("any_bins", &self.any_bins),
            ("env", &self.env),
            ("os", &self.os),
        ];
        for (name, list) in lists {
            if list.len() > MAX_WORDS {
                return Err(format!(
                    "{name} has {} words, but at most {MAX_WORDS} are allowed",
                    list.len()
                ));
            }
            if list.iter().any(|word| {
                word.is_empty() || word.len() > MAX_WORD || word.contains(char::is_control)
            }) {
                return Err(format!(
                    "{name} contains a word that is empty, longer than {MAX_WORD} bytes, or has a control character"
                ));
            }
        }
        for (name, bins) in [("bins", &self.bins), ("any_bins", &self.any_bins)] {
            if !bins.is_empty() {
                check_bins(bins).map_err(|error| format!("{name}: {error}"))?;
            }
        }
        Ok(())
    }

    /// Returns the programs that have to be probed.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &String> {
        self.bins.iter().chain(&self.any_bins)
    }
}

/// The details that a node reports about its machine, as kept by the directory.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) role: Option<&'static str>,
    pub(crate) os: Option<String>,
    pub(crate) env: Vec<String>,
}

impl Machine {
    pub(crate) fn of(member: &MemberView) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct About {
            host: Option<Said>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Said {
            role: Option<String>,
            os: Option<String>,
            env: Vec<String>,
        }
        let about: About = serde_json::from_str(member.about.as_str()).unwrap_or_default();
        let said = about.host.unwrap_or_default();
        let role = match said.role.as_deref() {
            Some("specialized") => Some("specialized"),
            Some("execution") => Some("execution"),
            // A node with host tools but no role runs them, so its role is `execution`.
            _ => member.host.then_some("execution"),
        };
        Self { role, os: said.os, env: said.env }
    }
}

/// The known facts about one host.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) node: String,
    pub(crate) online: bool,
    pub(crate) primary: bool,
    pub(crate) role: Option<&'static str>,
    /// The reason why its programs are unknown.
    pub(crate) problem: Option<String>,
    os: Option<String>,
    env: BTreeSet<String>,
    capabilities: BTreeSet<String>,
    bins: BTreeMap<String, bool>,
}

/// Returns the facts about all hosts that the view can see. The capabilities are those of the tools
/// that the view's principal may use. All hosts are probed concurrently, so that one that does not
/// respond does not delay the others further.
pub(crate) async fn facts(nodes: &Nodes, view: &View, bins: BTreeSet<String>) -> Vec<Facts> {
    let policy = nodes.router.policy();
    let allowed = |tool: &ToolView| policy.allows(&view.principal, tool);
    let directory = nodes.router.directory();
    let mut usable: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for tool in directory.list(view, None, usize::MAX, allowed).tools {
        if tool.provider.kind == KIND {
            let capabilities = usable.entry(tool.provider.id.to_string()).or_default();
            capabilities.extend(tool.tool.capabilities.iter().cloned());
        }
    }
    let bins: Vec<String> = bins.into_iter().collect();
    let hosts = directory.members(KIND).into_iter().filter_map(|member| {
        let machine = Machine::of(&member);
        let capabilities = usable.remove(&*member.id.id);
        // A principal that may use only some tools does not see the hosts of other tools.
        let seen = capabilities.is_some() || !view.principal.is_limited();
        (seen && (machine.role.is_some() || !member.capabilities.is_empty())).then(|| Facts {
            node: member.id.id.to_string(),
            online: member.gone_for.is_none(),
            primary: member.primary,
            role: machine.role,
            problem: None,
            os: machine.os,
            env: machine.env.into_iter().collect(),
            capabilities: capabilities.unwrap_or_default(),
            bins: BTreeMap::new(),
        })
    });
    join_all(hosts.map(|mut facts| {
        let bins = &bins;
        async move {
            facts.look_for(nodes, bins).await;
            facts
        }
    }))
    .await
}

impl Facts {
    /// Checks which of these programs the host has.
    async fn look_for(&mut self, nodes: &Nodes, bins: &[String]) {
        if bins.is_empty() {
            return;
        }
        if !self.online {
            self.problem = Some("the node is not connected".to_owned());
            return;
        }
        let Some(host) = nodes.host(&self.node) else { return };
        let since = Instant::now().checked_sub(BELIEVED);
        let look = async {
            for some in bins.chunks(MAX_BINS) {
                self.bins.extend(host.probe(some, since).await?);
            }
            Ok::<_, ProbeError>(())
        };
        let found = tokio::time::timeout(PROBE_TIMEOUT, look).await;
        self.problem = match found {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(ProbeError::Timeout.to_string()),
        };
    }

    /// Returns the requirements that the host lacks; empty if it qualifies. Unknown programs count
    /// as missing.
    pub(crate) fn lacks(&self, required: &Requirements) -> Requirements {
        let has_bin = |bin: &String| self.bins.get(bin) == Some(&true);
        let without = |list: &[String], has: &dyn Fn(&String) -> bool| {
            list.iter().filter(|word| !has(word)).cloned().collect::<Vec<_>>()
        };
        let unless = |met: bool, list: &Vec<String>| if met { Vec::new() } else { list.clone() };
        let runs = |os: &String| self.os.as_deref() == Some(system(os).as_str());
        Requirements {
            capabilities: without(&required.capabilities, &|word| self.capabilities.contains(word)),
            bins: without(&required.bins, &has_bin),
            any_bins: unless(required.any_bins.iter().any(has_bin), &required.any_bins),
            env: without(&required.env, &|word| self.env.contains(word)),
            os: unless(required.os.iter().any(runs), &required.os),
        }
    }
}

/// Maps common names of operating systems to the names that hosts report.
fn system(name: &str) -> String {
    match name.to_lowercase().as_str() {
        "macos" | "osx" => "darwin".into(),
        "win32" => "windows".into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    fn laptop() -> Facts {
        Facts {
            node: "laptop".into(),
            online: true,
            primary: true,
            role: Some("execution"),
            problem: None,
            os: Some("darwin".into()),
            env: ["HOME".into()].into(),
            capabilities: ["shell.exec".into()].into(),
            bins: [("git".into(), true), ("docker".into(), false)].into(),
        }
    }

    #[track_caller]
    fn check(required: Requirements, lacking: Requirements) {
        assert_eq!(laptop().lacks(&required), lacking);
    }

    #[test]
    fn all_of_most_things_and_any_of_two() {
        let none = Requirements::default;
        check(none(), none());
        check(
            Requirements { capabilities: list(&["shell.exec"]), env: list(&["HOME"]), ..none() },
            none(),
        );
        check(
            Requirements { env: list(&["HOME", "X"]), ..none() },
            Requirements { env: list(&["X"]), ..none() },
        );
        check(
            Requirements { bins: list(&["git", "docker", "unasked"]), ..none() },
            Requirements { bins: list(&["docker", "unasked"]), ..none() },
        );
        check(Requirements { any_bins: list(&["docker", "git"]), ..none() }, none());
        let neither = Requirements { any_bins: list(&["docker", "podman"]), ..none() };
        check(neither.clone(), neither);
        check(Requirements { os: list(&["linux", "macOS"]), ..none() }, none());
        let elsewhere = Requirements { os: list(&["linux", "windows"]), ..none() };
        check(elsewhere.clone(), elsewhere);
    }

    #[test]
    fn requirements_have_bounds() {
        let none = Requirements::default;
        assert!(none().check().is_ok());
        for wrong in [
            Requirements { bins: list(&["a/b"]), ..none() },
            Requirements { any_bins: list(&[".."]), ..none() },
            Requirements { env: list(&[""]), ..none() },
            Requirements { os: list(&["a\u{1b}"]), ..none() },
            Requirements { capabilities: vec!["a".repeat(129)], ..none() },
            Requirements { capabilities: vec!["a".into(); 65], ..none() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
