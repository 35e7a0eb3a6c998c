//! Rules: one principal cannot use all sessions, and others and operators still get one. An agent
//! cannot leave its sandbox by asking another agent.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use sa_core::retention::{Reading, Trimmer, TrustedClock};
use sa_core::{CallRecord, CallStarted, Directory, Policy, RouterOptions};
use sa_store::{OpenOptions, Store};

use super::*;

struct Silent;

impl Journal for Silent {
    fn started(&self, _: &CallStarted) {}

    fn finished(&self, _: CallRecord) {}

    fn backpressure(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    fn audit(&self, _: AuditEvent) {}

    fn count(&self, _: &'static str, _: &'static str) {}
}

async fn sessions(dir: &std::path::Path, max_sessions: usize) -> Arc<Sessions> {
    with_agents(dir, max_sessions, BTreeMap::new()).await
}

async fn with_agents(
    dir: &std::path::Path,
    max_sessions: usize,
    agents: BTreeMap<String, crate::AgentCommand>,
) -> Arc<Sessions> {
    let store = Store::open(OpenOptions::new(dir.join("store.db"))).unwrap();
    let (minute, notices) = (Duration::from_secs(60), Notices::new());
    let directory = Directory::new(notices.clone(), minute);
    let router =
        Router::new(directory, Arc::new(Silent), None, Policy::default(), RouterOptions::default());
    let options = Options {
        socket_dir: dir.to_owned(),
        data_dir: dir.to_owned(),
        hidden: Vec::new(),
        trimmer: Arc::new(Trimmer::new(TrustedClock::new(None), || Reading {
            wall_ms: 0,
            uptime_ms: 0,
        })),
        program: "/bin/false".into(),
        timeout: minute,
        caller_grace: minute,
        idle: minute,
        agent_timeout: minute,
        max_sessions,
        max_pending: 1,
        max_line_bytes: 1_000,
        budgets: crate::Budgets {
            connections: budget("connections"),
            requests: budget("requests"),
            answers: budget("answers"),
        },
        keep_events: 10,
        keep_event_bytes: 1 << 20,
        max_stored_bytes: 1 << 30,
        keep: minute,
        agents,
        default_agent: String::new(),
    };
    Sessions::start(router, notices, Arc::new(store.clone()), Arc::new(store), options)
        .await
        .unwrap()
}

fn budget(name: &'static str) -> Arc<SharedBudget> {
    SharedBudget::new(Limit { name, what: name, key: "k", remedy: "wait", total: 1 << 20 })
}

fn principal(id: &str, role: Role) -> Arc<Principal> {
    Arc::new(Principal::new(id, id, role))
}

async fn open(
    sessions: &Arc<Sessions>,
    principal: &Arc<Principal>,
) -> Result<Arc<Session>, CallError> {
    sessions
        .message(principal, &RawJson::empty_object(), None)
        .await
        .map(|accepted| accepted.session)
}

#[tokio::test]
async fn an_agent_cannot_take_every_session() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = sessions(dir.path(), 16).await;
    let (greedy, other) = (principal("greedy", Role::Agent), principal("other", Role::Agent));
    let mut own = Vec::new();
    let refused = loop {
        match open(&sessions, &greedy).await {
            Ok(session) => own.push(session),
            Err(error) => break error,
        }
    };
    assert_eq!(own.len(), 12, "three quarters");
    assert_eq!((refused.kind, refused.retryable), (CallErrorKind::Overloaded, true));
    assert!(
        refused.message.contains("12 of 16 open sessions")
            && refused.message.contains("12 of them by this")
    );
    assert!(
        refused
            .hint
            .as_deref()
            .is_some_and(|hint| hint.contains("session_end") && hint.contains("sessions.max_open"))
    );

    for _ in 0..3 {
        open(&sessions, &other).await.unwrap();
    }
    open(&sessions, &principal("third", Role::Agent))
        .await
        .expect_err("the last one is for operators");
    open(&sessions, &principal("operator", Role::Operator)).await.unwrap();

    // An ended session is available to others at once.
    sessions.end(&greedy, &own[0].id).await.unwrap();
    assert_eq!(sessions.budgets()[0].used(), 15);
    sessions.end_owned("greedy", "over").await;
    sessions.end_owned("other", "over").await;
    open(&sessions, &greedy).await.unwrap();
    sessions.shut_down().await;
    assert_eq!(sessions.budgets()[0].used(), 0);
}

#[tokio::test]
async fn an_agent_in_a_sandbox_uses_only_agents_that_are_as_confined() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    std::fs::create_dir_all(work.join("inner")).unwrap();
    let agents = json!({
        "free": { "command": ["x"] },
        "boxed": { "command": ["x"], "sandbox": true, "network": false, "dir": work, "read": ["/srv/a"] },
        "same": { "command": ["x"], "sandbox": true, "network": false, "dir": work, "read": ["/srv/a"] },
        "smaller": { "command": ["x"], "sandbox": true, "network": false, "dir": work.join("inner"), "read": ["/srv/a/b"] },
        "least": { "command": ["x"], "sandbox": true, "network": false },
        "online": { "command": ["x"], "sandbox": true },
        "elsewhere": { "command": ["x"], "sandbox": true, "network": false, "dir": dir.path() },
        "reader": { "command": ["x"], "sandbox": true, "network": false, "read": ["/srv/ab"] },
    });
    let sessions = with_agents(dir.path(), 64, serde_json::from_value(agents).unwrap()).await;
    let owner = principal("owner", Role::Agent);
    let ask = async |args: serde_json::Value, within: Option<&Arc<Session>>| {
        sessions.message(&owner, &RawJson::of(&args), within).await.map(|accepted| accepted.session)
    };
    let boxed = ask(json!({ "agent": "boxed" }), None).await.unwrap();
    let free = ask(json!({ "agent": "free" }), None).await.unwrap();
    let waiting = ask(json!({}), None).await.unwrap();
    for name in ["same", "smaller", "least"] {
        let child = ask(json!({ "agent": name }), Some(&boxed)).await.expect(name);
        ask(json!({ "session_id": &*child.id }), Some(&boxed)).await.expect(name);
    }
    for name in ["free", "online", "elsewhere", "reader"] {
        let refused = ask(json!({ "agent": name }), Some(&boxed)).await.expect_err(name);
        assert_eq!(refused.kind, CallErrorKind::NotAllowed, "{name}");
        let names_both = refused.message.contains(&format!("\"{name}\""))
            && refused.message.contains("\"boxed\"");
        assert!(names_both && refused.message.contains("as confined"), "{}", refused.message);
    }
    // Neither with an open session, nor with one that waits for an external agent.
    let refused = async |args: serde_json::Value| {
        ask(args.clone(), Some(&boxed)).await.expect_err(&args.to_string()).kind
    };
    for session in [&free, &waiting] {
        assert_eq!(refused(json!({ "session_id": &*session.id })).await, CallErrorKind::NotFound);
    }
    assert_eq!(refused(json!({})).await, CallErrorKind::NotAllowed);
    // A message to its own caller is not a task for another agent.
    ask(json!({ "session_id": &*boxed.id }), Some(&boxed)).await.unwrap();
    for within in [&free, &waiting] {
        ask(json!({ "agent": "boxed" }), Some(within)).await.unwrap();
        ask(json!({ "agent": "free" }), Some(within)).await.unwrap();
    }
    sessions.shut_down().await;
}
