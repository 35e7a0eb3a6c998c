//! Rule: a session ends when its token has expired by a trusted clock.

use std::sync::Arc;

use sa_core::{CallRequest, Principal, RawJson, Role, TraceContext, View};

use crate::gateway_for_tests::{YEAR_MS, start_after};
use crate::tokens::NewToken;

#[tokio::test]
async fn a_session_ends_when_its_token_has_expired_by_a_trusted_clock() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = start_after(dir.path(), YEAR_MS).await;
    let new = NewToken { expires_ms: Some(1), ..NewToken::new("bot", Role::Agent) };
    let (token, _) = gateway.tokens.create(new).await.unwrap();
    let request = CallRequest {
        tool: "session_message".into(),
        args: RawJson::empty_object(),
        view: View::of(Arc::new(Principal::new(&*token.id, "bot", Role::Agent))),
        surface: "test",
        session_key: None,
        timeout: None,
        idle_timeout: None,
        idempotency_key: None,
        trace: TraceContext::root(),
    };
    gateway.router.start(request, None).outcome().await.outcome.unwrap();
    let sessions = gateway.sessions.as_ref().unwrap();
    gateway.end_expired().await;
    assert_eq!(sessions.count().0, 1, "the clock may be wrong");
    assert!(gateway.trimmer.confirm().is_some());
    gateway.end_expired().await;
    assert_eq!(sessions.count().0, 0);
    gateway.shut_down().await;
    gateway.store.shutdown().await.unwrap();
}
