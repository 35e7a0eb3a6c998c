//! Whatever comes and goes in whatever order: the tables agree with each other, nobody goes by a longer name than it must,
//! and once all have left for good, no table holds anything.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use proptest::prelude::*;

use super::{Attach, Directory, Registration};
use crate::call::{Call, Updates};
use crate::json::RawJson;
use crate::notice::Notices;
use crate::outcome::Outcome;
use crate::principal::Scope;
use crate::provider::{GrantId, Provider, ProviderId};
use crate::tool::{Catalog, Tool};

struct Silent;

impl Provider for Silent {
    fn call(&self, _: Arc<Call>, _: Updates) -> BoxFuture<'static, Outcome> {
        Box::pin(std::future::pending())
    }
}

#[derive(Debug, Clone)]
enum Step {
    Attach(usize, &'static str, Scope, Vec<String>),
    Publish(usize, Vec<String>),
    Drop(usize),
    Stop(usize),
    Withdraw(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let names = || prop::collection::vec("[ab](\\.[ab])?", 0..4);
    let scope = prop_oneof![
        Just(Scope::Everyone),
        Just(Scope::Session("s".into())),
        Just(Scope::Channel("c".into())),
        Just(Scope::User("u".into())),
    ];
    let step = prop_oneof![
        3 => (0..4_usize, prop_oneof![Just(""), Just("g"), Just("h")], scope, names())
            .prop_map(|(id, grant, scope, names)| Step::Attach(id, grant, scope, names)),
        1 => (0..8_usize, names()).prop_map(|(at, names)| Step::Publish(at, names)),
        1 => (0..8_usize).prop_map(Step::Drop),
        1 => (0..8_usize).prop_map(Step::Stop),
        1 => (0..8_usize).prop_map(Step::Withdraw),
    ];
    prop::collection::vec(step, 0..20)
}

/// Each name as a tool and as a prefix, so that both tables are in use.
fn catalog(names: Vec<String>) -> Catalog {
    let tools = names.iter().map(|name| Tool::named(name)).collect();
    Catalog { tools, prefixes: names, bare_names: true, ..Catalog::default() }
}

fn attach(directory: &Arc<Directory>, id: usize, grant: &str, scope: Scope, names: Vec<String>) -> Registration {
    let attach = Attach {
        id: ProviderId::new("node", &id.to_string()),
        scope,
        grant: GrantId(grant.into()),
        provider: Arc::new(Silent),
        catalog: catalog(names),
        max_running: 1,
        about: RawJson::empty_object(),
        may_take_over: true,
    };
    directory.attach(attach).expect("each may take over")
}

proptest! {
    #[test]
    fn nothing_is_left_when_all_have_gone(steps in steps(), forget in any::<bool>()) {
        // Those that only went away are forgotten at once, or withdrawn after they came back.
        let memory = if forget { Duration::ZERO } else { Duration::MAX };
        let directory = Directory::new(Notices::new(), memory);
        let mut registrations: Vec<Option<Registration>> = Vec::new();
        for step in steps {
            match step {
                Step::Attach(id, grant, scope, names) => {
                    registrations.push(Some(attach(&directory, id, grant, scope, names)));
                }
                Step::Publish(at, names) => {
                    if let Some(Some(registration)) = registrations.get(at) {
                        registration.publish(catalog(names));
                    }
                }
                Step::Stop(at) => {
                    if let Some(Some(registration)) = registrations.get_mut(at).map(Option::take) {
                        registration.stopped();
                    }
                }
                Step::Drop(at) => drop(registrations.get_mut(at).map(Option::take)),
                Step::Withdraw(at) => {
                    if let Some(Some(registration)) = registrations.get_mut(at).map(Option::take) {
                        registration.withdraw();
                    }
                }
            }
            directory.read(super::Index::assert_consistent);
        }
        registrations.clear();
        if !forget {
            (0..4).for_each(|id| attach(&directory, id, "g", Scope::Everyone, Vec::new()).withdraw());
        }
        directory.sweep();
        prop_assert!(directory.read(super::Index::is_empty));
    }
}

/// How often somebody is asked whether it may have a name while so many providers leave that offer the same tool.
fn asked(count: usize, own_grants: bool, leave: fn(Vec<Registration>)) -> usize {
    let directory = Directory::new(Notices::new(), Duration::MAX);
    let grant = |id: usize| if own_grants { id.to_string() } else { "shared".to_owned() };
    let attached = |id: usize| attach(&directory, id, &grant(id), Scope::Everyone, vec!["a.b".to_owned()]);
    let registrations: Vec<Registration> = (0..count).map(attached).collect();
    let counted = || directory.read(|index| index.asked.load(std::sync::atomic::Ordering::Relaxed));
    let before = counted();
    leave(registrations);
    directory.forget_grant(&GrantId("shared".into()));
    let asked = counted() - before;
    directory.read(super::Index::assert_consistent);
    asked
}

#[test]
fn whoever_leaves_a_crowd_is_no_reason_to_ask_all_of_it() {
    type Leave = fn(Vec<Registration>);
    let ways: [(&str, Leave); 3] = [
        ("the oldest first", |all| all.into_iter().for_each(Registration::withdraw)),
        ("the youngest first", |all| all.into_iter().rev().for_each(Registration::withdraw)),
        ("all at once", drop),
    ];
    for (way, leave) in ways {
        for own_grants in [false, true] {
            for count in [50, 100, 400] {
                let asked = asked(count, own_grants, leave);
                assert!(asked <= 8 * count, "{way}, {count} of them: {asked}");
            }
        }
    }
}
