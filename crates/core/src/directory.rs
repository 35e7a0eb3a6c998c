//! The live index over everything that providers offer.
//!
//! **Names.** For each scope and name there is one ordered list of claims: the exposed names of tools with and without a
//! suffix, own names, open prefixes, bare names and short names. Grants are ordered by rank (installed by an operator, with a
//! token, without one), then by the age of the oldest claim. The first grant holds the name until it is forgotten. Within it
//! the oldest provider that is online gets the call. All others are listed under their suffixed names, which always lead to
//! them. Ages are supplied, and nothing depends on the order in which claims arrive.
//!
//! **Prefixes and ids.** Names below an open prefix belong to the grant that holds the prefix, against a worse rank also as
//! they are written with underscores. Names that begin with a provider's id and `__` belong to that provider. Another grant
//! gets no such name, not even with a suffix, so that a pattern such as `mail__*` never matches the tool of another provider.
//! Providers that everyone can see have different ids; the better rank takes an id at any time. The id of a disabled provider
//! is reserved.
//!
//! **Hosts.** An undotted name (`Bash`) is what every host calls its shell, and belongs to no grant. It goes to the first
//! host of the best rank that is online: the one that the operator prefers, else the oldest. What is listed goes first. An
//! undotted open prefix (`notes`) holds its name against hosts if it was there first, but a name with a capital is the hosts'.
//!
//! **Absence.** A provider that detaches stays in the index for a while, marked offline: its names stay its own, lists show
//! `online: false`, and the error of a call names the provider that is missing. Nodes are remembered over a restart, too.

mod definitions;
mod index;
#[cfg(test)]
mod leaks;
mod reserved;
mod resolve;
mod saved;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

pub use self::definitions::{AcceptError, OnChange, SavedDefinitions, SavedFinding, SavedTool, ToolChange};
use self::index::{Changed, Contest, Index, Leaving, Remembered};
pub use self::resolve::{Absence, Rival, Route, Unresolved};
pub use self::saved::SavedProvider;
use crate::audit::{AuditEvent, Journal};
use crate::budget::Permit;
use crate::documents::DocumentsView;
use crate::json::RawJson;
use crate::naming;
use crate::notice::{Notice, NoticeBody, Notices};
use crate::principal::{Scope, View};
use crate::provider::{Grant, Provider, ProviderId, Rank};
use crate::tool::{Catalog, Tool};

/// Of the providers of one grant that left, those beyond this are forgotten, the longest gone first.
const REMEMBERED: Remembered = Remembered { members: 1_024, bytes: 16 << 20 };

pub struct Directory {
    index: RwLock<Index>,
    revision: watch::Sender<u64>,
    /// The calls that wait for a change, as for a provider to come back.
    waiting: Notify,
    /// Fires when there are definitions or providers to save.
    unsaved: Notify,
    notices: Notices,
    /// Where contested names are reported.
    journal: OnceLock<Arc<dyn Journal>>,
    /// How long a provider that left keeps its names.
    memory: Duration,
}

/// A provider, as it attaches.
pub struct Attach {
    pub id: ProviderId,
    pub scope: Scope,
    pub grant: Grant,
    pub provider: Arc<dyn Provider>,
    pub catalog: Catalog,
    /// How many calls it may be given at once.
    pub max_running: usize,
    /// What an operator is shown about it: a JSON object.
    pub about: RawJson,
    /// Whether its grant is for this very id: it then takes the id from a provider of its kind with another grant, with all
    /// names that the id holds. From a provider without a token it takes nothing but the id.
    pub may_take_over: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// Carries the provider that has the id.
    #[error("the id belongs to another provider, the {0}")]
    HeldByAnother(ProviderId),
}

/// One page of tools, in the order of their names.
#[derive(Debug, Clone)]
pub struct ToolPage {
    pub tools: Vec<ToolView>,
    /// Where the next page begins; absent on the last one.
    pub next: Option<String>,
}

/// A tool as a principal sees it.
#[derive(Debug, Clone)]
pub struct ToolView {
    pub name: Arc<str>,
    /// For a principal that may use some tools only: every name that leads to the tool.
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
    /// `None` while it is here.
    pub gone_for: Option<Duration>,
    /// Whether it is gone because it said so.
    pub stopped: bool,
    pub attached_for: Duration,
    pub running: usize,
    /// Exposed names of its described tools.
    pub tools: Vec<Arc<str>>,
    pub prefixes: Vec<String>,
    /// What its tools stand for in eligibility questions, each once, sorted.
    pub capabilities: Vec<String>,
    /// Whether it has tools that can be called by their bare names.
    pub host: bool,
    /// Whether bare names run here.
    pub primary: bool,
    /// The names that it claims and gets no calls by, each with the provider that holds it.
    pub blocked: Vec<(String, ProviderId)>,
    /// Its tools that are listed with a suffix, because another tool holds the plain name.
    pub renamed: Vec<Renamed>,
    /// Its tools whose schemas have shown to be of no use, each with why.
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

    /// Names the journal to which contested names are reported; the first one stays.
    pub(crate) fn report_to(&self, journal: &Arc<dyn Journal>) {
        self.journal.get_or_init(|| Arc::clone(journal));
    }

    /// Takes a provider in. One with the same id and grant is replaced. A newcomer with another grant is refused for as long
    /// as the id is known, unless its rank is better or it may take over.
    pub fn attach(self: &Arc<Self>, attach: Attach) -> Result<Registration, AttachError> {
        self.attach_with(attach, None)
    }

    /// The same with a supplied age, such as the position in a log. The lower age goes first. Ages begin with 1, and the
    /// events of one provider come in the order of their ages.
    pub fn attach_at(self: &Arc<Self>, attach: Attach, age: u64) -> Result<Registration, AttachError> {
        self.attach_with(attach, Some(age))
    }

    fn attach_with(self: &Arc<Self>, mut attach: Attach, age: Option<u64>) -> Result<Registration, AttachError> {
        let replaced = CancellationToken::new();
        let (id, scope) = (attach.id.clone(), attach.scope.clone());
        // A change of its own, so that it is announced even if the newcomer is refused.
        self.sweep();
        let described = definitions::describe(&mut attach.catalog);
        let admitted = self.change(Some(&scope), |index| {
            let age = age.unwrap_or_else(|| index.next_age());
            index.admit(attach, described, age, replaced.clone())
        })?;
        self.report(&id, &admitted.changed);
        Ok(Registration { directory: Arc::clone(self), id, scope, generation: admitted.generation, replaced })
    }

    /// Finds the provider that answers to a name, among what the view can see.
    pub fn resolve(&self, name: &str, view: &View) -> Result<Route, Unresolved> {
        self.read(|index| resolve::resolve(index, name, view))
    }

    /// Finds the tool below an open one, which was called by the name `called`. Returns its name, too.
    pub(crate) fn resolve_below(
        &self,
        open: &Route,
        called: &str,
        rest: &str,
        view: &View,
    ) -> (String, Result<Route, Unresolved>) {
        self.read(|index| resolve::below(index, open, called, rest, view))
    }

    /// By whose permission a provider is here, or was.
    pub(crate) fn grant(&self, provider: &ProviderId) -> Option<Grant> {
        self.read(|index| index.member(provider).map(|member| member.owner.grant.clone()))
    }

    /// The provider of another kind that an operator installed and that has this id.
    pub fn installed_besides(&self, provider: &ProviderId) -> Option<ProviderId> {
        let space = naming::space(&provider.id);
        self.read(|index| {
            let mut owners = index.owners_of(space.as_deref().unwrap_or(&provider.id));
            let found = owners.find(|owner| owner.grant.rank == Rank::Installed && owner.id.kind != provider.kind);
            found.map(|owner| owner.id.clone())
        })
    }

    /// The tools of a view for which `keep` holds, from `cursor` on, at most `limit`.
    pub fn list(&self, view: &View, cursor: Option<&str>, limit: usize, keep: impl Fn(&ToolView) -> bool) -> ToolPage {
        self.read(|index| index.list(view, cursor, limit, keep))
    }

    /// Every provider of a kind, those that left a while ago included, by id.
    pub fn members(&self, kind: &str) -> Vec<MemberView> {
        self.read(|index| index.members(kind))
    }

    /// Every tool of an online provider that is listed with a suffix, by the provider's id.
    pub fn renamed(&self) -> Vec<(ProviderId, Renamed)> {
        self.read(Index::renamed)
    }

    /// What a provider's tool is exposed as, by the provider's own name for it.
    pub fn exposed_name(&self, id: &ProviderId, own: &str) -> Option<Arc<str>> {
        self.read(|index| index.exposed_name(id, own))
    }

    /// A provider's place below the ceiling that it shares with others, if it is here or remembered and has one: it is its
    /// own when it comes back.
    pub fn room(&self, id: &ProviderId) -> Option<Arc<Permit>> {
        self.read(|index| index.member(id)?.room.clone())
    }

    /// The documents and prompts of the providers that are here or known to come back, by the providers' ids.
    pub fn documents(&self, view: &View) -> Vec<DocumentsView> {
        self.read(|index| index.documents(view))
    }

    /// How many providers of a kind are here.
    pub fn online(&self, kind: &str) -> usize {
        self.read(|index| index.online(kind))
    }

    /// Grows with every change of what there is.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Resolves at the next change, from now on. Whoever waits goes on in the order in which they came, as those do not
    /// who have subscribed.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.waiting.notified()
    }

    /// Says that a provider's documents are not what they were.
    pub fn documents_changed(&self, provider: ProviderId) {
        self.notices.send(Notice { to: None, body: NoticeBody::DocumentsChanged { provider: Some(provider) } });
    }

    /// Forgets those that have been gone for too long. Called now and then, so that names come free though
    /// nothing else happens.
    pub fn sweep(&self) {
        self.change(None, |index| index.forget_expired(self.memory, REMEMBERED).then_some(()).ok_or(())).ok();
    }

    /// Forgets the offline providers of a grant that is not valid any more: what they held is free. Online ones leave when
    /// their connections are closed.
    pub fn forget_grant(&self, grant: &Grant) {
        self.forget_grants(&HashSet::from([grant.clone()]));
    }

    /// The same for several grants.
    pub fn forget_grants(&self, grants: &HashSet<Grant>) {
        // Nearly always there is nobody, and calls need not wait for that.
        if self.read(|index| index.absent_of(grants).next().is_some()) {
            self.change(None, |index| index.forget_grants(grants).then_some(()).ok_or(())).ok();
        }
    }

    /// Says what to do when a tool's definition changes, and takes up what an earlier process has saved. To be called before
    /// the first provider attaches.
    pub fn load_definitions(&self, on_change: OnChange, saved: impl IntoIterator<Item = (String, SavedDefinitions)>) {
        self.write(|index| index.definitions.load(on_change, saved));
    }

    /// The changes of tools' definitions that no operator has accepted yet, by provider and tool.
    pub fn tool_changes(&self) -> Vec<ToolChange> {
        self.read(Index::tool_changes)
    }

    /// Accepts the change of a tool's definition; with a `revision`, only the change that has it.
    pub fn accept_change(&self, kind: &str, id: &str, tool: &str, revision: Option<i64>) -> Result<(), AcceptError> {
        self.change(None, |index| index.accept(kind, id, tool, revision))?;
        self.unsaved.notify_one();
        Ok(())
    }

    /// Resolves when there may be definitions or providers to save.
    pub async fn unsaved(&self) {
        self.unsaved.notified().await;
    }

    /// The definitions to save, by key; `None` for those to delete.
    pub fn take_unsaved_definitions(&self) -> Vec<(Arc<str>, Option<SavedDefinitions>)> {
        // Nearly always there is nothing, and calls need not wait for that.
        if !self.read(|index| index.definitions.has_unsaved()) {
            return Vec::new();
        }
        self.write(|index| index.definitions.take_unsaved())
    }

    /// Takes back what could not be saved.
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
                true => format!("the id now belongs to the {holder}, which an operator installed; the {loser} lost it"),
                false => format!("the {holder} holds it{more}; the {loser} claims it, too, and gets no calls by it"),
            };
            let (who, subject) = (loser.to_string(), name.to_string());
            // A provider can repeat this as fast as it can connect.
            journal.refused(AuditEvent { what: "name.contested", who, subject, detail });
        }
    }

    fn report_definitions(&self, journal: &dyn Journal, provider: &ProviderId, report: &definitions::Report) {
        // A provider without a token can repeat this as fast as it can connect.
        let anyone = self.grant(provider).is_none_or(|grant| grant.rank == Rank::None);
        let write = |what, subject: String, detail| {
            let event = AuditEvent { what, who: provider.to_string(), subject, detail };
            if anyone { journal.refused(event) } else { journal.audit(event) }
        };
        if !report.changed.is_empty() {
            let what = if report.held { "definition.held" } else { "definition.changed" };
            let more = match report.more_changed {
                0 => String::new(),
                more => format!(" | and {more} more tools"),
            };
            write(what, provider.id.to_string(), format!("{}{more}", report.changed.join(" | ")));
        }
        if let Some((first, removed)) = report.invisible.first() {
            let more = report.invisible.len() - 1;
            let more = if more > 0 { format!(", and such in {more} more tools") } else { String::new() };
            let detail = format!(
                "{removed} invisible characters in the texts of {first}{more}; they were removed where calls do not need them"
            );
            write("definition.invisible_text", provider.id.to_string(), detail);
        }
    }

    fn write<T>(&self, work: impl FnOnce(&mut Index) -> T) -> T {
        work(&mut self.index.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<T>(&self, work: impl FnOnce(&Index) -> T) -> T {
        work(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a change in this scope, or in several where it is not known, and sends a notice when it was one.
    fn change<T, E>(&self, scope: Option<&Scope>, work: impl FnOnce(&mut Index) -> Result<T, E>) -> Result<T, E> {
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
        f.debug_struct("Directory").field("revision", &*self.revision.borrow()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attach").field("id", &self.id).field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// A provider's place in the directory. Dropping it marks the provider as gone; what a newer registration of the
/// same id has put there meanwhile is left alone.
#[derive(Debug)]
pub struct Registration {
    directory: Arc<Directory>,
    id: ProviderId,
    scope: Scope,
    generation: u64,
    replaced: CancellationToken,
}

impl Registration {
    /// Replaces what the provider offers. What it offered before keeps its age.
    pub fn publish(&self, catalog: Catalog) {
        self.publish_with(catalog, None);
    }

    /// The same with a supplied age, as for [`Directory::attach_at`].
    pub fn publish_at(&self, catalog: Catalog, age: u64) {
        self.publish_with(catalog, Some(age));
    }

    fn publish_with(&self, mut catalog: Catalog, age: Option<u64>) {
        let described = definitions::describe(&mut catalog);
        let published = self.directory.change(Some(&self.scope), |index| {
            let age = age.unwrap_or_else(|| index.next_age());
            index.publish(&self.id, self.generation, catalog, described, age).ok_or(())
        });
        self.directory.report(&self.id, &published.unwrap_or_default());
    }

    /// Fires when a newer connection, or a provider of a better rank, has taken the id.
    pub fn replaced(&self) -> CancellationToken {
        self.replaced.clone()
    }

    /// Marks the provider as gone, and keeps its names for as long as this registration lives: it is known to come back,
    /// by attaching again.
    pub fn away(&self) {
        self.change(|index| index.detach(&self.id, self.generation, Leaving::Kept));
    }

    /// Marks the provider as gone because it said so. Its names are kept for a while, as those of one that was lost, but it
    /// is not waited for as long: most likely somebody stopped it.
    pub fn stopped(self) {
        self.change(|index| index.detach(&self.id, self.generation, Leaving::Stopped));
    }

    /// Leaves for good: the names are free at once.
    pub fn withdraw(self) {
        self.change(|index| index.withdraw(&self.id, self.generation));
        self.directory.unsaved.notify_one();
    }

    fn change(&self, work: impl FnOnce(&mut Index) -> bool) {
        self.directory.change(Some(&self.scope), |index| work(index).then_some(()).ok_or(())).ok();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.change(|index| index.detach(&self.id, self.generation, Leaving::Lost));
    }
}
