//! The connection of one node, from its hello to its clean-up.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use sa_core::directory::{Attach, AttachError};
use sa_core::link::LinkProvider;
use sa_core::outcome::Attachment;
use sa_core::{AuditEvent, CallError, CallErrorKind, ProviderId, RawJson, Scope, Update};
use sa_protocol::node::{self, Features, Incoming, ToolResponse, Welcome};
use sa_protocol::{ErrorKind, PROTOCOL_VERSION, close};
use sa_socket::{Close, Message, Next, Outbox, Received, WebSocket, Work, dismiss};
use sa_text::excerpt;
use tracing::{debug, info, warn};

use crate::hello::{self, Introduction};
use crate::link::NodeLink;
use crate::{Admission, Host, KIND, MAX_BAD_TOLD, MAX_FORGERIES, Nodes, too_large};

/// The detail of `node.connected` if the new connection replaced an open one with the same id.
pub const TOOK_PLACE: &str = "took an open connection's place";

/// The counter for nodes that claim the id of another one.
const IMPOSTOR: &str = "impostor";
/// The maximum length of a name in a message.
const MAX_SHOWN: usize = 64;
/// The counter for nodes that the budget refuses.
const NO_ROOM: &str = "no_room";

pub(crate) async fn run(nodes: &Nodes, mut socket: Box<WebSocket>, admission: &Admission) {
    let said = match greet(nodes, &mut socket, admission).await {
        Ok(introduction) => introduction,
        Err(refusal) => {
            // Two kinds of refusal have their own counters: a possible attack, and a refusal that
            // is not the node's fault.
            let why = match refusal.code {
                close::ID_HELD => IMPOSTOR,
                close::TRY_AGAIN_LATER => NO_ROOM,
                _ => "refused",
            };
            nodes.router.journal().count("node", why);
            info!(
                remote = admission.remote,
                code = refusal.code,
                reason = &*refusal.reason,
                "node refused"
            );
            return dismiss(socket, &refusal).await;
        }
    };
    let (id, features) = (said.id, said.features);
    let overrun = Close::new(close::TOO_SLOW, "the node reads too slowly");
    // A request that the budget refuses fails alone. The connection continues, because many callers
    // share it.
    let share = nodes.unread.share(&admission.holder());
    let outbox = Outbox::within(&share, None, nodes.options.max_outbox_bytes, overrun);
    let takes_over = nodes.hosts().contains_key(&id);
    // Queued before the directory can send the first call, so that the node reads the welcome
    // first.
    let _ = outbox.send(welcome(nodes, takes_over, &said.mistakes));
    let provider = Arc::new(LinkProvider::new(NodeLink {
        outbox: outbox.clone(),
        features,
        modern: said.modern,
        max_request_bytes: said.max_request_bytes,
        id: id.clone(),
        forgeries: 0.into(),
        host: Host::new(&id, outbox.clone(), features.bin_probe),
    }));
    let attach = Attach {
        id: ProviderId::new(KIND, &id),
        scope: Scope::Everyone,
        grant: admission.grant.clone(),
        provider: Arc::clone(&provider) as Arc<dyn sa_core::Provider>,
        catalog: said.catalog,
        max_running: nodes.options.max_pending,
        about: said.about,
        // A token that is bound to this id proves that the operator gave the id to this node.
        may_take_over: admission.bound_id.is_some(),
    };
    let registration = match nodes.router.directory().attach(attach) {
        Ok(registration) => registration,
        Err(AttachError::HeldByAnother(holder)) => {
            nodes.router.journal().count("node", IMPOSTOR);
            impostor(nodes, &id, admission, &format!("the id belongs to another {holder}"));
            warn!(node = id, remote = admission.remote, %holder, "refused a node that claims the id of another provider");
            let why = match holder.kind {
                KIND => format!(
                    "the node id \"{}\" belongs to another token: choose another id, or use that token",
                    shown(&id)
                ),
                kind => installed(&id, kind),
            };
            return dismiss(socket, &Close::new(close::ID_HELD, why)).await;
        }
    };
    for mistake in said.mistakes {
        warn!(node = id, mistake, "a part of the node's hello is invalid");
    }
    nodes.hosts().insert(id.clone(), Arc::clone(&provider.link().host));
    if takes_over {
        warn!(
            node = id,
            remote = admission.remote,
            "node connected and replaced an open connection with the same id"
        );
    } else {
        info!(node = id, remote = admission.remote, "node connected");
    }
    audit(nodes, "node.connected", &id, admission, if takes_over { TOOK_PLACE } else { "" });

    let ended = {
        // Pinned where they are created. If they were moved into `select!`, the future would store
        // each one twice.
        let watch = std::pin::pin!(async {
            let why = tokio::select! {
                biased;
                () = nodes.shutdown.cancelled() => {
                    outbox.close(Close::new(close::GOING_AWAY, "the gateway is shutting down"));
                    "the gateway is shutting down"
                }
                () = admission.suspended.cancelled() => {
                    outbox.close(Close::new(close::UNAUTHORIZED, "the token is no longer valid"));
                    "its token is no longer valid"
                }
                () = registration.replaced().cancelled_owned() => {
                    nodes.router.journal().count("node", "replaced");
                    let holder = nodes.router.directory().installed_besides(&ProviderId::new(KIND, &id));
                    if let Some(holder) = holder {
                        warn!(node = id, %holder, "the node lost its id");
                        outbox.close(Close::new(close::ID_HELD, installed(&id, holder.kind)));
                        "an operator installed another provider with its id"
                    } else {
                        let why = format!(
                            "a newer connection replaced the node \"{}\"; give each node its own id",
                            shown(&id)
                        );
                        outbox.close(Close::new(close::REPLACED, why));
                        "a newer connection replaced it"
                    }
                }
            };
            // Calls end at once, and do not wait until the node has read the close.
            provider.close(&format!("the node \"{id}\" was disconnected during the call: {why}"));
            std::future::pending::<()>().await;
        });
        let on_message = |message: Received| {
            Work::Done(match message {
                Received::Text(text) => on_frame(nodes, &provider, &outbox, &id, &text),
                Received::Binary(_) => ControlFlow::Break(Close::binary()),
                Received::Cut { beginning, bytes } => {
                    too_large::on_cut(nodes, &provider, &beginning, bytes)
                }
            })
        };
        let serve = std::pin::pin!(sa_socket::serve_messages(
            socket,
            &outbox,
            nodes.options.liveness,
            on_message
        ));
        tokio::select! {
            // Calls are polled first, because the watch is rarely ready.
            biased;
            ended = serve => ended,
            () = watch => unreachable!("the watch never ends by itself"),
        }
    };
    let said_goodbye = ended.code == 1000 && !nodes.shutdown.is_cancelled();
    // Runs before the calls end. A call that is resolved again must find the node disconnected or
    // reconnected.
    if admission.revoked.is_cancelled() {
        // The node cannot return with this token, so its id becomes free.
        registration.withdraw();
    } else if said_goodbye {
        registration.stopped();
    } else {
        drop(registration);
    }
    provider.close(&match ended.fault() {
        Some(_) => format!("the node \"{id}\" was disconnected during the call: {}", ended.reason),
        None if said_goodbye => format!("the node \"{id}\" was stopped during the call"),
        None => format!("the node \"{id}\" disconnected during the call"),
    });
    leave(nodes, &id, &provider.link().host);
    if let Some(fault) = ended.fault() {
        nodes.router.journal().count("node", fault);
    }
    info!(node = id, code = ended.code, reason = &*ended.reason, "node disconnected");
    let detail = if said_goodbye {
        format!("graceful shutdown: {}", ended.reason)
    } else {
        ended.reason.to_string()
    };
    audit(nodes, "node.disconnected", &id, admission, &detail);
}

/// Shortens an id so that it fits into a close reason, which has at most 123 bytes in all.
fn shown(id: &str) -> String {
    if id.len() <= 20 { id.to_owned() } else { format!("{}...", &id[..id.floor_char_boundary(17)]) }
}

/// Returns the close reason for an id that an operator has given to a provider of another kind.
fn installed(id: &str, kind: &str) -> String {
    format!(
        "the id \"{}\" belongs to the {kind} of this name, which an operator installed: choose another id",
        shown(id)
    )
}

/// Removes a connection from the list, unless a newer one has replaced it.
fn leave(nodes: &Nodes, id: &str, host: &Arc<Host>) {
    let mut hosts = nodes.hosts();
    if hosts.get(id).is_some_and(|current| Arc::ptr_eq(current, host)) {
        hosts.remove(id);
    }
    drop(hosts);
    host.close();
}

/// Waits for the hello and checks it.
async fn greet(
    nodes: &Nodes,
    socket: &mut WebSocket,
    admission: &Admission,
) -> Result<Box<Introduction>, Close> {
    let mut skipped = 0;
    let first = tokio::select! {
        biased;
        first = tokio::time::timeout(nodes.options.hello_timeout, hello_text(socket, &mut skipped)) => first,
        () = nodes.shutdown.cancelled() => return Err(Close::new(close::GOING_AWAY, "the gateway is shutting down")),
    };
    let text = match (first, skipped) {
        (Ok(Ok(text)), _) => text,
        (Ok(Err(close)), _) => return Err(close),
        (Err(_), 0) => {
            return Err(Close::new(close::HELLO_TOO_LATE, "no node_hello was received in time"));
        }
        (Err(_), frames) => {
            let why =
                format!("no node_hello was received in time; {frames} other frames were skipped");
            return Err(Close::new(close::HELLO_TOO_LATE, why));
        }
    };
    let hello = match Incoming::decode(&text) {
        Ok(Incoming::Hello(hello)) => hello,
        Ok(_) => return Err(hello::bad("the first frame must be a node_hello")),
        Err(error) => return Err(hello::bad(format!("the node_hello is invalid: {error}"))),
    };
    let mut introduction = hello::read(&hello, &nodes.options, &admission.remote)?;
    // During shutdown, a running call may still wait for a node that reconnects. A new node would
    // not get any calls.
    if nodes.router.is_draining()
        && nodes.router.directory().permit(&ProviderId::new(KIND, &introduction.id)).is_none()
    {
        return Err(Close::new(close::GOING_AWAY, "the gateway is shutting down"));
    }
    if let Some(bound) = &admission.bound_id
        && **bound != *introduction.id
    {
        impostor(nodes, &introduction.id, admission, "the token is bound to another id");
        let (bound, id) = (shown(bound), shown(&introduction.id));
        return Err(Close::new(
            close::ID_HELD,
            format!(
                "this token is for the node id \"{bound}\", not \"{id}\": connect with that id, or use another token"
            ),
        ));
    }
    let counted = nodes.count_hello(&introduction.id, &admission.holder(), introduction.weight());
    // A close reason has at most 123 bytes, which is too little for the whole refusal.
    let counted = counted.map_err(|refused| {
        warn!(
            node = introduction.id,
            remote = admission.remote,
            reason = refused.message,
            "the budget for node hellos is exhausted"
        );
        Close::new(
            close::TRY_AGAIN_LATER,
            "the budget for the hellos of all nodes is exhausted (nodes.hello_bytes)",
        )
    })?;
    introduction.catalog.permit = Some(counted);
    // A future stores each of its variables as long as it lives, even if they are moved. A box is
    // smaller.
    Ok(Box::new(introduction))
}

/// Returns the first frame that is a hello, valid or not.
///
/// Some nodes send a ping before it, so other frames are counted and skipped.
async fn hello_text(socket: &mut WebSocket, skipped: &mut u32) -> Result<String, Close> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(_) | Message::Binary(_)))
                if socket.get_ref().take_cut().is_some() =>
            {
                return Err(Close::too_large());
            }
            Some(Ok(Message::Text(text))) if is_hello(&text) => return Ok(text.to_string()),
            Some(Ok(Message::Text(_) | Message::Binary(_))) => *skipped += 1,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Err(error)) if let Some(close) = Close::violation(&error) => return Err(close),
            _ => return Err(hello::bad("the connection ended before a node_hello")),
        }
    }
}

/// Whether a frame is a hello, valid or not.
fn is_hello(text: &str) -> bool {
    match Incoming::decode(text) {
        Ok(frame) => matches!(frame, Incoming::Hello(_)),
        Err(error) => error.frame_type() == Some("node_hello"),
    }
}

/// The notice for a node that replaced an open connection.
///
/// Two processes with one id look like one node that reconnected over another network. Only the
/// operator of the nodes can distinguish these cases.
const TOOK_OVER: &str = "an open connection with the same node id was closed for this one; if that is another process, \
give each of the two an id of its own";

fn welcome(nodes: &Nodes, takes_over: bool, mistakes: &[String]) -> String {
    let mut frame = String::new();
    let features = Features::ALL;
    let gateway_version = nodes.options.gateway_version.into();
    let max_frame_bytes = Some(nodes.options.max_frame_bytes as u64);
    let mistakes = (!mistakes.is_empty())
        .then(|| format!("parts of the hello are invalid: {}", mistakes.join("; ")));
    let notice: Vec<&str> =
        takes_over.then_some(TOOK_OVER).into_iter().chain(mistakes.as_deref()).collect();
    let notice = (!notice.is_empty()).then(|| notice.join(". ").into());
    let welcome = Welcome {
        protocol_version: PROTOCOL_VERSION,
        gateway_version,
        features,
        max_frame_bytes,
        notice,
    };
    node::encode_welcome(&mut frame, &welcome);
    frame
}

fn on_frame(
    nodes: &Nodes,
    provider: &LinkProvider<NodeLink>,
    outbox: &Outbox,
    id: &str,
    text: &str,
) -> Next {
    let frame = match Incoming::decode(text) {
        Ok(frame) => frame,
        Err(error) => {
            bad_frame(nodes, provider.link(), &error);
            // An unreadable response still ends its call, so that the caller need not wait for the
            // deadline.
            if error.frame_type() == Some("tool_response")
                && let Some(call) = error.id().and_then(|id| id.parse().ok())
            {
                provider.complete(call, Err(unreadable(id, error)));
            }
            return ControlFlow::Continue(());
        }
    };
    let (request_id, known) = match frame {
        Incoming::Response(response) => {
            let request_id = response.request_id.clone();
            (request_id, answer(nodes, provider, response))
        }
        Incoming::Progress(frame) => {
            let message = frame.message.map(std::borrow::Cow::into_owned);
            let update = Update::Progress { progress: frame.progress, total: frame.total, message };
            let known = frame.request_id.parse().is_ok_and(|id| provider.update(id, update));
            (frame.request_id, known)
        }
        Incoming::Chunk(frame) => {
            let call = frame.request_id.parse().ok().filter(|call| provider.has(*call));
            let known =
                call.is_some_and(|call| match readable(frame.content, &frame.attachments) {
                    Ok((content, attachments)) => {
                        provider.update(call, Update::Chunk { content, attachments })
                    }
                    // A result with a missing chunk would be wrong.
                    Err(error) => {
                        bad_frame(nodes, provider.link(), &error);
                        provider.complete(call, Err(unreadable(id, error)))
                    }
                });
            (frame.request_id, known)
        }
        Incoming::Ping(timestamp) => {
            let mut pong = String::new();
            node::encode_pong(&mut pong, timestamp);
            let _ = outbox.send(pong);
            return ControlFlow::Continue(());
        }
        Incoming::Event(frame) => {
            match provider.link().host.event(&frame) {
                Ok(event) => nodes.router.journal().provider_event(&event),
                Err(why) => nodes.router.journal().count("node", why),
            }
            return ControlFlow::Continue(());
        }
        Incoming::BinProbeResult(answer) => {
            if !provider.link().host.answered(&answer) {
                nodes.router.journal().count("node", "stray_probe");
            }
            return ControlFlow::Continue(());
        }
        _ => return ControlFlow::Continue(()),
    };
    if !known {
        stray(nodes, provider.link(), &request_id);
    }
    ControlFlow::Continue(())
}

fn answer(nodes: &Nodes, provider: &LinkProvider<NodeLink>, response: ToolResponse<'_>) -> bool {
    // Checked before the response is parsed, because a response without a waiting call needs no
    // work.
    let Some(id) = response.request_id.parse().ok().filter(|id| provider.has(*id)) else {
        return false;
    };
    let outcome = match response.outcome {
        Ok(result) => readable(result.unwrap_or("null"), &response.attachments)
            .map(|(content, attachments)| sa_http::blocks::output(content, attachments))
            .map_err(|error| {
                bad_frame(nodes, provider.link(), &error);
                unreadable(&provider.link().id, error)
            }),
        Err(failure) => Err(CallError::new(kind(failure.kind), failure.message.into_owned())),
    };
    provider.complete(id, outcome)
}

/// Counts and logs an unreadable frame.
///
/// The author of the node must see the error. The counter shows how frequent such frames are.
fn bad_frame(nodes: &Nodes, link: &NodeLink, error: &dyn std::fmt::Display) {
    nodes.router.journal().count("node", "bad_frame");
    let node = &*link.id;
    match link.host.bad_frame(&error.to_string()) {
        count @ 0..MAX_BAD_TOLD => warn!(node, %error, count, "the node sent an invalid frame"),
        MAX_BAD_TOLD => {
            warn!(node, %error, "the node sent an invalid frame; further invalid frames are only counted");
        }
        _ => debug!(node, %error, "the node sent an invalid frame"),
    }
}

/// Returns the error of a call with an unreadable response or chunk.
fn unreadable(node: &str, error: impl std::fmt::Display) -> CallError {
    let failure = format!("the node \"{node}\" returned an invalid response: {error}");
    CallError::new(CallErrorKind::Failed, failure)
}

fn kind(kind: ErrorKind) -> CallErrorKind {
    match kind {
        ErrorKind::InvalidArgs => CallErrorKind::InvalidArgs,
        ErrorKind::NotAllowed => CallErrorKind::NotAllowed,
        ErrorKind::Timeout => CallErrorKind::Timeout,
        ErrorKind::Cancelled => CallErrorKind::Cancelled,
        ErrorKind::NotFound => CallErrorKind::NotFound,
        ErrorKind::Failed => CallErrorKind::Failed,
    }
}

/// Reads the content and all attachments of a result. A result without one of its files would be
/// wrong.
fn readable(
    content: &str,
    wire: &[sa_protocol::Attachment<'_>],
) -> Result<(RawJson, Vec<Attachment>), String> {
    let content = RawJson::well_formed(content).map_err(|error| error.to_string())?;
    let read = |(at, attachment): (usize, &sa_protocol::Attachment<'_>)| {
        let name = attachment.name.as_ref().map(ToString::to_string);
        let data = attachment.bytes().map_err(|error| {
            let called = name.as_deref().map_or_else(String::new, |name| {
                format!(" ({})", excerpt(MAX_SHOWN, name).escape_debug())
            });
            format!("the data of attachment {}{called} is not valid base64: {error}", at + 1)
        })?;
        Ok(Attachment { mime_type: attachment.mime_type.to_string(), name, data: data.into() })
    };
    let attachments = wire.iter().enumerate().map(read).collect::<Result<_, String>>()?;
    Ok((content, attachments))
}

/// Counts a reply to a call that this connection does not have.
///
/// Usually the reply is late, after a cancel. A reply to a call of another provider is a forgery
/// and is recorded. The node gets no answer in either case.
pub(crate) fn stray(nodes: &Nodes, link: &NodeLink, request_id: &str) {
    let asked = request_id.parse().ok().and_then(|id| nodes.router.provider_of(id));
    let forged = asked.is_some_and(|asked| asked != ProviderId::new(KIND, &link.id));
    let journal = nodes.router.journal();
    journal.count("node", if forged { "forged_reply" } else { "stray_reply" });
    // The counter shows how frequent forgeries are. The audit log must keep space for other events.
    if forged && link.forgeries.fetch_add(1, Ordering::Relaxed) < MAX_FORGERIES {
        warn!(node = link.id, "a node answered a call of another provider");
        journal.audit(AuditEvent {
            name: "reply.forged",
            actor: format!("node {}", link.id),
            subject: request_id.chars().take(64).collect(),
            detail: String::new(),
        });
    }
}

fn audit(nodes: &Nodes, what: &'static str, id: &str, admission: &Admission, detail: &str) {
    nodes.router.journal().audit(event(what, id, admission, detail));
}

/// Records that a node claimed the id of another one. This can happen on every connection.
fn impostor(nodes: &Nodes, id: &str, admission: &Admission, detail: &str) {
    nodes.router.journal().refused(event("node.impostor", id, admission, detail));
}

fn event(what: &'static str, id: &str, admission: &Admission, detail: &str) -> AuditEvent {
    AuditEvent {
        name: what,
        actor: format!("node {id} from {}", admission.remote),
        subject: id.to_owned(),
        detail: detail.to_owned(),
    }
}
