//! One node's connection, from its hello to its clean-up.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use sa_core::directory::{Attach, AttachError};
use sa_core::link::LinkProvider;
use sa_core::outcome::{Attachment, Output};
use sa_core::{AuditEvent, CallError, CallErrorKind, ProviderId, RawJson, Scope, Update};
use sa_protocol::node::{self, Features, Incoming, ToolResponse, Welcome};
use sa_protocol::{ErrorKind, PROTOCOL_VERSION, close};
use sa_socket::{Close, Message, Next, Outbox, Received, WebSocket, Work, dismiss};
use tracing::{debug, info, warn};

use crate::hello::{self, Introduction};
use crate::link::NodeLink;
use crate::{Admission, Host, KIND, MAX_BAD_TOLD, MAX_FORGERIES, Nodes, too_large};

/// The detail of `node.connected` where the new connection replaced an open one with the same id.
pub const TOOK_PLACE: &str = "took an open connection's place";

/// How those are counted who claim an id that is not theirs.
const IMPOSTOR: &str = "impostor";
/// How those are counted for whom there is no room.
const NO_ROOM: &str = "no_room";

pub(crate) async fn run(nodes: &Nodes, mut socket: Box<WebSocket>, admission: &Admission) {
    let said = match greet(nodes, &mut socket, admission).await {
        Ok(introduction) => introduction,
        Err(refusal) => {
            // Two kinds of refusal have numbers of their own: the one that may be an attack, and the one that is no fault of
            // the node's.
            let why = match refusal.code {
                close::ID_HELD => IMPOSTOR,
                close::TRY_AGAIN_LATER => NO_ROOM,
                _ => "refused",
            };
            nodes.router.journal().count("node", why);
            info!(remote = admission.remote, code = refusal.code, reason = &*refusal.reason, "node refused");
            return dismiss(socket, &refusal).await;
        }
    };
    let (id, features) = (said.id, said.features);
    let overrun = Close::new(close::TOO_SLOW, "the node reads more slowly than the gateway has to write");
    // A request that the budget refuses fails by itself, and the connection goes on: many callers share it.
    let share = nodes.unread.share(&admission.holder());
    let outbox = Outbox::within(&share, None, nodes.options.max_outbox_bytes, overrun);
    let takes_over = nodes.hosts().contains_key(&id);
    // Queued before the directory can hand out the first call, so that it is the first thing the node reads.
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
        // A token that is for this id alone is the operator's word on whose it is.
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
                    "the node id \"{}\" belongs to another token: choose another id, or use the token that it belongs to",
                    shown(&id)
                ),
                kind => installed(&id, kind),
            };
            return dismiss(socket, &Close::new(close::ID_HELD, why)).await;
        }
    };
    for mistake in said.mistakes {
        warn!(node = id, mistake, "something that the node's hello offers cannot be used");
    }
    nodes.hosts().insert(id.clone(), Arc::clone(&provider.link().host));
    if takes_over {
        warn!(
            node = id,
            remote = admission.remote,
            "node connected, in the place of an open connection with the same id"
        );
    } else {
        info!(node = id, remote = admission.remote, "node connected");
    }
    audit(nodes, "node.connected", &id, admission, if takes_over { TOOK_PLACE } else { "" });

    let ended = {
        // Pinned where they are made: moved into the `select!`, each would have its room twice.
        let watch = std::pin::pin!(async {
            let why = tokio::select! {
                biased;
                () = nodes.shutdown.cancelled() => {
                    outbox.close(Close::new(close::GOING_AWAY, "the gateway is shutting down"));
                    "the gateway is shutting down"
                }
                () = admission.revoked.cancelled() => {
                    outbox.close(Close::new(close::UNAUTHORIZED, "the token is not valid any more"));
                    "its token is not valid any more"
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
                            "a newer connection took the place of the node \"{}\"; two nodes need an id each",
                            shown(&id)
                        );
                        outbox.close(Close::new(close::REPLACED, why));
                        "a newer connection took its place"
                    }
                }
            };
            // Calls end now, not when the node has read that it was dismissed.
            provider.close(&format!("the node \"{id}\" was disconnected in the middle of the call: {why}"));
            std::future::pending::<()>().await;
        });
        let on_message = |message: Received| {
            Work::Done(match message {
                Received::Text(text) => on_frame(nodes, &provider, &outbox, &id, &text),
                Received::Binary(_) => ControlFlow::Break(Close::binary()),
                Received::Cut { beginning, bytes } => too_large::on_cut(nodes, &provider, &beginning, bytes),
            })
        };
        let serve = std::pin::pin!(sa_socket::serve_messages(socket, &outbox, nodes.options.liveness, on_message));
        tokio::select! {
            // Calls first: the watch hardly ever has something to say.
            biased;
            ended = serve => ended,
            () = watch => unreachable!("the watch never ends by itself"),
        }
    };
    let said_goodbye = ended.code == 1000 && !nodes.shutdown.is_cancelled();
    // The calls first: one that is resolved again must find the node gone, or back.
    if admission.revoked.is_cancelled() {
        // It will not come back as this; what it held is free.
        registration.withdraw();
    } else if said_goodbye {
        registration.stopped();
    } else {
        drop(registration);
    }
    provider.close(&match ended.fault() {
        Some(_) => format!("the node \"{id}\" was disconnected in the middle of the call: {}", ended.reason),
        None if said_goodbye => format!("the node \"{id}\" was stopped in the middle of the call"),
        None => format!("the node \"{id}\" went away in the middle of the call"),
    });
    leave(nodes, &id, &provider.link().host);
    if let Some(fault) = ended.fault() {
        nodes.router.journal().count("node", fault);
    }
    info!(node = id, code = ended.code, reason = &*ended.reason, "node disconnected");
    let detail = if said_goodbye { format!("it said goodbye: {}", ended.reason) } else { ended.reason.to_string() };
    audit(nodes, "node.disconnected", &id, admission, &detail);
}

/// As much of an id as there is room for beside the words of a close, which has 123 bytes for all of them.
fn shown(id: &str) -> String {
    if id.len() <= 20 { id.to_owned() } else { format!("{}...", &id[..id.floor_char_boundary(17)]) }
}

/// Why a node cannot have an id that an operator has given to a provider of another kind.
fn installed(id: &str, kind: &str) -> String {
    format!(
        "the id \"{}\" belongs to the {kind} of this name, which an operator installed: choose another id",
        shown(id)
    )
}

/// Takes a connection out of the list, if a newer one has not taken its place there.
fn leave(nodes: &Nodes, id: &str, host: &Arc<Host>) {
    let mut hosts = nodes.hosts();
    if hosts.get(id).is_some_and(|current| Arc::ptr_eq(current, host)) {
        hosts.remove(id);
    }
    drop(hosts);
    host.close();
}

/// Waits for the hello, and checks it.
async fn greet(nodes: &Nodes, socket: &mut WebSocket, admission: &Admission) -> Result<Box<Introduction>, Close> {
    let mut skipped = 0;
    let first = tokio::select! {
        biased;
        first = tokio::time::timeout(nodes.options.hello_patience, hello_text(socket, &mut skipped)) => first,
        () = nodes.shutdown.cancelled() => return Err(Close::new(close::GOING_AWAY, "the gateway is shutting down")),
    };
    let text = match (first, skipped) {
        (Ok(Ok(text)), _) => text,
        (Ok(Err(close)), _) => return Err(close),
        (Err(_), 0) => return Err(Close::new(close::HELLO_TOO_LATE, "no node_hello came in time")),
        (Err(_), frames) => {
            let why = format!("no node_hello came in time; {frames} frames that are none were skipped");
            return Err(Close::new(close::HELLO_TOO_LATE, why));
        }
    };
    let hello = match Incoming::decode(&text) {
        Ok(Incoming::Hello(hello)) => hello,
        Ok(_) => return Err(hello::bad("the first frame must be a node_hello")),
        Err(error) => return Err(hello::bad(format!("the node_hello cannot be read: {error}"))),
    };
    let mut introduction = hello::read(&hello, &nodes.options, &admission.remote)?;
    // One that comes back may be what a call waits for that still runs; for a new one there will be no calls.
    if nodes.router.is_draining() && nodes.router.directory().room(&ProviderId::new(KIND, &introduction.id)).is_none() {
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
    // A close has 123 bytes for its reason, which is not enough for all that the refusal says.
    let counted = counted.map_err(|refused| {
        warn!(
            node = introduction.id,
            remote = admission.remote,
            reason = refused.message,
            "no budget for a node's hello"
        );
        Close::new(close::TRY_AGAIN_LATER, "no room for this hello beside those of other nodes (nodes.hello_bytes)")
    })?;
    introduction.catalog.room = Some(counted);
    // A future has room for each of its variables as long as it lives, however often they are moved: a pointer is less.
    Ok(Box::new(introduction))
}

/// The first frame that is a hello, readable or not. Some nodes send a ping before it, so other frames are counted and skipped.
async fn hello_text(socket: &mut WebSocket, skipped: &mut u32) -> Result<String, Close> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(_) | Message::Binary(_))) if socket.get_ref().take_cut().is_some() => {
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

/// Whether a frame means to be a hello.
fn is_hello(text: &str) -> bool {
    match Incoming::decode(text) {
        Ok(frame) => matches!(frame, Incoming::Hello(_)),
        Err(error) => error.frame_type() == Some("node_hello"),
    }
}

/// Two processes with one id look like one that came back over another network; only whoever runs them can tell.
const TOOK_OVER: &str = "an open connection with the same node id was closed for this one; if that is another process, \
give each of the two an id of its own";

fn welcome(nodes: &Nodes, takes_over: bool, mistakes: &[String]) -> String {
    let mut frame = String::new();
    let features = Features::ALL;
    let gateway_version = nodes.options.gateway_version.into();
    let max_frame_bytes = Some(nodes.options.max_frame_bytes as u64);
    let mistakes =
        (!mistakes.is_empty()).then(|| format!("not all that the hello offers can be used: {}", mistakes.join("; ")));
    let notice: Vec<&str> = takes_over.then_some(TOOK_OVER).into_iter().chain(mistakes.as_deref()).collect();
    let notice = (!notice.is_empty()).then(|| notice.join(". ").into());
    let welcome = Welcome { protocol_version: PROTOCOL_VERSION, gateway_version, features, max_frame_bytes, notice };
    node::encode_welcome(&mut frame, &welcome);
    frame
}

fn on_frame(nodes: &Nodes, provider: &LinkProvider<NodeLink>, outbox: &Outbox, id: &str, text: &str) -> Next {
    let frame = match Incoming::decode(text) {
        Ok(frame) => frame,
        Err(error) => {
            bad_frame(nodes, provider.link(), &error);
            // An answer that cannot be used is an answer: its call need not wait for the deadline.
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
            let known = call.is_some_and(|call| match readable(frame.content, &frame.attachments) {
                Ok((content, attachments)) => provider.update(call, Update::Chunk { content, attachments }),
                // A result with a piece missing would be wrong.
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
    // Looked at before the answer is: nothing need be done for what nobody waits for.
    let Some(id) = response.request_id.parse().ok().filter(|id| provider.has(*id)) else { return false };
    let outcome = match response.outcome {
        Ok(result) => readable(result.unwrap_or("null"), &response.attachments)
            .map(|(content, attachments)| Output::from_provider(content, attachments))
            .map_err(|error| {
                bad_frame(nodes, provider.link(), &error);
                unreadable(&provider.link().id, error)
            }),
        Err(failure) => Err(CallError::new(kind(failure.kind), failure.message.into_owned())),
    };
    provider.complete(id, outcome)
}

/// Counts a frame that cannot be read, or that says what cannot be. Whoever wrote the node has to hear of it, and a flood of
/// them is told from the number.
fn bad_frame(nodes: &Nodes, link: &NodeLink, error: &dyn std::fmt::Display) {
    nodes.router.journal().count("node", "bad_frame");
    let node = &*link.id;
    match link.host.bad_frame(&error.to_string()) {
        count @ 0..MAX_BAD_TOLD => warn!(node, %error, count, "a frame of the node cannot be read"),
        MAX_BAD_TOLD => warn!(node, %error, "a frame of the node cannot be read; from now on they are only counted"),
        _ => debug!(node, %error, "a frame of the node cannot be read"),
    }
}

/// What becomes of a call whose answer, or a part of it, cannot be read.
fn unreadable(node: &str, error: impl std::fmt::Display) -> CallError {
    let failure = format!("the node \"{node}\" gave an answer that cannot be read: {error}");
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

/// What a node gives for a call, once all of it has been read: a result without one of its files would be another one.
fn readable(content: &str, wire: &[sa_protocol::Attachment<'_>]) -> Result<(RawJson, Vec<Attachment>), String> {
    let content = RawJson::well_formed(content).map_err(|error| error.to_string())?;
    let read = |(at, attachment): (usize, &sa_protocol::Attachment<'_>)| {
        let name = attachment.name.as_ref().map(ToString::to_string);
        let data = attachment.bytes().map_err(|error| {
            let called = name.as_deref().map_or_else(String::new, |name| format!(" ({})", excerpt(name)));
            format!("the data of attachment {}{called} is no base64: {error}", at + 1)
        })?;
        Ok(Attachment { mime_type: attachment.mime_type.to_string(), name, data: data.into() })
    };
    let attachments = wire.iter().enumerate().map(read).collect::<Result<_, String>>()?;
    Ok((content, attachments))
}

/// As much of a name as shows which one is meant.
fn excerpt(name: &str) -> String {
    name.chars().take(64).collect::<String>().escape_debug().to_string()
}

/// A word on a call that this connection does not have. Mostly it is late, after a cancel; one that names a call which
/// runs elsewhere is an attempt to answer for somebody else, and is recorded. The node is told nothing either way.
pub(crate) fn stray(nodes: &Nodes, link: &NodeLink, request_id: &str) {
    let asked = request_id.parse().ok().and_then(|id| nodes.router.asked(id));
    let forged = asked.is_some_and(|asked| asked != ProviderId::new(KIND, &link.id));
    let journal = nodes.router.journal();
    journal.count("node", if forged { "forged_reply" } else { "stray_reply" });
    // A flood of them is told from the counter; the trail has room for other things, too.
    if forged && link.forgeries.fetch_add(1, Ordering::Relaxed) < MAX_FORGERIES {
        warn!(node = link.id, "a node answered a call that was not its own");
        journal.audit(AuditEvent {
            what: "reply.forged",
            who: format!("node {}", link.id),
            subject: request_id.chars().take(64).collect(),
            detail: String::new(),
        });
    }
}

fn audit(nodes: &Nodes, what: &'static str, id: &str, admission: &Admission, detail: &str) {
    nodes.router.journal().audit(event(what, id, admission, detail));
}

/// Somebody claims an id that is not theirs, and can do so as often as they connect.
fn impostor(nodes: &Nodes, id: &str, admission: &Admission, detail: &str) {
    nodes.router.journal().refused(event("node.impostor", id, admission, detail));
}

fn event(what: &'static str, id: &str, admission: &Admission, detail: &str) -> AuditEvent {
    AuditEvent {
        what,
        who: format!("node {id} from {}", admission.remote),
        subject: id.to_owned(),
        detail: detail.to_owned(),
    }
}
