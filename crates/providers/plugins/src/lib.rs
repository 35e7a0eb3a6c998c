//! Plugins: HTTP servers described by a manifest, as providers. The plugin gateway is the surface
//! through which plugin hosts call them.
//!
//! [`Plugins`] is the registry. An operator adds a [`manifest`], and each of its functions
//! becomes a tool on every surface. Later changes at its source are held back until they are
//! accepted. A user's [`settings`] are encrypted at rest, and sent only to the servers for which
//! they were stored. [`Plugins::run`] is the surface for plugin hosts: it uses their wire format,
//! and makes calls like any other surface. All outgoing requests go through `sa-egress`.

mod answer;
mod call_extensions;
mod check;
mod config;
mod doctor;
mod gateway;
mod held_back;
pub mod http;
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
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sa_core::store::{Records, StoreError};
use sa_core::{Attach, Grant, ProviderId, RawJson, Registration, Router, Scope};
use sa_egress::header::HeaderName;
use sa_egress::{Egress, EgressError};
use sa_limits::budget::SharedBudget;
use sa_vault::Vault;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use self::config::Settings;
pub use self::gateway::{Asked, Reply};
pub use self::reach::Away;
pub use self::registry::{Added, Addition, ChangeError, FunctionView, HeldBackView, Terms, View};
pub use self::user::SettingsView;

use self::call_extensions::ExtensionsByCall;
use self::index::Indexes;
use self::plugin::Plugin;
use self::provider::{PluginProvider, Rate, Shared};
use self::record::Record;
use self::settings::SettingsStore;
use self::transient::Transients;

/// The provider kind of plugins.
pub const KIND: &str = "plugin";
/// The maximum number of plugins.
pub const MAX_PLUGINS: usize = 1_000;

/// The configuration of plugins.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether a host may send a plugin's manifest, or the address of an index, with a call.
    pub allow_inline_manifest: bool,
    /// Whether a manifest that has changed at its source is used without review.
    pub accept_changes: bool,
    /// `host:port` of private servers that every plugin may call; see [`Terms`].
    pub allow_private: Vec<String>,
    /// The headers that carry settings.
    pub settings_headers: Vec<String>,
    /// The timeout of a call.
    pub timeout: Duration,
    pub max_response_bytes: usize,
    /// The rate limit of each principal for each plugin.
    pub calls_per_second: NonZeroU32,
    /// The maximum number of concurrent calls to one plugin.
    pub max_running: usize,
    /// The interval at which manifests are fetched again.
    pub refresh: Duration,
    /// The vault that encrypts settings.
    pub vault: Arc<Vault>,
    /// The budget for answers.
    pub answers: Arc<SharedBudget>,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("plugins.allow_private: {0}")]
    Egress(#[from] EgressError),
    #[error("plugins.settings_headers: \"{0}\" is not a valid header name")]
    Header(String),
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
    /// Serializes changes of the registry.
    changing: tokio::sync::Mutex<()>,
}

/// A plugin that was added.
struct Entry {
    record: Record,
    plugin: Arc<Plugin>,
    /// For a disabled plugin, the reservation of its id.
    registration: Option<Registration>,
    last_error: Option<String>,
}

impl Plugins {
    /// Loads the stored plugins. It does not contact any server.
    pub async fn load(
        router: Arc<Router>,
        records: Arc<dyn Records>,
        options: Options,
        closing: CancellationToken,
    ) -> Result<Arc<Self>, LoadError> {
        let header = |name: &String| {
            HeaderName::try_from(name.as_str()).map_err(|_| LoadError::Header(name.clone()))
        };
        let egress = sa_egress::Options {
            allow_private: options.allow_private.clone(),
            max_redirects: 5,
            user_agent: concat!("switchboard/", env!("CARGO_PKG_VERSION")),
        };
        let shared = Arc::new(Shared {
            egress: Egress::new(&egress)?,
            settings: SettingsStore::load(Arc::clone(&records), Arc::clone(&options.vault)).await?,
            extensions_by_call: Arc::new(ExtensionsByCall::default()),
            rate: Rate::new(options.calls_per_second),
            tokens: tokens::Tokens::default(),
            settings_headers: options
                .settings_headers
                .iter()
                .map(header)
                .collect::<Result<_, _>>()?,
            max_response: options.max_response_bytes,
            answers: Arc::clone(&options.answers),
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
                Ok(plugin) => {
                    record.changes();
                    plugins.enter(record, plugin);
                }
                Err(why) => warn!(
                    plugin = identifier,
                    why, "a stored plugin is no longer valid; remove it and add it again"
                ),
            }
        }
        tokio::spawn(source::keep_fresh(Arc::clone(&plugins), closing));
        Ok(plugins)
    }

    /// Removes idle entries from all caches, and the settings of tokens that are no longer valid.
    /// `is_token` tells whether a valid token has this id.
    pub async fn keep_house(&self, is_token: impl Fn(&str) -> bool) {
        self.shared.rate.sweep();
        self.shared.tokens.sweep();
        self.transients.sweep();
        let orphaned = |_: &str, owner: &str| settings::is_orphaned(owner, &is_token);
        if let Err(error) = self.shared.settings.delete_where(orphaned).await {
            warn!(%error, "cannot delete the settings of removed owners");
        }
    }

    /// Registers a plugin, and replaces its previous version.
    fn enter(&self, record: Record, plugin: Plugin) {
        let (identifier, plugin) = (plugin.identifier().to_owned(), Arc::new(plugin));
        let id = ProviderId::new(KIND, &identifier);
        let registration = if record.enabled {
            self.attach(id, Scope::Everyone, &plugin)
        } else {
            self.reserve(id)
        };
        let former = self
            .entries()
            .insert(identifier, Entry { record, plugin, registration, last_error: None });
        // The new registration has replaced this one, unless it was rejected.
        if let Some(registration) = former.and_then(|former| former.registration) {
            registration.withdraw();
        }
    }

    fn attach(&self, id: ProviderId, scope: Scope, plugin: &Arc<Plugin>) -> Option<Registration> {
        let provider =
            PluginProvider { plugin: Arc::clone(plugin), shared: Arc::clone(&self.shared) };
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
        attached
            .map_err(|error| warn!(plugin = %id, %error, "cannot offer the functions of a plugin"))
            .ok()
    }

    fn reserve(&self, id: ProviderId) -> Option<Registration> {
        let reserved = self.router.directory().reserve(id.clone(), Grant::installed(KIND));
        reserved
            .map_err(
                |error| warn!(plugin = %id, %error, "cannot reserve the id of a disabled plugin"),
            )
            .ok()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock()
    }
}

impl fmt::Debug for Plugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugins").field("plugins", &self.entries().len()).finish_non_exhaustive()
    }
}
