//! A result that parsers cannot read fails its call, and the history names the source.

use sa_gateway_kit::{Hello, Message, Setup, eventually};
use serde_json::json;

use crate::SWITCHBOARD;

/// Half of a surrogate pair, a number out of range, and a key that one parser reserves.
const UNREADABLE: [&str; 4] = [
    r#"{"x":"\ud800"}"#,
    r#"{"x":[-1e999]}"#,
    r#"{"\udc00":1}"#,
    r#"{"x":{"$serde_json::private::RawValue":"1"}}"#,
];

#[tokio::test]
async fn a_result_that_nobody_can_read_fails_its_call() {
    let gateway = Setup::new().spawn(SWITCHBOARD).await;
    let mut node = Hello::new("n")
        .capability("a")
        .with("features", json!(["tool_chunk"]))
        .connect(&gateway)
        .await;
    for unreadable in UNREADABLE {
        for frame in [
            format!(
                r#"{{"type":"tool_response","request_id":"ID","ok":true,"result":{unreadable}}}"#
            ),
            format!(r#"{{"type":"tool_chunk","request_id":"ID","content":{unreadable}}}"#),
        ] {
            let call = gateway.operator().call_later("a.b", json!({}));
            let request = node.request().await;
            node.send_raw(Message::text(frame.replace("ID", &request.id))).await;
            let reply = call.await.unwrap();
            let told = reply.assert_problem(502, "failed").detail();
            assert!(
                told.contains("the node \"n\" returned an invalid response"),
                "{frame}: {told}"
            );
            // The history shows the true reason.
            eventually("it in the history", || async {
                let shown =
                    gateway.cli(&["calls", reply.body["call_id"].as_str().unwrap()]).run().await;
                (shown.code == Some(0)).then(|| {
                    assert!(
                        shown.stdout.contains("returned an invalid response"),
                        "{}",
                        shown.stdout
                    );
                    assert!(!shown.stdout.contains("too large"), "{}", shown.stdout);
                })
            })
            .await;
        }
    }
    // A duplicate key breaks no parser.
    let call = gateway.operator().call_later("a.b", json!({}));
    let id = node.request().await.id;
    let twice = format!(
        r#"{{"type":"tool_response","request_id":"{id}","ok":true,"result":{{"x":1,"x":2}}}}"#
    );
    node.send_raw(Message::text(twice)).await;
    assert!(call.await.unwrap().text.contains(r#""result":{"x":1,"x":2}"#));
    gateway.stop().await;
}
