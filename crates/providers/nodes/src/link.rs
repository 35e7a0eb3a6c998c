//! How the gateway talks to one node.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use sa_core::call::{Call, CallId, CancelReason};
use sa_core::link::Link;
use sa_core::{CallError, CallErrorKind};
use sa_protocol::node::{self, Features, ToolCancel, ToolRequest};
use sa_protocol::{CapabilityError, validate_name};
use sa_socket::{Declined, Outbox};

use crate::Host;

/// Room for a request beside its arguments.
const USUAL_REQUEST: usize = 256;

#[derive(Debug)]
pub(crate) struct NodeLink {
    pub(crate) outbox: Outbox,
    pub(crate) features: Features,
    /// Whether the node knows of extensions at all. One that does not gets exactly the frames it was written for.
    pub(crate) modern: bool,
    /// The largest request that it takes; `usize::MAX` when it does not say.
    pub(crate) max_request_bytes: usize,
    pub(crate) id: String,
    /// How often it has tried to answer for others.
    pub(crate) forgeries: AtomicU32,
    pub(crate) host: Arc<Host>,
}

fn too_large(node: &str, bytes: usize, limit: usize) -> CallError {
    let message =
        format!("the request has {bytes} bytes with its arguments, and the node \"{node}\" takes at most {limit}");
    CallError::new(CallErrorKind::InvalidArgs, message)
        .hint("send less; or raise what the node takes, with the SDK: NodeClientBuilder::max_request_bytes")
}

fn unusable(tool: &str, error: &CapabilityError) -> CallError {
    let name: String = tool.escape_debug().take(140).collect();
    CallError::new(CallErrorKind::NotFound, format!("there is no tool \"{name}\": {error}"))
        .hint("list the tools with: switchboard tools")
}

fn busy(node: &str, bytes: usize, waiting: usize) -> CallError {
    let message = format!(
        "the request has {bytes} bytes, and the node \"{node}\" still has to read {waiting} bytes of other calls; there is no room for both"
    );
    CallError::new(CallErrorKind::Overloaded, message).hint(
        "try again when the node has read them, or send less; an operator can make room with limits.max_outbox_bytes",
    )
}

impl Link for NodeLink {
    fn send_request(&self, call: &Call) -> Result<(), CallError> {
        // Tools that the node describes were checked in its hello. Below a capability a caller chooses the name, which must not
        // look like another one in the record and in rules, either.
        validate_name(&call.tool).map_err(|error| unusable(&call.tool, &error))?;
        let mut id = [0; CallId::LEN];
        let mut frame = String::with_capacity(USUAL_REQUEST + call.args.len());
        node::encode_request(
            &mut frame,
            &ToolRequest {
                request_id: call.id.encode(&mut id).into(),
                tool: (&*call.tool).into(),
                args: Some(call.args.as_str()),
                session_key: call.session_key.as_deref().map(Into::into),
                traceparent: self.modern.then(|| call.trace.traceparent().into()),
                deadline_ms: self.modern.then(|| call.time_left().as_millis() as u64),
                principal_id: self.modern.then(|| (&*call.principal.id).into()),
                principal_role: self.modern.then(|| call.principal.role.as_str().into()),
            },
        );
        // A node that is sent more than it takes may hang up, and end everybody's calls for the sake of one.
        if frame.len() > self.max_request_bytes {
            return Err(too_large(&self.id, frame.len(), self.max_request_bytes));
        }
        // Many callers share the connection: what is too much for it is refused by itself, and the others go on.
        let bytes = frame.len();
        self.outbox.offer(frame).map_err(|declined| match declined {
            Declined::Closed => CallError::undelivered(format!("the node \"{}\" went away", self.id)),
            Declined::Full(waiting) => busy(&self.id, bytes, waiting),
            Declined::NoRoom(refused) => refused.into(),
        })
    }

    fn send_cancel(&self, id: CallId, reason: CancelReason) {
        if !self.features.cancel {
            return;
        }
        let mut frame = String::new();
        let cancel = ToolCancel { request_id: id.to_string().into(), reason: Some(reason.as_str().into()) };
        node::encode_cancel(&mut frame, &cancel);
        // A connection that cannot take the cancel is closing, which cancels everything.
        let _ = self.outbox.send(frame);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sa_core::audit::NoJournal;
    use sa_core::directory::{Attach, Directory};
    use sa_core::link::LinkProvider;
    use sa_core::{
        CallRequest, Catalog, Grant, Notices, Policy, Principal, ProviderId, RawJson, Role, Router, RouterOptions,
        Scope, TraceContext, View,
    };
    use sa_socket::Close;

    use super::*;

    /// How a call of a tool below the capability `macos.notes` fails: nobody answers.
    async fn failure(name: &str) -> CallError {
        let directory = Directory::new(Notices::new(), Duration::from_secs(600));
        let router =
            Router::new(Arc::clone(&directory), Arc::new(NoJournal), None, Policy::default(), RouterOptions::default());
        let outbox = Outbox::new(1 << 20, Close::new(4429, "too slow"));
        let link = NodeLink {
            outbox: outbox.clone(),
            features: Features::default(),
            modern: true,
            max_request_bytes: usize::MAX,
            id: "n".to_owned(),
            forgeries: 0.into(),
            host: Host::new("n", outbox, false),
        };
        let attach = Attach {
            id: ProviderId::new(crate::KIND, "n"),
            scope: Scope::Everyone,
            grant: Grant::none(),
            provider: Arc::new(LinkProvider::new(link)),
            catalog: Catalog { prefixes: vec!["macos.notes".to_owned()], ..Catalog::default() },
            max_running: 1,
            about: RawJson::empty_object(),
            may_take_over: false,
        };
        let _node = directory.attach(attach).unwrap();
        let request = CallRequest {
            tool: name.to_owned(),
            args: RawJson::empty_object(),
            view: View::of(Arc::new(Principal::new("p", "test", Role::Agent))),
            surface: "test",
            session_key: None,
            timeout: Some(Duration::from_millis(20)),
            idle_timeout: None,
            idempotency_key: None,
            trace: TraceContext::root(),
        };
        router.start(request, None).outcome().await.outcome.unwrap_err()
    }

    #[tokio::test]
    async fn a_name_below_a_capability_is_checked_as_those_of_described_tools() {
        for (name, words) in [
            ("macos.notes.del\u{200b}ete", "a character that cannot be seen (U+200B at position 16)"),
            ("macos.notes.d\u{435}lete", "mixes scripts: U+0435 at position 14"),
        ] {
            let error = failure(name).await;
            assert_eq!(error.kind, CallErrorKind::NotFound, "{}", error.message);
            assert!(error.message.contains(words), "{}", error.message);
            assert!(!error.message.contains('\u{200b}'));
        }
        for name in ["macos.notes.delete", "macos.notes.löschen", "macos.notes.Delete_all"] {
            assert_eq!(failure(name).await.kind, CallErrorKind::Timeout, "{name}");
        }
    }
}
