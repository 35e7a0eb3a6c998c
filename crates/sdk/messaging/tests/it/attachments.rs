//! Bytes of several megabytes arrive unchanged with messages, parts and results, live and from
//! history.

use bytes::Bytes;
use futures_util::StreamExt as _;
use sa_messaging::{
    Attachment, CallOptions, Error, Event, EventFilter, Method, MethodContext, SendOptions,
    tools_for_agent,
};
use sa_testkit::messaging::{client, find, join};
use sa_testkit::{Setup, soon};
use serde_json::{Value, json};

/// Returns pseudo-random bytes.
fn noise(len: usize, seed: u64) -> Bytes {
    let mut state = seed;
    let byte = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(byte).take(len).collect::<Vec<u8>>().into()
}

#[tokio::test]
async fn bytes_beside_a_message() {
    let gateway = Setup::new().start().await;
    let (ann, bob) = (join(&gateway, "ann").await, join(&gateway, "bob").await);
    let mut heard = bob.events(EventFilter::default());
    let (large, small) = (noise(7 << 20, 1), noise(1_000, 2));
    let attachments = vec![
        Attachment::new("application/octet-stream", large.clone()).id("big").name("big.bin"),
        Attachment::new("image/png", small.clone()),
        Attachment::new("text/plain", Bytes::new()).id("empty"),
    ];
    ann.send("look", SendOptions { attachments, ..SendOptions::default() }).await.unwrap();
    let pick = |event| if let Event::Message(message) = event { Some(message) } else { None };
    let live = find(&mut heard, pick).await;
    let late = join(&gateway, "late").await;
    let mut replay = late.events(EventFilter { include_replay: true, ..EventFilter::default() });
    for message in [live, find(&mut replay, pick).await] {
        let got = &message.envelope.attachments;
        let ids: Vec<_> = got.iter().map(|attachment| attachment.id.as_str()).collect();
        assert_eq!(ids, ["big", "img_1", "empty"]);
        assert_eq!(got[0].name.as_deref(), Some("big.bin"));
        assert!(got[0].data == large && got[1].data == small && got[2].data.is_empty());
    }
    let twice =
        vec![Attachment::new("a/b", small.clone()).id("x"), Attachment::new("a/b", small).id("x")];
    let refused =
        ann.send("no", SendOptions { attachments: twice, ..SendOptions::default() }).await;
    assert_eq!(refused.unwrap_err().code(), "validation-error");
    // Above the gateway's limit: the client gets the error and stays connected.
    let huge = vec![Attachment::new("a/b", noise(26 << 20, 3))];
    let refused = ann.send("no", SendOptions { attachments: huge, ..SendOptions::default() }).await;
    assert_eq!(refused.unwrap_err().code(), "validation-error");
    ann.send("still here", SendOptions::default()).await.unwrap();
    gateway.stop().await;
}

#[tokio::test]
async fn bytes_beside_a_result_and_its_parts() {
    let gateway = Setup::new().start().await;
    let image = noise(3 << 20, 4);
    let bytes = image.clone();
    let draw = Method::raw(
        "draw",
        json!({ "type": "object" }),
        move |_: Value, context: MethodContext| {
            let image = bytes.clone();
            async move {
                let part = vec![Attachment::new("image/png", image.slice(..1_000)).id("draft")];
                context
                    .stream_with_attachments(json!({ "n": 1 }), part, Some("application/json"))
                    .await?;
                let whole = vec![Attachment::new("image/png", image).id("img_1")];
                context
                    .result_with_attachments(json!({ "width": 512 }), whole)
                    .map(|output| output.content_type("x/y"))
            }
        },
    );
    let _artist = client(&gateway, "artist").await.method(draw).connect().await.unwrap();
    let ann = join(&gateway, "ann").await;
    let call = ann.call_method("artist", "draw", json!({}), CallOptions::new());
    let part = soon(call.stream().next()).await.unwrap();
    assert_eq!(
        (part.content, part.content_type.as_deref()),
        (Some(json!({ "n": 1 })), Some("application/json"))
    );
    assert!(part.attachments[0].data == image.slice(..1_000));
    let value = soon(call.result()).await.unwrap();
    assert_eq!(
        (value.content, value.content_type.as_deref()),
        (json!({ "width": 512 }), Some("x/y"))
    );
    assert!(value.attachments[0].data == image);

    let tools = tools_for_agent(&ann, &sa_messaging::AgentToolsOptions::default());
    let output =
        soon(tools.execute("pubsub_artist_draw", json!({}), CallOptions::new())).await.unwrap();
    assert!(output.attachments[0].data == image, "a model gets them, too");
    let gone = tools.execute("pubsub_artist_sing", json!({}), CallOptions::new()).await;
    assert!(matches!(gone, Err(Error::MethodNotFound(_))));
    gateway.stop().await;
}
