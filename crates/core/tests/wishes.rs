//! A plain name that two tools wish for: the first one to come has it. It moves on with the claim to the tool: at once
//! from one that gets no calls, to a newcomer from one of the same grant that is away, and from anybody once it is forgotten;
//! never from another grant's provider that merely reconnects. The longer name goes on leading to the tool that had it.

mod support;

use std::sync::Arc;

use sa_core::directory::{Attach, Directory, Registration, Unresolved};
use sa_core::*;
use support::*;

/// Lets a provider with one tool in; an empty grant is none.
fn add(directory: &Arc<Directory>, id: &str, grant: &str, tool: &str) -> Registration {
    let catalog = Catalog { prefixes: vec!["office".into()], ..tools(&[tool]) };
    directory.attach(attach(id, grant, catalog, connection())).unwrap()
}

/// Who is listed under which name, those that are away in brackets.
fn listed(directory: &Directory) -> Vec<(String, String)> {
    let page = directory.list(&view(), None, 100, |_| true);
    let shown = |id: &str, online: bool| if online { id.to_owned() } else { format!("({id})") };
    page.tools.iter().map(|tool| (tool.name.to_string(), shown(&tool.provider.id, tool.online))).collect()
}

/// What a provider's tool goes by.
fn name_of(directory: &Directory, id: &str) -> String {
    directory.exposed_name(&ProviderId::new("node", id), "office.greet").unwrap().to_string()
}

#[track_caller]
fn serves(directory: &Directory, name: &str, expected: &str) {
    assert_eq!(directory.resolve(name, &view()).map(|route| route.id.id.to_string()), Ok(expected.to_owned()));
}

fn hint(directory: &Directory, name: &str) -> String {
    directory.resolve(name, &view()).unwrap_err().into_error(name).hint.unwrap().into_owned()
}

#[test]
fn who_has_a_grant_takes_the_name_of_one_that_came_without() {
    let directory = directory();
    // Away or here makes no difference: it gets no calls any more.
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
fn a_newcomer_takes_the_name_of_a_stand_in_that_is_away() {
    let directory = directory();
    for grant in ["", "g"] {
        drop(add(&directory, "py-01", grant, "office.greet"));
        let second = add(&directory, "py-02", grant, "office.greet");
        serves(&directory, "office_greet", "py-02");
        let first = add(&directory, "py-01", grant, "office.greet");
        assert_eq!(name_of(&directory, "py-02"), "office_greet", "it is here, and keeps it");
        let longer = name_of(&directory, "py-01");
        serves(&directory, &longer, "py-01");
        second.withdraw();
        assert_eq!(name_of(&directory, "py-01"), "office_greet");
        serves(&directory, &longer, "py-01");
        first.withdraw();
    }
}

#[test]
fn who_is_here_already_stands_in_and_keeps_its_name() {
    let directory = directory();
    let first = add(&directory, "py-01", "g", "office.greet");
    let _second = add(&directory, "py-02", "g", "office.greet");
    let longer = name_of(&directory, "py-02");
    serves(&directory, "office_greet", "py-01");
    drop(first);
    serves(&directory, "office_greet", "py-02");
    let route = directory.resolve("office_greet", &view()).unwrap();
    assert_eq!((route.exposed.as_deref(), route.also.as_deref()), (Some(&*longer), Some("office_greet")));
    assert_eq!(listed(&directory), [("office_greet".into(), "(py-01)".into()), (longer.clone(), "py-02".into())]);
    // Neither does it take the name by reconnecting.
    let _second = add(&directory, "py-02", "g", "office.greet");
    assert_eq!(name_of(&directory, "py-02"), longer);
    let _first = add(&directory, "py-01", "g", "office.greet");
    serves(&directory, "office_greet", "py-01");
}

#[tokio::test(start_paused = true)]
async fn another_grant_waits_until_the_holder_is_forgotten() {
    let directory = directory();
    drop(add(&directory, "py-01", "g", "office.greet"));
    let _second = add(&directory, "py-02", "h", "office.greet");
    assert_eq!(listed(&directory), [("office_greet".into(), "(py-01)".into())]);
    assert!(matches!(directory.resolve("office_greet", &view()), Err(Unresolved::Offline { .. })));
    for name in ["office_greet", "office.greet"] {
        let hint = hint(&directory, name);
        assert!(hint.contains("\"py-02\" offers it, too, but with another token"), "{hint}");
    }
    // Not by coming again, either.
    let second = add(&directory, "py-02", "h", "office.greet");
    let longer = name_of(&directory, "py-02");
    assert_ne!(longer, "office_greet");
    let back = add(&directory, "py-01", "g", "office.greet");
    serves(&directory, "office_greet", "py-01");
    drop(back);
    tokio::time::advance(MEMORY).await;
    directory.sweep();
    assert_eq!(listed(&directory), [("office_greet".into(), "py-02".into())], "at once");
    serves(&directory, "office_greet", "py-02");
    serves(&directory, &longer, "py-02");
    // Both names stay its own over reconnects.
    drop(second);
    let _second = add(&directory, "py-02", "h", "office.greet");
    let _third = add(&directory, "py-03", "h", "office.greet");
    serves(&directory, "office_greet", "py-02");
    serves(&directory, &longer, "py-02");
}

#[test]
fn a_grant_that_ended_holds_nothing() {
    let directory = directory();
    drop(add(&directory, "py-01", "g", "office.greet"));
    let _second = add(&directory, "py-02", "h", "office.greet");
    directory.forget_grant(&GrantId("h".into()));
    assert!(directory.resolve("office_greet", &view()).is_err(), "who is here leaves by itself");
    directory.forget_grant(&GrantId("g".into()));
    serves(&directory, "office_greet", "py-02");
    assert_eq!(directory.members("node").len(), 1);
}

#[test]
fn what_merely_looks_alike_takes_nothing() {
    let directory = directory();
    // Two tools, of which one name is made.
    drop(directory.attach(attach("a", "g", tools(&["office.greet_all"]), connection())).unwrap());
    let _b = directory.attach(attach("b", "g", tools(&["office_greet.all"]), connection())).unwrap();
    assert_eq!(listed(&directory)[0], ("office_greet_all".into(), "(a)".into()));
    let other = directory.exposed_name(&ProviderId::new("node", "b"), "office_greet.all").unwrap();
    let hint = hint(&directory, "office_greet_all");
    assert!(hint.contains(&format!("or call {other}")), "{hint}");
    // Who may use some tools only is told nothing of others.
    let limited = Principal { tools: vec![Pattern::new("office_greet_all")], ..(*principal()).clone() };
    let error = directory.resolve("office_greet_all", &View::of(Arc::new(limited))).unwrap_err();
    assert!(!error.into_error("office_greet_all").hint.unwrap().contains(&*other));

    // A wish that names its provider means that one alone.
    let of = |server: &str| Tool { wish: format!("{server}__files.read"), ..Tool::named("files.read") };
    let one = Catalog { tools: vec![of("one")], ..Catalog::default() };
    let two = Catalog { tools: vec![of("two")], ..Catalog::default() };
    drop(directory.attach(attach("one", "u", one, connection())).unwrap());
    let _two = directory.attach(attach("two", "u", two, connection())).unwrap();
    assert!(matches!(directory.resolve("one__files_read", &view()), Err(Unresolved::Offline { .. })));
}

#[test]
fn who_is_known_to_come_back_keeps_its_name() {
    let directory = directory();
    let first = add(&directory, "py-01", "g", "office.greet");
    first.away();
    let _second = add(&directory, "py-02", "g", "office.greet");
    assert_eq!(name_of(&directory, "py-01"), "office_greet");
}

#[test]
fn a_name_that_gets_no_calls_is_not_suggested() {
    let directory = directory();
    let _first = directory.attach(attach("py-01", "", tools(&["office.greet"]), connection())).unwrap();
    // It holds the prefix, and has no such tool.
    let _second = directory.attach(attach("py-02", "g", prefixes(&["office"]), connection())).unwrap();
    for name in ["office_greet", "office_gret"] {
        let Err(Unresolved::Unknown { similar, .. }) = directory.resolve(name, &view()) else { panic!("{name}") };
        assert!(similar.is_empty(), "{similar:?}");
    }
}

#[test]
fn the_operator_sees_who_goes_by_a_longer_name_and_why() {
    let directory = directory();
    let _first = add(&directory, "py-01", "g", "office.greet");
    let _second = add(&directory, "py-02", "g", "office.greet");
    let _blocked = add(&directory, "py-03", "h", "office.greet");
    let members = directory.members("node");
    let renamed: Vec<_> = members.iter().map(|member| member.renamed.len()).collect();
    assert_eq!(renamed, [0, 1, 0], "what is held back is told as such");
    let renamed = &members[1].renamed[0];
    assert_eq!((&*renamed.wanted, &*renamed.held_by.id), ("office_greet", "py-01"));
    assert_eq!(&*renamed.name, name_of(&directory, "py-02"));
}

#[test]
fn rules_about_either_name_are_about_the_tool() {
    let directory = directory();
    let first = add(&directory, "py-01", "g", "office.greet");
    let _second = add(&directory, "py-02", "g", "office.greet");
    let longer = name_of(&directory, "py-02");
    first.withdraw();
    let page = directory.list(&view(), None, 10, |_| true);
    assert_eq!(&*page.tools[0].name, "office_greet");
    let may = |deny: &str| Policy { deny: vec![Pattern::new(deny)] }.allows(&principal(), &page.tools[0]);
    assert_eq!(["office_greet", &longer, "office.greet", "office"].map(may), [false, false, false, true]);
}

#[test]
fn an_id_that_a_grant_of_its_own_takes_over_keeps_its_names() {
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
fn an_id_that_is_taken_from_one_that_showed_nothing_brings_no_names_along() {
    let directory = directory();
    let _first = add(&directory, "py-01", "", "office.greet");
    let _waiting = add(&directory, "py-02", "h", "office.greet");
    let taken = Attach { may_take_over: true, ..attach("py-01", "i", tools(&["office.greet"]), connection()) };
    let _first = directory.attach(taken).unwrap();
    serves(&directory, "office.greet", "py-02");
    serves(&directory, "office_greet", "py-02");
}

#[test]
fn a_name_is_free_once_nobody_keeps_the_next_one_from_it() {
    // Who held the prefix leaves for good, offers it no more, or offers it to others.
    type End = fn(Registration, &Arc<Directory>) -> Option<Registration>;
    let elsewhere: End = |_, directory| {
        let session = Scope::Session("s".into());
        let holder = Attach { scope: session, ..attach("holder", "g", prefixes(&["office"]), connection()) };
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
        let holder = directory.attach(attach("holder", "g", prefixes(&["office"]), connection())).unwrap();
        let _open = directory.attach(attach("open", "", tools(&["office.greet"]), connection())).unwrap();
        let _waiting = directory.attach(attach("waiting", "h", tools(&["office.greet"]), connection())).unwrap();
        assert_eq!(listed(&directory), []);
        let _holder = end(holder, &directory);
        assert_eq!(listed(&directory), [("office_greet".into(), "waiting".into())]);
    }
}
