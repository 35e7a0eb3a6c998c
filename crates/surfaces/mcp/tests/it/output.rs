//! Rule: a result that does not fit the listed output schema is an error, by every way that a call
//! takes.

use axum::body::Body;
use axum::http::Response;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::surface::{NEWER, Surface, call};

/// The result of a call, as JSON or as the last event of a stream.
async fn result(response: Response<Body>) -> Value {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = std::str::from_utf8(&bytes).unwrap();
    let event = text.lines().rfind(|line| line.contains("\"result\""));
    let json = event.map_or(text, |line| line.trim_start_matches("data:"));
    serde_json::from_str::<Value>(json).unwrap()["result"].clone()
}

#[tokio::test]
async fn both_paths_check_a_result_by_the_listed_schema() {
    let surface = Surface::new();
    let (session, _) = surface.open("2025-06-18").await;
    let stateless =
        [("mcp-protocol-version", NEWER), ("mcp-method", "tools/call"), ("mcp-name", "short")];
    let newer = |mut call: Value, progress: bool| {
        call["params"]["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": NEWER, "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "0" },
        });
        if progress {
            call["params"]["_meta"]["progressToken"] = json!(7);
        }
        call
    };
    for bytes in [3, 4] {
        let call = call("short", &json!({ "bytes": bytes }));
        let ways: [(&[_], Value); 3] = [
            (&[("mcp-session-id", &*session)], call.clone()),
            (&stateless, newer(call.clone(), false)),
            (&stateless, newer(call, true)),
        ];
        for (headers, message) in ways {
            let result = result(surface.send("POST", headers, &message).await).await;
            let text = "x".repeat(bytes);
            if bytes == 3 {
                assert_eq!(result["structuredContent"]["text"], text, "{result}");
                assert_ne!(result["isError"], true);
            } else {
                assert_eq!(
                    (&result["structuredContent"], &result["isError"]),
                    (&Value::Null, &json!(true))
                );
                let why = result["content"][0]["text"].as_str().unwrap();
                assert!(why.contains("result of short") && why.contains("\"text\""), "{why}");
                assert_eq!(result["content"][1]["text"], json!({ "text": text }).to_string());
            }
        }
    }
}

#[tokio::test]
async fn a_result_is_checked_if_its_provider_went_offline_meanwhile() {
    for bytes in [3, 4] {
        let surface = Surface::new();
        let (session, _) = surface.open("2025-06-18").await;
        let headers = [("mcp-session-id", &*session)];
        let message = call("late", &json!({ "bytes": bytes }));
        let left = async {
            surface.waits().await;
            surface.disconnect();
            surface.release();
        };
        let (response, ()) = tokio::join!(surface.send("POST", &headers, &message), left);
        let result = result(response).await;
        assert_eq!(result["isError"] == true, bytes == 4, "{result}");
    }
}
