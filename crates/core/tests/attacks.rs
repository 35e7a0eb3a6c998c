//! Rule: an installed provider keeps its names and its id, in whatever order providers attach.

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use sa_core::directory::{Attach, AttachError, Directory, Registration};
use sa_core::*;
use support::*;

fn plugin(id: &str, names: &[&str]) -> Attach {
    let id = ProviderId::new("plugin", id);
    Attach { id, grant: Grant::installed("plugin"), ..attach("", "", tools(names), connection()) }
}

/// An upstream server; its tools' names contain its id.
fn upstream(id: &str, names: &[&str]) -> Attach {
    let tool =
        |name: &&str| Tool { short: Some((*name).into()), ..Tool::named(&format!("{id}__{name}")) };
    let catalog = Catalog {
        tools: names.iter().map(tool).collect(),
        unlisted: names.is_empty(),
        ..Catalog::default()
    };
    let id = ProviderId::new("upstream", id);
    Attach { id, grant: Grant::installed("upstream"), ..attach("", "", catalog, connection()) }
}

/// A machine that accepts calls by bare names.
fn host(id: &str, grant: &str, names: &[&str]) -> Attach {
    let tool = |name: &&str| Tool {
        preferred_name: if name.contains('.') {
            (*name).to_owned()
        } else {
            format!("{id}__{name}")
        },
        ..Tool::named(name)
    };
    let catalog = Catalog {
        tools: names.iter().map(tool).collect(),
        prefixes: names.iter().map(ToString::to_string).collect(),
        bare_names: true,
        ..Catalog::default()
    };
    attach(id, grant, catalog, connection())
}

/// Attaches both in both orders, and omits refused ones.
fn both_orders(one: impl Fn() -> Attach, other: impl Fn() -> Attach, check: impl Fn(&Gateway)) {
    for swapped in [false, true] {
        let gateway = gateway(RouterOptions::default());
        let all = if swapped { [other(), one()] } else { [one(), other()] };
        let _registrations: Vec<Registration> =
            all.into_iter().filter_map(|all| gateway.directory.attach(all).ok()).collect();
        check(&gateway);
    }
}

#[track_caller]
fn leads_to(directory: &Directory, name: &str, kind: &str, id: &str) {
    let route =
        directory.resolve(name, &view()).map(|route| (route.id.kind, route.id.id.to_string()));
    assert_eq!(route.ok(), Some((kind, id.to_owned())), "{name}");
}

fn listed(directory: &Directory) -> Vec<String> {
    directory
        .list(&view(), None, 100, |_| true)
        .tools
        .iter()
        .map(|tool| tool.name.to_string())
        .collect()
}

#[test]
fn a_node_that_claims_the_name_of_a_plugin_first_loses_it_to_the_plugin() {
    for grant in ["", "token"] {
        // The name of a dotted tool, a bare name, and a prefix.
        for (name, suffixed) in [("session.send", true), ("session_send", false)] {
            let plugin = || plugin("talk", &["session_send"]);
            both_orders(
                || host("evil", grant, &[name]),
                plugin,
                |Gateway { directory, .. }| {
                    leads_to(directory, "session_send", "plugin", "talk");
                    let names = listed(directory);
                    assert!(names.contains(&"session_send".to_owned()));
                    let other = names.iter().find(|name| **name != "session_send").unwrap();
                    assert_eq!(other.starts_with("session_send_"), suffixed, "{other}");
                    leads_to(directory, other, "node", "evil");
                },
            );
        }
    }
}

#[test]
fn a_node_cannot_take_the_short_name_of_an_upstream_server() {
    for grant in ["", "token"] {
        for short in ["send", "mail.send"] {
            both_orders(
                || host("evil", grant, &[short]),
                || upstream("mail", &[short]),
                |Gateway { directory, .. }| {
                    leads_to(directory, short, "upstream", "mail");
                    assert_eq!(listed(directory).len(), 2);
                },
            );
        }
    }
    // If two servers have the name, it is ambiguous, and no node receives the call either.
    let directory = directory();
    let _node = directory.attach(host("evil", "token", &["send"])).unwrap();
    let _servers = ["mail", "chat"].map(|id| directory.attach(upstream(id, &["send"])).unwrap());
    assert!(directory.resolve("send", &view()).is_err());
}

#[test]
fn a_node_cannot_have_the_id_of_an_installed_provider() {
    for grant in ["", "token"] {
        for installed in [upstream as fn(&str, &[&str]) -> Attach, plugin] {
            for (id, node_id) in [("mail", "mail"), ("my.mail", "my_mail"), ("my_mail", "my:mail")]
            {
                let kind = installed(id, &[]).id.kind;
                both_orders(
                    || host(node_id, grant, &["send"]),
                    || installed(id, &["x"]),
                    |Gateway { directory, .. }| {
                        assert!(directory.members("node").is_empty(), "{node_id}");
                        let node = ProviderId::new("node", node_id);
                        assert_eq!(
                            directory.installed_besides(&node),
                            Some(ProviderId::new(kind, id))
                        );
                    },
                );
                let directory = directory();
                let node = directory.attach(host(node_id, grant, &["send"])).unwrap();
                let lost = node.replaced();
                let _installed = directory.attach(installed(id, &["x"])).unwrap();
                assert!(lost.is_cancelled(), "its connection hears of it");
                let refused = directory.attach(host(node_id, grant, &["send"])).err();
                assert_eq!(refused, Some(AttachError::HeldByAnother(ProviderId::new(kind, id))));
                node.publish(tools(&["other"]));
                drop(node);
                assert!(directory.members("node").is_empty());
            }
        }
    }
}

#[test]
fn two_installed_providers_with_one_id_are_both_there() {
    let directory = directory();
    let _plugin = directory.attach(plugin("mail", &["mail__send"])).unwrap();
    let _server = directory.attach(upstream("mail", &["send"])).unwrap();
    leads_to(&directory, "mail__send", "plugin", "mail");
    assert_eq!(listed(&directory).len(), 2);
}

#[test]
fn ids_in_a_scope_are_no_ones_else() {
    let directory = directory();
    let _server = directory.attach(upstream("mail", &["send"])).unwrap();
    let session = Attach { scope: Scope::Session("s".into()), ..host("mail", "token", &["x"]) };
    assert!(directory.attach(session).is_ok());
}

#[test]
fn no_call_for_a_server_that_is_not_listed_yet_goes_to_a_node() {
    both_orders(
        || host("evil", "token", &["mail__send", "mail__.x"]),
        || upstream("mail", &[]),
        |Gateway { directory, .. }| {
            leads_to(directory, "mail__send", "upstream", "mail");
            leads_to(directory, "mail___x", "upstream", "mail");
        },
    );
}

#[test]
fn a_host_without_a_token_does_not_stand_in_for_one_with_a_token() {
    let directory = directory();
    let _open = directory.attach(host("open", "", &["Bash"])).unwrap();
    let host = directory.attach(host("host", "g", &["Bash"])).unwrap();
    leads_to(&directory, "Bash", "node", "host");
    drop(host);
    assert!(directory.resolve("Bash", &view()).is_err());
    leads_to(&directory, "open__Bash", "node", "open");
}

#[test]
fn a_contested_name_is_an_audit_event() {
    let gateway = gateway(RouterOptions::default());
    let events = || std::mem::take(&mut *gateway.log.audited.lock());
    let evil = gateway.directory.attach(host("evil", "", &["session.send", "Bash"])).unwrap();
    let _host = gateway.directory.attach(host("mac", "", &["Bash"])).unwrap();
    assert!(events().is_empty(), "a bare name belongs to no grant");
    let _plugin = gateway.directory.attach(plugin("talk", &["session_send"])).unwrap();
    let [event] = &events()[..] else { panic!() };
    assert_eq!(
        (event.name, &*event.actor, &*event.subject),
        ("name.contested", "node \"evil\"", "session_send")
    );
    assert!(event.detail.contains("the plugin \"talk\" has it"), "{}", event.detail);
    // Reported names are not reported again when the node reconnects.
    drop(evil);
    let _evil = gateway.directory.attach(host("evil", "", &["session.send", "Bash"])).unwrap();
    assert!(events().is_empty());
    let _late = gateway.directory.attach(host("late", "g", &["session_send"])).unwrap();
    let [event] = &events()[..] else { panic!() };
    assert_eq!((&*event.actor, &*event.subject), ("node \"late\"", "session_send"));
    let _id = gateway.directory.attach(upstream("late", &["x"])).unwrap();
    let [event] = &events()[..] else { panic!() };
    assert_eq!((&*event.actor, &*event.subject), ("node \"late\"", "late"));
    assert!(event.detail.contains("now belongs to the upstream \"late\""), "{}", event.detail);
}

#[test]
fn a_bare_name_that_a_host_of_a_better_rank_takes_is_an_audit_event() {
    both_orders(
        || host("open", "", &["Bash"]),
        || host("host", "g", &["Bash"]),
        |gateway| {
            leads_to(&gateway.directory, "Bash", "node", "host");
            let events = || std::mem::take(&mut *gateway.log.audited.lock());
            let [event] = &events()[..] else { panic!("one host lost the name") };
            assert_eq!((&*event.actor, &*event.subject), ("node \"open\"", "Bash"));
            assert!(event.detail.contains("the node \"host\" has it"), "{}", event.detail);
            let _second = gateway.directory.attach(host("second", "h", &["Bash"])).unwrap();
            assert!(events().is_empty(), "the name still belongs to the first host");
        },
    );
}

#[test]
fn the_operator_sees_the_names_that_a_node_lost() {
    let directory = directory();
    let _server = directory.attach(upstream("mail", &["send"])).unwrap();
    let _node = directory.attach(host("evil", "", &["send", "mail__x.y"])).unwrap();
    let mut blocked = directory.members("node")[0].blocked.clone();
    blocked.sort();
    let mail = ProviderId::new("upstream", "mail");
    let names: Vec<_> = blocked.iter().map(|(name, by)| (name.as_str(), by)).collect();
    assert_eq!(names, [("mail__x.y", &mail), ("send", &mail)]);
}

/// Names that look like those of the server `mail`.
fn lookalike() -> impl Strategy<Value = String> {
    "(mail)?[._]{0,3}(mail)?[._]{0,3}[ab](\\.[ab])?"
}

proptest! {
    #![proptest_config(cases(300))]

    /// A pattern for the tools of an installed server never includes, lists or reaches the tool of
    /// a node.
    #[test]
    fn no_node_matches_the_pattern_of_a_server(
        id in prop_oneof![Just("evil".to_owned()), lookalike()],
        names in prop::collection::vec(lookalike(), 1..4),
        granted in any::<bool>(),
        listed in any::<bool>(),
        first in any::<bool>(),
    ) {
        let gateway = gateway(RouterOptions::default());
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let node = || gateway.directory.attach(host(&id, if granted { "g" } else { "" }, &names)).ok();
        let server = || gateway.directory.attach(upstream("mail", if listed { &["a", "b"] } else { &[] })).unwrap();
        let _both = if first { let node = node(); (server(), node) } else { (server(), node()) };
        let limited = Principal { tools: vec![Pattern::new("mail__*")], ..(*principal()).clone() };
        let view = View::of(Arc::new(limited));
        let policy = gateway.router.policy();
        let all = gateway.directory.list(&view, None, 100, |_| true).tools;
        for tool in all.iter().filter(|tool| tool.provider.kind == "node") {
            prop_assert!(!policy.allows(&view.principal, tool), "{} of {id}", tool.name);
        }
        let node = ProviderId::new("node", &id);
        let spellings = names.iter().flat_map(|name| [Tool::named(name), Tool { preferred_name: format!("{id}__{name}"), ..Tool::named(name) }]);
        for name in spellings.flat_map(|tool| tool.all_names(&node)) {
            let Ok(route) = gateway.directory.resolve(&name, &view) else { continue };
            let included = view.principal.includes(&route.leading);
            prop_assert!(!(included && route.id.kind == "node"), "{name} of {id}");
        }
    }
}
