//! One connection of a participant, from the missed messages to its departure.

mod catch_up;

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sa_limits::rate::Rate;
use sa_protocol::channel::{
    CLOSE_CHANNEL_REQUIRED, CLOSE_CONTEXT_MISMATCH, CLOSE_INVALID_CONTEXT, CLOSE_UNAUTHORIZED,
    ClientFrame, INVALID, binary, encode_closed, encode_error, encode_history,
};
use sa_protocol::close;
use sa_socket::{Close, Next, Outbox, Received, WebSocket, Work, dismiss};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use crate::channel::{Channel, Leave, Member};
use crate::gateway::GatewayEntry;
use crate::publish::{Draft, Refusal, Sender};
use crate::{Admission, Channels, Entrance, GATEWAY, OpenError, Page};

struct Session {
    channel: Arc<Channel>,
    participant: Arc<str>,
    sender: Sender,
    outbox: Outbox,
    /// Set after it has received all missed messages.
    member: OnceLock<Arc<Member>>,
    ready: CancellationToken,
    graceful: AtomicBool,
    rate: Rate,
}

pub(crate) async fn run(
    hub: &Arc<Channels>,
    socket: Box<WebSocket>,
    admission: Admission,
    entrance: Box<Entrance>,
) {
    let channel = match Box::pin(admitted(hub, &admission, &entrance)).await {
        Ok(channel) => channel,
        Err(refusal) => {
            hub.router.journal().count("channel", "refused");
            return dismiss(socket, &refusal).await;
        }
    };
    let overrun =
        Close::new(close::TOO_SLOW, "read too slowly; reconnect with the last id as sinceId");
    let per_second = NonZeroU32::new(hub.options.max_rate).unwrap_or(NonZeroU32::MIN);
    let session = Arc::new(Session {
        channel,
        participant: Arc::clone(&admission.principal.name),
        sender: Sender { principal: Arc::clone(&admission.principal), rights: admission.rights },
        outbox: Outbox::new(hub.options.queue_bytes(), overrun),
        member: OnceLock::new(),
        ready: CancellationToken::new(),
        graceful: AtomicBool::new(false),
        rate: Rate::new(per_second, per_second),
    });
    let outbox = &session.outbox;
    let ended = {
        let on_message = |message| {
            let session = Arc::clone(&session);
            Work::Later(Box::pin(async move { session.on_message(message).await }))
        };
        let serve = std::pin::pin!(sa_socket::serve_messages(
            socket,
            outbox,
            hub.options.liveness,
            on_message
        ));
        let watch = std::pin::pin!(async {
            let entered = async {
                // Boxed, so that an idle connection does not hold the memory of this future.
                Box::pin(session.enter(entrance)).await;
                std::future::pending::<()>().await;
            };
            // Watched from the beginning: there may be many missed messages, and a slow reader.
            tokio::select! {
                biased;
                () = hub.shutdown.cancelled() => outbox.close(Close::new(close::GOING_AWAY, "the gateway is shutting down")),
                () = admission.revoked.cancelled() => outbox.close(Close::new(CLOSE_UNAUTHORIZED, "unauthorized: the token is no longer valid")),
                () = entered => {}
            }
            std::future::pending::<()>().await;
        });
        tokio::select! {
            ended = serve => ended,
            () = watch => unreachable!("the watch never ends by itself"),
        }
    };
    if let Some(fault) = ended.fault() {
        hub.router.journal().count("channel", fault);
    }
    let graceful = session.graceful.load(Ordering::Relaxed);
    if let Some(member) = session.member.get() {
        let how = if graceful { Leave::Graceful } else { Leave::Disconnect };
        session.channel.leave(&session.participant, member, how);
    }
    debug!(
        channel = &*session.channel.name,
        participant = &*session.participant,
        code = ended.code,
        "left"
    );
}

/// Checks whether a connection is allowed, and opens its channel.
async fn admitted(
    hub: &Arc<Channels>,
    admission: &Admission,
    entrance: &Entrance,
) -> Result<Arc<Channel>, Close> {
    if &*admission.principal.name == GATEWAY {
        let why =
            "unauthorized: the name is reserved for the gateway; use a token with another name";
        return Err(Close::new(CLOSE_UNAUTHORIZED, why));
    }
    if !admission.rights.read && !admission.rights.publish {
        return Err(Close::new(
            CLOSE_UNAUTHORIZED,
            "unauthorized: the token has no access to this channel",
        ));
    }
    let (context, config) = (entrance.context.as_deref(), entrance.config.as_deref());
    let entered = hub
        .enter(&entrance.channel, &admission.principal, context, config, admission.rights.publish)
        .await;
    entered.map_err(|failure| match failure {
        OpenError::Name => Close::new(CLOSE_CHANNEL_REQUIRED, format!("channel required: {failure}")),
        OpenError::Config | OpenError::Context => Close::new(CLOSE_INVALID_CONTEXT, failure.to_string()),
        OpenError::OtherContext => Close::new(CLOSE_CONTEXT_MISMATCH, failure.to_string()),
        // The reason of a close frame is limited to 123 bytes.
        OpenError::TooMany(_) => {
            let why =
                "the channel limit is reached (channels.max_channels): use an existing channel, or delete one";
            Close::new(close::TRY_AGAIN_LATER, why)
        }
        OpenError::Store(failure) => {
            error!(error = %failure, "cannot open a channel");
            Close::new(1011, "the channel cannot be opened; see the gateway's log")
        }
    })
}

impl Session {
    /// Sends the missed messages, adds the participant as a reader, and announces it. Then sends
    /// changes of the gateway's tools until the connection ends.
    async fn enter(&self, entrance: Box<Entrance>) {
        let gateway = GatewayEntry::of(&self.channel.hub, &self.sender);
        match self.catch_up(&entrance, gateway.as_ref()).await {
            Ok(Some(member)) => {
                self.channel.join(&self.participant, &member);
                let _ = self.member.set(member);
                self.ready.cancel();
                if let Some(gateway) = gateway {
                    gateway.follow(&self.outbox).await;
                }
            }
            Ok(None) => {}
            Err(failure) => {
                error!(error = %failure, "cannot read stored messages");
                self.outbox.close(Close::new(
                    1011,
                    "stored messages cannot be read; see the gateway's log",
                ));
            }
        }
    }

    async fn on_message(&self, message: Received) -> Next {
        self.ready.cancelled().await;
        let Some(member) = self.member.get() else { return ControlFlow::Continue(()) };
        // A client that still sends after a close is ignored: its token may be the reason for the
        // close.
        if self.outbox.is_closed() {
            return ControlFlow::Continue(());
        }
        let journal = self.channel.hub.router.journal();
        let (text, bytes) = match &message {
            Received::Text(text) => (text.as_str(), Bytes::new()),
            Received::Binary(frame) => match binary::split(frame) {
                Ok((json, at)) => (json, frame.slice(at..)),
                Err(why) => {
                    journal.count("channel", "bad_frame");
                    self.tell(encode_error(&format!("{INVALID}: {why}"), "validation-error", None));
                    return ControlFlow::Continue(());
                }
            },
            Received::Cut { .. } => return ControlFlow::Break(Close::too_large()),
        };
        let frame = match ClientFrame::decode(text) {
            Ok(frame) => frame,
            Err(bad) => {
                journal.count("channel", "bad_frame");
                self.tell(encode_error(&bad.message, "validation-error", bad.reference));
                return ControlFlow::Continue(());
            }
        };
        let (reference, result) = match frame {
            ClientFrame::Close { reference } => {
                self.graceful.store(true, Ordering::Relaxed);
                if let Some(reference) = reference {
                    self.tell(encode_closed(reference));
                }
                return ControlFlow::Break(Close::new(1000, "closed by the client"));
            }
            ClientFrame::Publish(publish) => {
                let reference = publish.reference;
                let draft = Draft {
                    kind: publish.kind,
                    payload: publish.payload,
                    persist: publish.persist,
                    client_message_id: publish.client_message_id,
                    attachments: publish.attachments,
                    bytes,
                };
                let result = match self.may_send() {
                    Ok(()) => {
                        self.channel
                            .submit(&self.sender, draft, Some((member.id, reference)), None)
                            .await
                    }
                    Err(refusal) => Err(refusal),
                };
                (reference, result)
            }
            ClientFrame::UpdateMetadata { metadata, reference } => {
                let update =
                    || self.channel.update_metadata(&self.sender, metadata, (member, reference));
                (reference, self.may_send().and_then(|()| update()))
            }
            ClientFrame::GetMessagesBefore { before, limit, reference, answer } => {
                let page = self.history(before, limit).await;
                let told = page.map(|page| {
                    self.tell(encode_history(answer, &page.messages, page.more, reference));
                });
                (reference, told)
            }
        };
        if let Err(refusal) = result {
            journal.count("channel", "refused_message");
            let text = match &refusal.hint {
                Some(hint) => format!("{}; {hint}", refusal.message),
                None => refusal.message,
            };
            self.tell(encode_error(&text, refusal.code, reference));
        }
        ControlFlow::Continue(())
    }

    async fn history(&self, before: Option<u64>, limit: Option<usize>) -> Result<Page, Refusal> {
        if !self.sender.rights.read {
            return Err(Refusal::new(
                "not-allowed",
                "the token is not allowed to read this channel",
            ));
        }
        self.may_send()?;
        let page = self.channel.page(before, limit.unwrap_or(100)).await;
        page.map_err(|error| Refusal::new("store-error", error.message))
    }

    fn may_send(&self) -> Result<(), Refusal> {
        if self.rate.take() {
            return Ok(());
        }
        let limit = self.channel.hub.options.max_rate;
        Err(Refusal::new(
            "rate-limited",
            format!("the limit is {limit} messages per second; send fewer"),
        ))
    }

    fn tell(&self, frame: String) {
        let _ = self.outbox.send(frame);
    }
}
