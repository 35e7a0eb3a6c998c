//! Rule: a change of the tools is only reported to principals with a changed list.

mod support;

use std::sync::Arc;

use sa_core::directory::Attach;
use sa_core::visible_tools::{VisibleNarrowTools, VisibleTools};
use sa_core::{
    Catalog, Directory, Notice, NoticeBody, Notices, Pattern, Policy, Principal, ProviderId, Role,
    Router, RouterOptions, Scope, Tool, View,
};
use support::{attach, connection, tools};
use tokio::sync::broadcast::Receiver;

fn limited(pattern: &str) -> Principal {
    Principal { tools: vec![Pattern::new(pattern)], ..Principal::new("p", "test", Role::Agent) }
}

fn view(principal: Principal, scopes: &[Scope]) -> View {
    View { principal: Arc::new(principal), scopes: scopes.to_vec() }
}

/// Returns the lists that are affected by the notices so far.
fn reported(
    router: &Router,
    notices: &mut Receiver<Arc<Notice>>,
    lists: &[VisibleTools],
) -> Vec<bool> {
    let mut reported = vec![false; lists.len()];
    while let Ok(notice) = notices.try_recv() {
        let NoticeBody::ToolsChanged { scope, .. } = &notice.body else { continue };
        for (reported, lists) in reported.iter_mut().zip(lists) {
            *reported |= lists.changed(router, scope.as_ref());
        }
    }
    reported
}

/// A router with this policy.
fn router(deny: &[&str]) -> (Arc<Directory>, Arc<Router>, Receiver<Arc<Notice>>) {
    let notices = Notices::new();
    let receiver = notices.subscribe();
    let directory = Directory::new(notices, support::MEMORY);
    let journal = Arc::new(support::Log::default());
    let policy = Policy { deny: deny.iter().map(|text| Pattern::new(text)).collect() };
    let options = RouterOptions::default();
    let router = Router::new(Arc::clone(&directory), journal, None, policy, options);
    (directory, router, receiver)
}

/// The lists of principals of every kind.
fn everyone(router: &Router) -> Vec<VisibleTools> {
    let everyone = [
        Principal::new("o", "operator", Role::Operator),
        Principal::new("a", "all", Role::Agent),
        limited("*"),
        Principal::new("n", "node", Role::Node),
        Principal::new("c", "page", Role::Participant),
    ];
    everyone.into_iter().map(|principal| VisibleTools::new(router, view(principal, &[]))).collect()
}

#[test]
fn an_unchanged_catalog_is_not_reported() {
    let (directory, router, mut notices) = router(&[]);
    let catalog = || Catalog { prefixes: vec!["notes".into()], ..tools(&["notes.read", "x.y"]) };
    let notes = directory.attach(attach("one", "g", catalog(), connection())).unwrap();
    let lists = everyone(&router);
    while notices.try_recv().is_ok() {}
    notes.publish(catalog());
    assert!(notices.try_recv().is_err(), "there is no notice");
    // A new connection may have changed something else, but not the lists.
    let _again = directory.attach(attach("one", "g", catalog(), connection())).unwrap();
    assert_eq!(reported(&router, &mut notices, &lists), [false; 5]);
    let described = |text: &str| {
        let tool = Tool { description: Some(text.into()), ..Tool::named("notes.read") };
        Catalog { tools: vec![tool, Tool::named("x.y")], ..catalog() }
    };
    let _changed = directory.attach(attach("one", "g", described("new"), connection())).unwrap();
    assert_eq!(reported(&router, &mut notices, &lists), [true, true, true, false, false]);
}

#[test]
fn a_change_of_a_denied_tool_is_not_reported() {
    let (directory, router, mut notices) = router(&["*secret*"]);
    let secret = |text: &str| Tool { description: Some(text.into()), ..Tool::named("my.secret") };
    let with = |tool: Tool| Catalog { tools: vec![Tool::named("x.y"), tool], ..tools(&[]) };
    let node = directory.attach(attach("one", "g", tools(&["x.y"]), connection())).unwrap();
    let lists = everyone(&router);
    reported(&router, &mut notices, &lists);
    for catalog in [with(secret("old")), with(secret("new")), tools(&["x.y"])] {
        node.publish(catalog);
        assert!(!notices.is_empty(), "there is a notice, and it is for nobody");
        assert_eq!(reported(&router, &mut notices, &lists), [false; 5]);
    }
    let catalog = Catalog { tools: vec![secret("other")], ..tools(&[]) };
    let other = directory.attach(attach("two", "h", catalog, connection())).unwrap();
    drop(other);
    assert_eq!(reported(&router, &mut notices, &lists), [false; 5]);
    node.publish(tools(&["x.z"]));
    assert_eq!(reported(&router, &mut notices, &lists), [true, true, true, false, false]);
}

#[test]
fn an_announced_change_reaches_the_views_with_a_tool_of_the_provider() {
    let (directory, router, mut notices) = router(&[]);
    let notes = directory.attach(attach("one", "g", tools(&["notes.read"]), connection())).unwrap();
    let _mail = directory.attach(attach("two", "g", tools(&["mail.send"]), connection())).unwrap();
    let lists = ["notes*", "mail*", "*"].map(|pattern| view(limited(pattern), &[]));
    let lists = lists.map(|view| VisibleTools::new(&router, view));
    reported(&router, &mut notices, &lists);
    for _ in 0..2 {
        notes.announce();
        assert_eq!(reported(&router, &mut notices, &lists), [true, false, true]);
    }
}

/// Comparing such a list for every change would be too slow.
#[test]
fn every_change_of_a_large_directory_reaches_unlimited_principals() {
    let (directory, router, mut notices) = router(&["*secret*"]);
    let many: Vec<String> = (0..2_000).map(|n| format!("many.t{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let _many = directory.attach(attach("many", "g", tools(&many), connection())).unwrap();
    let lists = everyone(&router);
    reported(&router, &mut notices, &lists);
    let _one = directory.attach(attach("one", "g", tools(&["my.secret"]), connection())).unwrap();
    assert_eq!(reported(&router, &mut notices, &lists), [true, true, false, false, false]);
}

#[test]
fn a_change_reaches_the_views_that_contain_it() {
    let (directory, router, mut notices) = router(&[]);
    let room = Scope::Channel("room".into());
    let all = || Principal::new("a", "all", Role::Agent);
    let lists = [
        view(all(), &[]),
        view(all(), std::slice::from_ref(&room)),
        view(limited("notes*"), &[]),
        view(limited("mail*"), std::slice::from_ref(&room)),
        view(Principal::new("c", "page", Role::Participant), &[]),
    ]
    .map(|view| VisibleTools::new(&router, view));

    let notes = directory.attach(attach("one", "g", tools(&["notes.read"]), connection())).unwrap();
    assert_eq!(reported(&router, &mut notices, &lists), [true, true, true, false, false]);
    let inside = Attach { scope: room, ..attach("two", "h", tools(&["mail.send"]), connection()) };
    let mail = directory.attach(inside).unwrap();
    assert_eq!(reported(&router, &mut notices, &lists), [false, true, false, true, false]);
    notes.publish(tools(&["notes.read", "other.tool"]));
    assert_eq!(
        reported(&router, &mut notices, &lists),
        [true, true, false, false, false],
        "the new tool is not for it"
    );
    notes.publish(tools(&["notes.write", "other.tool"]));
    assert_eq!(reported(&router, &mut notices, &lists), [true, true, true, false, false]);
    drop(notes);
    assert_eq!(
        reported(&router, &mut notices, &lists),
        [true, true, true, false, false],
        "it is offline now"
    );
    drop(mail);
    assert_eq!(reported(&router, &mut notices, &lists), [false, true, false, true, false]);
    let _other = directory.attach(attach("three", "i", tools(&["x.y"]), connection())).unwrap();
    assert_eq!(reported(&router, &mut notices, &lists), [true, true, false, false, false]);
}

#[test]
fn a_change_in_a_channel_reaches_the_changed_lists() {
    let (directory, router, _) = router(&["*secret*"]);
    let room = Scope::Channel("room".into());
    let inside = |id: &str, names: &[&str]| {
        let attach = Attach { scope: room.clone(), ..attach(id, id, tools(names), connection()) };
        directory.attach(attach).unwrap()
    };
    let _before = inside("before", &["notes.old"]);
    let lists = [
        Principal::new("a", "all", Role::Agent),
        limited("notes*"),
        limited("mail*"),
        Principal::new("n", "node", Role::Node),
    ]
    .map(|principal| VisibleNarrowTools::new(&router, Arc::new(principal), |_| true));
    let check = |may_see: bool, expected: [bool; 4]| {
        assert_eq!(lists.each_ref().map(|list| list.changed(&router, &room, may_see)), expected);
    };
    let provider = inside("one", &["mail.send"]);
    check(true, [true, false, true, false]);
    provider.publish(tools(&["mail.send", "my.secret"]));
    check(true, [false; 4]);
    provider.publish(tools(&["mail.send", "notes.read"]));
    check(true, [true, true, false, false]);
    provider.publish(tools(&["notes.read"]));
    check(false, [false; 4]);
    provider.publish(tools(&["notes.write"]));
    check(true, [true, true, false, false]);
    // A change for everyone is no change of this list.
    let _other = directory.attach(attach("two", "g", tools(&["notes.x"]), connection())).unwrap();
    check(true, [false; 4]);
}

#[test]
fn a_change_of_documents_reaches_tokens_that_can_include_some() {
    let (_, router, _) = router(&[]);
    let mail = ProviderId::new("upstream", "my.mail");
    for (principal, of_mail, unknown) in [
        (Principal::new("a", "all", Role::Agent), true, true),
        (limited("*"), true, true),
        (limited("my.mail__*"), true, true),
        (limited("my_mail__*"), true, true),
        (limited("notes*"), false, true),
        (
            Principal {
                channels: vec![Pattern::new("*")],
                ..Principal::new("c", "c", Role::Agent)
            },
            false,
            false,
        ),
        (Principal::new("page", "page", Role::Participant), false, false),
    ] {
        let lists = VisibleTools::new(&router, view(principal, &[]));
        let reported = (lists.documents_changed(Some(&mail)), lists.documents_changed(None));
        assert_eq!(reported, (of_mail, unknown), "{lists:?}");
    }
}
