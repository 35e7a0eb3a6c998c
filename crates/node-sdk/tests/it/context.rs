//! A context has four public fields and nothing else, so any code can build or destructure it. Its
//! token is the link to the gateway. Every clone has it, on every task, for exactly as long as the
//! call runs.

use std::time::Duration;

use sa_node_sdk::{NodeTool as _, ToolContext, ToolError, ToolRegistry};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::support::*;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn a_test_puts_one_together_by_hand() {
    let ctx = ToolContext {
        request_id: "req-1".to_owned(),
        tool_name: "t.talk".to_owned(),
        session_key: Some("s".to_owned()),
        cancel: CancellationToken::new(),
    };
    assert_eq!((ctx.traceparent(), ctx.deadline()), (None, None));
    let tool = Tool(|ctx: ToolContext, _| async move {
        ctx.progress(1.0, None, None);
        ctx.chunk(json!("x".repeat(10 << 20))).await?;
        ctx.attach("text/plain", None, &vec![0; 10 << 20])?;
        // The pattern lists every field without `..`, so that it does not compile if there is one
        // more.
        let ToolContext { request_id, tool_name, session_key, cancel } = ctx;
        Ok(json!([request_id, tool_name, session_key, cancel.is_cancelled()]))
    });
    assert_eq!(tool.call(ctx, Value::Null).await, Ok(json!(["req-1", "t.talk", "s", false])));
}

#[tokio::test]
async fn a_clone_on_another_task_leads_back_to_the_gateway() {
    let gateway = Gateway::start().await;
    let registry = registry("t.split", |ctx: ToolContext, _| async move {
        let cancel = ctx.cancel.clone();
        let clone = ctx.clone();
        let by_clone = tokio::spawn(async move {
            clone.progress(1.0, None, Some("a clone"));
            clone.chunk(json!("from a clone")).await?;
            clone.attach("text/plain", Some("clone.txt"), b"hi")
        });
        by_clone.await??;
        // Code that has the token can rebuild the rest of the context.
        let by_token = tokio::task::spawn_blocking(move || {
            let again = ToolContext {
                request_id: String::new(),
                tool_name: String::new(),
                session_key: None,
                cancel,
            };
            again.progress(2.0, None, Some("the token"));
            again.traceparent()
        });
        let trace = by_token.await?;
        // Another token does not lead to the gateway.
        ToolContext { cancel: ctx.cancel.child_token(), ..ctx }.progress(
            3.0,
            None,
            Some("a child"),
        );
        Ok(json!(trace))
    });
    let node = Node::start(gateway.builder(), registry);
    let mut peer = gateway.welcome(&["tool_progress", "tool_chunk", "attachments"]).await;
    peer.send(json!({"type":"tool_request","request_id":"r","tool":"t.split","traceparent":TRACE}))
        .await;
    let mut frames = Vec::new();
    for _ in 0..4 {
        frames.push(peer.recv().await);
    }
    assert_eq!(
        json!(frames),
        json!([
            {"type":"tool_progress","request_id":"r","progress":1,"message":"a clone"},
            {"type":"tool_chunk","request_id":"r","content":"from a clone"},
            {"type":"tool_progress","request_id":"r","progress":2,"message":"the token"},
            {"type":"tool_response","request_id":"r","ok":true,"result":TRACE,
             "attachments":[{"mime_type":"text/plain","name":"clone.txt","data":"aGk="}]},
        ])
    );
    node.shut_down().await;
}

#[tokio::test]
async fn contexts_of_calls_with_the_same_id_are_not_mixed_up() {
    let registry =
        || registry("t.who", |ctx: ToolContext, _| async move { Ok(json!(ctx.traceparent())) });
    let (one, two) = (Gateway::start().await, Gateway::start().await);
    let nodes = [Node::start(one.builder(), registry()), Node::start(two.builder(), registry())];
    let mut peers = [one.welcome(&[]).await, two.welcome(&[]).await];
    for (trace, peer) in ["00-a", "00-b"].into_iter().zip(&mut peers) {
        peer.send(
            json!({"type":"tool_request","request_id":"same","tool":"t.who","traceparent":trace}),
        )
        .await;
    }
    for (trace, peer) in ["00-a", "00-b"].into_iter().zip(&mut peers) {
        assert_eq!(peer.recv().await["result"], trace);
    }
    for node in nodes {
        node.shut_down().await;
    }
}

/// Returns a tool that sends its context to the test, and then ends as its arguments specify.
fn keeper() -> (ToolRegistry, mpsc::UnboundedReceiver<ToolContext>) {
    let (give, contexts) = mpsc::unbounded_channel();
    let registry = registry("t.keep", move |ctx: ToolContext, args: Value| {
        let give = give.clone();
        async move {
            assert_eq!(ctx.traceparent().as_deref(), Some(TRACE), "a call that runs has its place");
            give.send(ctx.clone()).unwrap();
            match args.as_str() {
                Some("return") => Ok(json!(1)),
                Some("panic") => panic!("on purpose"),
                Some("polite") => {
                    ctx.cancel.cancelled().await;
                    Err(ToolError::Cancelled("stopped".into()))
                }
                _ => std::future::pending().await,
            }
        }
    });
    (registry, contexts)
}

fn keep(how: &str) -> Value {
    json!({"type":"tool_request","request_id":"r","tool":"t.keep","args":how,"traceparent":TRACE})
}

/// Waits until the call is no longer running. Only a running call has a trace.
async fn forgotten(ctx: &ToolContext) {
    let gone = async {
        while ctx.traceparent().is_some() {
            tokio::task::yield_now().await;
        }
    };
    soon(gone).await;
}

#[tokio::test]
async fn a_call_that_was_answered_is_forgotten() {
    let gateway = Gateway::start().await;
    let (registry, mut contexts) = keeper();
    let node = Node::start(gateway.builder().cancel_grace(Duration::from_millis(1)), registry);
    let mut peer = gateway.welcome(&["tool_cancel"]).await;
    for (how, kind) in [("return", None), ("panic", Some("failed"))] {
        peer.send(keep(how)).await;
        let answer = peer.recv().await;
        assert_eq!(answer["error"]["kind"].as_str(), kind, "{answer}");
        assert_eq!(soon(contexts.recv()).await.unwrap().traceparent(), None, "{how}");
    }
    for how in ["polite", "rude"] {
        peer.send(keep(how)).await;
        let ctx = soon(contexts.recv()).await.unwrap();
        peer.send(json!({"type":"tool_cancel","request_id":"r"})).await;
        assert_eq!(peer.recv().await["error"]["kind"], "cancelled");
        assert_eq!(ctx.traceparent(), None, "{how}");
    }
    node.shut_down().await;
}

#[tokio::test]
async fn a_call_whose_connection_is_lost_is_forgotten() {
    let gateway = Gateway::start().await;
    let (registry, mut contexts) = keeper();
    let node = Node::start(gateway.builder().cancel_grace(Duration::from_millis(1)), registry);
    for how in ["polite", "rude"] {
        let mut peer = gateway.welcome(&[]).await;
        peer.send(keep(how)).await;
        let ctx = soon(contexts.recv()).await.unwrap();
        drop(peer);
        forgotten(&ctx).await;
    }
    let mut peer = gateway.welcome(&[]).await;
    peer.send(keep("polite")).await;
    let ctx = soon(contexts.recv()).await.unwrap();
    node.shut_down().await;
    forgotten(&ctx).await;
}

#[test]
fn a_call_whose_runtime_is_dropped_is_forgotten() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ctx = runtime.block_on(async {
        let gateway = Gateway::start().await;
        let (registry, mut contexts) = keeper();
        let _node = Node::start(gateway.builder(), registry);
        let mut peer = gateway.welcome(&[]).await;
        peer.send(keep("rude")).await;
        soon(contexts.recv()).await.unwrap()
    });
    assert!(ctx.traceparent().is_some());
    drop(runtime);
    assert_eq!(ctx.traceparent(), None);
}

#[tokio::test]
async fn what_is_said_after_the_end_reaches_nobody() {
    let gateway = Gateway::start().await;
    let (registry, mut contexts) = keeper();
    let node = Node::start(gateway.builder(), registry);
    let mut peer = gateway.welcome(&["tool_progress", "tool_chunk"]).await;
    peer.send(keep("return")).await;
    assert_eq!(peer.recv().await["type"], "tool_response");
    let late = soon(contexts.recv()).await.unwrap();
    late.progress(9.0, None, None);
    late.chunk(json!("late")).await.unwrap();
    peer.send(json!({"type":"ping","timestamp":4})).await;
    assert_eq!(peer.recv().await, json!({"type":"pong","timestamp":4}));
    node.shut_down().await;
}
