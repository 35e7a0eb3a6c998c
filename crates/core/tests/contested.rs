//! Rule: if two tools claim a plain name, the better rank holds it, and at equal rank the older
//! claim, until it is forgotten. The other tool is listed under its suffixed name, which always
//! leads to it. Below a prefix of another grant it is not listed at all.

mod support;

use std::sync::Arc;

use sa_core::directory::{Attach, AttachError, Directory, Registration, Unresolved};
use sa_core::*;
use support::*;

/// Attaches a provider with one tool and the prefix above it. An empty grant means no token.
fn add(directory: &Arc<Directory>, id: &str, grant: &str, tool: &str) -> Registration {
    let catalog = Catalog { prefixes: vec!["office".into()], ..tools(&[tool]) };
    directory.attach(attach(id, grant, catalog, connection())).unwrap()
}

/// Does the same without the prefix.
fn add_tool(directory: &Arc<Directory>, id: &str, grant: &str, tool: &str) -> Registration {
    directory.attach(attach(id, grant, tools(&[tool]), connection())).unwrap()
}

/// Returns the listed names and their providers, with offline ones in parentheses.
fn listed(directory: &Directory) -> Vec<(String, String)> {
    let page = directory.list(&view(), None, 100, |_| true);
    let with_state =
        |id: &str, online: bool| if online { id.to_owned() } else { format!("({id})") };
    page.tools
        .iter()
        .map(|tool| (tool.name.to_string(), with_state(&tool.provider.id, tool.online)))
        .collect()
}

/// Returns the name under which a provider's tool is shown.
fn name_of(directory: &Directory, id: &str) -> String {
    directory.exposed_name(&ProviderId::new("node", id), "office.greet").unwrap().to_string()
}

#[track_caller]
fn serves(directory: &Directory, name: &str, expected: &str) {
    assert_eq!(
        directory.resolve(name, &view()).map(|route| route.id.id.to_string()),
        Ok(expected.to_owned())
    );
}

fn hint(directory: &Directory, name: &str) -> String {
    directory.resolve(name, &view()).unwrap_err().into_error(name).hint.unwrap().into_owned()
}

#[test]
fn a_token_takes_the_name_of_a_provider_without_one() {
    let directory = directory();
    // The result is the same whether that provider is online or offline.
    for here in [false, true] {
        let first = add(&directory, "py-01", "", "office.greet");
        let first = here.then_some(first);
        let second = add(&directory, "py-02", "g", "office.greet");
        assert_eq!(listed(&directory), [("office_greet".into(), "py-02".into())]);
        serves(&directory, "office_greet", "py-02");
        serves(&directory, "office.greet", "py-02");
        drop(first);
        second.withdraw();
        assert_eq!(name_of(&directory, "py-01"), "office_greet", "and gives it back");
        add(&directory, "py-01", "", "office.greet").withdraw();
    }
}

#[test]
fn another_grant_is_listed_with_a_suffix() {
    for (first, second) in [("g", "h"), ("g", ""), ("", "h")] {
        let directory = directory();
        let (one, two) = (
            add_tool(&directory, "one", first, "office.greet"),
            add_tool(&directory, "two", second, "office.greet"),
        );
        let (holder, other) = if first.is_empty() { ("two", "one") } else { ("one", "two") };
        let suffixed = name_of(&directory, other);
        assert_eq!(
            listed(&directory),
            [("office_greet".into(), holder.into()), (suffixed.clone(), other.into())]
        );
        for (name, expected) in
            [("office_greet", holder), ("office.greet", holder), (&suffixed, other)]
        {
            serves(&directory, name, expected);
        }
        // An offline holder keeps its name.
        drop(if holder == "one" { one } else { two });
        for name in ["office_greet", "office.greet"] {
            assert!(
                matches!(directory.resolve(name, &view()), Err(Unresolved::Offline { .. })),
                "{name}"
            );
            let hint = hint(&directory, name);
            assert!(hint.contains(&format!("or call {suffixed}")), "{hint}");
        }
    }
}

#[test]
fn the_oldest_provider_of_the_grant_that_is_online_stands_in() {
    let directory = directory();
    let first = add(&directory, "py-01", "g", "office.greet");
    let second = add(&directory, "py-02", "g", "office.greet");
    let suffixed = name_of(&directory, "py-02");
    serves(&directory, "office_greet", "py-01");
    drop(first);
    for name in ["office_greet", "office.greet", &suffixed] {
        serves(&directory, name, "py-02");
        assert_eq!(directory.resolve(name, &view()).unwrap().exposed.as_deref(), Some(&*suffixed));
    }
    let names = [("office_greet".into(), "(py-01)".into()), (suffixed.clone(), "py-02".into())];
    assert_eq!(listed(&directory), names);
    // A suffixed name leads to one tool only.
    let first_suffixed =
        Tool::named("office.greet").all_names(&ProviderId::new("node", "py-01"))[1].clone();
    assert!(matches!(directory.resolve(&first_suffixed, &view()), Err(Unresolved::Offline { .. })));
    // Reconnecting changes no names.
    drop(second);
    let _second = add(&directory, "py-02", "g", "office.greet");
    assert_eq!(name_of(&directory, "py-02"), suffixed);
    let first = add(&directory, "py-01", "g", "office.greet");
    serves(&directory, "office_greet", "py-01");
    // After the first provider is forgotten, the second holds the name, and serves both.
    first.withdraw();
    assert_eq!(listed(&directory), [("office_greet".into(), "py-02".into())]);
    serves(&directory, "office_greet", "py-02");
    serves(&directory, &suffixed, "py-02");
    // A call by the suffixed name is recorded under the name in lists.
    assert_eq!(
        directory.resolve(&suffixed, &view()).unwrap().exposed.as_deref(),
        Some("office_greet")
    );
}

/// Rank comes first. Otherwise a node without a token could list `Bash`, and get the calls for a
/// host.
#[test]
fn a_bare_name_takes_a_listed_name_of_a_worse_rank_only() {
    for (rank, bare) in [("", "g"), ("g", "h"), ("g", "")] {
        for host_first in [false, true] {
            let directory = directory();
            let bash = Tool { preferred_name: "host__Bash".into(), ..Tool::named("Bash") };
            let host = Catalog { tools: vec![bash], bare_names: true, ..tools(&[]) };
            let host = || directory.attach(attach("host", bare, host.clone(), connection()));
            let first = host_first.then(&host);
            let _node = add_tool(&directory, "node", rank, "Bash");
            let _host = first.unwrap_or_else(host).unwrap();
            serves(&directory, "Bash", if rank.is_empty() { "host" } else { "node" });
            let listed = listed(&directory);
            let other = listed.iter().find(|(_, provider)| provider == "node").unwrap();
            assert_eq!(other.0 == "Bash", !rank.is_empty(), "{listed:?}");
            serves(&directory, &other.0, "node");
        }
    }
}

#[test]
fn a_provider_that_does_not_describe_the_tool_stands_in_under_the_tools_own_name() {
    let directory = directory();
    let described = add(&directory, "py-01", "g", "office.greet");
    let _open =
        directory.attach(attach("py-02", "g", prefixes(&["office.greet"]), connection())).unwrap();
    drop(described);
    for token in ["office_greet", "office.greet"] {
        let tools = vec![Pattern::new(token)];
        let limited = View::of(Arc::new(Principal { tools, ..(*principal()).clone() }));
        for name in ["office_greet", "office.greet"] {
            let route = directory.resolve(name, &limited).unwrap();
            assert_eq!((&*route.id.id, &*route.tool.name), ("py-02", "office.greet"), "{name}");
            assert!(
                Policy::default().shows(&limited.principal, &route.scope, &route.leading),
                "{token} includes {name}: {:?}",
                route.leading
            );
        }
    }
}

/// A rule for the listed name would not apply to a tool without a description.
#[test]
fn no_provider_without_a_description_stands_in_for_a_listed_name() {
    let directory = directory();
    let tool = Tool { preferred_name: "hello".into(), ..Tool::named("office.greet") };
    let catalog = Catalog { tools: vec![tool], ..Catalog::default() };
    drop(directory.attach(attach("py-01", "g", catalog, connection())).unwrap());
    let _open =
        directory.attach(attach("py-02", "g", prefixes(&["office.greet"]), connection())).unwrap();
    assert!(directory.resolve("hello", &view()).is_err());
    serves(&directory, "office.greet", "py-02");
}

#[tokio::test(start_paused = true)]
async fn another_grant_waits_until_the_holder_is_forgotten() {
    let directory = directory();
    drop(add(&directory, "py-01", "g", "office.greet"));
    let second = add(&directory, "py-02", "h", "office.greet");
    assert_eq!(
        listed(&directory),
        [("office_greet".into(), "(py-01)".into())],
        "it holds the prefix, too"
    );
    for name in ["office_greet", "office.greet"] {
        let hint = hint(&directory, name);
        assert!(hint.contains("\"py-02\" also offers it, but with another token"), "{hint}");
    }
    let suffixed = name_of(&directory, "py-02");
    assert_ne!(suffixed, "office_greet");
    assert!(directory.resolve(&suffixed, &view()).is_err());
    drop(second);
    let _second = add(&directory, "py-02", "h", "office.greet");
    assert!(directory.resolve("office_greet", &view()).is_err(), "not by coming again, either");
    drop(add(&directory, "py-01", "g", "office.greet"));
    tokio::time::advance(MEMORY).await;
    directory.sweep();
    assert_eq!(listed(&directory), [("office_greet".into(), "py-02".into())], "at once");
    serves(&directory, "office_greet", "py-02");
    serves(&directory, &suffixed, "py-02");
    let _third = add(&directory, "py-03", "h", "office.greet");
    serves(&directory, "office_greet", "py-02");
}

#[test]
fn a_revoked_grant_holds_nothing() {
    let directory = directory();
    drop(add(&directory, "py-01", "g", "office.greet"));
    let _second = add(&directory, "py-02", "h", "office.greet");
    directory.forget_grant(&Grant::token("h"));
    assert!(
        directory.resolve("office_greet", &view()).is_err(),
        "online providers leave by themselves"
    );
    directory.forget_grant(&Grant::token("g"));
    serves(&directory, "office_greet", "py-02");
    assert_eq!(directory.members("node").len(), 1);
}

#[test]
fn a_later_claim_of_an_older_provider_takes_nothing() {
    let directory = directory();
    let old = add_tool(&directory, "old", "g", "home.light");
    let _young = add_tool(&directory, "young", "h", "office.greet");
    old.publish(tools(&["home.light", "office.greet"]));
    serves(&directory, "office_greet", "young");
    serves(&directory, "office.greet", "young");
}

#[test]
fn a_tool_that_merely_looks_alike_does_not_stand_in() {
    let directory = directory();
    // Two tools with the same plain name.
    drop(add_tool(&directory, "a", "g", "office.greet_all"));
    let _b = add_tool(&directory, "b", "g", "office_greet.all");
    assert_eq!(listed(&directory)[0], ("office_greet_all".into(), "(a)".into()));
    let other = directory.exposed_name(&ProviderId::new("node", "b"), "office_greet.all").unwrap();
    let hint = hint(&directory, "office_greet_all");
    assert!(hint.contains(&format!("or call {other}")), "{hint}");
    // A principal that may use some tools only does not learn of others.
    let limited =
        Principal { tools: vec![Pattern::new("office_greet_all")], ..(*principal()).clone() };
    let error = directory.resolve("office_greet_all", &View::of(Arc::new(limited))).unwrap_err();
    assert!(!error.into_error("office_greet_all").hint.unwrap().contains(&*other));

    // A preferred name with the provider's id leads to that provider only.
    let of = |server: &str| Tool {
        preferred_name: format!("{server}__files.read"),
        ..Tool::named("files.read")
    };
    let one = Catalog { tools: vec![of("one")], ..Catalog::default() };
    let two = Catalog { tools: vec![of("two")], ..Catalog::default() };
    drop(directory.attach(attach("one", "u", one, connection())).unwrap());
    let _two = directory.attach(attach("two", "u", two, connection())).unwrap();
    assert!(matches!(
        directory.resolve("one__files_read", &view()),
        Err(Unresolved::Offline { .. })
    ));
}

#[test]
fn a_name_that_gets_no_calls_is_not_suggested() {
    let directory = directory();
    let _first =
        directory.attach(attach("py-01", "", tools(&["office.greet"]), connection())).unwrap();
    // It holds the prefix, but has no such tool.
    let _second =
        directory.attach(attach("py-02", "g", prefixes(&["office"]), connection())).unwrap();
    serves(&directory, "office_greet", "py-02");
    for name in ["offise_greet", "officegreet"] {
        let Err(Unresolved::Unknown { similar, .. }) = directory.resolve(name, &view()) else {
            panic!("{name}")
        };
        assert!(similar.is_empty(), "{similar:?}");
    }
}

#[test]
fn the_operator_sees_which_names_are_contested() {
    let directory = directory();
    let _first = add(&directory, "py-01", "g", "office.greet");
    let _second = add(&directory, "py-02", "g", "office.greet");
    let _blocked = add(&directory, "py-03", "h", "office.greet");
    let members = directory.members("node");
    assert_eq!(members.iter().map(|member| member.renamed.len()).collect::<Vec<_>>(), [0, 1, 0]);
    let renamed = &members[1].renamed[0];
    assert_eq!((&*renamed.wanted, &*renamed.held_by.id), ("office_greet", "py-01"));
    assert_eq!(&*renamed.name, name_of(&directory, "py-02"));
    assert_eq!(directory.renamed().len(), 1);
    let mut blocked = members[2].blocked.clone();
    blocked.sort();
    let first = ProviderId::new("node", "py-01");
    assert_eq!(blocked, [("office".into(), first.clone()), ("office.greet".into(), first)]);
    assert!(members[0].blocked.is_empty() && members[1].blocked.is_empty());
}

#[test]
fn a_rule_about_any_name_is_about_the_tool() {
    let directory = directory();
    let first = add(&directory, "py-01", "g", "office.greet");
    let _second = add(&directory, "py-02", "g", "office.greet");
    let suffixed = name_of(&directory, "py-02");
    first.withdraw();
    let page = directory.list(&view(), None, 10, |_| true);
    assert_eq!(&*page.tools[0].name, "office_greet");
    let may =
        |deny: &str| Policy { deny: vec![Pattern::new(deny)] }.allows(&principal(), &page.tools[0]);
    assert_eq!(
        ["office_greet", &suffixed, "office.greet", "office"].map(may),
        [false, false, false, true]
    );
}

#[test]
fn a_token_for_an_id_takes_it_over_with_its_names() {
    let directory = directory();
    let _first = add(&directory, "py-01", "g", "office.greet");
    let _waiting = add(&directory, "py-02", "h", "office.greet");
    let rotated = Catalog { prefixes: vec!["office".into()], ..tools(&["office.greet"]) };
    let rotated = Attach { may_take_over: true, ..attach("py-01", "i", rotated, connection()) };
    let _first = directory.attach(rotated).unwrap();
    serves(&directory, "office.greet", "py-01");
    serves(&directory, "office_greet", "py-01");
}

#[test]
fn an_id_without_a_token_hands_no_names_on() {
    let directory = directory();
    let _first = add(&directory, "py-01", "", "office.greet");
    let _waiting = add(&directory, "py-02", "h", "office.greet");
    let taken = Attach {
        may_take_over: true,
        ..attach("py-01", "i", tools(&["office.greet"]), connection())
    };
    let _first = directory.attach(taken).unwrap();
    serves(&directory, "office.greet", "py-02");
    serves(&directory, "office_greet", "py-02");
}

#[test]
fn a_name_is_free_once_its_prefix_is() {
    // The holder of the prefix is removed, stops offering the prefix, or offers it in another
    // scope.
    type End = fn(Registration, &Arc<Directory>) -> Option<Registration>;
    let elsewhere: End = |_, directory| {
        let session = Scope::Session("s".into());
        let holder =
            Attach { scope: session, ..attach("holder", "g", prefixes(&["office"]), connection()) };
        directory.attach(holder).ok()
    };
    let ends: [End; 3] = [
        |holder, _| {
            holder.withdraw();
            None
        },
        |holder, _| {
            holder.publish(prefixes(&["home"]));
            Some(holder)
        },
        elsewhere,
    ];
    for end in ends {
        let directory = directory();
        let holder =
            directory.attach(attach("holder", "g", prefixes(&["office"]), connection())).unwrap();
        let _open =
            directory.attach(attach("open", "", tools(&["office.greet"]), connection())).unwrap();
        let _waiting = directory
            .attach(attach("waiting", "h", tools(&["office.greet"]), connection()))
            .unwrap();
        assert_eq!(listed(&directory), []);
        let _holder = end(holder, &directory);
        assert_eq!(listed(&directory)[0], ("office_greet".into(), "waiting".into()));
        assert_eq!(listed(&directory)[1], (name_of(&directory, "open"), "open".into()));
    }
}

#[test]
fn a_disabled_provider_keeps_its_id() {
    let directory = directory();
    let id = ProviderId::new("plugin", "mail");
    let before = add_tool(&directory, "mail", "", "send");
    let reserved = directory.reserve(id.clone(), Grant::installed("plugin")).unwrap();
    assert!(before.replaced().is_cancelled(), "the operator's id goes first");
    for grant in ["", "g"] {
        let refused =
            directory.attach(attach("mail", grant, tools(&["send"]), connection())).unwrap_err();
        assert_eq!(refused, AttachError::HeldByAnother(id.clone()));
        let other = add_tool(&directory, "other", grant, "mail__send");
        assert_eq!(listed(&directory), [], "names that begin with the id are reserved as well");
        other.withdraw();
    }
    // For any duration of the disabling.
    directory.sweep();
    assert!(directory.attach(attach("mail", "g", tools(&["send"]), connection())).is_err());
    assert_eq!(directory.online("plugin"), 0);
    let enabled = Attach {
        id,
        grant: Grant::installed("plugin"),
        ..attach("", "", tools(&["send"]), connection())
    };
    let enabled = directory.attach(Attach { may_take_over: true, ..enabled }).unwrap();
    reserved.withdraw();
    assert_eq!(listed(&directory), [("send".into(), "mail".into())]);
    enabled.withdraw();
    assert!(
        directory.attach(attach("mail", "", tools(&["send"]), connection())).is_ok(),
        "a removed one leaves its id"
    );
}
