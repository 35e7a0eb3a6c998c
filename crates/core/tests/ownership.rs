//! Rule: of all claims at or above a name, the best grant holds it, by rank and then by age. Within
//! the grant the longest match counts, and of equal ones the oldest online provider serves. A
//! host's undotted tools belong to no grant: the oldest online host of the best rank serves. An
//! offline provider keeps its claims until it is forgotten. A grant for an id takes over the id
//! with its claims. The tests compare this with a model that evaluates every claim for every name.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use sa_core::directory::{Attach, AttachError, Directory, Registration, Unresolved};
use sa_core::*;
use support::*;

#[derive(Debug, Clone)]
enum Step {
    /// Grant 0 means no token; `bound` grants are for this id only.
    Attach {
        id: usize,
        grant: usize,
        bound: bool,
        claims: Claims,
    },
    Publish {
        at: usize,
        claims: Claims,
    },
    Drop(usize),
    Withdraw(usize),
}

#[derive(Debug, Clone, Default)]
struct Claims {
    prefixes: Vec<String>,
    tools: Vec<String>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || "[ab](\\.[ab]){0,2}";
    let claims = (prop::collection::vec(name(), 0..3), prop::collection::vec(name(), 0..3))
        .prop_map(|(prefixes, tools)| Claims { prefixes, tools });
    let step = prop_oneof![
        4 => (0..4_usize, 0..4_usize, any::<bool>(), claims.clone()).prop_map(|(id, grant, bound, claims)| {
            Step::Attach { id, grant, bound: bound && grant != NONE, claims }
        }),
        2 => (0..8_usize, claims).prop_map(|(at, claims)| Step::Publish { at, claims }),
        2 => (0..8_usize).prop_map(Step::Drop),
        1 => (0..8_usize).prop_map(Step::Withdraw),
    ];
    prop::collection::vec(step, 1..25)
}

/// The grant of a provider without a token.
const NONE: usize = 0;

/// A provider in the model.
#[derive(Debug)]
struct Known {
    id: usize,
    grant: usize,
    age: u64,
    /// The ages of the claims.
    prefixes: Aged,
    tools: Aged,
    online: bool,
    /// The number of the current registration.
    registration: usize,
}

type Aged = BTreeMap<String, u64>;

impl Known {
    fn rank(&self) -> Rank {
        if self.grant == NONE { Rank::None } else { Rank::Token }
    }

    fn claim(&mut self, claims: &Claims, now: u64) {
        let aged = |before: &Aged, names: &[String]| -> Aged {
            names
                .iter()
                .map(|name| (name.clone(), before.get(name).copied().unwrap_or(now)))
                .collect()
        };
        self.prefixes = aged(&self.prefixes, &claims.prefixes);
        self.tools = aged(&self.tools, &claims.tools);
    }

    /// Returns its claims at or above a dotted name, and their ages.
    fn covering(&self, name: &str) -> Vec<(&str, u64)> {
        let above = self
            .prefixes
            .iter()
            .filter(|(claim, _)| name == **claim || name.starts_with(&format!("{claim}.")));
        let own = self.tools.iter().filter(|(tool, _)| **tool == name);
        // A described tool has precedence over its provider's prefix of the same name.
        let above = above.filter(|(claim, _)| name != **claim || !self.tools.contains_key(name));
        above.chain(own).map(|(claim, age)| (claim.as_str(), *age)).collect()
    }
}

#[derive(Debug, Default)]
struct Model {
    known: Vec<Known>,
    now: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Nobody,
    Offline(usize),
    Serves(usize),
}

impl Model {
    fn current(&mut self, registration: usize) -> Option<&mut Known> {
        self.known.iter_mut().find(|known| known.registration == registration)
    }

    fn attach(
        &mut self,
        id: usize,
        grant: usize,
        bound: bool,
        claims: &Claims,
        registration: usize,
    ) -> bool {
        let now = self.now;
        let none = Aged::new;
        let mut added = Known {
            id,
            grant,
            age: now,
            prefixes: none(),
            tools: none(),
            online: true,
            registration,
        };
        if let Some(at) = self.known.iter().position(|known| known.id == id) {
            let old = &self.known[at];
            if old.grant == grant || (bound && old.grant != NONE) {
                added.age = old.age;
                (added.prefixes, added.tools) = (old.prefixes.clone(), old.tools.clone());
            } else if old.rank() <= added.rank() {
                return false;
            }
            self.known.remove(at);
        }
        added.claim(claims, now);
        self.known.push(added);
        true
    }

    fn resolve(&self, name: &str) -> Answer {
        let found = if name.contains('.') { self.dotted(name) } else { self.undotted(name) };
        match found {
            None => Answer::Nobody,
            Some(known) if known.online => Answer::Serves(known.id),
            Some(known) => Answer::Offline(known.id),
        }
    }

    fn dotted(&self, name: &str) -> Option<&Known> {
        let all = self
            .known
            .iter()
            .flat_map(|known| known.covering(name).into_iter().map(move |claim| (known, claim)));
        let all: Vec<_> = all.collect();
        let (best, _) = all.iter().min_by_key(|(known, (_, age))| (known.rank(), *age))?;
        let own: Vec<_> = all.iter().filter(|(known, _)| known.grant == best.grant).collect();
        let longest = own.iter().map(|(_, (claim, _))| claim.len()).max()?;
        let longest = own.iter().filter(|(_, (claim, _))| claim.len() == longest);
        longest
            .min_by_key(|(known, (_, age))| (!known.online, *age, known.id))
            .map(|(known, _)| *known)
    }

    fn undotted(&self, name: &str) -> Option<&Known> {
        // A prefix can be called by its own name if no other grant holds it.
        let by_age = |known: &&Known| (known.rank(), known.prefixes[name]);
        let holder =
            self.known.iter().filter(|known| known.prefixes.contains_key(name)).min_by_key(by_age);
        let held = |known: &&Known| holder.is_some_and(|holder| holder.grant == known.grant);
        let open = |known: &&Known| {
            known.prefixes.contains_key(name) && !known.tools.contains_key(name) && held(known)
        };
        let hosts = self.known.iter().filter(|known| known.tools.contains_key(name));
        let rank = self
            .known
            .iter()
            .filter(|known| known.tools.contains_key(name) || open(known))
            .map(Known::rank)
            .min()?;
        let of_rank = |known: &&Known| known.rank() == rank;
        let best =
            self.known.iter().filter(open).filter(of_rank).min_by_key(|known| known.prefixes[name]);
        // Between a host's tool and an undotted prefix, the older one counts. Hosts themselves are
        // ordered by their own ages.
        let first = hosts.clone().filter(of_rank).min_by_key(|known| (known.age, known.id));
        let best =
            best.filter(|best| first.is_none_or(|first| best.prefixes[name] < first.tools[name]));
        match best {
            Some(best) => {
                let own = self.known.iter().filter(open).filter(|known| known.grant == best.grant);
                own.min_by_key(|known| (!known.online, known.prefixes[name], known.id))
            }
            None => hosts.filter(of_rank).min_by_key(|known| (!known.online, known.age, known.id)),
        }
    }
}

fn catalog(claims: &Claims) -> Catalog {
    // The exposed names are not used in this test, so that only own names count.
    let tool =
        |name: &String| Tool { preferred_name: format!("listed-{name}"), ..Tool::named(name) };
    let tools = claims.tools.iter().map(tool).collect();
    Catalog { tools, prefixes: claims.prefixes.clone(), bare_names: true, ..Catalog::default() }
}

fn names() -> Vec<String> {
    let letters = ["a", "b"];
    let mut all = Vec::new();
    for one in letters {
        all.push(one.to_owned());
        for two in letters {
            all.push(format!("{one}.{two}"));
            for three in letters {
                all.push(format!("{one}.{two}.{three}"));
                all.push(format!("{one}.{two}.{three}.x"));
            }
        }
        all.push(format!("{one}b"));
    }
    all
}

fn compare(directory: &Directory, model: &Model) {
    let number = |id: &ProviderId| id.id.parse::<usize>().unwrap();
    for name in names() {
        let answer = match directory.resolve(&name, &view()) {
            Ok(route) => Answer::Serves(number(&route.id)),
            Err(Unresolved::Offline { absence, .. }) => Answer::Offline(number(&absence.provider)),
            Err(Unresolved::Unknown { .. }) => Answer::Nobody,
        };
        assert_eq!(answer, model.resolve(&name), "{name} in {model:?}");
    }
    let online = model.known.iter().filter(|known| known.online).count();
    assert_eq!(directory.online("node"), online);
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn every_name_resolves_by_the_rules(steps in steps()) {
        let directory = directory();
        let mut model = Model::default();
        let mut registrations: Vec<Option<Registration>> = Vec::new();
        for step in steps {
            model.now += 1;
            let now = model.now;
            match step {
                Step::Attach { id, grant, bound, claims } => {
                    let grant_name = if grant == NONE { String::new() } else { grant.to_string() };
                    let attach = attach(&id.to_string(), &grant_name, catalog(&claims), connection());
                    let attached = directory.attach_at(Attach { may_take_over: bound, ..attach }, now);
                    let expected = model.attach(id, grant, bound, &claims, registrations.len());
                    prop_assert_eq!(attached.is_ok(), expected);
                    registrations.push(attached.ok());
                }
                Step::Publish { at, claims } => {
                    if let Some(Some(registration)) = registrations.get(at) {
                        registration.publish_at(catalog(&claims), now);
                        if let Some(known) = model.current(at) {
                            known.claim(&claims, now);
                        }
                    }
                }
                Step::Drop(at) => {
                    if let Some(Some(_)) = registrations.get_mut(at).map(Option::take)
                        && let Some(known) = model.current(at)
                    {
                        known.online = false;
                    }
                }
                Step::Withdraw(at) => {
                    if let Some(Some(registration)) = registrations.get_mut(at).map(Option::take) {
                        registration.withdraw();
                        model.known.retain(|known| known.registration != at);
                    }
                }
            }
            compare(&directory, &model);
        }
    }
}

#[track_caller]
fn serves(directory: &Directory, name: &str, expected: &str) {
    assert_eq!(
        directory.resolve(name, &view()).map(|route| route.id.id.to_string()),
        Ok(expected.to_owned())
    );
}

fn add(directory: &Arc<Directory>, id: &str, grant: &str, catalog: Catalog) -> Registration {
    directory.attach(attach(id, grant, catalog, connection())).unwrap()
}

#[test]
fn another_grant_gets_nothing_below_a_held_prefix() {
    let directory = directory();
    let _first = add(&directory, "first", "g", prefixes(&["macos"]));
    let _second = add(&directory, "second", "other", prefixes(&["macos.notes", "linux"]));
    serves(&directory, "macos.notes.search", "first");
    serves(&directory, "linux.x", "second");
    let blocked = &directory.members("node")[1].blocked;
    assert_eq!(*blocked, [("macos.notes".to_owned(), ProviderId::new("node", "first"))]);
}

#[test]
fn a_listed_tool_of_another_grant_below_a_held_prefix_is_not_listed() {
    let directory = directory();
    let _first = add(&directory, "first", "g", prefixes(&["macos"]));
    let _second = add(&directory, "second", "other", tools(&["macos.notes"]));
    assert!(directory.list(&view(), None, 10, |_| true).tools.is_empty());
    serves(&directory, "macos_notes", "first");
    serves(&directory, "macos.notes", "first");
}

#[test]
fn two_machines_of_different_grants_can_both_be_used_by_their_full_names() {
    let directory = directory();
    let bash = |preferred_name: &str| Catalog {
        tools: vec![Tool { preferred_name: preferred_name.into(), ..Tool::named("Bash") }],
        bare_names: true,
        ..Catalog::default()
    };
    let first = add(&directory, "mac-01", "g1", bash("mac-01__Bash"));
    let _second = add(&directory, "mac-02", "g2", bash("mac-02__Bash"));
    assert_eq!(directory.list(&view(), None, 10, |_| true).tools.len(), 2);
    serves(&directory, "mac-01__Bash", "mac-01");
    serves(&directory, "mac-02__Bash", "mac-02");
    // The bare name belongs to the first host, and to the next one while the first is offline.
    serves(&directory, "Bash", "mac-01");
    drop(first);
    serves(&directory, "Bash", "mac-02");
    let first = add(&directory, "mac-01", "g1", bash("mac-01__Bash"));
    serves(&directory, "Bash", "mac-01");
    first.withdraw();
    serves(&directory, "Bash", "mac-02");
}

fn primary(directory: &Directory) -> Option<String> {
    directory
        .members("node")
        .into_iter()
        .find(|member| member.primary)
        .map(|member| member.id.id.to_string())
}

fn host(id: &str, bare_names: bool, preferred: bool) -> Catalog {
    let bash = Tool { preferred_name: format!("{id}__Bash"), ..Tool::named("Bash") };
    Catalog { tools: vec![bash], bare_names, preferred, ..Catalog::default() }
}

#[test]
fn the_primary_host_is_the_preferred_one_or_else_the_oldest() {
    let directory = directory();
    assert_eq!(primary(&directory), None);
    let _dotted = add(&directory, "dotted", "g", tools(&["a.b"]));
    let _special = add(&directory, "special", "g", host("special", false, false));
    assert_eq!(primary(&directory), None, "none of these is a host");
    let open = Attach { ..attach("open", "", host("open", true, false), connection()) };
    let _open = directory.attach(open).unwrap();
    assert_eq!(primary(&directory).as_deref(), Some("open"));
    let first = add(&directory, "first", "g1", host("first", true, false));
    let _second = add(&directory, "second", "g2", host("second", true, false));
    assert_eq!(primary(&directory).as_deref(), Some("first"), "a grant goes before none");
    let wanted = add(&directory, "wanted", "g3", host("wanted", true, true));
    serves(&directory, "Bash", "wanted");
    assert_eq!(primary(&directory).as_deref(), Some("wanted"));
    drop(wanted);
    serves(&directory, "Bash", "first");
    drop(first);
    serves(&directory, "Bash", "second");
    assert_eq!(primary(&directory).as_deref(), Some("second"));
}

#[test]
fn a_provider_without_bare_names_is_never_reached_by_one() {
    let directory = directory();
    let special = Catalog { prefixes: vec!["Bash".into()], ..tools(&[]) };
    let _special = add(&directory, "special", "g", special);
    let hostless = Unresolved::Unknown { similar: Vec::new(), hostless: true };
    assert_eq!(directory.resolve("Bash", &view()).map(|route| route.id), Err(hostless));
    serves(&directory, "Bash.version", "special");
}

#[test]
fn a_session_with_an_offline_machine_does_not_use_the_shared_one() {
    let directory = directory();
    let session = Scope::Session("s".into());
    let _shared = add(&directory, "shared", "g", prefixes(&["sh"]));
    let own =
        Attach { scope: session.clone(), ..attach("own", "g", prefixes(&["sh"]), connection()) };
    let own = directory.attach(own).unwrap();
    let inside = View { scopes: vec![session], ..view() };
    assert_eq!(&*directory.resolve("sh.run", &inside).unwrap().id.id, "own");
    serves(&directory, "sh.run", "shared");
    drop(own);
    assert!(matches!(directory.resolve("sh.run", &inside), Err(Unresolved::Offline { .. })));
    serves(&directory, "sh.run", "shared");
}

#[test]
fn only_a_newer_connection_replaces() {
    let directory = directory();
    let first = add(&directory, "n", "g", prefixes(&["a"]));
    let notified = first.replaced();
    let refused = directory.attach(attach("n", "other", prefixes(&["a"]), connection())).err();
    assert_eq!(refused, Some(AttachError::HeldByAnother(ProviderId::new("node", "n"))));
    assert!(!notified.is_cancelled(), "an impostor does not disturb the real one");
    let second = add(&directory, "n", "g", prefixes(&["b"]));
    assert!(notified.is_cancelled());
    let notified = second.replaced();
    drop(first);
    serves(&directory, "b.x", "n");
    second.withdraw();
    assert!(!notified.is_cancelled(), "leaving is not being replaced");
    assert!(directory.members("node").is_empty());
}

#[test]
fn a_name_derived_from_dots_does_not_replace_an_own_name_of_another_grant() {
    let directory = directory();
    let own = Catalog { bare_names: true, ..prefixes(&["files_secret"]) };
    let _a = directory.attach(attach("a", "A", own, connection())).unwrap();
    let _b = directory.attach(attach("b", "B", tools(&["files.secret"]), connection())).unwrap();
    assert_eq!(directory.resolve("files_secret", &view()).unwrap().id.id.as_ref(), "a");
    assert_eq!(directory.resolve("files.secret", &view()).unwrap().id.id.as_ref(), "b");
}

#[test]
fn a_reconnecting_provider_evicts_only_its_own_grant() {
    let directory = directory();
    drop(directory.attach(attach("victim", "A", prefixes(&["v"]), connection())).unwrap());
    for n in 0..1_100 {
        drop(
            directory
                .attach(attach(&format!("n{n}"), "B", prefixes(&["w"]), connection()))
                .unwrap(),
        );
    }
    assert!(directory.attach(attach("victim", "B", prefixes(&["v"]), connection())).is_err());
    let known = directory.members("node");
    assert!(known.iter().any(|member| &*member.id.id == "victim"));
    assert!(known.len() <= 1_026, "{}", known.len());
}

#[test]
fn a_grant_for_an_id_takes_it_over_and_any_grant_precedes_none() {
    let directory = directory();
    let open = |id: &str| Attach { ..attach(id, "", prefixes(&["p"]), connection()) };
    let _first = directory.attach(open("n")).unwrap();
    let _second = directory.attach(attach("m", "A", prefixes(&["p"]), connection())).unwrap();
    assert_eq!(
        directory.resolve("p.x", &view()).unwrap().id.id.as_ref(),
        "m",
        "a grant goes before none"
    );
    let _n = directory.attach(attach("n", "A", prefixes(&["q"]), connection())).unwrap();
    assert!(directory.attach(open("n")).is_err());
    let rotated =
        Attach { may_take_over: true, ..attach("n", "C", prefixes(&["q"]), connection()) };
    assert!(directory.attach(rotated).is_ok());
}

#[test]
fn a_provider_with_another_grant_for_its_id_keeps_its_names() {
    let directory = directory();
    let mac = || Catalog { prefixes: vec!["mac".into()], ..tools(&["mac.notes"]) };
    let first = add(&directory, "one", "old", mac());
    let _rival = add(&directory, "two", "rival", mac());
    let rotated =
        |grant| Attach { may_take_over: true, ..attach("one", grant, mac(), connection()) };
    let second = directory.attach(rotated("new")).unwrap();
    let serves_all =
        || ["mac_notes", "mac.notes", "mac.other"].map(|name| serves(&directory, name, "one"));
    serves_all();
    let listed = directory.list(&view(), None, 10, |_| true).tools;
    assert_eq!(
        listed.iter().map(|tool| (&*tool.name, &*tool.provider.id)).collect::<Vec<_>>(),
        [("mac_notes", "one")]
    );
    // The old connection ends, and with it the old grant.
    drop(first);
    directory.forget_grant(&Grant::token("old"));
    serves_all();
    // The same applies while the node is offline.
    drop(second);
    let _third = directory.attach(rotated("newer")).unwrap();
    serves_all();
}

#[test]
fn an_id_taken_from_a_provider_without_a_token_brings_no_names() {
    for may_take_over in [false, true] {
        let directory = directory();
        let open = Attach { ..attach("one", "", prefixes(&["mac"]), connection()) };
        let _open = directory.attach(open).unwrap();
        let _rival = add(&directory, "two", "rival", prefixes(&["mac"]));
        let taken =
            Attach { may_take_over, ..attach("one", "g", prefixes(&["mac"]), connection()) };
        let _taken = directory.attach(taken).unwrap();
        serves(&directory, "mac.notes", "two");
    }
}
