//! Participants in Rust and in TypeScript work together in one channel. They call methods in both
//! directions, with parts, progress, cancels, errors and bytes. Agents and nodes outside the
//! channel take part through the gateway.

use futures_util::StreamExt as _;
use sa_gateway_kit::mcp::{ERAS, connect, names, request, value};
use sa_gateway_kit::messaging::{client, find, join};
use sa_gateway_kit::{Participant, SdkNode, Setup, soon};
use sa_messaging::{
    AgentToolsOptions, Attachment, CallOptions, Client, Event, EventFilter, Method, MethodContext,
    MethodOutput, SendOptions, tools_for_agent,
};
use serde_json::{Value, json};

use crate::SWITCHBOARD;
use crate::messaging::javascript::Programs;

/// Returns the same bytes as the TypeScript programs generate.
fn pattern(size: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        (state >> 16) as u8
    };
    std::iter::repeat_with(next).take(size).collect()
}

fn png(size: usize) -> Attachment {
    Attachment::new("image/png", pattern(size))
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Picture {
    bytes: usize,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Images {
    count: usize,
}

async fn provider(gateway: &sa_gateway_kit::Gateway) -> Client {
    let picture = Method::new("picture", async |args: Picture, _: MethodContext| {
        let picture = png(args.bytes).id("pic").name("picture.png");
        let output = MethodOutput::new(json!({ "size": args.bytes }), vec![picture])?;
        Ok::<_, sa_messaging::Error>(output.content_type("application/x-picture"))
    });
    let images = Method::new("images", async |args: Images, context: MethodContext| {
        for index in 0..args.count {
            let image = vec![png(1_000 + index)];
            context.stream_with_attachments(json!({ "index": index }), image, None).await?;
            context.progress((100.0 * (index + 1) as f64 / args.count as f64).round()).await?;
        }
        Ok::<_, sa_messaging::Error>(json!({ "sent": args.count }))
    });
    let wait = Method::raw(
        "wait",
        json!({ "type": "object" }),
        async |_: Value, context: MethodContext| {
            context.stream("waiting").await?;
            context.signal.cancelled().await;
            Ok::<_, sa_messaging::Error>("stopped")
        },
    );
    let broken = Method::raw(
        "broken",
        json!({}),
        async |_: Value, _: MethodContext| -> Result<(), String> {
            panic!("this one never works");
        },
    );
    let word = Method::raw("word", json!({}), async |_: Value, _: MethodContext| {
        Ok::<_, String>("wörd \u{1f44b}")
    });
    let native =
        client(gateway, "native").await.method(picture).method(wait).method(broken).method(word);
    let images = images.streaming(true).timeout(std::time::Duration::from_secs(20));
    native.method(images).connect().await.unwrap()
}

#[tokio::test]
async fn a_program_in_typescript_uses_the_methods_of_one_in_rust() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let node = SdkNode::echo(&gateway, "demo").await;
    let native = provider(&gateway).await;
    let mut events = native.events(EventFilter { targeted_only: true, ..EventFilter::default() });
    let answering = async {
        let message = find(&mut events, |event| match event {
            Event::Message(message) => Some(message),
            _ => None,
        })
        .await;
        let [bytes] = &message.envelope.attachments[..] else { panic!("{message:?}") };
        assert_eq!((&*bytes.id, &*bytes.mime_type), ("all", "application/octet-stream"));
        assert_eq!(message.envelope.sender_id, "visitor");
        assert_eq!(bytes.data, pattern(70_000));
        let back: Vec<u8> = bytes.data.iter().rev().copied().collect();
        let back = Attachment::new("application/octet-stream", back);
        native
            .send("got it", SendOptions { attachments: vec![back], ..SendOptions::default() })
            .await
            .unwrap();
        std::future::pending::<()>().await;
    };
    let programs = Programs::install();
    let visitor = programs.program(&gateway, "visitor", &["visitor"]).await;
    let ended = tokio::select! {
        ended = visitor.run() => ended,
        () = answering => unreachable!("it waits for the end of the other"),
    };
    assert_eq!(ended.assert_code(0).stdout, "all well\n", "{}", ended.stderr);
    node.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_program_in_rust_uses_the_methods_of_one_in_typescript() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let programs = Programs::install();
    let worker = programs.worker(&gateway).await;
    let ann = join(&gateway, "ann").await;
    let call =
        |method: &str, args: Value| ann.call_method("worker", method, args, CallOptions::new());

    let shot = soon(call("screenshot", json!({ "bytes": 3 << 20 })).result()).await.unwrap();
    assert_eq!(shot.content, json!({ "width": 1920, "height": 1080, "format": "png" }));
    let [image] = &shot.attachments[..] else { panic!("{shot:?}") };
    assert_eq!((&*image.id, image.name.as_deref()), ("img_a", Some("screen.png")));
    assert_eq!(image.data, pattern(3 << 20));

    let searching = call("search", json!({ "pattern": ".ts" }));
    let parts: Vec<_> = soon(searching.stream().collect::<Vec<_>>()).await;
    let parts: Vec<Value> = parts
        .into_iter()
        .map(|part| part.content.unwrap_or_else(|| json!(part.progress)))
        .collect();
    assert_eq!(
        parts,
        [
            json!({ "file": "a.ts", "found": true }),
            json!(50.0),
            json!({ "file": "b.ts", "found": true }),
            json!(100.0)
        ]
    );
    assert_eq!(soon(searching.result()).await.unwrap().content, json!(["a.ts", "b.ts"]));
    let drawing = call("streamImages", json!({ "prompts": ["one", "two"] }));
    let images: Vec<_> = soon(drawing.stream().collect::<Vec<_>>()).await;
    assert_eq!(
        images.iter().map(|part| part.attachments[0].data.to_vec()).collect::<Vec<_>>(),
        [pattern(1000), pattern(1001)]
    );

    // As in the other direction, the caller does not wait. The provider's final message is still
    // available as an event.
    let mut heard = ann.events(EventFilter::default());
    let long = call("longRunning", json!({}));
    assert_eq!(soon(long.stream().next()).await.unwrap().progress, Some(1.0));
    long.cancel();
    assert_eq!(soon(long.result()).await.unwrap_err().code(), "cancelled");
    worker.says("aborted").await;
    let last = find(&mut heard, |event| match event {
        Event::MethodResult(result) if result.call_id == long.id() && result.complete => {
            Some(result)
        }
        _ => None,
    })
    .await;
    assert_eq!(last.content, Some(json!({ "cancelled": true })));
    let options = CallOptions::new().timeout(std::time::Duration::from_millis(100));
    let late = ann.call_method("worker", "longRunning", json!({}), options);
    assert_eq!(soon(late.result()).await.unwrap_err().code(), "timeout");

    for (method, args, code) in [
        ("broken", json!({}), "execution-error"),
        ("huge", json!({}), "execution-error"),
        ("search", json!({ "pattern": 7 }), "validation-error"),
        ("dance", json!({}), "method-not-found"),
        ("constructor", json!({}), "method-not-found"),
        ("__proto__", json!({}), "method-not-found"),
    ] {
        assert_eq!(soon(call(method, args).result()).await.unwrap_err().code(), code, "{method}");
    }
    let tools = tools_for_agent(&ann, &AgentToolsOptions::default());
    let found =
        tools.execute("pubsub_worker_search", json!({ "pattern": ".rs" }), CallOptions::new());
    assert_eq!(soon(found).await.unwrap().content, json!(["c.rs"]));
    let stop = call("stop", json!({}));
    assert_eq!(soon(stop.result()).await.unwrap().content, "stopping");
    worker.end().await.assert_code(0);
    assert_eq!(
        soon(call("search", json!({})).result()).await.unwrap_err().code(),
        "provider-not-found"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn an_agent_over_mcp_uses_the_methods_of_a_program_in_typescript() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let programs = Programs::install();
    let worker = programs.worker(&gateway).await;
    let (_, token) = gateway.token(json!({ "name": "agent", "role": "agent" })).await;
    for era in ERAS {
        let outside = connect(&gateway, &token, "", era, ()).await.unwrap();
        assert!(!names(&outside).await.iter().any(|name| name.starts_with("pubsub_")), "{era:?}");
        outside.cancel().await.unwrap();
        let agent = connect(&gateway, &token, "?channel=room", era, ()).await.unwrap();
        assert!(names(&agent).await.iter().any(|name| name == "pubsub_worker_search"), "{era:?}");
        let found =
            soon(agent.call_tool(request("pubsub_worker_search", json!({ "pattern": ".ts" }))))
                .await
                .unwrap();
        let text = value(&found)["content"][0]["text"].as_str().unwrap().to_owned();
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!(["a.ts", "b.ts"]),
            "{era:?}"
        );
        let shot =
            soon(agent.call_tool(request("pubsub_worker_screenshot", json!({ "bytes": 5 }))))
                .await
                .unwrap();
        let content = value(&shot)["content"].clone();
        let image = content.as_array().unwrap().iter().find(|part| part["type"] == "image");
        assert_eq!(
            image.map(|part| part["mimeType"].clone()),
            Some(json!("image/png")),
            "{era:?}: {content}"
        );
        let broken =
            soon(agent.call_tool(request("pubsub_worker_broken", json!({})))).await.unwrap();
        assert_eq!(value(&broken)["isError"], true, "{era:?}");
        agent.cancel().await.unwrap();
    }
    let mut ann = Participant::join(&gateway, "room", "ann").await;
    ann.say(
        "method-call",
        json!({ "callId": "stop", "methodName": "stop", "providerId": "worker", "args": {} }),
    )
    .await;
    worker.end().await.assert_code(0);
    gateway.stop().await;
}
