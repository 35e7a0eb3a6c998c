//! Rule: every exposed name is accepted by clients, is unique within each view, leads to the listed
//! tool, and is stable across reconnects. Lists have one order, whatever the page size.

mod support;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sa_core::directory::{Attach, Directory, Registration, Unresolved};
use sa_core::*;
use support::*;

#[derive(Debug, Clone)]
struct Offer {
    id: usize,
    scope: Scope,
    /// The provider's own name, and the preferred name.
    tools: Vec<(String, String)>,
    bare_names: bool,
}

fn scopes() -> impl Strategy<Value = Scope> {
    prop_oneof![
        3 => Just(Scope::Everyone),
        1 => (0..2_u8).prop_map(|n| Scope::Session(n.to_string().into())),
        1 => (0..2_u8).prop_map(|n| Scope::Channel(n.to_string().into())),
        1 => (0..2_u8).prop_map(|n| Scope::User(n.to_string().into())),
    ]
}

/// Few different names, so that they collide, and some that no client accepts.
fn offers() -> impl Strategy<Value = Vec<Offer>> {
    let name = prop_oneof![
        4 => "[ab]([._][ab]){0,2}",
        1 => "[ab]{70}",
        1 => "[aé \"/]{0,3}",
        1 => any::<String>(),
    ];
    let tools = prop::collection::vec((name.clone(), name), 0..6);
    let offer = (0..5_usize, scopes(), tools, any::<bool>())
        .prop_map(|(id, scope, tools, bare_names)| Offer { id, scope, tools, bare_names });
    prop::collection::vec(offer, 1..10)
}

fn catalog(offer: &Offer) -> Catalog {
    let tool = |(name, preferred_name): &(String, String)| Tool {
        preferred_name: preferred_name.clone(),
        ..Tool::named(name)
    };
    let tools = offer.tools.iter().map(tool).collect();
    Catalog { tools, bare_names: offer.bare_names, ..Catalog::default() }
}

fn enter(directory: &Arc<Directory>, offer: &Offer) -> Registration {
    let attach = Attach {
        scope: offer.scope.clone(),
        ..attach(&format!("n{}", offer.id), "g", catalog(offer), connection())
    };
    directory.attach(attach).unwrap()
}

/// Every combination that a view may have: at most one session, at most one user, any channels.
fn views() -> Vec<View> {
    let session = |n: &str| vec![Scope::Session(n.into())];
    let user = |n: &str| vec![Scope::User(n.into())];
    let channels = vec![Scope::Channel("0".into()), Scope::Channel("1".into())];
    let mut views = Vec::new();
    for session in [vec![], session("0"), session("1")] {
        for user in [vec![], user("0"), user("1")] {
            for channels in [vec![], channels.clone()] {
                views.push(View {
                    scopes: [session.clone(), user.clone(), channels].concat(),
                    ..view()
                });
            }
        }
    }
    views
}

fn list(directory: &Directory, view: &View, page: usize) -> Vec<(String, ProviderId, String)> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let part = directory.list(view, cursor.as_deref(), page, |_| true);
        assert!(part.tools.len() <= page);
        all.extend(
            part.tools
                .into_iter()
                .map(|t| (t.name.to_string(), t.provider, t.tool.name.to_string())),
        );
        cursor = part.next;
        if cursor.is_none() {
            return all;
        }
    }
}

/// The names of each tool, by its address.
fn exposed(directory: &Directory) -> BTreeMap<(ProviderId, Scope), Vec<Arc<str>>> {
    directory.members("node").into_iter().map(|m| ((m.id, m.scope), m.tools)).collect()
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn listed_names_are_valid_unique_and_resolve_to_their_tools(offers in offers(), page in 1..4_usize) {
        let directory = directory();
        let registrations: Vec<_> = offers.iter().map(|offer| enter(&directory, offer)).collect();
        for view in views() {
            let all = list(&directory, &view, usize::MAX);
            prop_assert_eq!(&all, &list(&directory, &view, page), "pages are parts of one list");
            let names: HashSet<_> = all.iter().map(|(name, ..)| name.clone()).collect();
            prop_assert_eq!(names.len(), all.len(), "unique");
            prop_assert!(all.is_sorted());
            for (name, provider, tool) in &all {
                prop_assert!(naming::is_exposable(name), "{name:?}");
                let route = directory.resolve(name, &view).unwrap();
                prop_assert_eq!(&route.id, provider);
                prop_assert_eq!(&*route.tool.name, tool);
                prop_assert_eq!(route.exposed.as_deref(), Some(name.as_str()));
            }
            // No tool is overwritten: every tool in the scopes of this view is listed under some
            // name.
            let mut offered = HashSet::new();
            for member in directory.members("node").iter().filter(|m| view.scopes().any(|s| *s == m.scope)) {
                let current = offers.iter().rev().find(|o| *member.id.id == format!("n{}", o.id)).unwrap();
                offered.extend(current.tools.iter().map(|(name, _)| (member.id.clone(), name.clone())));
            }
            let listed: HashSet<_> = all.into_iter().map(|(_, provider, tool)| (provider, tool)).collect();
            prop_assert_eq!(listed, offered);
        }
        drop(registrations);
    }

    #[test]
    fn names_stay_over_reconnects_in_any_order(offers in offers(), order in prop::collection::vec(0..5_usize, 0..8)) {
        let directory = directory();
        let mut current: BTreeMap<usize, (Registration, Offer)> = BTreeMap::new();
        for offer in offers {
            current.insert(offer.id, (enter(&directory, &offer), offer));
        }
        let sorted = |mut names: BTreeMap<(ProviderId, Scope), Vec<Arc<str>>>| {
            for names in names.values_mut() {
                names.sort();
            }
            names
        };
        let before = sorted(exposed(&directory));
        for id in order {
            let Some((registration, mut offer)) = current.remove(&id) else { continue };
            drop(registration);
            prop_assert_eq!(&sorted(exposed(&directory)), &before, "kept while away");
            let again = enter(&directory, &offer);
            prop_assert_eq!(&sorted(exposed(&directory)), &before, "kept when back");
            // Apart from duplicates, the order in a provider's list does not matter either.
            let mut seen = HashSet::new();
            offer.tools.retain(|(name, _)| seen.insert(name.clone()));
            offer.tools.reverse();
            again.publish(catalog(&offer));
            prop_assert_eq!(&sorted(exposed(&directory)), &before, "kept when published anew");
            current.insert(id, (again, offer));
        }
    }
}

#[track_caller]
fn names(directory: &Directory) -> Vec<String> {
    list(directory, &view(), 100).into_iter().map(|(name, ..)| name).collect()
}

#[test]
fn a_tool_listed_twice_is_one_tool() {
    let directory = directory();
    let _registration = directory
        .attach(attach("n", "g", tools(&["Bash", "Bash", "a.b", "a.b"]), connection()))
        .unwrap();
    assert_eq!(names(&directory), ["Bash", "a_b"]);
}

#[test]
fn a_tool_is_found_by_its_providers_id_with_dots() {
    let directory = directory();
    let named = |name: &str, preferred: &str| Catalog {
        tools: vec![Tool { preferred_name: preferred.into(), ..Tool::named(name) }],
        ..Catalog::default()
    };
    let below = Catalog { prefixes: vec!["my".into()], ..Catalog::default() };
    let _prefix = directory.attach(attach("older", "other", below, connection())).unwrap();
    let catalog = named("Bash", "my.laptop__Bash");
    let _node = directory.attach(attach("my.laptop", "g", catalog, connection())).unwrap();
    let reached =
        |name: &str| directory.resolve(name, &view()).ok().map(|route| route.id.id.to_string());
    for name in ["my.laptop__Bash", "my_laptop__Bash"] {
        assert_eq!(reached(name).as_deref(), Some("my.laptop"), "{name}");
        assert_eq!(
            directory.resolve(name, &view()).unwrap().exposed.as_deref(),
            Some("my_laptop__Bash"),
            "{name}"
        );
    }
    assert_eq!(reached("my.notes").as_deref(), Some("older"));
    assert_eq!(reached("my.laptop__Read").as_deref(), Some("older"), "the node has no such tool");
    // An installed provider keeps its names.
    let installed = Attach {
        grant: Grant::installed("mail"),
        ..attach("mail", "", tools(&["my.laptop__Bash"]), connection())
    };
    let _installed = directory.attach(installed).unwrap();
    assert_eq!(reached("my.laptop__Bash").as_deref(), Some("mail"));
}

#[test]
fn a_tool_is_found_by_its_providers_id_as_it_is_written() {
    for id in ["linux:host", "my.laptop", "büro", "a:b__c"] {
        let directory = directory();
        let written = format!("{id}__Bash");
        let catalog = Catalog {
            tools: vec![Tool { preferred_name: written.clone(), ..Tool::named("Bash") }],
            ..Catalog::default()
        };
        let node = directory.attach(attach(id, "g", catalog, connection())).unwrap();
        // Another host's tool has this name as its own. It does not get calls of it.
        let thief = Catalog { bare_names: true, ..tools(&[&written]) };
        let _thief = directory.attach(attach("thief", "h", thief, connection())).unwrap();
        let route = directory.resolve(&written, &view()).unwrap();
        assert_eq!((&*route.id.id, &*route.tool.name), (id, "Bash"));
        assert_eq!(route.exposed.as_deref(), Some(&*names(&directory)[0]), "{written}");
        drop(node);
        let offline = directory.resolve(&written, &view()).unwrap_err();
        assert!(matches!(offline, Unresolved::Offline { .. }), "{offline:?}");
    }
}

#[test]
fn a_narrow_scope_does_not_take_a_listed_name_by_its_own_name() {
    let directory = directory();
    let _host = directory.attach(attach("host", "g", tools(&["x"]), connection())).unwrap();
    let catalog = Catalog {
        tools: vec![Tool { preferred_name: "y".into(), ..Tool::named("x") }],
        bare_names: true,
        ..tools(&[])
    };
    let session = Scope::Session("s".into());
    let narrow = Attach { scope: session.clone(), ..attach("narrow", "g", catalog, connection()) };
    let _narrow = directory.attach(narrow).unwrap();
    let view = View { scopes: vec![session], ..view() };
    assert_eq!(&*directory.resolve("x", &view).unwrap().id.id, "host");
    assert_eq!(&*directory.resolve("y", &view).unwrap().id.id, "narrow");
}

#[test]
fn a_provider_that_has_listed_nothing_yet_gets_the_names_that_begin_with_its_id() {
    let directory = directory();
    let unlisted = Catalog { unlisted: true, ..Catalog::default() };
    let _host =
        directory.attach(attach("host", "g", tools(&["mail__read"]), connection())).unwrap();
    let mail = directory.attach(attach("mail", "g", unlisted, connection())).unwrap();
    let reached = |name: &str, view: &View| {
        directory.resolve(name, view).ok().map(|route| route.id.id.to_string())
    };
    assert_eq!(reached("mail__send", &view()).as_deref(), Some("mail"));
    assert_eq!(
        reached("mail__read", &view()).as_deref(),
        Some("host"),
        "what somebody lists goes first"
    );
    assert_eq!(reached("mails__send", &view()), None);
    assert_eq!(reached("mail", &view()), None);
    mail.publish(tools(&["mail__other"]));
    assert_eq!(reached("mail__send", &view()), None);
    let error = directory.resolve("nobody__has", &view()).unwrap_err().into_error("nobody__has");
    assert!(!error.hint.unwrap().contains("Bash"));
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_offline_for_long_is_forgotten() {
    let directory = directory();
    let registration = directory.attach(attach("n", "g", tools(&["x"]), connection())).unwrap();
    drop(registration);
    assert!(!directory.list(&view(), None, 10, |_| true).tools[0].online);
    tokio::time::advance(MEMORY.saturating_sub(Duration::from_secs(1))).await;
    directory.sweep();
    assert_eq!(names(&directory), ["x"]);
    tokio::time::advance(Duration::from_secs(1)).await;
    let mut changes = directory.subscribe();
    changes.borrow_and_update();
    directory.sweep();
    assert!(changes.has_changed().unwrap(), "and that is told");
    assert!(names(&directory).is_empty());
    assert!(directory.members("node").is_empty());
}
