//! Channels: shared spaces in which agents, workers, web pages and people exchange messages, see
//! each other's presence, and call each other's methods.
//!
//! [`Channels::serve`] handles an upgraded socket: the missed messages, `ready`, its presence,
//! its messages, and its departure. `session` reads a frame, `publish` checks the message, and
//! `pipeline` stores it and sends it to all readers, in one order. The caller has already checked
//! the rights of the participant and passes them as an [`Admission`].
//!
//! The methods that a participant advertises are tools in the channel's scope (`methods`). Every
//! principal that sees the channel can call them from any surface. Calls between participants
//! pass through as messages, and `calls` tracks them.

mod attachments;
mod authors;
mod calls;
mod channel;
mod declared;
mod gateway;
mod history;
pub mod http;
mod metadata;
mod methods;
mod options;
mod pipeline;
mod presence;
mod publish;
mod recover;
mod roster;
mod session;
mod settings;
mod tools;
mod usage;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use sa_core::store::{Expect, Log, Records, Retention, StoreError, Trimmed};
use sa_core::{Principal, RawJson, Router, clock};
use sa_http::{KnownChannels, Rights};
use sa_limits::budget::{Holder, Limit, Permit, Quota, Refused, SharedBudget};
use sa_protocol::channel::is_channel_name;
use sa_socket::WebSocket;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use usage::{Usage, UsageRecord};

pub use channel::Channel;
pub use history::{Page, Stored};
pub use options::ChannelOptions;
pub use publish::{Draft, Published, Refusal, Sender};
pub use roster::Participant;
pub use settings::Settings;

/// The provider kind of participants, in addresses and lists.
pub const KIND: &str = "participant";

/// The id of the participant that represents the gateway's own tools. No other participant can
/// use it.
pub const GATEWAY: &str = "switchboard";

/// The prefix of the exposed names of methods.
const PREFIX: &str = "pubsub";

/// The bucket of the documents about channels, by name.
const BUCKET: &str = "channels";

/// The maximum size of a channel's configuration.
const MAX_CONFIG: usize = 16_384;

/// The bucket of the stored usage of each channel, by name.
const USAGE: &str = "channel_usage";

/// The principal of a connection and its rights.
#[derive(Debug, Clone)]
pub struct Admission {
    pub principal: Arc<Principal>,
    pub rights: Rights,
    /// Cancelled when the token is revoked.
    pub revoked: CancellationToken,
}

/// The parameters of a connection.
#[derive(Debug, Clone)]
pub struct Entrance {
    pub channel: String,
    /// The last message that it received before a reconnect.
    pub since: Option<u64>,
    /// The epoch of the history that `since` belongs to.
    pub epoch: Option<String>,
    /// Whether it accepts the roster as one document.
    pub snapshot: bool,
    /// The instance id of the participant's program, which stays the same across reconnects. A
    /// call goes to one program.
    pub instance: Option<String>,
    /// The context that the channel must belong to. A channel without one is assigned to the
    /// first one named.
    pub context: Option<String>,
    /// The configuration of the channel as JSON, if it is created now.
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
    /// Locked while a channel is opened, so that it is opened only once.
    opening: tokio::sync::Mutex<()>,
    /// The channels in which participants were present when the gateway ended, and that were not
    /// opened since.
    has_stale_presence: Mutex<HashSet<String>>,
    /// Every existing channel, open or not.
    known: Mutex<HashMap<Arc<str>, Known>>,
    budgets: Budgets,
}

/// The budget that a channel uses.
#[derive(Debug)]
struct Known {
    _permit: Permit,
    usage: Arc<Usage>,
}

#[derive(Debug)]
struct Budgets {
    /// The number of channels.
    channels: Arc<SharedBudget>,
    /// The bytes of stored messages.
    stored: Arc<SharedBudget>,
    /// The bytes of messages in memory.
    pending: Arc<SharedBudget>,
}

impl Budgets {
    fn new(options: &ChannelOptions) -> Self {
        let channels = Limit {
            name: "channels",
            what: "channels",
            key: "channels.max_channels",
            remedy: "delete unused channels, or use an existing one",
            total: options.max_channels,
        };
        let stored = Limit {
            name: "stored",
            what: "bytes of stored channel messages",
            key: "channels.max_stored_bytes",
            remedy: "delete unused channels",
            total: options.max_stored_bytes,
        };
        let quota =
            Quota { key: "channels.max_bytes_per_principal", max: options.max_bytes_per_principal };
        let pending = Limit {
            name: "channel_messages",
            what: "bytes of unread channel messages",
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

/// The document about a channel.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct About {
    /// Identifies this history: message ids of another epoch are invalid here.
    epoch: String,
    created_ms: i64,
    /// The number of attachments that the server has numbered.
    #[serde(default)]
    numbered: u64,
    /// The id of the principal that created the channel, and that it is charged to.
    #[serde(default)]
    owner: Option<String>,
    /// The context that the channel belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<String>,
    /// The configuration that the channel was created with, as JSON.
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
    #[error("the channel does not exist")]
    Missing,
    #[error("the channel has participants")]
    Occupied,
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("a channel name must have 1 to 200 bytes of visible text")]
    Name,
    #[error("invalid context: a contextId must have 1 to 200 bytes of visible text")]
    Context,
    #[error("invalid channelConfig: it must be a JSON object of at most 16384 bytes")]
    Config,
    #[error("context mismatch: the channel belongs to another context")]
    OtherContext,
    #[error(transparent)]
    TooMany(Refused),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Channels {
    /// Opens the stored channels. Participants that were present when the gateway ended are
    /// recorded as having left.
    pub async fn open(
        log: Arc<dyn Log>,
        records: Arc<dyn Records>,
        router: Arc<Router>,
        options: ChannelOptions,
        shutdown: CancellationToken,
    ) -> Result<Arc<Self>, StoreError> {
        let has_stale_presence = presence::clear_stale_presence(&log).await?.into();
        let (open, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        let (known, budgets) = (Mutex::default(), Budgets::new(&options));
        let channels = Self {
            log,
            records,
            router,
            options,
            shutdown,
            open,
            opening,
            has_stale_presence,
            known,
            budgets,
        };
        channels.count_all().await?;
        Ok(Arc::new(channels))
    }

    /// Counts the stored bytes: the usage records, and the messages stored since they were
    /// written.
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
            // Messages that are in no usage record are counted before more can be stored.
            let stream = stream(&name);
            let head = self.log.bounds(&stream).await?.last;
            if let Some(after) = known.missing(head) {
                channel::count_stored(&self.log, &stream, &known, after, head).await?;
            }
        }
        Ok(())
    }

    /// Adds a channel and counts it from now on.
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

    /// Returns the budgets of channels: their number, their stored bytes, and their bytes in
    /// memory.
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

    /// Returns the channel with this name. If there is none, creates it and charges it to this
    /// principal.
    pub async fn channel(
        self: &Arc<Self>,
        name: &str,
        principal: &Principal,
    ) -> Result<Arc<Channel>, OpenError> {
        self.open_or_create(name, principal, None).await
    }

    /// Opens a channel for a connection, which may name a context, and a configuration for a new
    /// channel. Only a connection that `may_publish` sets these, so that a reader cannot lock
    /// others out.
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

    /// Returns the channel with this name, if it exists.
    pub async fn existing(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<Option<Arc<Channel>>, StoreError> {
        if let Some(channel) = self.opened().get(name) {
            return Ok(Some(Arc::clone(channel)));
        }
        let _opening = self.opening.lock().await;
        self.open_stored(name).await
    }

    /// Opens an existing channel. [`Channels::opening`] must be locked.
    async fn open_stored(self: &Arc<Self>, name: &str) -> Result<Option<Arc<Channel>>, StoreError> {
        if let Some(channel) = self.opened().get(name) {
            return Ok(Some(Arc::clone(channel)));
        }
        match self.about(name).await? {
            Some(about) => self.open_with(name, &about).await.map(Some),
            None => Ok(None),
        }
    }

    async fn open_with(
        self: &Arc<Self>,
        name: &str,
        about: &About,
    ) -> Result<Arc<Channel>, StoreError> {
        let has_stale_presence = self.has_stale_presence.lock().remove(name);
        let usage = self.known().get(name).map(|known| Arc::clone(&known.usage));
        let usage = usage.unwrap_or_else(|| {
            self.know(name, self.budgets.channels.charge(&Holder::anonymous(), 1))
        });
        let channel =
            Channel::open(Arc::clone(self), name, about, usage, has_stale_presence).await?;
        self.opened().insert(name.into(), Arc::clone(&channel));
        Ok(channel)
    }

    /// Returns whether a channel with this name exists.
    pub async fn exists(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.opened().get(name).is_some() || self.about(name).await?.is_some())
    }

    /// Returns every existing channel, sorted by name.
    pub async fn list(&self) -> Result<Vec<Summary>, StoreError> {
        let mut list = Vec::new();
        for (name, record) in self.records.list(BUCKET).await? {
            let Ok(about) = serde_json::from_slice::<About>(&record.value) else { continue };
            let bounds = self.log.bounds(&stream(&name)).await?;
            let participants = self.opened().get(&*name).map_or(0, |channel| channel.present());
            let (first_id, last_id) = (bounds.first, bounds.last);
            list.push(Summary {
                name,
                participants,
                created_ms: about.created_ms,
                first_id,
                last_id,
            });
        }
        Ok(list)
    }

    /// Returns the maximum size of a frame from a participant.
    pub fn max_frame_bytes(&self) -> usize {
        self.options.max_frame_bytes()
    }

    /// Deletes an empty channel with all its messages. A later channel with the same name has a
    /// new epoch.
    pub async fn delete(&self, name: &str) -> Result<(), DeleteError> {
        // The lock keeps the channel from being opened meanwhile.
        let _opening = self.opening.lock().await;
        let about = self.about(name).await?.ok_or(DeleteError::Missing)?;
        {
            let mut open = self.opened();
            if open
                .get(name)
                .is_some_and(|channel| Arc::strong_count(channel) > 1 || !channel.is_idle())
            {
                return Err(DeleteError::Occupied);
            }
            open.remove(name);
        }
        self.log
            .trim(&stream(name), Retention { entries: Some(0), ..Retention::default() })
            .await?;
        declared::delete_all(&*self.records, name).await?;
        self.records.delete(BUCKET, name).await?;
        self.known().remove(name);
        self.records.delete(USAGE, name).await?;
        attachments::delete_all(&self.options.attachments, &about.epoch).await;
        Ok(())
    }

    /// Returns the number of present participants. A participant counts once per channel.
    pub fn online(&self) -> usize {
        self.opened().values().map(|channel| channel.present()).sum()
    }

    /// Deletes expired messages, and closes idle channels.
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
            warn!(%error, "cannot compact the presence records");
        }
    }

    async fn about(&self, name: &str) -> Result<Option<About>, StoreError> {
        if !is_channel_name(name) {
            return Ok(None);
        }
        let record = self.records.get(BUCKET, name).await?;
        Ok(record.and_then(|record| serde_json::from_slice(&record.value).ok()))
    }

    async fn create(
        &self,
        name: &str,
        principal: &Principal,
        config: Option<&str>,
    ) -> Result<About, OpenError> {
        let permit =
            self.budgets.channels.acquire(&principal.holder(), 1).map_err(OpenError::TooMany)?;
        let epoch = uuid::Uuid::new_v4().simple().to_string();
        let owner = Some(principal.id.to_string());
        let config = config.map(str::to_owned);
        let about =
            About { epoch, created_ms: clock::now_ms(), numbered: 0, owner, context: None, config };
        self.write_about(name, &about).await?;
        self.know(name, permit);
        Ok(about)
    }

    /// Releases the budget of deleted messages, and writes the usage record if it has changed. If
    /// a record is not written, its messages are counted again after a restart.
    async fn write_usage(&self, name: &str, first: u64) {
        let Some(usage) = self.known().get(name).map(|known| Arc::clone(&known.usage)) else {
            return;
        };
        usage.trimmed(first);
        let Some(record) = usage.record() else { return };
        let value = serde_json::to_vec(&record).unwrap_or_default().into();
        if let Err(error) = self.records.put(USAGE, name, value, Expect::Anything).await {
            warn!(channel = name, %error, "cannot save the storage usage of a channel");
        }
    }

    async fn write_about(&self, name: &str, about: &About) -> Result<(), StoreError> {
        let value = serde_json::to_vec(about).unwrap_or_default().into();
        self.records.put(BUCKET, name, value, Expect::Anything).await.map(drop)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Arc<str>, Known>> {
        self.known.lock()
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Channel>>> {
        self.open.lock()
    }
}

impl KnownChannels for Channels {
    fn exists<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(self.exists(name))
    }
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").field("open", &self.opened().len()).finish_non_exhaustive()
    }
}

/// Returns whether a text is a JSON object that every reader accepts.
fn is_object(json: &str) -> bool {
    RawJson::parse(json).is_ok_and(|json| json.as_str().trim_start().starts_with('{'))
}

/// Returns the log stream of a channel's messages.
fn stream(channel: &str) -> String {
    format!("channel:{channel}")
}

/// How long a call between participants is tracked. Its caller has its own, shorter timeout.
const CALL_MEMORY: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<A, B, C, D, F>(_: impl Fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    /// Each connected participant is one such future, and there may be ten thousand.
    #[test]
    fn an_idle_participant_is_a_small_future() {
        let size = size_of_future(|channels: Arc<Channels>, socket, admission, entrance| {
            channels.serve(socket, admission, entrance)
        });
        assert!(size <= 1_800, "{size} bytes");
    }
}
