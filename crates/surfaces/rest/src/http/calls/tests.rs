//! Rule: a filtered page returns the same as a scan of the history, and reads few calls.

use proptest::prelude::*;
use sa_core::store::{NewEntry, Retention};
use sa_store::{Labelled, OpenOptions, Store};
use serde_json::{Value, json};

use super::*;

fn principal(role: Role, id: &str) -> Principal {
    Principal::new(id, "p", role)
}

fn query(text: &str) -> CallsQuery {
    let uri = format!("http://gateway/v1/calls?{text}").parse().unwrap();
    let axum::extract::Query(query) = axum::extract::Query::try_from_uri(&uri).unwrap();
    query
}

fn open(dir: &std::path::Path) -> Store {
    let labelled = Some(Labelled { stream: CALLS, of: history::labels });
    Store::open(OpenOptions { labelled, ..OpenOptions::new(dir.join("store.db")) }).unwrap()
}

fn stored(tool: &str, exposed: Option<&str>, who: &str, kind: Option<&str>) -> (String, String) {
    let id = CallId::new().to_string();
    let mut call = json!({ "id": id, "tool": tool, "principal": { "id": who }, "ok": kind.is_none(), "args": {} });
    if let Some(exposed) = exposed {
        call["exposed"] = exposed.into();
    }
    if let Some(kind) = kind {
        call["error"] = json!({ "kind": kind });
    }
    (id, call.to_string())
}

fn record(store: &Store, (id, body): &(String, String)) {
    store.record(CALLS, Some(id), body.as_bytes());
}

async fn pages(store: &Store, who: &Principal, mut query: CallsQuery, limit: usize) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        let (calls, next) = ended_page(store, who, &query, limit).await.unwrap();
        assert!(calls.len() == limit || next.is_none(), "a page is full, or the last one");
        all.extend(calls.iter().map(|call| serde_json::from_str::<Value>(call.get()).unwrap()));
        match next {
            Some(next) => query.cursor = Some(next),
            None => return all,
        }
    }
}

#[tokio::test]
async fn a_rare_call_among_many_thousands_is_found_without_a_scan() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let rare = stored("rare.tool", Some("rare_tool"), "ann", Some("timeout"));
    record(&store, &rare);
    for n in 0..25_000 {
        record(
            &store,
            &stored("usual.tool", Some("usual_tool"), "bob", (n % 100 == 0).then_some("failed")),
        );
    }
    store.trim(CALLS, Retention::default()).await.unwrap();
    let (operator, ann) = (principal(Role::Operator, "op"), principal(Role::Agent, "ann"));
    for (who, text) in [
        (&operator, "tool=rare.tool".to_owned()),
        (&operator, "tool=rare_tool&outcome=timeout".to_owned()),
        (&operator, "outcome=timeout".to_owned()),
        (&operator, format!("id={}", rare.0)),
        (&ann, String::new()),
        (&ann, format!("id={}", &rare.0[..8])),
    ] {
        let found =
            store.search(CALLS, search(who, &query(&text)).unwrap(), u64::MAX, 51).await.unwrap();
        // A block of 256 calls takes one step per label, and no call is read.
        assert!(found.steps <= 2 * 99, "{text}: {} steps", found.steps);
        let (calls, next) = ended_page(&store, who, &query(&text), 50).await.unwrap();
        assert_eq!((calls.len(), next), (1, None), "{text}");
    }
    assert!(pages(&store, &principal(Role::Agent, "eve"), query(""), 50).await.is_empty());
    assert_eq!(pages(&store, &operator, query("outcome=failed"), 500).await.len(), 250);
}

#[test]
fn a_query_without_a_filter_reads_the_history_itself() {
    let check = |role, text, filtered| {
        assert_eq!(search(&principal(role, "p"), &query(text)).is_some(), filtered, "{text}");
    };
    check(Role::Operator, "", false);
    check(Role::Operator, "id=", false);
    check(Role::Operator, "tool=x", true);
    check(Role::Operator, "id=01K", true);
    check(Role::Agent, "", true);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn pages_are_what_a_scan_gives(
        calls in prop::collection::vec((0..3_usize, any::<bool>(), 0..3_usize, 0..3_usize), 0..60),
        trim in prop::option::of(0..60_u64),
        tool in prop::option::of(0..4_usize),
        outcome in prop::option::of(0..3_usize),
        id in prop::option::of((any::<prop::sample::Index>(), 0..=36_usize)),
        who in 0..4_usize,
        limit in 1..9_usize,
    ) {
        const TOOLS: [&str; 4] = ["a.b", "a_b", "c", "none"];
        const KINDS: [Option<&str>; 3] = [None, Some("timeout"), Some("failed")];
        const PEOPLE: [&str; 4] = ["ann", "bob", "eve", "op"];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let store = open(dir.path());
            let mut ids = Vec::new();
            for (tool, exposed, who, kind) in calls {
                let call = stored(TOOLS[tool], exposed.then_some("a_b"), PEOPLE[who], KINDS[kind]);
                record(&store, &call);
                ids.push(call.0);
            }
            store.append(NewEntry { stream: CALLS.into(), key: None, body: "no call".into() }).await.unwrap();
            store.trim(CALLS, Retention { entries: trim, ..Retention::default() }).await.unwrap();
            let mut text: Vec<String> = Vec::new();
            text.extend(tool.map(|tool| format!("tool={}", TOOLS[tool])));
            text.extend(outcome.map(|kind| format!("outcome={}", KINDS[kind].unwrap_or("ok"))));
            if let (Some((index, length)), false) = (id, ids.is_empty()) {
                text.push(format!("id={}", &index.get(&ids)[..length]));
            }
            let role = if who == 3 { Role::Operator } else { Role::Agent };
            let (who, text) = (principal(role, PEOPLE[who]), text.join("&"));
            let all = store.read_back(CALLS, u64::MAX, 1_000).await.unwrap();
            let scanned: Vec<Value> = all
                .iter()
                .filter_map(|entry| matching(entry, &who, &query(&text)))
                .map(|call| serde_json::from_str(call.get()).unwrap())
                .collect();
            let paged = pages_of_any_size(&store, &who, &text, limit).await;
            assert_eq!(paged, scanned, "{text}");
            store.verify().await.unwrap();
        });
    }
}

/// Collects all pages. A page without a filter may be short, because entries that are no calls are
/// left out.
async fn pages_of_any_size(store: &Store, who: &Principal, text: &str, limit: usize) -> Vec<Value> {
    let (mut all, mut query) = (Vec::new(), query(text));
    loop {
        let (calls, next) = ended_page(store, who, &query, limit).await.unwrap();
        all.extend(calls.iter().map(|call| serde_json::from_str::<Value>(call.get()).unwrap()));
        match next {
            Some(next) => query.cursor = Some(next),
            None => return all,
        }
    }
}
