//! Rule: in any order of attaching and detaching, the tables hold exactly the claims of the
//! members, and are empty after all providers are removed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use proptest::prelude::*;

use super::{Attach, Directory, Registration};
use crate::call::{Call, Updates};
use crate::notice::Notices;
use crate::outcome::Outcome;
use crate::principal::Scope;
use crate::provider::{Grant, Provider, ProviderId};
use crate::tool::{Catalog, Tool};
use sa_text::json::RawJson;

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

/// Uses each name as a tool and as a prefix, so that both tables are in use.
fn catalog(names: Vec<String>) -> Catalog {
    let tools = names.iter().map(|name| Tool::named(name)).collect();
    Catalog { tools, prefixes: names, bare_names: true, ..Catalog::default() }
}

fn attach(
    directory: &Arc<Directory>,
    id: usize,
    grant: &str,
    scope: Scope,
    names: Vec<String>,
) -> Option<Registration> {
    let attach = Attach {
        id: ProviderId::new("node", &id.to_string()),
        scope,
        grant: if grant.is_empty() { Grant::none() } else { Grant::token(grant) },
        provider: Arc::new(Silent),
        catalog: catalog(names),
        max_running: 1,
        about: RawJson::empty_object(),
        may_take_over: true,
    };
    directory.attach(attach).ok()
}

proptest! {
    #[test]
    fn an_empty_directory_holds_no_memory(steps in steps(), forget in any::<bool>()) {
        // Offline providers are forgotten immediately, or withdrawn after they came back.
        let memory = if forget { Duration::ZERO } else { Duration::MAX };
        let directory = Directory::new(Notices::new(), memory);
        let mut registrations: Vec<Option<Registration>> = Vec::new();
        for step in steps {
            match step {
                Step::Attach(id, grant, scope, names) => {
                    registrations.push(attach(&directory, id, grant, scope, names));
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
            for id in 0..4 {
                if let Some(registration) = attach(&directory, id, "g", Scope::Everyone, Vec::new()) {
                    registration.withdraw();
                }
            }
        }
        directory.sweep();
        prop_assert!(directory.read(super::Index::is_empty));
    }
}
