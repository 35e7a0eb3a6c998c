//! How the gateway talks to one node.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use sa_core::call::{Call, CallId, CancelReason};
use sa_core::link::Link;
use sa_core::{CallError, CallErrorKind};
use sa_protocol::node::{self, Features, ToolCancel, ToolRequest};
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
