//! Clients call each other's methods. Arguments are checked, parts and progress are streamed, and a
//! cancel reaches the method. Every call ends, with a code for the reason.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use sa_messaging::{CallOptions, Client, Error, EventFilter, Method, MethodContext, SendOptions};
use sa_testkit::messaging::{client, find, join};
use sa_testkit::{Gateway, Hello, Participant, Setup, eventually, soon};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Search {
    /// Glob pattern
    pattern: String,
    #[serde(default = "hundred")]
    max_results: u32,
}

fn hundred() -> u32 {
    100
}

/// Connects a worker with methods of all kinds.
async fn worker(gateway: &Gateway, dropped: &Arc<Notify>) -> Client {
    let (dropped, stuck) = (Arc::clone(dropped), CancellationToken::new());
    client(gateway, "worker")
        .await
        .kind("worker")
        .cancel_grace(Duration::from_millis(50))
        .method(
            Method::new("search", async |args: Search, context: MethodContext| {
                for n in 0..3 {
                    context.stream(format!("{}{n}", args.pattern)).await?;
                    context.progress(f64::from(n) * 50.0).await?;
                }
                Ok::<_, Error>(
                    json!({ "count": 3, "most": args.max_results, "caller": context.caller_id }),
                )
            })
            .description("Search for files")
            .streaming(true)
            .timeout(Duration::from_secs(30)),
        )
        .method(Method::raw("fail", json!({}), async |code: Value, _: MethodContext| {
            match code["code"].as_str() {
                Some(code) => Err::<(), _>(Error::from_code(code, "as asked")),
                None => panic!("a method's own fault"),
            }
        }))
        .method(Method::raw(
            "long",
            json!({ "type": "object" }),
            async |_: Value, context: MethodContext| {
                context.stream("begun").await?;
                context.signal.cancelled().await;
                Ok::<_, Error>(json!({ "cancelled": true }))
            },
        ))
        .method(Method::raw("stuck", json!({}), move |_: Value, context: MethodContext| {
            let guard = scopeguard(Arc::clone(&dropped));
            let stuck = stuck.clone();
            async move {
                let _guard = guard;
                context.stream("begun").await?;
                stuck.cancelled().await;
                Ok::<_, Error>(())
            }
        }))
        .connect()
        .await
        .unwrap()
}

/// Returns a value that sends a notification when it is dropped.
fn scopeguard(notify: Arc<Notify>) -> impl Send {
    struct Guard(Arc<Notify>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    Guard(notify)
}

async fn workshop(gateway: &Gateway) -> (Client, Client, Arc<Notify>) {
    let dropped = Arc::new(Notify::new());
    let worker = worker(gateway, &dropped).await;
    let ann = join(gateway, "ann").await;
    (worker, ann, dropped)
}

fn code(result: Result<sa_messaging::MethodValue, Error>) -> String {
    result.unwrap_err().code().to_owned()
}

#[tokio::test]
async fn a_method_is_found_called_and_answers_bit_by_bit() {
    let gateway = Setup::new().start().await;
    let (_worker, ann, _) = workshop(&gateway).await;
    let found = ann.discover_methods();
    let search = found.iter().find(|found| found.method.name == "search").unwrap();
    assert_eq!(
        (search.provider_id.as_str(), found.len()),
        ("worker", ann.discover_methods_from("worker").len())
    );
    assert_eq!(search.method.parameters["properties"]["pattern"]["description"], "Glob pattern");
    assert_eq!((search.method.streaming, search.method.timeout), (true, Some(30_000)));

    let call =
        ann.call_method("worker", "search", json!({ "pattern": "*.rs" }), CallOptions::new());
    let parts: Vec<_> = soon(call.stream().collect()).await;
    let contents: Vec<_> = parts.iter().filter_map(|part| part.content.clone()).collect();
    assert_eq!(contents, ["*.rs0", "*.rs1", "*.rs2"]);
    assert_eq!(
        parts.iter().filter_map(|part| part.progress).collect::<Vec<_>>(),
        [0.0, 50.0, 100.0]
    );
    let value = soon(call.result()).await.unwrap();
    assert_eq!(value.content, json!({ "count": 3, "most": 100, "caller": "ann" }));
    assert_eq!(soon(call.result()).await.unwrap(), value, "it can be asked for again");
    assert!(call.is_complete() && !call.is_error() && call.progress() == Some(100.0));
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_that_cannot_be_done_says_why() {
    let gateway = Setup::new().start().await;
    let (worker, ann, _) = workshop(&gateway).await;
    let call = async |provider: &str, method: &str, args: Value| {
        soon(ann.call_method(provider, method, args, CallOptions::new()).result()).await
    };
    assert_eq!(code(call("nobody", "search", json!({})).await), "provider-not-found");
    assert_eq!(code(call("worker", "dance", json!({})).await), "method-not-found");
    let missing = call("worker", "search", json!({ "maxResults": -1 })).await.unwrap_err();
    assert_eq!(missing.code(), "validation-error");
    assert!(
        missing.to_string().contains("pattern") && missing.to_string().contains("maxResults"),
        "{missing}"
    );
    for wanted in
        ["timeout", "cancelled", "validation-error", "execution-error", "provider-offline"]
    {
        assert_eq!(code(call("worker", "fail", json!({ "code": wanted })).await), wanted);
    }
    assert_eq!(
        code(call("worker", "fail", json!({})).await),
        "execution-error",
        "a panic is that call's failure"
    );
    let schema = json!({ "type": "object", "required": ["pattern"] });
    let unsent =
        ann.call_method("worker", "search", json!({}), CallOptions::new().validate_args(schema));
    assert!(unsent.is_complete() && unsent.is_error(), "it is not even sent");

    let started = CallOptions::new().timeout(Duration::from_millis(200));
    assert_eq!(
        code(soon(ann.call_method("worker", "long", json!({}), started).result()).await),
        "timeout"
    );

    // When a provider disconnects, its calls end at once.
    let call = ann.call_method("worker", "long", json!({}), CallOptions::new());
    assert_eq!(soon(call.stream().next()).await.unwrap().content, Some(json!("begun")));
    drop(worker);
    assert_eq!(code(soon(call.result()).await), "provider-offline");
    gateway.stop().await;
}

#[tokio::test]
async fn a_cancel_reaches_the_method() {
    let gateway = Setup::new().start().await;
    let (_worker, ann, dropped) = workshop(&gateway).await;
    let begun = async |method: &str, options: CallOptions| {
        let call = ann.call_method("worker", method, json!({}), options);
        assert_eq!(soon(call.stream().next()).await.unwrap().content, Some(json!("begun")));
        call
    };
    let mut heard = ann.events(EventFilter::default());
    let call = begun("long", CallOptions::new()).await;
    call.cancel();
    call.cancel();
    assert_eq!(code(soon(call.result()).await), "cancelled", "its caller does not wait for it");
    assert_eq!((call.is_complete(), call.is_error()), (true, true));
    let last = find(&mut heard, |event| match event {
        sa_messaging::Event::MethodResult(result)
            if result.call_id == call.id() && result.complete =>
        {
            Some(result)
        }
        _ => None,
    })
    .await;
    assert_eq!(
        last.content,
        Some(json!({ "cancelled": true })),
        "what a method still has to say is heard"
    );

    let over = CancellationToken::new();
    over.cancel();
    let call = ann.call_method("worker", "long", json!({}), CallOptions::new().signal(over));
    assert_eq!(code(soon(call.result()).await), "cancelled");
    let last = ann.send("after it", SendOptions::default()).await.unwrap().pubsub_id;
    let seen = soon(heard.next()).await.unwrap();
    assert_eq!(seen.envelope().unwrap().pubsub_id, last, "it was never made: {seen:?}");

    let signal = CancellationToken::new();
    let call = begun("stuck", CallOptions::new().signal(signal.clone())).await;
    signal.cancel();
    assert_eq!(code(soon(call.result()).await), "cancelled");
    soon(dropped.notified()).await;

    let call = begun("stuck", CallOptions::new()).await;
    drop(call);
    soon(dropped.notified()).await;
    gateway.stop().await;
}

#[tokio::test]
async fn methods_go_both_ways_at_once() {
    let gateway = Setup::new().start().await;
    let twice = || {
        Method::raw("twice", json!({ "type": "object" }), async |args: Value, _: MethodContext| {
            Ok::<_, String>(args["n"].as_u64().unwrap_or_default() * 2)
        })
    };
    let ann = client(&gateway, "ann").await.method(twice()).connect().await.unwrap();
    let bob = client(&gateway, "bob").await.method(twice()).connect().await.unwrap();
    eventually("bob's method", || async { ann.discover_methods().first().cloned() }).await;
    let call = |from: &Client, to: &str, n: u64| {
        let call = from.call_method(to, "twice", json!({ "n": n }), CallOptions::new());
        async move { (n, soon(call.result()).await.unwrap().content) }
    };
    let calls = (0..50).flat_map(|n| [call(&ann, "bob", n), call(&bob, "ann", n)]);
    for (n, answer) in futures_util::future::join_all(calls).await {
        assert_eq!(answer, json!(n * 2));
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_result_counts_from_the_provider_alone() {
    let gateway = Setup::new().start().await;
    let (_worker, ann, _) = workshop(&gateway).await;
    let mut eve = Participant::join(&gateway, "room", "eve").await;
    let call = ann.call_method("worker", "long", json!({}), CallOptions::new());
    soon(call.stream().next()).await.unwrap();
    let forged = json!({ "callId": call.id(), "content": "forged", "complete": true });
    assert_eq!(eve.say("method-result", forged).await["code"], "not-allowed");
    assert_eq!(
        eve.say("method-cancel", json!({ "callId": call.id() })).await["code"],
        "not-allowed"
    );
    ann.send("still here", SendOptions::default()).await.unwrap();
    assert!(!call.is_complete());
    call.cancel();
    assert_eq!(code(soon(call.result()).await), "cancelled");
    gateway.stop().await;
}

#[tokio::test]
async fn a_tool_of_the_gateways_is_a_method_too() {
    let gateway = Setup::new().start().await;
    let mut node = Hello::new("laptop").capability("demo").connect(&gateway).await;
    for name in ["ann", "bob"] {
        Participant::token_with_tools(&gateway, name, &["demo.*"]).await;
    }
    let ann = join(&gateway, "ann").await;
    let call = ann.call_method("switchboard", "demo.echo", json!({ "a": 1 }), CallOptions::new());
    let request = node.request().await;
    node.answer(&request.id, json!({ "b": 2 })).await;
    assert_eq!(soon(call.result()).await.unwrap().content, json!({ "b": 2 }));

    // A caller that disconnects during such a call finds the result in the log.
    let bob = join(&gateway, "bob").await;
    let mut heard = ann.events(EventFilter::default());
    let call = bob.call_method("switchboard", "demo.slow", json!({}), CallOptions::new());
    let request = node.request().await;
    bob.close().await;
    node.cancelled(&request).await;
    let end = find(&mut heard, |event| match event {
        sa_messaging::Event::MethodResult(result) if result.call_id == call.id() => {
            Some(result.payload)
        }
        _ => None,
    })
    .await;
    assert_eq!((end.complete, end.content.unwrap()["code"].clone()), (true, json!("cancelled")));
    gateway.stop().await;
}
