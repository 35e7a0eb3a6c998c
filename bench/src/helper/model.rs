//! A model server with a fixed reply: it calls the tool, and then it answers.

use axum::routing::post;
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::load::ARGS;

pub(super) async fn run() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("ready {}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, Router::new().route("/v1/chat/completions", post(answer))).await?;
    Ok(())
}

async fn answer(Json(request): Json<Value>) -> Json<Value> {
    let mut messages = request["messages"].as_array().into_iter().flatten();
    let (message, finish) = if messages.any(|message| message["role"] == "tool") {
        (json!({ "role": "assistant", "content": "The tool returned its arguments." }), "stop")
    } else {
        let mut tools = request["tools"].as_array().into_iter().flatten();
        let name = tools.find_map(|tool| {
            tool["function"]["name"].as_str().filter(|name| name.ends_with(super::TOOL))
        });
        let function = json!({ "name": name, "arguments": ARGS });
        let call = json!({ "id": "call_1", "type": "function", "function": function });
        (json!({ "role": "assistant", "content": null, "tool_calls": [call] }), "tool_calls")
    };
    let choice = json!({ "index": 0, "message": message, "finish_reason": finish });
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 });
    Json(
        json!({ "id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage }),
    )
}
