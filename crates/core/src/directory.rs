//! The live index of all tools that providers offer.
//!
//! **Names.** Each scope and name has one ordered list of claims. These are the exposed names of
//! tools with and without a suffix, own names, open prefixes, bare names and short names. Grants
//! are ordered by rank (installed by an operator, with a token, without a token), then by the age
//! of the oldest claim. The first grant holds the name until it is forgotten. Within the grant, the
//! oldest online provider receives the call. All others are listed under their suffixed names,
//! which always lead to them. Ages are supplied, and nothing depends on the order in which claims
//! arrive.
//!
//! **Prefixes and ids.** Names below an open prefix belong to the grant that holds the prefix.
//! Against a worse rank, this also covers their spelling with underscores. Names that begin with a
//! provider's id and `__` belong to that provider. Another grant gets no such name, not even with a
//! suffix. So a pattern such as `mail__*` never matches the tool of another provider. Providers
//! that everyone can see have different ids, and the better rank takes an id at any time. The id of
//! a disabled provider is reserved.
//!
//! **Hosts.** An undotted name (`Bash`) is the same on every host, and belongs to no grant. It
//! leads to the first online host of the best rank: the one that the operator prefers, else the
//! oldest. Listed names have precedence. An undotted open prefix (`notes`) holds its name against
//! hosts if it is older, but names with a capital are reserved for hosts.
//!
//! **Absence.** A provider that detaches stays in the index for a while, marked offline. It keeps
//! its names, and lists show `online: false`. The error of a call names the missing provider. Nodes
//! are remembered across restarts, too.

mod definitions;
mod index;
#[cfg(test)]
mod leak_tests;
mod registration;
mod reserved;
mod resolve;
mod saved;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

pub use self::definitions::{
    AcceptError, OnChange, SavedDefinitions, SavedFinding, SavedTool, ToolChange,
};
use self::index::{Changed, Contest, Index, Remembered};
pub use self::registration::Registration;
pub(crate) use self::resolve::did_you_mean;
pub use self::resolve::{Absence, Rival, Route, Unresolved};
pub use self::saved::SavedProvider;
use crate::audit::{AuditEvent, Journal};
use crate::documents::DocumentsView;
use crate::naming;
use crate::notice::{Notice, NoticeBody, Notices};
use crate::principal::{Scope, View};
use crate::provider::{Grant, Provider, ProviderId, Rank};
use crate::tool::{Catalog, Tool};
use sa_limits::budget::Permit;
use sa_text::json::RawJson;

/// The limits of remembered offline providers for each grant. Beyond them, the provider that has
/// been offline longest is forgotten.
const REMEMBERED: Remembered = Remembered { members: 1_024, bytes: 16 << 20 };

pub struct Directory {
    index: RwLock<Index>,
    revision: watch::Sender<u64>,
    /// Wakes calls that wait for a change, such as the return of a provider.
    waiting: Notify,
    /// Fires when there are definitions or providers to save.
    unsaved: Notify,
    notices: Notices,
    /// The journal that receives contested names.
    journal: OnceLock<Arc<dyn Journal>>,
    /// How long an offline provider keeps its names.
    memory: Duration,
}

/// The parameters of a provider that attaches.
pub struct Attach {
    pub id: ProviderId,
    pub scope: Scope,
    pub grant: Grant,
    pub provider: Arc<dyn Provider>,
    pub catalog: Catalog,
    /// The maximum number of concurrent calls.
    pub max_running: usize,
    /// Details for operators: a JSON object.
    pub about: RawJson,
    /// Whether the grant is bound to this id. The provider then takes the id, with all its names,
    /// from a provider of the same kind with another grant. From a provider without a token it only
    /// takes the id.
    pub may_take_over: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// Carries the provider that has the id.
    #[error("the id belongs to another provider, the {0}")]
    HeldByAnother(ProviderId),
}

/// One page of tools, sorted by name.
#[derive(Debug, Clone)]
pub struct ToolPage {
    pub tools: Vec<ToolView>,
    /// The cursor of the next page; absent on the last page.
    pub next: Option<String>,
}

/// A tool as a principal sees it.
#[derive(Debug, Clone)]
pub struct ToolView {
    pub name: Arc<str>,
    /// All names that lead to the tool. Only filled for a principal that may use some tools only.
    pub leading: Vec<Arc<str>>,
    pub tool: Arc<Tool>,
    pub provider: ProviderId,
    pub scope: Scope,
    pub online: bool,
}

/// A provider as an operator sees it.
#[derive(Debug, Clone)]
pub struct MemberView {
    pub id: ProviderId,
    pub scope: Scope,
    /// The time since it went offline; `None` while it is online.
    pub gone_for: Option<Duration>,
    /// Whether it announced that it stops.
    pub stopped: bool,
    pub attached_for: Duration,
    pub running: usize,
    /// The exposed names of its described tools.
    pub tools: Vec<Arc<str>>,
    pub prefixes: Vec<String>,
    /// The capabilities of its tools for eligibility checks, sorted and without duplicates.
    pub capabilities: Vec<String>,
    /// Whether it has tools that can be called by their bare names.
    pub host: bool,
    /// Whether bare names run on this provider.
    pub primary: bool,
    /// The names that it claims without receiving calls, each with the provider that holds it.
    pub blocked: Vec<(String, ProviderId)>,
    /// Its tools that are listed with a suffix, because another tool holds the plain name.
    pub renamed: Vec<Renamed>,
    /// Its tools with unusable schemas, each with the reason.
    pub flawed: Vec<(Arc<str>, String)>,
    pub about: RawJson,
}

/// A tool that is listed with a suffix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renamed {
    pub name: Arc<str>,
    /// The plain name.
    pub wanted: Arc<str>,
    /// The provider that holds the plain name.
    pub held_by: ProviderId,
    pub holder_away: bool,
}

impl Directory {
    pub fn new(notices: Notices, memory: Duration) -> Arc<Self> {
        let revision = watch::Sender::new(0);
        let (waiting, unsaved) = (Notify::new(), Notify::new());
        let (index, journal) = (RwLock::default(), OnceLock::new());
        Arc::new(Self { index, revision, waiting, unsaved, notices, journal, memory })
    }

    /// Sets the journal that receives contested names. Only the first call has an effect.
    pub(crate) fn report_to(&self, journal: &Arc<dyn Journal>) {
        self.journal.get_or_init(|| Arc::clone(journal));
    }

    /// Attaches a provider. It replaces a provider with the same id and grant. A provider with
    /// another grant is refused while the id is known, unless its rank is better or it may take
    /// over.
    pub fn attach(self: &Arc<Self>, attach: Attach) -> Result<Registration, AttachError> {
        self.attach_with(attach, None)
    }

    /// Attaches a provider with a supplied age, such as the position in a log. The lower age has
    /// precedence. Ages begin with 1, and the events of one provider must arrive in the order of
    /// their ages.
    pub fn attach_at(
        self: &Arc<Self>,
        attach: Attach,
        age: u64,
    ) -> Result<Registration, AttachError> {
        self.attach_with(attach, Some(age))
    }

    fn attach_with(
        self: &Arc<Self>,
        mut attach: Attach,
        age: Option<u64>,
    ) -> Result<Registration, AttachError> {
        let replaced = CancellationToken::new();
        let (id, scope) = (attach.id.clone(), attach.scope.clone());
        // A separate change, so that it is announced even if the new provider is refused.
        self.sweep();
        let described = definitions::describe(&mut attach.catalog);
        let admitted = self.change(Some(&scope), |index| {
            let age = age.unwrap_or_else(|| index.next_age());
            index.admit(attach, described, age, replaced.clone())
        })?;
        self.report(&id, &admitted.changed);
        Ok(Registration {
            directory: Arc::clone(self),
            id,
            scope,
            generation: admitted.generation,
            replaced,
        })
    }

    /// Finds the provider for a name among those that the view can see.
    pub fn resolve(&self, name: &str, view: &View) -> Result<Route, Unresolved> {
        self.read(|index| resolve::resolve(index, name, view))
    }

    /// Returns the names of listed tools that are similar to this one.
    pub(crate) fn similar(&self, name: &str, view: &View) -> Vec<String> {
        self.read(|index| resolve::similar(index, name, view))
    }

    /// Finds the tool below an open tool that was called by the name `called`. Also returns the
    /// name of the found tool.
    pub(crate) fn resolve_below(
        &self,
        open: &Route,
        called: &str,
        rest: &str,
        view: &View,
    ) -> (String, Result<Route, Unresolved>) {
        self.read(|index| resolve::below(index, open, called, rest, view))
    }

    /// Returns the grant of a provider that is online or remembered.
    pub(crate) fn grant(&self, provider: &ProviderId) -> Option<Grant> {
        self.read(|index| index.member(provider).map(|member| member.owner.grant.clone()))
    }

    /// Returns the provider of another kind that an operator installed with this id.
    pub fn installed_besides(&self, provider: &ProviderId) -> Option<ProviderId> {
        let space = naming::space(&provider.id);
        self.read(|index| {
            let owners = index.owners_of(space.as_deref().unwrap_or(&provider.id));
            let found = owners.iter().find(|owner| {
                owner.grant.rank == Rank::Installed && owner.id.kind != provider.kind
            });
            found.map(|owner| owner.id.clone())
        })
    }

    /// Returns the tools of a view that match `keep`, starting after `cursor`, at most `limit`.
    pub fn list(
        &self,
        view: &View,
        cursor: Option<&str>,
        limit: usize,
        keep: impl Fn(&ToolView) -> bool,
    ) -> ToolPage {
        self.read(|index| index.list(view, cursor, limit, keep))
    }

    /// Returns all providers of a kind sorted by id, including remembered offline ones.
    pub fn members(&self, kind: &str) -> Vec<MemberView> {
        self.read(|index| index.members(kind))
    }

    /// Returns every tool of an online provider that is listed with a suffix, sorted by provider
    /// id.
    pub fn renamed(&self) -> Vec<(ProviderId, Renamed)> {
        self.read(Index::renamed)
    }

    /// Returns the exposed name of a provider's tool, given the provider's own name.
    pub fn exposed_name(&self, id: &ProviderId, own: &str) -> Option<Arc<str>> {
        self.read(|index| index.exposed_name(id, own))
    }

    /// Returns a provider's permit of a shared budget, if it is online or remembered and has one.
    /// The provider reuses the permit when it comes back.
    pub fn permit(&self, id: &ProviderId) -> Option<Arc<Permit>> {
        self.read(|index| index.member(id)?.permit.clone())
    }

    /// Returns the documents and prompts of providers that are online or expected back, sorted by
    /// provider id.
    pub fn documents(&self, view: &View) -> Vec<DocumentsView> {
        self.read(|index| index.documents(view))
    }

    /// Returns the number of online providers of a kind.
    pub fn online(&self, kind: &str) -> usize {
        self.read(|index| index.online(kind))
    }

    /// Returns the number of changes of the directory so far.
    pub(crate) fn revision(&self) -> u64 {
        *self.revision.borrow()
    }

    /// Returns the tools of a view's narrow scopes that match `keep`.
    pub(crate) fn list_narrow(
        &self,
        view: &View,
        keep: impl Fn(&ToolView) -> bool,
    ) -> Vec<ToolView> {
        self.read(|index| index.list_narrow(view, keep))
    }

    /// Returns the scopes with names, except the one for everyone.
    pub(crate) fn narrow_scopes(&self) -> Vec<Scope> {
        self.read(|index| {
            index.scopes.keys().filter(|scope| **scope != Scope::Everyone).cloned().collect()
        })
    }

    /// Returns the number of names in these scopes, including names that no list shows.
    pub(crate) fn names<'s>(&self, scopes: impl Iterator<Item = &'s Scope>) -> usize {
        self.read(|index| {
            scopes.filter_map(|scope| index.scopes.get(scope)).map(|scope| scope.names.len()).sum()
        })
    }

    /// Returns the number of changes that a provider announced.
    pub(crate) fn announced(&self, provider: &ProviderId) -> u64 {
        self.read(|index| index.announced(provider))
    }

    /// Returns a counter that increases with every change of the directory.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Resolves at the next change from now on. Unlike subscribers of the counter, waiting tasks
    /// continue in the order in which they began to wait.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.waiting.notified()
    }

    /// Resolves when there has been a change after this revision.
    pub(crate) async fn changed_since(&self, revision: u64) {
        // Subscribed before the comparison, so that a change in between is not missed.
        let change = self.changed();
        if self.revision() == revision {
            change.await;
        }
    }

    /// Announces that a provider's documents have changed.
    pub fn documents_changed(&self, provider: ProviderId) {
        self.notices.send(Notice {
            to: None,
            body: NoticeBody::DocumentsChanged { provider: Some(provider) },
        });
    }

    /// Forgets providers that have been offline for too long. Called periodically, so that names
    /// become free even without other changes.
    pub fn sweep(&self) {
        self.change(None, |index| {
            index.forget_expired(self.memory, REMEMBERED).then_some(()).ok_or(())
        })
        .ok();
    }

    /// Forgets the offline providers of a grant that is no longer valid, and frees their names.
    /// Online providers detach when their connections are closed.
    pub fn forget_grant(&self, grant: &Grant) {
        self.forget_grants(&HashSet::from([grant.clone()]));
    }

    /// Does the same for several grants.
    pub fn forget_grants(&self, grants: &HashSet<Grant>) {
        // There is rarely a match, so calls should not wait for the write lock.
        if self.read(|index| index.absent_of(grants).next().is_some()) {
            self.change(None, |index| index.forget_grants(grants).then_some(()).ok_or(())).ok();
        }
    }

    /// Sets the policy for changed definitions, and restores saved definitions. Must be called
    /// before the first provider attaches.
    pub fn load_definitions(
        &self,
        on_change: OnChange,
        saved: impl IntoIterator<Item = (String, SavedDefinitions)>,
    ) {
        self.write(|index| index.definitions.load(on_change, saved));
    }

    /// Returns the definition changes that no operator has accepted yet, sorted by provider and
    /// tool.
    pub fn tool_changes(&self) -> Vec<ToolChange> {
        self.read(Index::tool_changes)
    }

    /// Accepts the change of a tool's definition. With a `revision`, only accepts that change.
    pub fn accept_change(
        &self,
        kind: &str,
        id: &str,
        tool: &str,
        revision: Option<i64>,
    ) -> Result<(), AcceptError> {
        self.change(None, |index| index.accept(kind, id, tool, revision))?;
        self.unsaved.notify_one();
        Ok(())
    }

    /// Resolves when there may be definitions or providers to save.
    pub async fn unsaved(&self) {
        self.unsaved.notified().await;
    }

    /// Returns the definitions to save, by key; `None` for those to delete.
    pub fn take_unsaved_definitions(&self) -> Vec<(Arc<str>, Option<SavedDefinitions>)> {
        // There is rarely something to save, so calls should not wait for the write lock.
        if !self.read(|index| index.definitions.has_unsaved()) {
            return Vec::new();
        }
        self.write(|index| index.definitions.take_unsaved())
    }

    /// Marks definitions as unsaved again after saving failed.
    pub fn keep_unsaved_definitions(&self, key: Arc<str>) {
        self.write(|index| index.definitions.mark_unsaved(key));
    }

    /// Writes contested names and changed definitions to the audit log.
    fn report(&self, provider: &ProviderId, Changed { contests, definitions }: &Changed) {
        self.unsaved.notify_one();
        let Some(journal) = self.journal.get() else { return };
        if !definitions.is_empty() {
            self.report_definitions(&**journal, provider, definitions);
        }
        for contest in contests {
            let Contest { holder, loser, name, names, is_id } = contest;
            let more = if *names > 1 { format!(" and {} more", names - 1) } else { String::new() };
            let detail = match is_id {
                true => format!(
                    "the id now belongs to the {holder}, which an operator installed; the {loser} lost it"
                ),
                false => format!(
                    "the {holder} has it{more}; the {loser} also claims it, but receives no calls by this name"
                ),
            };
            let (actor, subject) = (loser.to_string(), name.to_string());
            // A provider can repeat this as fast as it can connect.
            journal.refused(AuditEvent { name: "name.contested", actor, subject, detail });
        }
    }

    /// Reports invisible characters in the texts that a provider lists beside its tools, each with
    /// their number.
    pub fn report_invisible(&self, provider: &ProviderId, invisible: Vec<(Arc<str>, usize)>) {
        let Some(journal) = self.journal.get() else { return };
        let report = definitions::Report { invisible, ..definitions::Report::default() };
        self.report_definitions(&**journal, provider, &report);
    }

    fn report_definitions(
        &self,
        journal: &dyn Journal,
        provider: &ProviderId,
        report: &definitions::Report,
    ) {
        // A provider without a token can repeat this as fast as it can connect.
        let anyone = self.grant(provider).is_none_or(|grant| grant.rank == Rank::None);
        let write = |name, subject: String, detail| {
            let event = AuditEvent { name, actor: provider.to_string(), subject, detail };
            if anyone { journal.refused(event) } else { journal.audit(event) }
        };
        if !report.changed.is_empty() {
            let name = if report.held { "definition.held" } else { "definition.changed" };
            let more = match report.more_changed {
                0 => String::new(),
                more => format!(" | and {more} more tools"),
            };
            write(name, provider.id.to_string(), format!("{}{more}", report.changed.join(" | ")));
        }
        if let Some((first, removed)) = report.invisible.first() {
            let more = report.invisible.len() - 1;
            let more = if more > 0 { format!(", and also of {more} more") } else { String::new() };
            let detail = format!(
                "{removed} invisible characters in the texts of {first}{more}; they were removed where calls do not need them"
            );
            write("definition.invisible_text", provider.id.to_string(), detail);
        }
    }

    fn write<T>(&self, work: impl FnOnce(&mut Index) -> T) -> T {
        work(&mut self.index.write())
    }

    fn read<T>(&self, work: impl FnOnce(&Index) -> T) -> T {
        work(&self.index.read())
    }

    /// Applies a change in this scope, or in several if `scope` is `None`. Sends a notice if
    /// something changed.
    fn change<T, E>(
        &self,
        scope: Option<&Scope>,
        work: impl FnOnce(&mut Index) -> Result<T, E>,
    ) -> Result<T, E> {
        let result = self.write(work)?;
        let mut revision = 0;
        self.revision.send_modify(|current| {
            *current += 1;
            revision = *current;
        });
        self.waiting.notify_waiters();
        let scope = scope.cloned();
        self.notices.send(Notice { to: None, body: NoticeBody::ToolsChanged { revision, scope } });
        Ok(result)
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory")
            .field("revision", &*self.revision.borrow())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attach")
            .field("id", &self.id)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
