//! The gateway as a member of the roster. Its methods are the tools that the participant's token
//! includes.
//!
//! Each participant may have a different list, so this member is in no shared roster. Each
//! connection receives its own list.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use sa_core::{Router, ToolView, View, clock};
use sa_protocol::channel::{Envelope, encode_body, encode_message};
use sa_socket::Outbox;
use sa_text::json::ObjectWriter;
use tokio::sync::watch;

use crate::calls::GATEWAY_METADATA;
use crate::presence::payload;
use crate::publish::Sender;
use crate::{Channels, GATEWAY};

/// Changes within this time are sent as one.
const COALESCE: Duration = Duration::from_millis(100);

/// The list of tools that one connection has received.
#[derive(Debug)]
pub(crate) struct GatewayEntry {
    router: Arc<Router>,
    view: View,
    max_bytes: usize,
    revision: watch::Receiver<u64>,
    /// A JSON object.
    pub(crate) metadata: String,
}

impl GatewayEntry {
    /// Returns `None` if the token includes no tools, or may not make calls in this channel.
    pub(crate) fn of(hub: &Channels, sender: &Sender) -> Option<Self> {
        let principal = &sender.principal;
        let includes_tools = !principal.is_limited() || !principal.tools.is_empty();
        if !(sender.rights.read
            && sender.rights.call
            && includes_tools
            && principal.role.may_call_tools())
        {
            return None;
        }
        let max_bytes = hub.options.pace();
        let (router, view) = (Arc::clone(&hub.router), View::of(Arc::clone(principal)));
        // Subscribed before the list is read, so that no change is missed.
        let mut revision = router.directory().subscribe();
        revision.mark_unchanged();
        let metadata = metadata(&router, &view, max_bytes);
        Some(Self { router, view, max_bytes, revision, metadata })
    }

    /// Sends the list again after each change, once the connection's queue is empty.
    pub(crate) async fn follow(self, outbox: &Outbox) {
        let Self { router, view, max_bytes, mut revision, metadata: first } = self;
        let mut sent = digest(&first);
        drop(first);
        while revision.changed().await.is_ok() {
            tokio::time::sleep(COALESCE).await;
            revision.mark_unchanged();
            let metadata = metadata(&router, &view, max_bytes);
            let now = digest(&metadata);
            if std::mem::replace(&mut sent, now) == now {
                continue;
            }
            if outbox.emptied().await.is_err()
                || outbox.send(presence("ephemeral", "update", &metadata)).is_err()
            {
                return;
            }
        }
    }

    /// Returns the message that announces the gateway.
    pub(crate) fn here(&self) -> String {
        presence("replay", "join", &self.metadata)
    }
}

fn presence(kind: &str, action: &str, metadata: &str) -> String {
    let body = encode_body(&Envelope {
        kind: "presence",
        payload: &payload(action, metadata, None),
        sender: GATEWAY,
        at_ms: clock::now_ms(),
        sender_metadata: GATEWAY_METADATA,
        attachments: &[],
    });
    encode_message(kind, None, &body, None, false)
}

fn digest(metadata: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    metadata.hash(&mut hasher);
    hasher.finish()
}

/// Returns the metadata with the tools of a view as methods. Tools beyond `max_bytes` are only
/// counted.
fn metadata(router: &Router, view: &View, max_bytes: usize) -> String {
    let policy = router.policy();
    let usable = |tool: &ToolView| {
        tool.online && tool.tool.for_models && policy.allows(&view.principal, tool)
    };
    let tools = router.directory().list(view, None, usize::MAX - 1, usable).tools;
    let mut bytes = GATEWAY_METADATA.len();
    let mut listed: Vec<String> = Vec::new();
    for tool in &tools {
        let method = method(tool);
        bytes += method.len() + 1;
        if bytes > max_bytes {
            break;
        }
        listed.push(method);
    }
    let omitted = tools.len() - listed.len();
    ObjectWriter::with_capacity(bytes + 80)
        .fields_of(GATEWAY_METADATA)
        .text("handle", GATEWAY)
        .raw_text("methods", &format!("[{}]", listed.join(",")))
        .opt_plain("methodsOmitted", (omitted > 0).then_some(omitted))
        .end()
}

fn method(ToolView { name, tool, .. }: &ToolView) -> String {
    let parameters =
        tool.input.as_ref().map_or("{\"type\":\"object\"}", |input| input.raw().as_str());
    ObjectWriter::with_capacity(parameters.len() + 120)
        .text("name", name)
        .opt_text("description", tool.description.as_deref())
        .raw_text("parameters", parameters)
        .maybe(tool.output.as_ref(), |object, returns| object.raw("returns", returns.raw()))
        .plain("streaming", true)
        .opt_plain("timeout", tool.timeout.map(|timeout| timeout.as_millis()))
        .end()
}
