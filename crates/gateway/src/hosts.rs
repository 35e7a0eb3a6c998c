//! Hosts and what is required of them: which of the connected machines can do a thing, and what the others lack.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use sa_core::directory::MemberView;
use sa_core::{ToolView, View};
use sa_nodes::{KIND, MAX_BINS, PROBE_PATIENCE, check_bins};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::time::Instant;

use crate::assemble::Gateway;

/// For how long a node's word on its programs is believed.
const BELIEVED: Duration = Duration::from_secs(60);
/// How many words each list of requirements may have, and how long one may be.
const MAX_WORDS: usize = MAX_BINS;
const MAX_WORD: usize = 128;

/// What a host must have. Each list that is not empty counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Requirements {
    /// All of these, such as `shell.exec`.
    #[serde(deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Words>)]
    pub capabilities: Vec<String>,
    /// All of these programs.
    #[serde(deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Words>)]
    pub bins: Vec<String>,
    /// At least one of these programs.
    #[serde(alias = "anyBins", deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Words>)]
    pub any_bins: Vec<String>,
    /// All of these keys in its environment.
    #[serde(deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Words>)]
    pub env: Vec<String>,
    /// One of these systems, such as `linux` or `darwin`.
    #[serde(deserialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Words>)]
    pub os: Vec<String>,
}

/// The two forms that [`words`] reads, for the OpenAPI document.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what `words` reads")]
pub(crate) enum Words {
    List(Vec<String>),
    /// A list of one.
    One(String),
}

/// A list, or one word for a list of one.
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

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
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
    /// What is wrong with them, if anything is.
    pub fn check(&self) -> Result<(), String> {
        let lists = [
            ("capabilities", &self.capabilities),
            ("bins", &self.bins),
            ("any_bins", &self.any_bins),
            ("env", &self.env),
            ("os", &self.os),
        ];
        for (name, list) in lists {
            if list.len() > MAX_WORDS {
                return Err(format!("{name} has {} words; at most {MAX_WORDS} are looked at", list.len()));
            }
            if list.iter().any(|word| word.is_empty() || word.len() > MAX_WORD || word.contains(char::is_control)) {
                return Err(format!("{name} holds a word that is empty, longer than {MAX_WORD} bytes, or unprintable"));
            }
        }
        for (name, bins) in [("bins", &self.bins), ("any_bins", &self.any_bins)] {
            if !bins.is_empty() {
                check_bins(bins).map_err(|error| format!("{name}: {error}"))?;
            }
        }
        Ok(())
    }

    /// The programs that have to be asked about.
    pub fn programs(&self) -> impl Iterator<Item = &String> {
        self.bins.iter().chain(&self.any_bins)
    }
}

/// What a node says of its machine, as the directory keeps it.
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
            // Who has a host's tools, and says nothing of a role, is one that runs them.
            _ => member.host.then_some("execution"),
        };
        Self { role, os: said.os, env: said.env }
    }
}

/// What is known of one host when a question is asked.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) node: String,
    pub(crate) online: bool,
    pub(crate) primary: bool,
    pub(crate) role: Option<&'static str>,
    /// Why its programs are not known.
    pub(crate) problem: Option<String>,
    os: Option<String>,
    env: BTreeSet<String>,
    capabilities: BTreeSet<String>,
    bins: BTreeMap<String, bool>,
}

/// Every host that a view can see. Its capabilities are those of the tools that the view's principal may use; its programs
/// are asked for where they are not known, of all hosts at once, so that one that is silent costs no more than any.
pub(crate) async fn facts(gateway: &Gateway, view: &View, bins: BTreeSet<String>) -> Vec<Facts> {
    let policy = gateway.router.policy();
    let allowed = |tool: &ToolView| policy.allows(&view.principal, tool);
    let directory = gateway.router.directory();
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
        // Whoever may use only some tools is not told of the hosts of others.
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
            facts.look_for(gateway, bins).await;
            facts
        }
    }))
    .await
}

impl Facts {
    /// Finds out which of these programs the host has.
    async fn look_for(&mut self, gateway: &Gateway, bins: &[String]) {
        if bins.is_empty() {
            return;
        }
        if !self.online {
            self.problem = Some("it is not connected".to_owned());
            return;
        }
        let Some(host) = gateway.nodes.host(&self.node) else { return };
        let since = Instant::now().checked_sub(BELIEVED);
        let look = async {
            for some in bins.chunks(MAX_BINS) {
                self.bins.extend(host.probe(some, since).await?);
            }
            Ok::<_, sa_nodes::ProbeError>(())
        };
        let found = tokio::time::timeout(PROBE_PATIENCE, look).await;
        self.problem = match found {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(sa_nodes::ProbeError::Timeout.to_string()),
        };
    }

    /// What of this the host lacks: nothing, when it qualifies. What is not known counts as lacking.
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

/// A system by the name that hosts use, from one that people use.
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
        check(Requirements { capabilities: list(&["shell.exec"]), env: list(&["HOME"]), ..none() }, none());
        check(Requirements { env: list(&["HOME", "X"]), ..none() }, Requirements { env: list(&["X"]), ..none() });
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
