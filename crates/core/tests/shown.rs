//! Rule: a change of the tools is only reported to principals with a changed list.

mod support;

use std::sync::Arc;

use sa_core::directory::Attach;
use sa_core::shown::Shown;
use sa_core::{
    Directory, Notice, NoticeBody, Notices, Pattern, Policy, Principal, ProviderId, Role, Router,
    RouterOptions, Scope, View,
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
fn told(router: &Router, news: &mut Receiver<Arc<Notice>>, shown: &[Shown]) -> Vec<bool> {
    let mut told = vec![false; shown.len()];
    while let Ok(notice) = news.try_recv() {
        let NoticeBody::ToolsChanged { scope, .. } = &notice.body else { continue };
        for (told, shown) in told.iter_mut().zip(shown) {
            *told |= shown.changed(router, scope.as_ref());
        }
    }
    told
}

#[test]
fn a_change_reaches_those_who_are_shown_it() {
    let notices = Notices::new();
    let mut news = notices.subscribe();
    let directory = Directory::new(notices, support::MEMORY);
    let journal = Arc::new(support::Log::default());
    let router = Router::new(
        Arc::clone(&directory),
        journal,
        None,
        Policy::default(),
        RouterOptions::default(),
    );
    let room = Scope::Channel("room".into());
    let all = || Principal::new("a", "all", Role::Agent);
    let shown = [
        view(all(), &[]),
        view(all(), std::slice::from_ref(&room)),
        view(limited("notes*"), &[]),
        view(limited("mail*"), std::slice::from_ref(&room)),
        view(Principal::new("c", "page", Role::Participant), &[]),
    ]
    .map(|view| Shown::new(&router, view));

    let notes = directory.attach(attach("one", "g", tools(&["notes.read"]), connection())).unwrap();
    assert_eq!(told(&router, &mut news, &shown), [true, true, true, false, false]);
    let inside = Attach { scope: room, ..attach("two", "h", tools(&["mail.send"]), connection()) };
    let mail = directory.attach(inside).unwrap();
    assert_eq!(told(&router, &mut news, &shown), [false, true, false, true, false]);
    notes.publish(tools(&["notes.read", "other.tool"]));
    assert_eq!(
        told(&router, &mut news, &shown),
        [true, true, false, false, false],
        "the new tool is not for it"
    );
    notes.publish(tools(&["notes.write", "other.tool"]));
    assert_eq!(told(&router, &mut news, &shown), [true, true, true, false, false]);
    drop(notes);
    assert_eq!(
        told(&router, &mut news, &shown),
        [true, true, true, false, false],
        "it is offline now"
    );
    drop(mail);
    assert_eq!(told(&router, &mut news, &shown), [false, true, false, true, false]);
    let _other = directory.attach(attach("three", "i", tools(&["x.y"]), connection())).unwrap();
    assert_eq!(told(&router, &mut news, &shown), [true, true, false, false, false]);
}

#[test]
fn a_change_of_documents_reaches_tokens_that_can_include_some() {
    let directory = Directory::new(Notices::new(), support::MEMORY);
    let journal = Arc::new(support::Log::default());
    let router = Router::new(
        Arc::clone(&directory),
        journal,
        None,
        Policy::default(),
        RouterOptions::default(),
    );
    let mail = ProviderId::new("upstream", "mail");
    for (principal, of_mail, unknown) in [
        (Principal::new("a", "all", Role::Agent), true, true),
        (limited("*"), true, true),
        (limited("mail__*"), true, true),
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
        let shown = Shown::new(&router, view(principal, &[]));
        let told = (shown.documents_changed(Some(&mail)), shown.documents_changed(None));
        assert_eq!(told, (of_mail, unknown), "{shown:?}");
    }
}
