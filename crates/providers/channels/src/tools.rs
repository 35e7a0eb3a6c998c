//! The gateway's own tools, which participants call as methods of the participant `switchboard`.

use std::sync::{Arc, Weak};

use sa_core::call::{CallRequest, CancelReason, TraceContext};
use sa_core::{CallErrorKind, CallId, Output, Overrun, RawJson, Scope, Update, UpdateSink, View};
use sa_protocol::channel::AttachmentMeta;
use sa_text::json::ObjectWriter;
use tokio::time::Instant;

use crate::GATEWAY;
use crate::calls::Running;
use crate::channel::Channel;
use crate::methods::code;
use crate::pipeline::Item;
use crate::publish::{Draft, MethodCall, Sender};
use crate::recover::RESTARTED;

impl Channel {
    /// Runs a tool of the gateway for a participant, and sends the result like any other
    /// provider.
    pub(crate) fn run_tool(
        self: &Arc<Self>,
        sender: &Sender,
        call: &MethodCall<'_>,
        persist: bool,
    ) {
        let running = |id: CallId| Running {
            id: call.call_id.clone(),
            caller: Arc::clone(&sender.principal.name),
            provider: GATEWAY.into(),
            persist,
            since: Instant::now(),
            routed: Some(id),
        };
        let args = match call.args.map_or_else(|| Ok(RawJson::empty_object()), RawJson::part) {
            Ok(args) => args,
            Err(error) => {
                let why = format!("the arguments are invalid: {error}");
                return self.enqueue(
                    running(CallId::new()).failure(code(CallErrorKind::InvalidArgs), &why),
                );
            }
        };
        let scopes = vec![Scope::Channel(Arc::clone(&self.name))];
        let request = CallRequest {
            tool: call.method_name.clone(),
            args,
            view: View { principal: Arc::clone(&sender.principal), scopes },
            surface: "channel",
            session_key: None,
            timeout: None,
            idle_timeout: None,
            idempotency_key: None,
            trace: TraceContext::root(),
        };
        let told = Told { channel: Arc::downgrade(self), call: running(CallId::new()) };
        let routed = self.hub.router.start(request, Some(Arc::new(told)));
        let call = running(routed.id());
        if let Err(why) = self.state().calls.begin(call.clone()) {
            self.hub.router.cancel(routed.id(), CancelReason::Requested, |_| true);
            return self.enqueue(call.failure("execution-error", why));
        }
        let channel = Arc::clone(self);
        tokio::spawn(async move {
            let finished = routed.outcome().await;
            // A call that ended earlier was already answered, or no client waits for it.
            if channel.state().calls.end(&call.id).is_none() {
                return;
            }
            match finished.outcome {
                Ok(output) => channel.answer(&call, output).await,
                Err(error) => channel.enqueue(call.failure(code(error.kind), &error.message)),
            }
        });
    }

    /// Handles a repeated call. A tool is not run twice. If the gateway was restarted since the
    /// first run, its result is unknown, and the caller receives an error.
    pub(crate) fn tool_called_again(&self, sender: &Sender, call: &MethodCall<'_>) {
        let caller = &sender.principal.name;
        if self.state().calls.was_made(&call.call_id, caller) {
            return;
        }
        let call = Running {
            id: call.call_id.clone(),
            caller: Arc::clone(caller),
            provider: GATEWAY.into(),
            persist: true,
            since: Instant::now(),
            routed: Some(CallId::new()),
        };
        self.enqueue(call.failure("execution-error", RESTARTED));
    }

    async fn answer(self: &Arc<Self>, call: &Running, output: Output) {
        let fields = ObjectWriter::with_capacity(output.content.len() + 40)
            .raw("content", &output.content)
            .plain("complete", true)
            .end();
        if output.attachments.is_empty() {
            return self.enqueue(call.last(call.result(&fields)));
        }
        let described = output.attachments.iter().map(|attachment| AttachmentMeta {
            id: None,
            mime_type: attachment.mime_type.clone(),
            name: attachment.name.clone(),
            size: attachment.data.len() as u64,
        });
        let bytes: Vec<u8> = output
            .attachments
            .iter()
            .flat_map(|attachment| attachment.data.iter().copied())
            .collect();
        let draft = Draft {
            kind: "method-result".into(),
            payload: "null",
            persist: call.persist,
            client_message_id: None,
            attachments: described.collect(),
            bytes: bytes.into(),
        };
        match self.attach(&draft).await {
            Ok((attached, described)) => {
                let owner = Some(Arc::clone(&call.caller));
                let item = Item {
                    attached,
                    owner,
                    ..Item::new(call.body(&fields, &described), call.persist)
                };
                self.enqueue(call.last(item));
            }
            Err(refusal) => self.enqueue(call.failure("execution-error", &refusal.message)),
        }
    }
}

/// Publishes the updates of a running tool in the channel.
struct Told {
    channel: Weak<Channel>,
    call: Running,
}

impl UpdateSink for Told {
    fn send(&self, update: Update) -> Result<(), Overrun> {
        let Some(channel) = self.channel.upgrade() else { return Ok(()) };
        let fields = match update {
            Update::Progress { progress, total, .. } => {
                let percent = total
                    .filter(|total| *total > 0.0)
                    .map_or(progress, |total| 100.0 * progress / total);
                // The protocol requires a percentage, and JSON has no infinite numbers.
                let percent = percent.clamp(0.0, 100.0);
                ObjectWriter::with_capacity(60).float("progress", percent)
            }
            Update::Chunk { content, .. } => {
                ObjectWriter::with_capacity(content.len() + 40).raw("content", &content)
            }
            // The channel protocol has no message for logs.
            Update::Log { .. } => return Ok(()),
        };
        let fields = fields.plain("complete", false).end();
        // If the queue is full, the update is dropped: the result still arrives.
        if let Some(permit) = channel.place_now() {
            channel.enqueue(Item { permit: Some(permit), ..self.call.result(&fields) });
        }
        Ok(())
    }
}
