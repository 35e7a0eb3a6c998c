//! One connection, from the missed messages to its end.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use sa_protocol::channel::{
    CLOSE_CHANNEL_REQUIRED, CLOSE_CONTEXT_MISMATCH, CLOSE_INVALID_CONTEXT, CLOSE_UNAUTHORIZED,
    Delivered, Delivery, ServerFrame, Welcome, binary, encode_close, encode_update_metadata,
};
use sa_protocol::close;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{self, Message};

use super::Actor;
use super::open::Socket;
use super::parting::Parting;
use crate::Error;
use crate::pubsub::{HistoryPage, RawMessage};
use crate::receive::{Phase, Receiver};
use crate::shared::{Identity, Position};

/// The time that a server has to acknowledge this participant's metadata. Without an answer the
/// connection is used anyway.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);
/// The WebSocket close code for a message that is too large.
const TOO_LARGE: u16 = 1009;
/// The time limit of a close.
const FAREWELL: Duration = Duration::from_secs(1);

/// The way in which a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The client was closed.
    Closed,
    /// Reconnecting would not help.
    Final(Error),
    /// Reconnect at once, from another position.
    Again,
    Lost {
        error: Error,
        was_connected: bool,
        at_once: bool,
    },
}

pub(crate) struct Session<'a> {
    actor: &'a mut Actor,
    out: UnboundedSender<Message>,
    frames: Option<UnboundedReceiver<Message>>,
    receiver: Receiver,
    /// Whether all missed messages have arrived.
    ready: bool,
    recovered: Option<bool>,
    /// The reference of the metadata frame, and the deadline for its acknowledgement.
    metadata: Option<(i64, Instant)>,
    /// Whether the metadata frame was sent.
    introduced: bool,
    connected: bool,
    /// The presences that arrived before `ready`.
    presences: HashSet<u64>,
    heard: Instant,
    asked: bool,
    /// The last frame for the server.
    parting: Option<Parting>,
}

/// Handles a text or a binary message.
type OnMessage<'a> = fn(&mut Session<'a>, Message) -> Option<End>;

impl<'a> Session<'a> {
    pub(crate) fn new(actor: &'a mut Actor) -> Self {
        let (out, frames) = unbounded_channel();
        let phase = if actor.first.is_some() { Phase::Initial } else { Phase::Gap };
        actor.shared.roster().begin();
        Self {
            receiver: Receiver::new(&actor.shared, phase),
            actor,
            out,
            frames: Some(frames),
            ready: false,
            recovered: None,
            metadata: None,
            introduced: false,
            connected: false,
            presences: HashSet::new(),
            heard: Instant::now(),
            asked: false,
            parting: None,
        }
    }

    // This is not an `async fn`, because its future would hold the session twice.
    pub(crate) fn run(self, socket: Socket) -> impl Future<Output = End> {
        self.serve(socket, Self::take)
    }

    /// Runs like [`run`](Self::run), but echoes every message.
    pub(crate) fn echo(self, socket: Socket) -> impl Future<Output = End> {
        self.serve(socket, |session, message| session.send(message))
    }

    async fn serve(mut self, socket: Socket, on_message: OnMessage<'a>) -> End {
        let Some(frames) = self.frames.take() else { return End::Closed };
        let (mut sink, mut stream) = socket.split();
        // Reading and writing run concurrently: a large outgoing message must not delay incoming
        // ones.
        let end = tokio::select! {
            end = self.read(&mut stream, on_message) => end,
            error = write(&mut sink, frames) => self.lost(&error),
        };
        // A client that closes waits only for its acknowledgement.
        if let Some(parting) = self.parting.take()
            && !matches!(end, End::Closed)
            && let Ok(socket) = sink.reunite(stream)
        {
            // The future is boxed, so that it takes no memory in a running connection.
            Box::pin(parting.part(socket)).await;
        }
        end
    }

    async fn read(&mut self, stream: &mut SplitStream<Socket>, on_message: OnMessage<'a>) -> End {
        let closed = self.actor.shared.closed.clone();
        let mut heartbeat = tokio::time::interval(self.actor.shared.config.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut farewell = None;
        loop {
            let may_send = self.ready && farewell.is_none() && self.actor.outbox.has_room();
            let retry = self.actor.outbox.next_retry().filter(|_| may_send);
            let metadata = self.metadata.map(|(_, until)| until);
            let end = tokio::select! {
                frame = stream.next() => match frame {
                    Some(Ok(message)) => {
                        self.heard = Instant::now();
                        match message {
                            Message::Close(frame) => Some(self.closed(frame)),
                            Message::Ping(_) | Message::Pong(_) => None,
                            message => on_message(self, message),
                        }
                    }
                    _ if farewell.is_some() => Some(End::Closed),
                    Some(Err(error)) => Some(self.failed(&error)),
                    None => Some(self.lost("the server closed it without a close frame")),
                },
                command = self.actor.commands.recv(), if may_send => {
                    let idempotent = self.actor.is_idempotent();
                    let frame = command.and_then(|command| self.actor.outbox.take(command, idempotent));
                    frame.and_then(|frame| self.send(frame))
                }
                () = until(retry), if retry.is_some() => {
                    let idempotent = self.actor.is_idempotent();
                    let due = self.actor.outbox.due(idempotent);
                    due.into_iter().find_map(|frame| self.send(frame))
                }
                () = until(metadata), if metadata.is_some() => {
                    self.accepted();
                    None
                }
                _ = heartbeat.tick() => self.beat(),
                () = closed.cancelled(), if farewell.is_none() => {
                    farewell = Some(Instant::now() + FAREWELL);
                    let _ = self.send(Message::text(encode_close()));
                    self.send(Message::Close(None))
                }
                () = until(farewell), if farewell.is_some() => Some(End::Closed),
            };
            if let Some(end) = end {
                return if farewell.is_some() { End::Closed } else { end };
            }
        }
    }

    /// Sends a ping, or ends the connection if the server has been silent for too long.
    fn beat(&mut self) -> Option<End> {
        let timeout = self.actor.shared.config.heartbeat * 3;
        if self.asked && self.heard.elapsed() > timeout {
            return Some(self.lost("no data was received from the server for too long"));
        }
        self.asked = true;
        self.send(Message::Ping(Bytes::new()))
    }

    fn take(&mut self, message: Message) -> Option<End> {
        match message {
            Message::Text(text) => self.frame(&text, &Bytes::new()),
            Message::Binary(frame) => match binary::split(&frame) {
                Ok((json, at)) => self.frame(json, &frame.slice(at..)),
                Err(why) => self.complain(why),
            },
            _ => None,
        }
    }

    fn frame(&mut self, text: &str, bytes: &Bytes) -> Option<End> {
        match ServerFrame::decode(text) {
            Ok(ServerFrame::Message(message)) => self.message(message, bytes),
            Ok(ServerFrame::Ready(welcome)) => self.welcome(&welcome),
            Ok(ServerFrame::Refusal { error, code, reference }) => {
                self.refused(&error, code.as_deref(), reference)
            }
            Ok(ServerFrame::History { messages, more, reference }) => {
                let page = messages.into_iter().map(RawMessage::without_bytes).collect();
                let reference = reference.unwrap_or_default();
                self.actor.outbox.page(reference, Ok(HistoryPage { messages: page, more }));
                None
            }
            Ok(ServerFrame::Unknown) => None,
            Err(why) => self.complain(&why),
        }
    }

    fn message(&mut self, message: Delivered<'_>, bytes: &Bytes) -> Option<End> {
        if let Some(reference) = message.reference {
            if self.metadata.is_some_and(|(own, _)| own == reference) {
                self.actor.shared.identity().participant = message.sender.clone().into_owned();
                self.accepted();
            } else if let Some(metadata) = self.actor.outbox.acknowledged(reference, message.id) {
                *self.actor.shared.metadata() = metadata;
            }
        }
        if message.duplicate || !self.is_news(&message) {
            return None;
        }
        let raw = match RawMessage::new(message, bytes) {
            Ok(raw) => raw,
            Err(why) => return self.complain(&why),
        };
        if !self.ready && raw.sender_id == self.receiver.own_id() {
            // The message arrived, but its acknowledgement was lost.
            if let Some(subject) = raw.subject() {
                self.actor.outbox.replayed(&raw.kind, &subject, raw.id);
            }
        }
        let awaits_arrival = self.ready && self.metadata.is_some() && !self.introduced;
        if awaits_arrival && raw.kind == "presence" && raw.sender_id == self.receiver.own_id() {
            self.arrived(&raw);
        }
        self.receiver.take(raw);
        None
    }

    /// Returns whether a message is new. If so, updates the read position.
    fn is_news(&mut self, message: &Delivered<'_>) -> bool {
        let Some(id) = message.id else { return true };
        let last = self.actor.position.as_ref().map(|position| position.last_id);
        if !self.ready && message.kind == "presence" && message.delivery == Delivery::Replay {
            // Some servers send the roster as old presences, which say nothing about the read
            // position. They count for the roster, even if they are repeated.
            let news = last.is_none_or(|last| id > last) && self.presences.insert(id);
            if !news {
                self.receiver.tell_presence(message);
            }
            return news;
        }
        if last.is_some_and(|last| id <= last) {
            return false;
        }
        self.moved_to(id);
        true
    }

    fn moved_to(&mut self, id: u64) {
        let position = self.actor.position.get_or_insert_default();
        position.last_id = position.last_id.max(id);
        let position = position.clone();
        self.actor.shared.identity().position = Some(position);
    }

    fn welcome(&mut self, welcome: &Welcome<'_>) -> Option<End> {
        let (epoch, shared) = (welcome.epoch.as_deref(), self.actor.shared.clone());
        let known = self.actor.position.as_ref().and_then(|position| position.epoch.as_deref());
        if let (Some(known), Some(epoch)) = (known, epoch)
            && known != epoch
        {
            // The channel has another history under the same name: all of it is new.
            self.actor.position = Some(Position { epoch: Some(epoch.into()), last_id: 0 });
            self.actor.other_history = true;
            return Some(End::Again);
        }
        let resumed = self.actor.position.is_some();
        {
            let mut identity = shared.identity();
            let Identity { participant, extensions, context_id, channel_config, .. } =
                &mut *identity;
            if let Some(own) = &welcome.participant {
                participant.clear();
                participant.push_str(own);
            }
            *extensions =
                welcome.extensions.iter().map(|extension| extension.clone().into_owned()).collect();
            *context_id = welcome.context.clone().map(Cow::into_owned);
            *channel_config = welcome.config.and_then(|config| serde_json::from_str(config).ok());
        }
        if let Some(last) =
            welcome.last_id.or_else(|| self.presences.iter().max().copied().filter(|_| resumed))
        {
            self.moved_to(last);
        }
        if let (Some(position), Some(epoch)) = (&mut self.actor.position, epoch) {
            position.epoch = Some(epoch.into());
            shared.identity().position = Some(position.clone());
        }
        self.recovered = welcome.recovered;
        self.ready = true;
        self.receiver.ready(welcome.roster);
        let reference = self.actor.outbox.next_reference();
        self.metadata = Some((reference, Instant::now() + METADATA_TIMEOUT));
        // A participant with several connections has already sent its metadata. Its own arrival,
        // which comes next, confirms that.
        let known =
            shared.roster().now().get(self.receiver.own_id()).map(|own| own.metadata.clone());
        // A participant with methods sends it anyway: calls go to the connection that sent it last.
        let serves = !shared.config.methods.is_empty();
        if serves || welcome.roster.is_none() || known.as_ref() != Some(&*shared.metadata()) {
            self.introduce();
        }
        let idempotent = self.actor.is_idempotent();
        let again = self.actor.outbox.all(idempotent);
        again.into_iter().find_map(|frame| self.send(frame))
    }

    /// Sends this participant's metadata.
    fn introduce(&mut self) {
        let Some((reference, _)) = self.metadata else { return };
        self.introduced = true;
        let metadata = Value::Object(self.actor.shared.metadata().clone()).to_string();
        // The writer detects a connection that cannot be written to.
        let _ = self.send(Message::text(encode_update_metadata(&metadata, Some(reference))));
    }

    /// Handles this participant's own arrival, as the server reports it.
    fn arrived(&mut self, raw: &RawMessage) {
        #[derive(serde::Deserialize)]
        struct Arrival {
            metadata: Option<serde_json::Map<String, Value>>,
        }
        let told =
            sa_protocol::object::<Arrival>(&raw.payload).ok().and_then(|arrival| arrival.metadata);
        if told.unwrap_or_default() == *self.actor.shared.metadata() {
            self.accepted();
        } else {
            self.introduce();
        }
    }

    /// Marks the participant as registered in the channel.
    fn accepted(&mut self) {
        self.metadata = None;
        if !self.connected {
            self.connected = true;
            self.actor.connected(self.recovered);
        }
    }

    fn refused(&mut self, error: &str, code: Option<&str>, reference: Option<i64>) -> Option<End> {
        let error = self.actor.shared.config.token.redact(error);
        if let Some((own, _)) = self.metadata
            && reference == Some(own)
        {
            let error = Error::refused(code, &error);
            // A taken handle or a rate limit may be temporary; an unreadable frame stays
            // unreadable.
            return Some(match code {
                Some("handle-conflict" | "rate-limited") => {
                    End::Lost { error, was_connected: false, at_once: false }
                }
                _ => End::Final(error),
            });
        }
        if !reference.is_some_and(|reference| self.actor.outbox.refused(reference, code, &error)) {
            self.actor.shared.report(&Error::refused(code, &error));
        }
        None
    }

    fn closed(&mut self, frame: Option<CloseFrame>) -> End {
        self.parting = Some(Parting::Answer);
        let (code, reason) = frame
            .map_or((1005, String::new()), |frame| (frame.code.into(), frame.reason.to_string()));
        let reason = self.actor.shared.config.token.redact(&reason);
        let what = format!("the server closed the connection (code {code}): {reason}");
        if code == TOO_LARGE {
            self.actor.outbox.too_large();
        }
        match code {
            CLOSE_UNAUTHORIZED => End::Final(Error::Connection(format!(
                "{what}; check the token, and that it includes this channel"
            ))),
            CLOSE_CHANNEL_REQUIRED | CLOSE_INVALID_CONTEXT | CLOSE_CONTEXT_MISMATCH => {
                End::Final(Error::Connection(what))
            }
            code => End::Lost {
                error: Error::Connection(what),
                was_connected: self.connected,
                at_once: matches!(code, close::TOO_SLOW | TOO_LARGE) && self.connected,
            },
        }
    }

    fn failed(&mut self, error: &tungstenite::Error) -> End {
        self.parting = Parting::protest(error);
        match error {
            // The message would arrive again on every connection.
            tungstenite::Error::Capacity(error) => End::Final(Error::received(
                "a message",
                format!("it is too large ({error}); connect with a larger max_message_bytes"),
            )),
            error => self.lost(&error.to_string()),
        }
    }

    fn lost(&self, why: &str) -> End {
        let why = self.actor.shared.config.token.redact(why);
        let error = Error::Connection(format!("the connection was lost: {why}"));
        End::Lost { error, was_connected: self.connected, at_once: false }
    }

    /// Reports and ignores a frame that cannot be used.
    fn complain(&self, why: &str) -> Option<End> {
        self.actor.shared.report(&Error::received("a frame of the server", why));
        None
    }

    /// Passes a frame to the writer.
    fn send(&self, frame: Message) -> Option<End> {
        self.out.send(frame).is_err().then(|| self.lost("writing failed"))
    }
}

/// Writes queued frames until writing fails.
async fn write(
    sink: &mut SplitSink<Socket, Message>,
    mut frames: UnboundedReceiver<Message>,
) -> String {
    while let Some(frame) = frames.recv().await {
        let mut next = Some(frame);
        while let Some(frame) = next {
            if let Err(error) = sink.feed(frame).await {
                return error.to_string();
            }
            next = frames.try_recv().ok();
        }
        if let Err(error) = sink.flush().await {
            return error.to_string();
        }
    }
    // The reader owns the sender of frames and ends first.
    std::future::pending().await
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
