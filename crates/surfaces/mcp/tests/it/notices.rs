//! Events of a principal's sessions reach only the MCP clients of that principal.

#![expect(deprecated, reason = "what clients of the older revisions have")]

use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam, RequestMetaObject};
use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};
use sa_core::notice::{Notice, NoticeBody, SessionNoticeKind};
use sa_core::{Output, RawJson, Scope, Tool};
use sa_testkit::mcp::{Era, attach, connect, request};
use sa_testkit::{Gateway, Setup, soon};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Collects log notifications: the logger and the data.
#[derive(Clone)]
struct Hears(mpsc::UnboundedSender<(Option<String>, Value)>);

impl ClientHandler for Hears {
    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.0.send((message.logger, message.data)).unwrap();
    }
}

fn send(gateway: &Gateway, to: &str, kind: SessionNoticeKind, data: &Value) {
    let body = NoticeBody::Session { session: "s1".into(), kind, data: RawJson::of(data) };
    gateway.inner().notices.send(Notice { to: Some(to.into()), body });
}

#[tokio::test]
async fn a_session_sends_logs_without_a_level() {
    let gateway = Setup::new().start().await;
    let (mine, token) = gateway.token(json!({ "name": "me", "role": "caller" })).await;
    let (other, _) = gateway.token(json!({ "name": "other", "role": "caller" })).await;
    let (hears, mut received) = mpsc::unbounded_channel();
    let _client = connect(&gateway, &token, "", Era::Sessions, Hears(hears)).await.unwrap();
    send(&gateway, &other, SessionNoticeKind::Event, &json!({ "not": "mine" }));
    send(&gateway, &mine, SessionNoticeKind::CallerToolRequest, &json!({ "tool": "t" }));
    send(&gateway, &mine, SessionNoticeKind::Event, &json!({ "text": "hi" }));
    let (logger, data) = soon(received.recv()).await.unwrap();
    assert_eq!((logger.as_deref(), data), (Some("oubliette.caller_tool"), json!({ "tool": "t" })));
    let (logger, data) = soon(received.recv()).await.unwrap();
    assert_eq!((logger.as_deref(), data), (Some("oubliette.session"), json!({ "text": "hi" })));
}

#[tokio::test]
async fn without_sessions_a_session_message_call_that_asked_for_a_level_carries_it() {
    let gateway = Setup::new().config("[sessions]\nenabled = false").start().await;
    let (mine, token) = gateway.token(json!({ "name": "me", "role": "caller" })).await;
    let (running, mut runs) = mpsc::unbounded_channel();
    let (end, ends) = tokio::sync::watch::channel(false);
    let _sessions = attach(
        &gateway.inner().router,
        "sessions",
        Scope::Everyone,
        vec![Tool::named("session_message")],
        move |_, _| {
            let (running, mut ends) = (running.clone(), ends.clone());
            Box::pin(async move {
                running.send(()).unwrap();
                ends.wait_for(|end| *end).await.unwrap();
                Ok(Output::json(RawJson::null()))
            })
        },
    );
    let (hears, mut received) = mpsc::unbounded_channel();
    let client = connect(&gateway, &token, "", Era::Stateless, Hears(hears)).await.unwrap();
    let quiet = request("session_message", json!({}));
    let mut loud = quiet.clone();
    let mut meta = RequestMetaObject::new();
    meta.set_log_level(LoggingLevel::Warning);
    loud.meta = Some(meta);
    let calls = async { tokio::join!(client.call_tool(quiet), client.call_tool(loud)) };
    let changes = async {
        for _ in 0..2 {
            soon(runs.recv()).await.unwrap();
        }
        // At this level the client receives no events, but a caller tool request is still sent,
        // once.
        send(&gateway, &mine, SessionNoticeKind::Event, &json!({ "text": "hi" }));
        send(&gateway, &mine, SessionNoticeKind::CallerToolRequest, &json!({ "tool": "t" }));
        let (logger, _) = soon(received.recv()).await.unwrap();
        assert_eq!(logger.as_deref(), Some("oubliette.caller_tool"));
        end.send(true).unwrap();
    };
    let ((quiet, loud), ()) = tokio::join!(calls, changes);
    assert!(quiet.is_ok() && loud.is_ok());
    assert!(received.try_recv().is_err());
}
