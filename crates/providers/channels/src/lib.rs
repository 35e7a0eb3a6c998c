//! Channels: rooms in which agents, workers, web pages and people talk, see who is there, and call each other's methods.
//!
//! [`Channels::serve`] takes an upgraded socket through its life: what it missed, `ready`, its presence, its messages, its
//! leaving. The way of a message: `session` reads the frame → `publish` checks it → `pipeline` stores it and sends
//! it to everybody, in one order. Who may connect, and to do what, has been decided before and arrives as an [`Admission`].
//!
//! The methods that a participant advertises are tools in the channel's scope (`methods`): whoever sees the channel can
//! call them from any surface. What participants call on each other passes through as messages, and is watched over by
//! `calls`.

mod attachments;
mod authors;
mod calls;
mod channel;
mod declared;
mod gateway;
mod history;
mod metadata;
mod methods;
mod pipeline;
mod presence;
mod publish;
mod recover;
mod session;
mod tools;
mod usage;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sa_core::budget::{Holder, Limit, Permit, Quota, Refused, SharedBudget};
use sa_core::store::{Expect, Log, Records, Retention, StoreError, Trimmed};
use sa_core::{Principal, RawJson, Router, Trimmer, clock};
use sa_protocol::channel::is_channel_name;
use sa_socket::{Liveness, WebSocket};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use usage::{Usage, UsageRecord};

pub use channel::{Channel, Participant};
pub use history::{Page, Stored};
pub use publish::{Draft, Published, Refusal, Sender};

/// The provider kind of participants, in addresses and lists.
pub const KIND: &str = "participant";

/// The participant that stands for the gateway's own tools. Nobody else has this id.
pub const GATEWAY: &str = "switchboard";

/// What the exposed names of methods begin with.
const PREFIX: &str = "pubsub";

/// The documents about channels, by name.
const BUCKET: &str = "channels";

/// The largest configuration of a channel.
const MAX_CONFIG: usize = 16_384;

/// The documents about how much each channel has stored, by name.
const USAGE: &str = "channel_usage";

#[derive(Debug, Clone)]
pub struct ChannelOptions {
    pub liveness: Liveness,
    /// The largest JSON of a message.
    pub max_message_bytes: usize,
    /// All attachments of a message together.
    pub max_attachment_bytes: usize,
    /// What may wait for a participant that reads slowly.
    pub max_queue_bytes: usize,
    /// Messages that one connection may send in a second.
    pub max_rate: u32,
    pub max_channels: usize,
    /// Messages and attachments of all channels, on disk.
    pub max_stored_bytes: usize,
    /// The same of one channel.
    pub max_bytes_per_channel: usize,
    /// The same of one principal, in all channels.
    pub max_bytes_per_principal: usize,
    /// Messages that participants have not read yet, in memory.
    pub pending_bytes: usize,
    /// How many messages each channel keeps.
    pub keep_messages: u64,
    /// For how long each channel keeps messages.
    pub keep: Duration,
    /// Deletes what is older.
    pub trimmer: Arc<Trimmer>,
    /// Calls that one participant may be given at once by the other surfaces.
    pub max_pending: usize,
    /// Where attachments are kept.
    pub attachments: PathBuf,
}

impl ChannelOptions {
    /// What may wait for one participant: no more than its part of what may wait for all, so that readers that are too slow are
    /// closed before publishers are refused.
    pub(crate) fn queue_bytes(&self) -> usize {
        self.max_queue_bytes.min((self.pending_bytes / 8).max(self.max_message_bytes))
    }

    /// The largest frame that a participant may send.
    pub fn max_frame_bytes(&self) -> usize {
        self.max_message_bytes + self.max_attachment_bytes + sa_protocol::channel::binary::HEADER
    }
}

/// What a token may do in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    pub read: bool,
    pub publish: bool,
    pub call: bool,
    /// Deleting it.
    pub admin: bool,
}

/// By what right a participant connects.
#[derive(Debug, Clone)]
pub struct Admission {
    pub principal: Arc<Principal>,
    pub rights: Rights,
    /// Fires when the token does not count any more.
    pub revoked: CancellationToken,
}

/// How a participant comes in.
#[derive(Debug, Clone)]
pub struct Entrance {
    pub channel: String,
    /// The last message that it has, if it has been here before.
    pub since: Option<u64>,
    /// Of which history that is.
    pub epoch: Option<String>,
    /// Whether it takes the roster as one document.
    pub snapshot: bool,
    /// Which of the participant's programs it is, the same when it connects again. A call is for one of them.
    pub instance: Option<String>,
    /// The context that the channel must belong to. A channel without one takes the first that is named.
    pub context: Option<String>,
    /// JSON: the configuration of the channel, if it is created now.
    pub config: Option<String>,
}

/// All channels of this gateway.
pub struct Channels {
    log: Arc<dyn Log>,
    records: Arc<dyn Records>,
    router: Arc<Router>,
    options: ChannelOptions,
    shutdown: CancellationToken,
    open: Mutex<HashMap<Arc<str>, Arc<Channel>>>,
    /// Held while one is opened, so that it is opened once.
    opening: tokio::sync::Mutex<()>,
    /// Where somebody was when the gateway ended, and nobody has been since.
    haunted: Mutex<HashSet<String>>,
    /// Every channel that there is, open or not.
    known: Mutex<HashMap<Arc<str>, Known>>,
    budgets: Budgets,
}

/// What a channel takes from the budgets.
#[derive(Debug)]
struct Known {
    _permit: Permit,
    usage: Arc<Usage>,
}

#[derive(Debug)]
struct Budgets {
    /// How many channels there are.
    channels: Arc<SharedBudget>,
    /// What they have stored.
    stored: Arc<SharedBudget>,
    /// Messages in memory.
    pending: Arc<SharedBudget>,
}

impl Budgets {
    fn new(options: &ChannelOptions) -> Self {
        let channels = Limit {
            name: "channels",
            what: "channels",
            key: "channels.max_channels",
            remedy: "delete channels that are not needed, or use one that exists",
            total: options.max_channels,
        };
        let stored = Limit {
            name: "stored",
            what: "bytes of stored channel messages",
            key: "channels.max_stored_bytes",
            remedy: "delete channels that are not needed",
            total: options.max_stored_bytes,
        };
        let quota = Quota { key: "channels.max_bytes_per_principal", max: options.max_bytes_per_principal };
        let pending = Limit {
            name: "channel_messages",
            what: "bytes of channel messages that are not read yet",
            key: "channels.pending_bytes",
            remedy: "wait until participants have read them",
            total: options.pending_bytes,
        };
        Self {
            channels: SharedBudget::new(channels),
            stored: SharedBudget::with_quota(stored, quota),
            pending: SharedBudget::new(pending),
        }
    }
}

/// What is known of a channel beside its messages.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct About {
    /// Names this history: ids of another one mean nothing here.
    epoch: String,
    created_ms: i64,
    /// How many attachments the server has numbered.
    #[serde(default)]
    numbered: u64,
    /// The id of the token that it was made with, for which it counts.
    #[serde(default)]
    owner: Option<String>,
    /// The context that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    /// JSON: the configuration that it was created with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    config: Option<String>,
}

/// A channel in a list.
#[derive(Debug, Clone)]
pub struct Summary {
    pub name: String,
    pub participants: usize,
    pub created_ms: i64,
    pub first_id: u64,
    pub last_id: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    #[error("there is no such channel")]
    Missing,
    #[error("somebody is in the channel")]
    Occupied,
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("a channel's name has 1 to 200 bytes of visible text")]
    Name,
    #[error("invalid context: a contextId has 1 to 200 bytes of visible text")]
    Context,
    #[error("invalid channelConfig: it is a JSON object of at most 16384 bytes")]
    Config,
    #[error("context mismatch: the channel belongs to another context")]
    OtherContext,
    #[error(transparent)]
    TooMany(Refused),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Channels {
    /// Takes up the channels where they were left. Whoever was there when the gateway ended is written down as gone.
    pub async fn open(
        log: Arc<dyn Log>,
        records: Arc<dyn Records>,
        router: Arc<Router>,
        options: ChannelOptions,
        shutdown: CancellationToken,
    ) -> Result<Arc<Self>, StoreError> {
        let haunted = presence::lay_ghosts(&log).await?.into();
        let (open, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        let (known, budgets) = (Mutex::default(), Budgets::new(&options));
        let channels = Self { log, records, router, options, shutdown, open, opening, haunted, known, budgets };
        channels.count_all().await?;
        Ok(Arc::new(channels))
    }

    /// Counts what there is, by what was written of it.
    async fn count_all(&self) -> Result<(), StoreError> {
        let usage = self.records.list(USAGE).await?;
        let mut usage: HashMap<String, UsageRecord> = usage
            .into_iter()
            .filter_map(|(name, record)| Some((name, serde_json::from_slice(&record.value).ok()?)))
            .collect();
        for (name, record) in self.records.list(BUCKET).await? {
            let Ok(about) = serde_json::from_slice::<About>(&record.value) else { continue };
            let holder = about.owner.map_or_else(Holder::anonymous, Holder::named);
            let known = self.know(&name, self.budgets.channels.charge(&holder, 1));
            if let Some(record) = usage.remove(&name) {
                known.restore(record);
            }
        }
        Ok(())
    }

    /// Enters a channel that counts from now on.
    fn know(&self, name: &str, permit: Permit) -> Arc<Usage> {
        let bounds = usage::Bounds {
            max_bytes: self.options.max_bytes_per_channel,
            keep_messages: self.options.keep_messages,
            keep: self.options.keep,
        };
        let usage = Usage::new(name, &self.budgets.stored, bounds);
        self.known().insert(name.into(), Known { _permit: permit, usage: Arc::clone(&usage) });
        usage
    }

    /// What bounds channels: their number, what they store, and what waits in memory.
    pub fn budgets(&self) -> [&Arc<SharedBudget>; 3] {
        let Budgets { channels, stored, pending } = &self.budgets;
        [channels, stored, pending]
    }

    /// Serves one participant until its connection ends.
    pub fn serve(
        self: Arc<Self>,
        socket: Box<WebSocket>,
        admission: Admission,
        entrance: Entrance,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (admission, entrance) = (Box::new(admission), Box::new(entrance));
        async move { session::run(&self, socket, *admission, entrance).await }
    }

    /// The channel of this name. If there is none, this principal creates it, and it counts for that one.
    pub async fn channel(self: &Arc<Self>, name: &str, principal: &Principal) -> Result<Arc<Channel>, OpenError> {
        self.open_or_create(name, principal, None).await
    }

    /// The same for a connection that may name a context, and a configuration for the channel that it creates. Only a
    /// connection that `may_publish` decides these: a reader must not lock the others out.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        name: &str,
        principal: &Principal,
        context: Option<&str>,
        config: Option<&str>,
        may_publish: bool,
    ) -> Result<Arc<Channel>, OpenError> {
        if context.is_some_and(|context| !is_channel_name(context)) {
            return Err(OpenError::Context);
        }
        if config.is_some_and(|config| config.len() > MAX_CONFIG || !is_object(config)) {
            return Err(OpenError::Config);
        }
        let channel = self.open_or_create(name, principal, config.filter(|_| may_publish)).await?;
        if let Some(context) = context {
            channel.belong_to(context, may_publish).await?;
        }
        Ok(channel)
    }

    async fn open_or_create(
        self: &Arc<Self>,
        name: &str,
        principal: &Principal,
        config: Option<&str>,
    ) -> Result<Arc<Channel>, OpenError> {
        if !is_channel_name(name) {
            return Err(OpenError::Name);
        }
        if let Some(channel) = self.opened().get(name) {
            return Ok(Arc::clone(channel));
        }
        let _opening = self.opening.lock().await;
        if let Some(channel) = self.open_stored(name).await? {
            return Ok(channel);
        }
        let about = self.create(name, principal, config).await?;
        Ok(self.open_with(name, &about).await?)
    }

    /// The channel of this name, if there is one.
    pub async fn existing(self: &Arc<Self>, name: &str) -> Result<Option<Arc<Channel>>, StoreError> {
        if let Some(channel) = self.opened().get(name) {
            return Ok(Some(Arc::clone(channel)));
        }
        let _opening = self.opening.lock().await;
        self.open_stored(name).await
    }

    /// Opens a channel that was created before. With [`Channels::opening`] held.
    async fn open_stored(self: &Arc<Self>, name: &str) -> Result<Option<Arc<Channel>>, StoreError> {
        if let Some(channel) = self.opened().get(name) {
            return Ok(Some(Arc::clone(channel)));
        }
        match self.about(name).await? {
            Some(about) => self.open_with(name, &about).await.map(Some),
            None => Ok(None),
        }
    }

    async fn open_with(self: &Arc<Self>, name: &str, about: &About) -> Result<Arc<Channel>, StoreError> {
        let haunted = self.haunted.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        let usage = self.known().get(name).map(|known| Arc::clone(&known.usage));
        let usage = usage.unwrap_or_else(|| self.know(name, self.budgets.channels.charge(&Holder::anonymous(), 1)));
        let channel = Channel::open(Arc::clone(self), name, about, usage, haunted).await?;
        self.opened().insert(name.into(), Arc::clone(&channel));
        Ok(channel)
    }

    /// Whether there is a channel of this name.
    pub async fn exists(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.opened().get(name).is_some() || self.about(name).await?.is_some())
    }

    /// Every channel that there is, by name.
    pub async fn list(&self) -> Result<Vec<Summary>, StoreError> {
        let mut list = Vec::new();
        for (name, record) in self.records.list(BUCKET).await? {
            let Ok(about) = serde_json::from_slice::<About>(&record.value) else { continue };
            let bounds = self.log.bounds(&stream(&name)).await?;
            let participants = self.opened().get(&*name).map_or(0, |channel| channel.present());
            let (first_id, last_id) = (bounds.first, bounds.last);
            list.push(Summary { name, participants, created_ms: about.created_ms, first_id, last_id });
        }
        Ok(list)
    }

    /// The largest frame that a participant may send.
    pub fn max_frame_bytes(&self) -> usize {
        self.options.max_frame_bytes()
    }

    /// Deletes a channel that nobody is in, with all that was said there. One of the same name is another one.
    pub async fn delete(&self, name: &str) -> Result<(), DeleteError> {
        // Nobody can come in meanwhile.
        let _opening = self.opening.lock().await;
        let about = self.about(name).await?.ok_or(DeleteError::Missing)?;
        {
            let mut open = self.opened();
            if open.get(name).is_some_and(|channel| Arc::strong_count(channel) > 1 || !channel.is_idle()) {
                return Err(DeleteError::Occupied);
            }
            open.remove(name);
        }
        self.log.trim(&stream(name), Retention { entries: Some(0), ..Retention::default() }).await?;
        self.records.delete(BUCKET, name).await?;
        self.known().remove(name);
        self.records.delete(USAGE, name).await?;
        attachments::delete_all(&self.options.attachments, &about.epoch).await;
        Ok(())
    }

    /// How many participants are here, each counted once for each channel.
    pub fn online(&self) -> usize {
        self.opened().values().map(|channel| channel.present()).sum()
    }

    /// Deletes what is older than channels keep, and lets go of channels that nobody is in.
    pub async fn keep_house(&self) {
        let ChannelOptions { keep, keep_messages, trimmer, .. } = &self.options;
        let names = self.records.list(BUCKET).await.unwrap_or_default();
        let mut deleted = Trimmed::default();
        for (name, record) in names {
            let Ok(About { epoch, .. }) = serde_json::from_slice(&record.value) else { continue };
            let stream = stream(&name);
            let trimmed = async {
                deleted += trimmer.trim(&*self.log, &stream, Some(*keep_messages), *keep).await?;
                self.log.bounds(&stream).await
            };
            match trimmed.await {
                Ok(bounds) => {
                    attachments::sweep(&self.options.attachments, &epoch, bounds.first).await;
                    self.write_usage(&name, bounds.first).await;
                }
                Err(error) => warn!(channel = name, %error, "cannot delete old messages"),
            }
        }
        trimmer.report("message", deleted);
        self.opened().retain(|_, channel| Arc::strong_count(channel) > 1 || !channel.is_idle());
        let here = || self.opened().values().flat_map(|channel| channel.presences()).collect();
        if let Err(error) = presence::compact(&self.log, here).await {
            warn!(%error, "cannot compact the list of who is present");
        }
    }

    async fn about(&self, name: &str) -> Result<Option<About>, StoreError> {
        if !is_channel_name(name) {
            return Ok(None);
        }
        let record = self.records.get(BUCKET, name).await?;
        Ok(record.and_then(|record| serde_json::from_slice(&record.value).ok()))
    }

    async fn create(&self, name: &str, principal: &Principal, config: Option<&str>) -> Result<About, OpenError> {
        let permit = self.budgets.channels.acquire(&Holder::of(principal), 1).map_err(OpenError::TooMany)?;
        let epoch = uuid::Uuid::new_v4().simple().to_string();
        let owner = Some(principal.id.to_string());
        let config = config.map(str::to_owned);
        let about = About { epoch, created_ms: clock::now_ms(), numbered: 0, owner, context: None, config };
        self.write_about(name, &about).await?;
        self.know(name, permit);
        Ok(about)
    }

    /// Gives back what deleted messages took, and writes the sums if they have changed. A sum that is not written is counted
    /// again from the messages.
    async fn write_usage(&self, name: &str, first: u64) {
        let Some(usage) = self.known().get(name).map(|known| Arc::clone(&known.usage)) else { return };
        usage.trimmed(first);
        let Some(record) = usage.record() else { return };
        let value = serde_json::to_vec(&record).unwrap_or_default().into();
        if let Err(error) = self.records.put(USAGE, name, value, Expect::Anything).await {
            warn!(channel = name, %error, "cannot write how much a channel has stored");
        }
    }

    async fn write_about(&self, name: &str, about: &About) -> Result<(), StoreError> {
        let value = serde_json::to_vec(about).unwrap_or_default().into();
        self.records.put(BUCKET, name, value, Expect::Anything).await.map(drop)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Arc<str>, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Channel>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").field("open", &self.opened().len()).finish_non_exhaustive()
    }
}

/// Whether a text is a JSON object that every reader takes.
fn is_object(json: &str) -> bool {
    RawJson::parse(json).is_ok_and(|json| json.as_str().trim_start().starts_with('{'))
}

/// Where a channel's messages are in the log.
fn stream(channel: &str) -> String {
    format!("channel:{channel}")
}

/// How long a call between participants is watched over. Its caller has a limit of its own, which is shorter.
const CALL_MEMORY: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, B, C, D, F>(_: impl Fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    /// Ten thousand participants are ten thousand of these.
    #[test]
    fn an_idle_participant_is_a_small_future() {
        let size = size_of_future(|channels: Arc<Channels>, socket, admission, entrance| {
            channels.serve(socket, admission, entrance)
        });
        assert!(size <= 1_800, "{size} bytes");
    }
}
