//! Sends requests and cancels to one node.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use sa_core::call::{Call, CallId, CancelReason};
use sa_core::link::Link;
use sa_core::{CallError, CallErrorKind};
use sa_protocol::node::{self, Features, ToolCancel, ToolRequest};
use sa_protocol::{CapabilityError, validate_name};
use sa_socket::{Declined, Outbox};

use crate::Host;

/// The usual size of a request without its arguments.
const USUAL_REQUEST: usize = 256;

#[derive(Debug)]
pub(crate) struct NodeLink {
    pub(crate) outbox: Outbox,
    pub(crate) features: Features,
    /// Whether the node supports protocol extensions. An older node only gets the frames that it
    /// knows.
    pub(crate) modern: bool,
    /// The largest request that the node accepts; `usize::MAX` if the hello does not set a limit.
    pub(crate) max_request_bytes: usize,
    pub(crate) id: String,
    /// The number of forged replies from this node.
    pub(crate) forgeries: AtomicU32,
    pub(crate) host: Arc<Host>,
}

fn too_large(node: &str, bytes: usize, limit: usize) -> CallError {
    let message = format!(
        "the request has {bytes} bytes with its arguments; the node \"{node}\" accepts at most {limit}"
    );
    CallError::new(CallErrorKind::InvalidArgs, message)
        .hint("send less data; or raise the node's limit in the SDK: NodeClientBuilder::max_request_bytes")
}

fn unusable(tool: &str, error: &CapabilityError) -> CallError {
    let name: String = tool.escape_debug().take(140).collect();
    CallError::new(CallErrorKind::NotFound, format!("there is no tool \"{name}\": {error}"))
        .hint("run `switchboard tools` to list the tools")
}

fn busy(node: &str, bytes: usize, waiting: usize) -> CallError {
    let message = format!(
        "the request has {bytes} bytes, but the node \"{node}\" still has to read {waiting} bytes of other calls, and its queue cannot hold both"
    );
    CallError::new(CallErrorKind::Overloaded, message).hint(
        "try again when the node has read them, or send less data; an operator can raise limits.max_outbox_bytes",
    )
}

impl Link for NodeLink {
    fn send_request(&self, call: &Call) -> Result<(), CallError> {
        // The tools in a hello were checked when it was read. Below a capability the caller chooses
        // the name. That name must not look like another one in the audit log and in rules either.
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
        // A node may hang up if it receives a frame over its limit. That would end all calls
        // because of one.
        if frame.len() > self.max_request_bytes {
            return Err(too_large(&self.id, frame.len(), self.max_request_bytes));
        }
        // Many callers share the connection. A request that does not fit is refused alone, and the
        // other calls continue.
        let bytes = frame.len();
        self.outbox.offer(frame).map_err(|declined| match declined {
            Declined::Closed => {
                CallError::undelivered(format!("the node \"{}\" disconnected", self.id))
            }
            Declined::Full(waiting) => busy(&self.id, bytes, waiting),
            Declined::NoRoom(refused) => refused.into(),
        })
    }

    fn send_cancel(&self, id: CallId, reason: CancelReason) {
        if !self.features.cancel {
            return;
        }
        let mut frame = String::new();
        let cancel =
            ToolCancel { request_id: id.to_string().into(), reason: Some(reason.as_str().into()) };
        node::encode_cancel(&mut frame, &cancel);
        // If the connection cannot take the cancel, it is closing, and that cancels every call.
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
        CallRequest, Catalog, Grant, Notices, Policy, Principal, ProviderId, RawJson, Role, Router,
        RouterOptions, Scope, TraceContext, View,
    };
    use sa_socket::Close;

    use super::*;

    /// Returns the error of a call of a tool below the capability `macos.notes`. No node answers
    /// it.
    async fn failure(name: &str) -> CallError {
        let directory = Directory::new(Notices::new(), Duration::from_secs(600));
        let router = Router::new(
            Arc::clone(&directory),
            Arc::new(NoJournal),
            None,
            Policy::default(),
            RouterOptions::default(),
        );
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
            ("macos.notes.del\u{200b}ete", "an invisible character (U+200B at position 16)"),
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
