//! Rule: names follow from the claims and their ages, not from the order in which they arrive.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use sa_core::directory::{Attach, Directory, Registration, Unresolved};
use sa_core::*;
use support::*;

/// The events of one provider, in order.
#[derive(Debug, Clone)]
struct History {
    id: usize,
    kind: &'static str,
    grant: Grant,
    scope: Scope,
    events: Vec<Event>,
}

#[derive(Debug, Clone)]
enum Event {
    /// Attaches, or attaches again.
    Attach(Offered),
    Publish(Offered),
    Detach,
    /// Attaches and is removed, so that it is forgotten.
    Forget,
}

#[derive(Debug, Clone)]
struct Offered {
    tools: Vec<(String, String)>,
    prefixes: Vec<String>,
    bare_names: bool,
    preferred: bool,
    short: bool,
}

impl Offered {
    fn catalog(&self) -> Catalog {
        let tool = |(own, exposed): &(String, String)| Tool {
            preferred_name: exposed.clone(),
            short: self.short.then(|| "a".into()),
            ..Tool::named(own)
        };
        Catalog {
            tools: self.tools.iter().map(tool).collect(),
            prefixes: self.prefixes.clone(),
            bare_names: self.bare_names,
            preferred: self.preferred,
            ..Catalog::default()
        }
    }
}

/// Few different names, so that they collide.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[ab]([._][ab]){0,2}", 1 => "p[01]__[ab]"]
}

fn offered() -> impl Strategy<Value = Offered> {
    let tools = prop::collection::vec((name(), name()), 0..3);
    let prefixes = prop::collection::vec(name(), 0..2);
    (tools, prefixes, any::<[bool; 3]>()).prop_map(
        |(tools, prefixes, [bare_names, preferred, short])| Offered {
            tools,
            prefixes,
            bare_names,
            preferred,
            short,
        },
    )
}

fn histories() -> impl Strategy<Value = Vec<History>> {
    let event = prop_oneof![
        3 => offered().prop_map(Event::Attach),
        2 => offered().prop_map(Event::Publish),
        1 => Just(Event::Detach),
        1 => Just(Event::Forget),
    ];
    let grant = prop_oneof![
        Just(Grant::installed("upstream")),
        Just(Grant::token("g")),
        Just(Grant::token("h")),
        Just(Grant::none()),
    ];
    let scope = prop_oneof![3 => Just(Scope::Everyone), 1 => Just(Scope::Session("s".into()))];
    let events = (offered(), prop::collection::vec(event, 0..3));
    let history = (grant, scope, events).prop_map(|(grant, scope, (first, more))| {
        let kind = if grant.rank == Rank::Installed { "upstream" } else { "node" };
        let events = std::iter::once(Event::Attach(first)).chain(more).collect();
        History { id: 0, kind, grant, scope, events }
    });
    prop::collection::vec(history, 2..5).prop_map(|mut all| {
        all.iter_mut().enumerate().for_each(|(id, history)| history.id = id);
        all
    })
}

/// Plays all histories, each in its order, interleaved by `turns`.
fn play(histories: &[History], turns: &[usize]) -> (Arc<Directory>, Vec<Option<Registration>>) {
    let directory = directory();
    let mut registrations: Vec<Option<Registration>> = histories.iter().map(|_| None).collect();
    let mut next = vec![0; histories.len()];
    for turn in turns {
        let (history, at) = (&histories[*turn], next[*turn]);
        next[*turn] += 1;
        // The age is the event's position in a common log.
        let age = 1 + (at * histories.len() + turn) as u64;
        let attach = |catalog| Attach {
            id: ProviderId::new(history.kind, &format!("p{}", history.id)),
            scope: history.scope.clone(),
            grant: history.grant.clone(),
            ..attach("", "", catalog, connection())
        };
        let registration = &mut registrations[*turn];
        match &history.events[at] {
            Event::Attach(offered) => {
                *registration = directory.attach_at(attach(offered.catalog()), age).ok();
            }
            Event::Publish(offered) => {
                if let Some(registration) = registration {
                    registration.publish_at(offered.catalog(), age);
                }
            }
            Event::Detach => drop(registration.take()),
            Event::Forget => {
                directory.attach_at(attach(Catalog::default()), age).unwrap().withdraw();
                *registration = None;
            }
        }
    }
    (directory, registrations)
}

type Names = BTreeMap<String, String>;

/// Returns every name, listed or not, and the tool that it leads to.
fn seen(directory: &Directory, histories: &[History]) -> (Names, Vec<String>) {
    let session = View { scopes: vec![Scope::Session("s".into())], ..view() };
    let listed = directory.list(&session, None, 1_000, |_| true).tools;
    let listed: Vec<String> = listed
        .iter()
        .map(|tool| format!("{} {:?} {}", tool.name, tool.provider, tool.tool.name))
        .collect();
    let mut names = Names::new();
    for history in histories {
        for event in &history.events {
            let (Event::Attach(offered) | Event::Publish(offered)) = event else { continue };
            let provider = ProviderId::new(history.kind, &format!("p{}", history.id));
            let tools = offered.catalog().tools.into_iter();
            let asked =
                tools.flat_map(|tool| tool.all_names(&provider)).chain(offered.prefixes.clone());
            for name in asked.flat_map(|name| [format!("{name}.x"), name]) {
                let found = match directory.resolve(&name, &session) {
                    Ok(route) => format!("{:?} {}", route.id, route.tool.name),
                    Err(Unresolved::Offline { absence, .. }) => format!("({:?})", absence.provider),
                    Err(Unresolved::Unknown { .. }) => String::new(),
                };
                names.insert(name, found);
            }
        }
    }
    (names, listed)
}

fn with_turns() -> impl Strategy<Value = (Vec<History>, Vec<usize>, Vec<usize>)> {
    histories().prop_flat_map(|histories| {
        let counts = histories.iter().enumerate();
        let turns: Vec<usize> =
            counts.flat_map(|(at, history)| vec![at; history.events.len()]).collect();
        (Just(histories), Just(turns.clone()).prop_shuffle(), Just(turns).prop_shuffle())
    })
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn any_order_of_the_same_events_gives_the_same_names((histories, one, other) in with_turns()) {
        let (first, _kept) = play(&histories, &one);
        let (second, _kept_too) = play(&histories, &other);
        prop_assert_eq!(seen(&first, &histories), seen(&second, &histories));
    }
}
