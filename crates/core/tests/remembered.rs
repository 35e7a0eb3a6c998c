//! Rule: providers that are remembered across a restart hold the same names with the same rank as
//! before, and no others.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sa_core::directory::{Attach, Directory, Registration, SavedProvider, Unresolved};
use sa_core::*;
use sa_limits::budget::{Holder, Limit, Permit, SharedBudget};
use support::*;

fn saved(catalog: Catalog) -> Catalog {
    Catalog { saved: true, ..catalog }
}

fn add(
    directory: &Arc<Directory>,
    id: &str,
    grant: &str,
    catalog: Catalog,
) -> (Connection, Registration) {
    let connection = connection();
    let attach = Attach {
        ..attach(id, grant, saved(catalog), Arc::clone(&connection) as Arc<dyn Provider>)
    };
    (connection, directory.attach(attach).unwrap())
}

/// A store: the last saved state of each provider.
#[derive(Default)]
struct Saved(BTreeMap<Arc<str>, SavedProvider>);

impl Saved {
    fn save(&mut self, directory: &Directory) {
        loop {
            let batch = directory.take_unsaved_providers(2);
            if batch.is_empty() {
                return;
            }
            for (id, provider) in batch {
                match provider {
                    Some(provider) => drop(self.0.insert(id.id, provider)),
                    None => drop(self.0.remove(&id.id)),
                }
            }
        }
    }

    fn restore(&self, directory: &Directory) {
        directory.restore("node", self.0.values().cloned().collect(), |_| Some(permit()));
    }

    fn ids(&self) -> Vec<&str> {
        self.0.keys().map(|id| &**id).collect()
    }
}

fn permit() -> Arc<Permit> {
    let limit = Limit { name: "t", what: "t", key: "t", remedy: "t", total: 1_000 };
    Arc::new(SharedBudget::new(limit).acquire(&Holder::anonymous(), 1).unwrap())
}

fn offline_at(directory: &Directory, name: &str) -> String {
    match directory.resolve(name, &view()) {
        Err(Unresolved::Offline { absence, .. }) => absence.provider.id.to_string(),
        other => panic!("{name}: {other:?}"),
    }
}

fn online_at(directory: &Directory, name: &str) -> String {
    directory.resolve(name, &view()).unwrap().id.id.to_string()
}

#[test]
fn a_restart_changes_nothing_about_names() {
    let before = directory();
    let mut store = Saved::default();
    let host = || Catalog { bare_names: true, ..tools(&["a.b", "Bash"]) };
    let (_a, _first) = add(&before, "first", "g", host());
    let (_b, _second) = add(&before, "second", "h", tools(&["a.b", "c.d"]));
    let (_c, open) = add(&before, "open", "", prefixes(&["e"]));
    drop(open);
    store.save(&before);
    before.save_absences();
    store.save(&before);
    assert_eq!(store.ids(), ["first", "open", "second"]);
    assert!(store.0["open"].gone_for.is_some() && store.0["first"].gone_for.is_none());

    let after = directory();
    store.restore(&after);
    for (name, provider) in
        [("a.b", "first"), ("Bash", "first"), ("c_d", "second"), ("e.f", "open")]
    {
        assert_eq!(offline_at(&after, name), provider, "{name}");
    }
    let names = |directory: &Directory| {
        directory
            .list(&view(), None, 9, |_| true)
            .tools
            .into_iter()
            .map(|tool| tool.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&after), names(&before));
    // The younger claim does not get the name by attaching first.
    let (_b, _second) = add(&after, "second", "h", tools(&["a.b", "c.d"]));
    assert_eq!(offline_at(&after, "a.b"), "first");
    assert_eq!(online_at(&after, "c.d"), "second");
    let (_a, _first) = add(&after, "first", "g", host());
    assert_eq!(online_at(&after, "a.b"), "first");
}

#[test]
fn without_a_token_a_remembered_provider_outranks_nothing() {
    let before = directory();
    let mut store = Saved::default();
    let (_c, _open) =
        add(&before, "open", "", Catalog { bare_names: true, ..tools(&["a.b", "Bash"]) });
    store.save(&before);
    let after = directory();
    store.restore(&after);
    assert_eq!(offline_at(&after, "a.b"), "open");
    let (_d, _token) =
        add(&after, "token", "g", Catalog { bare_names: true, ..tools(&["a.b", "Bash"]) });
    assert_eq!(
        (online_at(&after, "a_b"), online_at(&after, "Bash")),
        ("token".into(), "token".into())
    );
    // An id belongs to the better rank, too.
    let installed = Attach {
        grant: Grant::installed("plugin"),
        ..attach("open", "", tools(&["x"]), connection())
    };
    let id = ProviderId::new("plugin", "open");
    let _plugin = after.attach(Attach { id, ..installed }).unwrap();
    assert!(after.members("node").iter().all(|member| &*member.id.id != "open"));
    store.save(&after);
    assert_eq!(store.ids(), ["token"], "what was forgotten is deleted");
}

#[test]
fn remembered_providers_are_bounded() {
    let before = directory();
    let mut store = Saved::default();
    let all: Vec<_> = (0..1_100).map(|n| add(&before, &format!("n{n}"), "", tools(&[]))).collect();
    let _kept = add(&before, "kept", "g", tools(&["a"]));
    store.save(&before);
    assert_eq!(store.0.len(), all.len() + 1);
    let after = directory();
    store.restore(&after);
    assert_eq!(after.members("node").len(), 1_024 + 1, "no grant pushes another one out");
    store.save(&after);
    assert_eq!(store.0.len(), 1_024 + 1);

    // Providers that are not admitted are deleted.
    let after = directory();
    after.restore("node", store.0.values().cloned().collect(), |node| {
        (node.grant.rank == Rank::Token).then(permit)
    });
    store.save(&after);
    assert_eq!(store.ids(), ["kept"]);

    // Expired providers are deleted, too.
    let mut old = store.0["kept"].clone();
    old.gone_for = Some(MEMORY);
    let after = directory();
    after.restore("node", vec![old], |_| Some(permit()));
    store.save(&after);
    assert_eq!(store.ids(), [] as [&str; 0]);
}

#[test]
fn a_call_after_a_restart_waits_and_names_the_offline_provider() {
    simulate(async {
        let before = directory();
        let mut store = Saved::default();
        let _node = add(&before, "n", "", prefixes(&["a"]));
        store.save(&before);
        let gateway = gateway(RouterOptions {
            reconnect_timeout: Duration::from_secs(5),
            ..RouterOptions::default()
        });
        store.restore(&gateway.directory);
        let (_, waiting) = gateway.start(request("a.b"));
        let late = waiting.await.unwrap();
        let error = assert_error(&late, CallErrorKind::Offline, "disconnected 5 s ago");
        assert!(error.retryable);
        let (_, unknown) = gateway.start(request("b.b"));
        assert_error(&unknown.await.unwrap(), CallErrorKind::NotFound, "b.b");
    });
    simulate(async {
        let before = directory();
        let mut store = Saved::default();
        let _node = add(&before, "n", "", prefixes(&["a"]));
        store.save(&before);
        let gateway = gateway(RouterOptions::default());
        store.restore(&gateway.directory);
        let (id, waiting) = gateway.start(request("a.b"));
        settle().await;
        let (back, _registration) = add(&gateway.directory, "n", "", prefixes(&["a"]));
        settle().await;
        assert!(back.complete(id, ok("1")));
        assert!(waiting.await.unwrap().outcome.is_ok());
    });
}

/// Two ids with the same spelling in exposed names, saved at different times.
#[test]
fn of_two_saved_providers_with_one_id_the_better_rank_is_restored() {
    let mut store = Saved::default();
    for (id, grant) in [("a.b", ""), ("a_b", "g")] {
        let before = directory();
        let _node = add(&before, id, grant, tools(&["x.y"]));
        store.save(&before);
    }
    let after = directory();
    store.restore(&after);
    assert_eq!(offline_at(&after, "x.y"), "a_b");
    store.save(&after);
    assert_eq!(store.ids(), ["a_b"]);
}
