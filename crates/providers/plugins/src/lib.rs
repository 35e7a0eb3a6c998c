//! Plugins: HTTP servers that a manifest describes, as providers; and the plugin gateway, by which hosts call them.
//!
//! [`Plugins`] is the registry. An operator adds a [`manifest`], and each of its functions is a tool on every surface;
//! what changes at its source later is held back until it is accepted. A user's [`settings`] are sealed at rest and go
//! only to the servers for which they were stored. [`Plugins::run`] is the surface for plugin hosts: it speaks
//! their wire format, and makes calls like any other surface. Everything that leaves goes through `sa-egress`.

mod answer;
mod check;
mod errand;
mod gateway;
mod held_back;
mod index;
pub mod manifest;
mod openapi;
mod places;
mod plugin;
mod provider;
mod reach;
mod record;
mod registry;
mod scrub;
mod secrets;
pub mod settings;
mod source;
mod tokens;
mod transient;
mod user;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sa_core::store::{Records, StoreError};
use sa_core::{Attach, Grant, ProviderId, RawJson, Registration, Router, Scope};
use sa_egress::header::HeaderName;
use sa_egress::{Egress, EgressError};
use sa_vault::Vault;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use self::gateway::{Asked, Reply};
pub use self::reach::Away;
pub use self::registry::{Added, Addition, ChangeError, FunctionView, HeldBackView, Terms, View};
pub use self::user::SettingsView;

use self::errand::Errands;
use self::index::Indexes;
use self::plugin::Plugin;
use self::provider::{PluginProvider, Rate, Shared};
use self::record::Record;
use self::settings::SettingsStore;
use self::transient::Transients;

/// The kind of these providers.
pub const KIND: &str = "plugin";
/// How many plugins there may be.
pub const MAX_PLUGINS: usize = 1_000;

/// How plugins are treated here.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether a host may bring a plugin's manifest, or the address of an index, along with a call.
    pub allow_inline_manifest: bool,
    /// Whether a manifest that has changed at its source is used at once.
    pub accept_changes: bool,
    /// `host:port` of servers that every plugin may call though their address is not public; see [`Terms`].
    pub allow_private: Vec<String>,
    /// The headers that settings travel in.
    pub settings_headers: Vec<String>,
    /// How long a call may take.
    pub timeout: Duration,
    pub max_response_bytes: usize,
    /// How often each principal may call each plugin.
    pub calls_per_second: NonZeroU32,
    /// Calls that one plugin may be given at once.
    pub max_running: usize,
    /// How often manifests are looked at again.
    pub refresh: Duration,
    /// What seals settings.
    pub vault: Arc<Vault>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("plugins.allow_private: {0}")]
    Egress(#[from] EgressError),
    #[error("plugins.settings_headers: \"{0}\" is no name of a header")]
    Header(String),
}

/// Whether this can stand in `allow_private`.
pub fn check_private(entry: &str) -> Result<(), String> {
    sa_egress::Allowed::parse(&[entry]).map(drop)
}

/// Whether settings can travel in a header of this name: those that a request has anyway are not for them.
pub fn check_settings_header(name: &str) -> Result<(), String> {
    const TAKEN: [&str; 9] = [
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "te",
        "traceparent",
        "transfer-encoding",
    ];
    match HeaderName::try_from(name) {
        Ok(name) if TAKEN.contains(&name.as_str()) => Err(format!("\"{name}\" is taken")),
        Ok(_) => Ok(()),
        Err(_) => Err(format!("\"{name}\" is no name of a header")),
    }
}

/// All plugins of a gateway.
pub struct Plugins {
    router: Arc<Router>,
    records: Arc<dyn Records>,
    shared: Arc<Shared>,
    options: Options,
    entries: Mutex<BTreeMap<String, Entry>>,
    indexes: Indexes,
    transients: Transients,
    /// One change of the registry after another.
    changing: tokio::sync::Mutex<()>,
}

/// A plugin that was added.
struct Entry {
    record: Record,
    plugin: Arc<Plugin>,
    /// While the plugin is disabled, this reserves its id.
    registration: Option<Registration>,
    last_error: Option<String>,
}

impl Plugins {
    /// Takes in the plugins that were added before. No server is waited for.
    pub async fn load(
        router: Arc<Router>,
        records: Arc<dyn Records>,
        options: Options,
        closing: CancellationToken,
    ) -> Result<Arc<Self>, LoadError> {
        let header = |name: &String| HeaderName::try_from(name.as_str()).map_err(|_| LoadError::Header(name.clone()));
        let egress = sa_egress::Options {
            allow_private: options.allow_private.clone(),
            max_redirects: 5,
            user_agent: concat!("switchboard/", env!("CARGO_PKG_VERSION")),
        };
        let shared = Arc::new(Shared {
            egress: Egress::new(&egress)?,
            settings: SettingsStore::load(Arc::clone(&records), Arc::clone(&options.vault)).await?,
            errands: Arc::new(Errands::default()),
            rate: Rate::new(options.calls_per_second),
            tokens: tokens::Tokens::default(),
            settings_headers: options.settings_headers.iter().map(header).collect::<Result<_, _>>()?,
            max_response: options.max_response_bytes,
            timeout: options.timeout,
        });
        let indexes = Indexes::load(&*records).await?;
        let plugins = Arc::new(Self {
            router,
            records,
            shared,
            options,
            entries: Mutex::default(),
            indexes,
            transients: Transients::default(),
            changing: tokio::sync::Mutex::default(),
        });
        for (identifier, record) in record::stored(&*plugins.records).await? {
            match record.plugin() {
                Ok(plugin) => plugins.enter(record, plugin),
                Err(why) => warn!(plugin = identifier, why, "it cannot be used any more; remove it and add it again"),
            }
        }
        tokio::spawn(source::keep_fresh(Arc::clone(&plugins), closing));
        Ok(plugins)
    }

    /// Forgets what nobody has used for a while, and the settings of owners for whom `is_known` does not hold.
    pub async fn keep_house(&self, is_known: impl Fn(&str) -> bool) {
        self.shared.rate.sweep();
        self.shared.tokens.sweep();
        self.transients.sweep();
        let gone = |_: &str, owner: &str| owner != settings::SHARED && !is_known(owner);
        if let Err(error) = self.shared.settings.delete_where(gone).await {
            warn!(%error, "cannot delete settings whose owner is gone");
        }
    }

    /// Puts a plugin in its place, in front of one that was there.
    fn enter(&self, record: Record, plugin: Plugin) {
        let (identifier, plugin) = (plugin.identifier().to_owned(), Arc::new(plugin));
        let id = ProviderId::new(KIND, &identifier);
        let registration = if record.enabled { self.attach(id, Scope::Everyone, &plugin) } else { self.reserve(id) };
        let former = self.entries().insert(identifier, Entry { record, plugin, registration, last_error: None });
        // The new registration has replaced this one, except where it was refused.
        if let Some(registration) = former.and_then(|former| former.registration) {
            registration.withdraw();
        }
    }

    fn attach(&self, id: ProviderId, scope: Scope, plugin: &Arc<Plugin>) -> Option<Registration> {
        let provider = PluginProvider { plugin: Arc::clone(plugin), shared: Arc::clone(&self.shared) };
        let attached = self.router.directory().attach(Attach {
            id: id.clone(),
            scope,
            grant: Grant::installed(KIND),
            provider: Arc::new(provider),
            catalog: plugin.catalog(self.shared.timeout),
            max_running: self.options.max_running,
            about: RawJson::empty_object(),
            may_take_over: true,
        });
        attached.map_err(|error| warn!(plugin = %id, %error, "cannot offer its functions")).ok()
    }

    fn reserve(&self, id: ProviderId) -> Option<Registration> {
        let reserved = self.router.directory().reserve(id.clone(), Grant::installed(KIND));
        reserved.map_err(|error| warn!(plugin = %id, %error, "cannot reserve the id of a disabled plugin")).ok()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Plugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugins").field("plugins", &self.entries().len()).finish_non_exhaustive()
    }
}
