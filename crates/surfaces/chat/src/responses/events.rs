//! Translates a stream of chat completion chunks into the events of a response.
//!
//! The chunks come from [`crate::stream::Forward`] and are well-formed: a call begins with its id
//! and name, and its arguments follow under the same index.

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::response::{CallItem, Ending, Part, Settings, message_item, new_id};
use crate::chat::Event;
use crate::error::ChatError;
use crate::stream::send;

/// Reads all chunks and sends the events of the response. Ends early if the reader disconnects.
pub(crate) async fn translate(
    settings: &Settings,
    chunks: mpsc::Receiver<Event>,
    events: &mpsc::Sender<Event>,
) {
    // The only error is that the events have no reader any more. The chunks then have no reader
    // either, which ends the run.
    let _ = Writer::new(settings, events).run(chunks).await;
}

struct Writer<'a> {
    events: &'a mpsc::Sender<Event>,
    response: Map<String, Value>,
    sequence: u64,
    started: bool,
    items: Vec<Item>,
    finish_reason: Option<String>,
    usage: Option<Value>,
}

/// An item of the output. Its position is its `output_index`.
struct Item {
    kind: Kind,
    done: Option<Value>,
}

enum Kind {
    Message { id: String, part: Part, text: String },
    Call { index: u64, call: CallItem },
}

impl<'a> Writer<'a> {
    fn new(settings: &Settings, events: &'a mpsc::Sender<Event>) -> Self {
        Self {
            events,
            response: settings.begin(),
            sequence: 0,
            started: false,
            items: Vec::new(),
            finish_reason: None,
            usage: None,
        }
    }

    async fn run(mut self, mut chunks: mpsc::Receiver<Event>) -> Result<(), ChatError> {
        while let Some(event) = chunks.recv().await {
            match event {
                Event::Data(chunk) => {
                    self.chunk(&serde_json::from_str(&chunk).unwrap_or_default()).await?;
                }
                Event::Done => return self.complete().await,
                Event::Failed(error) if self.started => return self.fail(&error).await,
                // The client receives it as the status of the HTTP response.
                failed @ Event::Failed(_) => return send(self.events, failed).await,
                Event::Started { left_out } => {
                    send(self.events, Event::Started { left_out }).await?;
                    self.started = true;
                    self.lifecycle("response.created").await?;
                    self.lifecycle("response.in_progress").await?;
                }
                Event::Named { .. } => {}
            }
        }
        Ok(())
    }

    async fn chunk(&mut self, chunk: &Value) -> Result<(), ChatError> {
        if chunk["usage"].is_object() {
            self.usage = Some(chunk["usage"].clone());
        }
        match &chunk["switchboard"] {
            Value::Null => {}
            end if end["event"] == "end" => {
                drop(self.response.insert("switchboard".into(), end.clone()));
            }
            event => self.emit("switchboard", json!({ "switchboard": event })).await?,
        }
        let choice = &chunk["choices"][0];
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish_reason = Some(reason.to_owned());
        }
        let delta = &choice["delta"];
        for (part, text) in [(Part::Text, &delta["content"]), (Part::Refusal, &delta["refusal"])] {
            if let Some(text) = text.as_str().filter(|text| !text.is_empty()) {
                self.text(part, text).await?;
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call).await?;
        }
        Ok(())
    }

    async fn text(&mut self, part: Part, delta: &str) -> Result<(), ChatError> {
        let continues = |item: &Item| {
            let Item { kind: Kind::Message { part: known, .. }, done: None } = item else {
                return false;
            };
            *known == part
        };
        if !self.items.last().is_some_and(continues) {
            self.close_message().await?;
            let id = new_id("msg");
            self.add(Kind::Message { id, part, text: String::new() }).await?;
        }
        let output_index = self.items.len() - 1;
        let Some(Item { kind: Kind::Message { id, text, .. }, .. }) = self.items.last_mut() else {
            return Ok(());
        };
        text.push_str(delta);
        let mut data = json!({ "item_id": id, "output_index": output_index, "content_index": 0, "delta": delta });
        match part {
            Part::Text => {
                data["logprobs"] = json!([]);
                self.emit("response.output_text.delta", data).await
            }
            Part::Refusal => self.emit("response.refusal.delta", data).await,
        }
    }

    async fn call(&mut self, piece: &Value) -> Result<(), ChatError> {
        let number = piece["index"].as_u64().unwrap_or_default();
        let is_it = |item: &Item| matches!(item.kind, Kind::Call { index, .. } if index == number);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let known = self.items.iter().position(is_it);
        let output_index = known.unwrap_or(self.items.len());
        if known.is_none() {
            self.close_message().await?;
            let (call_id, name) = (text(&piece["id"]), text(&piece["function"]["name"]));
            let call = CallItem { id: new_id("fc"), call_id, name, arguments: String::new() };
            self.add(Kind::Call { index: number, call }).await?;
        }
        let delta = text(&piece["function"]["arguments"]);
        let Kind::Call { call, .. } = &mut self.items[output_index].kind else { return Ok(()) };
        if delta.is_empty() {
            return Ok(());
        }
        call.arguments.push_str(&delta);
        let data = json!({ "item_id": call.id, "output_index": output_index, "delta": delta });
        self.emit("response.function_call_arguments.delta", data).await
    }

    async fn add(&mut self, kind: Kind) -> Result<(), ChatError> {
        let output_index = self.items.len();
        let (item, part) = match &kind {
            Kind::Message { id, part, .. } => {
                (message_item(id, "in_progress", None), Some((id.clone(), part.value(""))))
            }
            Kind::Call { call, .. } => (call.value("in_progress"), None),
        };
        self.items.push(Item { kind, done: None });
        self.emit(
            "response.output_item.added",
            json!({ "output_index": output_index, "item": item }),
        )
        .await?;
        if let Some((id, part)) = part {
            let data = json!({ "item_id": id, "output_index": output_index, "content_index": 0, "part": part });
            self.emit("response.content_part.added", data).await?;
        }
        Ok(())
    }

    /// Closes the message when another item begins. Calls stay open, because their pieces may
    /// alternate.
    async fn close_message(&mut self) -> Result<(), ChatError> {
        match self.items.last() {
            Some(Item { kind: Kind::Message { .. }, done: None }) => {
                self.close(self.items.len() - 1, "completed").await
            }
            _ => Ok(()),
        }
    }

    async fn close(&mut self, output_index: usize, status: &str) -> Result<(), ChatError> {
        let item = match &self.items[output_index].kind {
            Kind::Message { id, part, text } => {
                let value = part.value(text);
                let place =
                    json!({ "item_id": id, "output_index": output_index, "content_index": 0 });
                let (name, mut done) = match part {
                    Part::Text => {
                        ("response.output_text.done", json!({ "text": text, "logprobs": [] }))
                    }
                    Part::Refusal => ("response.refusal.done", json!({ "refusal": text })),
                };
                let item = message_item(id, status, Some(value.clone()));
                for (field, value) in place.as_object().into_iter().flatten() {
                    done[field] = value.clone();
                }
                let mut ended = place;
                ended["part"] = value;
                self.emit(name, done).await?;
                self.emit("response.content_part.done", ended).await?;
                item
            }
            Kind::Call { call, .. } => {
                let item = call.value(status);
                let data = json!({ "item_id": call.id, "output_index": output_index, "name": call.name, "arguments": call.arguments });
                self.emit("response.function_call_arguments.done", data).await?;
                item
            }
        };
        self.items[output_index].done = Some(item.clone());
        self.emit(
            "response.output_item.done",
            json!({ "output_index": output_index, "item": item }),
        )
        .await
    }

    async fn complete(mut self) -> Result<(), ChatError> {
        let ending = Ending::of(self.finish_reason.as_deref());
        for position in 0..self.items.len() {
            if self.items[position].done.is_none() {
                self.close(position, ending.status()).await?;
            }
        }
        let output = self.items.iter_mut().filter_map(|item| item.done.take()).collect();
        ending.finish(&mut self.response, output, self.usage.as_ref());
        let name =
            if ending == Ending::Completed { "response.completed" } else { "response.incomplete" };
        self.lifecycle(name).await
    }

    /// Sends the error in two forms. Some clients read `response.failed`. The official ones raise
    /// an error for an event with the member `error`.
    async fn fail(mut self, error: &ChatError) -> Result<(), ChatError> {
        let code = if error.status == 429 { "rate_limit_exceeded" } else { "server_error" };
        self.response.insert("status".into(), json!("failed"));
        self.response.insert("error".into(), json!({ "code": code, "message": error.message }));
        self.lifecycle("response.failed").await?;
        let mut data: Value = serde_json::from_str(&error.body()).unwrap_or_default();
        for (field, value) in [("code", &error.code), ("message", &error.message)] {
            data[field] = json!(value);
        }
        data["param"] = json!(error.param);
        self.emit("error", data).await
    }

    async fn lifecycle(&mut self, name: &'static str) -> Result<(), ChatError> {
        self.emit(name, json!({ "response": self.response })).await
    }

    async fn emit(&mut self, name: &'static str, mut data: Value) -> Result<(), ChatError> {
        data["type"] = json!(name);
        data["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        send(self.events, Event::Named { name, data: data.to_string() }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn translated(chunks: Vec<Event>) -> Vec<(String, Value)> {
        let (sender, receiver) = mpsc::channel(100);
        for chunk in chunks {
            sender.send(chunk).await.unwrap();
        }
        drop(sender);
        let (events, mut translated) = mpsc::channel(100);
        translate(&Settings::of(&crate::request::Fields::new()), receiver, &events).await;
        drop(events);
        let mut named = Vec::new();
        while let Some(event) = translated.recv().await {
            match event {
                Event::Named { name, data } => {
                    let data: Value = serde_json::from_str(&data).unwrap();
                    assert_eq!(
                        (&data["type"], &data["sequence_number"]),
                        (&json!(name), &json!(named.len()))
                    );
                    named.push((name.to_owned(), data));
                }
                Event::Started { left_out } => assert_eq!((left_out, named.len()), (2, 0)),
                Event::Failed(error) => named.push((error.code.clone(), json!(error.status))),
                other => panic!("{other:?}"),
            }
        }
        named
    }

    fn delta(delta: Value, finish: Value) -> Event {
        Event::Data(json!({ "choices": [{ "delta": delta, "finish_reason": finish }] }).to_string())
    }

    fn piece(index: u64, fields: Value) -> Event {
        let mut call = fields;
        call["index"] = json!(index);
        delta(json!({ "tool_calls": [call] }), Value::Null)
    }

    #[tokio::test]
    async fn text_and_then_calls_whose_pieces_alternate() {
        let head = |id: &str, name: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": "" } });
        let more = |text: &str| json!({ "function": { "arguments": text } });
        let events = translated(vec![
            Event::Started { left_out: 2 },
            delta(json!({ "role": "assistant", "content": "h" }), Value::Null),
            delta(json!({ "content": "i" }), Value::Null),
            piece(0, head("a", "f")),
            piece(1, head("b", "g")),
            piece(0, more("{}")),
            piece(1, more("{\"x\"")),
            piece(1, more(":1}")),
            delta(json!({}), json!("tool_calls")),
            Event::Data(
                json!({ "choices": [], "usage": { "prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3 } })
                    .to_string(),
            ),
            Event::Done,
        ])
        .await;
        let names: Vec<&str> =
            events.iter().map(|(name, _)| name.strip_prefix("response.").unwrap()).collect();
        assert_eq!(
            names,
            [
                "created",
                "in_progress",
                "output_item.added",
                "content_part.added",
                "output_text.delta",
                "output_text.delta",
                "output_text.done",
                "content_part.done",
                "output_item.done",
                "output_item.added",
                "output_item.added",
                "function_call_arguments.delta",
                "function_call_arguments.delta",
                "function_call_arguments.delta",
                "function_call_arguments.done",
                "output_item.done",
                "function_call_arguments.done",
                "output_item.done",
                "completed",
            ]
        );
        let response = &events.last().unwrap().1["response"];
        assert_eq!(
            (&response["status"], &response["usage"]["total_tokens"]),
            (&json!("completed"), &json!(3))
        );
        let output = response["output"].as_array().unwrap();
        assert_eq!(output[0]["content"][0]["text"], "hi");
        assert_eq!((&output[1]["call_id"], &output[1]["arguments"]), (&json!("a"), &json!("{}")));
        assert_eq!(
            (&output[2]["name"], &output[2]["arguments"]),
            (&json!("g"), &json!("{\"x\":1}"))
        );
        let done: Vec<&Value> = events
            .iter()
            .filter(|(name, _)| name == "response.output_item.done")
            .map(|(_, data)| &data["item"])
            .collect();
        assert_eq!(done, output.iter().collect::<Vec<_>>(), "the items are those of the events");
    }

    #[tokio::test]
    async fn a_cut_answer_is_incomplete() {
        let cut = vec![
            Event::Started { left_out: 2 },
            delta(json!({ "refusal": "no" }), json!("length")),
            Event::Done,
        ];
        let events = translated(cut).await;
        let (name, data) = events.last().unwrap();
        assert_eq!(
            (name.as_str(), &data["response"]["output"][0]["status"]),
            ("response.incomplete", &json!("incomplete"))
        );
        assert_eq!(
            data["response"]["output"][0]["content"],
            json!([{ "type": "refusal", "refusal": "no" }])
        );
    }

    #[tokio::test]
    async fn failures_before_and_after_the_first_event() {
        let error = || ChatError::new(502, "upstream_error", "upstream_cut_off", "it hung up");
        assert_eq!(
            translated(vec![Event::Failed(error())]).await,
            [("upstream_cut_off".to_owned(), json!(502))]
        );
        let events = translated(vec![Event::Started { left_out: 2 }, Event::Failed(error())]).await;
        let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["response.created", "response.in_progress", "response.failed", "error"]);
        assert_eq!(
            events[2].1["response"]["error"],
            json!({ "code": "server_error", "message": "it hung up" })
        );
        assert_eq!(
            (&events[3].1["error"]["message"], &events[3].1["code"]),
            (&json!("it hung up"), &json!("upstream_cut_off"))
        );
    }
}
