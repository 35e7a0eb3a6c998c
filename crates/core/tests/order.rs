//! Rule: names follow from the claims and their ages, not from the order in which they arrive.
//!
//! Providers of different kinds and grants contest ids, too. In two cases the result depends on
//! time by nature, so these events stay in order. A grant that takes over an id continues the
//! claims of the grant before it. A provider that was refused an id gets the id only if it attaches
//! again after the other one was forgotten.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use sa_core::directory::{Attach, Directory, Registration, Unresolved};
use sa_core::*;
use support::*;

/// The events of one provider under one grant, in order.
#[derive(Debug, Clone)]
struct History {
    provider: ProviderId,
    grant: Grant,
    /// Whether the grant is bound to the id.
    bound: bool,
    scope: Scope,
    events: Vec<Event>,
}

impl History {
    /// Returns whether the two contest an id.
    fn contests(&self, other: &Self) -> bool {
        let space = |history: &Self| history.provider.id.replace(['.', ':'], "_");
        let everyone = self.scope == Scope::Everyone && other.scope == Scope::Everyone;
        self.provider == other.provider || (everyone && space(self) == space(other))
    }
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
    prop_oneof![4 => "[ab]([._][ab]){0,2}", 1 => "p([._:]1)?__[ab]"]
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
        Just(("upstream", Grant::installed("upstream"))),
        Just(("plugin", Grant::installed("plugin"))),
        Just(("node", Grant::token("g"))),
        Just(("node", Grant::token("h"))),
        Just(("node", Grant::none())),
        Just(("caller", Grant::token("g"))),
        Just(("caller", Grant::token("h"))),
    ];
    // Some of these are the same id in exposed names.
    let id = prop_oneof![Just("p"), Just("p.1"), Just("p_1"), Just("p:1")];
    let events = (offered(), prop::collection::vec(event, 0..3));
    let history = (grant, id, prop::bool::weighted(0.2), events).prop_map(
        |((kind, grant), id, bound, (first, more))| {
            let scope = match kind {
                "caller" => Scope::Session("s".into()),
                _ => Scope::Everyone,
            };
            let bound = bound && grant.rank == Rank::Token;
            let events = std::iter::once(Event::Attach(first)).chain(more).collect();
            History { provider: ProviderId::new(kind, id), grant, bound, scope, events }
        },
    );
    prop::collection::vec(history, 2..6).prop_map(|all| {
        let mut histories: Vec<History> = Vec::new();
        for history in all {
            let same = |other: &History| {
                (&other.provider, &other.grant) == (&history.provider, &history.grant)
            };
            if !histories.iter().any(same) {
                histories.push(history);
            }
        }
        histories
    })
}

/// Returns the group of each history. The events of a group stay in order.
fn groups(histories: &[History]) -> Vec<usize> {
    let mut groups: Vec<usize> = (0..histories.len()).collect();
    for (at, history) in histories.iter().enumerate() {
        let forgets = history.events.iter().any(|event| matches!(event, Event::Forget));
        for (other_at, other) in histories.iter().enumerate() {
            let taken_over = history.bound && history.provider == other.provider;
            if taken_over || (forgets && history.contests(other)) {
                let (from, to) = (groups[other_at], groups[at]);
                groups.iter_mut().filter(|group| **group == from).for_each(|group| *group = to);
            }
        }
    }
    groups
}

/// An event: the history, and its position there.
type Turn = (usize, usize);

/// Returns the age of an event, which is its position in a common log.
fn age(histories: &[History], (history, at): Turn) -> u64 {
    1 + (at * histories.len() + history) as u64
}

/// Puts the events of each group in order.
fn ordered(histories: &[History], mut turns: Vec<Turn>) -> Vec<Turn> {
    let groups = groups(histories);
    for group in 0..histories.len() {
        let of_group = |turn: &Turn| groups[turn.0] == group;
        let places: Vec<usize> = (0..turns.len()).filter(|at| of_group(&turns[*at])).collect();
        let mut events: Vec<Turn> = turns.iter().copied().filter(of_group).collect();
        events.sort_by_key(|turn| age(histories, *turn));
        for (place, event) in places.into_iter().zip(events) {
            turns[place] = event;
        }
    }
    turns
}

/// Plays all histories, interleaved by `turns`.
fn play(histories: &[History], turns: &[Turn]) -> (Arc<Directory>, Vec<Option<Registration>>) {
    let directory = directory();
    let mut registrations: Vec<Option<Registration>> = histories.iter().map(|_| None).collect();
    for turn in turns {
        let (history, age) = (&histories[turn.0], age(histories, *turn));
        let attach = |catalog| Attach {
            id: history.provider.clone(),
            scope: history.scope.clone(),
            grant: history.grant.clone(),
            may_take_over: history.bound,
            ..attach("", "", catalog, connection())
        };
        let registration = &mut registrations[turn.0];
        match &history.events[turn.1] {
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
                *registration = None;
                if let Ok(registration) = directory.attach_at(attach(Catalog::default()), age) {
                    registration.withdraw();
                }
            }
        }
    }
    (directory, registrations)
}

type Names = BTreeMap<String, String>;

/// Returns every name, listed or not, with the tool that it leads to, and the lists of tools and of
/// providers.
fn seen(directory: &Directory, histories: &[History]) -> (Names, Vec<String>, Vec<String>) {
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
            let tools = offered.catalog().tools.into_iter();
            let known = tools.flat_map(|tool| tool.all_names(&history.provider));
            let known = known.chain(offered.prefixes.clone());
            for name in known.flat_map(|name| [format!("{name}.x"), name]) {
                let found = match directory.resolve(&name, &session) {
                    Ok(route) => format!("{:?} {}", route.id, route.tool.name),
                    Err(Unresolved::Offline { absence, .. }) => format!("({:?})", absence.provider),
                    Err(Unresolved::Unknown { .. }) => String::new(),
                };
                names.insert(name, found);
            }
        }
    }
    let kinds = ["upstream", "plugin", "node", "caller"].into_iter();
    let members = kinds.flat_map(|kind| directory.members(kind));
    let members = members.map(|member| {
        let online = member.gone_for.is_none();
        format!("{:?} {online} {:?} {:?}", member.id, member.tools, member.prefixes)
    });
    (names, listed, members.collect())
}

fn with_turns() -> impl Strategy<Value = (Vec<History>, Vec<Turn>, Vec<Turn>)> {
    histories().prop_flat_map(|histories| {
        let all = histories.iter().enumerate();
        let turns: Vec<Turn> =
            all.flat_map(|(at, history)| (0..history.events.len()).map(move |n| (at, n))).collect();
        (Just(histories), Just(turns.clone()).prop_shuffle(), Just(turns).prop_shuffle()).prop_map(
            |(histories, one, other)| {
                let (one, other) = (ordered(&histories, one), ordered(&histories, other));
                (histories, one, other)
            },
        )
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
