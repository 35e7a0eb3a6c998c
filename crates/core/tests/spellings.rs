//! Rule: policy and tokens cover every spelling that leads to a tool, whatever spelling their
//! patterns use. Case differences count for tokens only.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use sa_core::directory::{Attach, Directory, Registration, Unresolved};
use sa_core::*;
use support::*;

#[derive(Debug, Clone)]
struct Offered {
    id: String,
    grant: Grant,
    tools: Vec<String>,
    prefixes: Vec<String>,
    bare_names: bool,
    short: bool,
    /// A tool that is offered under another preferred name.
    odd: Option<(String, String)>,
    unlisted: bool,
    online: bool,
}

impl Offered {
    fn provider(&self) -> ProviderId {
        let kind = if self.grant.rank == Rank::Installed { "upstream" } else { "node" };
        ProviderId::new(kind, &self.id)
    }

    fn tools(&self) -> Vec<Tool> {
        let preferred = |own: &str| {
            if own.contains('.') { own.to_owned() } else { format!("{}__{own}", self.id) }
        };
        let usual = self.tools.iter().map(|own| (own.clone(), preferred(own)));
        let tool = |(own, preferred_name): (String, String)| Tool {
            preferred_name,
            short: self.short.then(|| "a".into()),
            ..Tool::named(&own)
        };
        usual.chain(self.odd.clone()).map(tool).collect()
    }

    fn attach(&self, directory: &Arc<Directory>) -> Option<Registration> {
        let open =
            self.prefixes.iter().filter(|prefix| prefix.len() % 2 == 0 && prefix.contains('.'));
        let open = open.map(|prefix| Tool::open(prefix, String::new()));
        let catalog = Catalog {
            tools: self.tools().into_iter().chain(open).collect(),
            prefixes: self.prefixes.clone(),
            bare_names: self.bare_names,
            unlisted: self.unlisted,
            ..Catalog::default()
        };
        let attach = Attach {
            id: self.provider(),
            grant: self.grant.clone(),
            ..attach("", "", catalog, connection())
        };
        directory.attach(attach).ok()
    }

    /// Returns names that may lead to its tools.
    fn spellings(&self) -> Vec<String> {
        let tools = self.tools();
        let own = tools.iter().flat_map(|tool| {
            let written = format!("{}__{}", self.id, tool.name);
            let plain = tool.name.replace(['.', ':'], "_");
            tool.all_names(&self.provider()).into_iter().chain([written, plain])
        });
        let long = format!("_{}", "x".repeat(70));
        let ends = [".x", "_x", ".X", "_X", ".a_b", "_a_b", ".é", "_é", "_x__y", "__x", "", &long];
        let prefixes = self.prefixes.iter();
        let prefixes = prefixes.flat_map(|prefix| [prefix.clone(), prefix.replace('.', "_")]);
        let below = prefixes.flat_map(|prefix| ends.map(|end| format!("{prefix}{end}")));
        own.chain(below).chain([format!("{}__x", self.id)]).collect()
    }
}

fn offered() -> impl Strategy<Value = Offered> {
    let id = prop_oneof![Just("p"), Just("a.b"), Just("a:b"), Just("a_b"), Just("a.b__a")];
    let grant = prop_oneof![
        1 => Just(Grant::installed("u")),
        3 => Just(Grant::token("g")),
        1 => Just(Grant::token("h")),
        1 => Just(Grant::none()),
    ];
    let name = || {
        prop_oneof![
            6 => "[ab]([._][ab]){0,2}",
            1 => "c",
            1 => "a[.]b__[ab]([.][ab])?",
            1 => "[ab]([.:][é/]){1,2}",
            1 => "[ab][.]b{70}",
        ]
    };
    let tools = prop::collection::vec(name(), 0..3);
    let prefixes = prop::collection::vec("[ab]([._][ab]){0,2}", 0..3);
    let odd = prop::option::weighted(0.2, (name(), name()));
    (
        id,
        grant,
        tools,
        prefixes,
        odd,
        any::<[bool; 2]>(),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.8),
    )
        .prop_map(
            |(id, grant, tools, prefixes, odd, [bare_names, short], unlisted, online)| {
                let id = id.to_owned();
                Offered { id, grant, tools, prefixes, bare_names, short, odd, unlisted, online }
            },
        )
}

/// Returns whether a name differs from the provider's own name in its case.
fn has_other_case(name: &str) -> bool {
    name.contains('X')
}

/// What a name leads to.
#[derive(Debug)]
struct Led {
    leading: Vec<Arc<str>>,
    all: Vec<String>,
}

/// Returns the names that lead to each tool.
fn by_tool(
    directory: &Directory,
    offered: &[Offered],
    view: &View,
) -> BTreeMap<(ProviderId, String), BTreeMap<String, Led>> {
    let mut found: BTreeMap<_, BTreeMap<String, Led>> = BTreeMap::new();
    for name in offered.iter().flat_map(Offered::spellings).collect::<BTreeSet<_>>() {
        let (tool, led) = match directory.resolve(&name, view) {
            Ok(route) => {
                let all = route.tool.all_names(&route.id);
                // Nodes ignore case in dotted names.
                let dotted = route.tool.name.contains('.');
                let own = if dotted {
                    route.tool.name.to_lowercase()
                } else {
                    route.tool.name.to_string()
                };
                ((route.id, own), Led { leading: route.leading, all })
            }
            Err(Unresolved::Offline { absence, leading, all_names, address, .. }) => {
                ((absence.provider, address), Led { leading, all: all_names })
            }
            Err(Unresolved::Unknown { .. }) => continue,
        };
        found.entry(tool).or_default().insert(name, led);
    }
    found
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn patterns_cover_every_spelling_that_leads_to_a_tool(offered in prop::collection::vec(offered(), 1..4)) {
        let directory = directory();
        let registrations: Vec<_> = offered.iter().map(|one| one.attach(&directory).filter(|_| one.online)).collect();
        let limited = Principal { tools: vec![Pattern::new("*")], ..(*principal()).clone() };
        let limited = View::of(Arc::new(limited));
        let listed = directory.list(&limited, None, 1_000, |_| true).tools;
        for ((provider, own), names) in by_tool(&directory, &offered, &limited) {
            for (name, led) in &names {
                for rule in names.keys() {
                    let policy = Policy { deny: vec![Pattern::new(rule)] };
                    let denied = policy.authorise(&principal(), &Scope::Everyone, name, &[], || led.all.clone());
                    prop_assert!(denied.is_err(), "{} denies {} of {}, which is {:?}", rule, name, provider, led.all);
                }
                for rule in names.keys().filter(|rule| !has_other_case(rule) && !has_other_case(name)) {
                    prop_assert!(led.leading.iter().any(|leading| **leading == **rule), "{} includes {} of {}: {:?}", rule, name, provider, led.leading);
                }
            }
            for tool in listed.iter().filter(|tool| tool.provider == provider && *tool.tool.name == *own) {
                for name in names.keys().filter(|name| !has_other_case(name)) {
                    prop_assert!(tool.leading.iter().any(|leading| **leading == **name), "{} is listed for {}: {:?}", tool.name, name, tool.leading);
                }
            }
        }
        drop(registrations);
    }
}
