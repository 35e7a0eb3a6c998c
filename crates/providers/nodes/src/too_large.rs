//! Handles messages that exceed the size limit.
//!
//! Such a message ends the call that it belongs to. The connection stays open, because other calls
//! share it.

use std::ops::ControlFlow;

use sa_core::call::CancelReason;
use sa_core::link::{Link as _, LinkProvider};
use sa_core::{CallError, CallErrorKind, CallId};
use sa_protocol::node::Beginning;
use sa_socket::{Close, Next};
use tracing::debug;

use crate::Nodes;
use crate::link::NodeLink;
use crate::session::stray;

/// Handles the beginning of a cut message that had `bytes` bytes.
pub(crate) fn on_cut(
    nodes: &Nodes,
    provider: &LinkProvider<NodeLink>,
    beginning: &str,
    bytes: u64,
) -> Next {
    let beginning = Beginning::read(beginning);
    let link = provider.link();
    debug!(node = link.id, bytes, kind = beginning.kind.as_deref(), "a message is too large");
    let count = || nodes.router.journal().count("node", "too_large");
    if !beginning.concerns_a_call() {
        count();
        return ControlFlow::Continue(());
    }
    let Some(request_id) = &beginning.request_id else {
        // A caller would wait for this answer until its deadline, and the call is unknown. The
        // connection is therefore closed, which ends all of its calls.
        return ControlFlow::Break(Close::too_large());
    };
    let is_answer = !matches!(beginning.kind.as_deref(), Some("tool_progress" | "tool_chunk"));
    let what = if is_answer { "an answer" } else { "a part" };
    let error = refusal(&link.id, what, bytes, nodes.options.max_frame_bytes);
    match request_id.parse::<CallId>().ok().filter(|call| provider.complete(*call, Err(error))) {
        Some(call) => {
            count();
            if !is_answer {
                // The node would otherwise continue a call that no caller waits for.
                link.send_cancel(call, CancelReason::Requested);
            }
        }
        None => stray(nodes, link, request_id),
    }
    ControlFlow::Continue(())
}

fn refusal(node: &str, what: &str, bytes: u64, limit: usize) -> CallError {
    let message = format!(
        "the node \"{node}\" returned {what} of {bytes} bytes; the gateway accepts at most {limit}"
    );
    CallError::new(CallErrorKind::Failed, message)
        .hint("let the tool return less data, or several parts; an operator can raise limits.max_frame_bytes")
}
