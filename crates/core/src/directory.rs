//! The live index over everything that providers offer.
//!
//! **Names.** Each described tool gets one exposed name, unique among all that anyone who sees it can see. The first
//! one to come has the plain name, a later one gets a suffix made from its address; either keeps what it has for
//! as long as its provider is here or remembered, unless another one has the better claim to the same tool (`wishes.rs`
//! says when). Once the plain name is free, the next one that wants it has it.
//!
//! **Ownership.** A provider's own names and prefixes are claims, and a claim is weighed by age. One that lies at or
//! below what an older provider with another grant holds gets no traffic, however long its match is; with the same
//! grant the longest match wins, and of equal ones the oldest, the others standing by. Nothing is decided when a
//! claim is made: it is weighed at each look-up, so nothing has to be mended when a provider leaves.
//!
//! **Hosts.** An undotted name (`Bash`) is what every host calls its shell, and belongs to none of them. It goes to the
//! first of the hosts that have it: whom the operator prefers, else who has been here longest; while that one is away,
//! to the next. The first of all is the primary host.
//!
//! **Absence.** A provider that detaches stays in the index for a while, marked offline: its names stay its own,
//! lists say `online: false`, and a call can say who is missing and since when instead of "unknown tool".

mod index;
#[cfg(test)]
mod leaks;
mod resolve;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::index::{Index, Leaving, Member, Presence, Remembered};
pub use self::resolve::{Absence, Rival, Route, Unresolved};
use crate::documents::DocumentsView;
use crate::json::RawJson;
use crate::limits::{Entered, Slots};
use crate::notice::{Notice, NoticeBody, Notices};
use crate::principal::{Scope, View};
use crate::provider::{GrantId, Provider, ProviderId};
use crate::tool::{Catalog, Tool};

/// Of the providers of one grant that left, those beyond this are forgotten, the longest gone first.
const REMEMBERED: Remembered = Remembered { members: 1_024, bytes: 16 << 20 };

pub struct Directory {
    index: RwLock<Index>,
    revision: watch::Sender<u64>,
    /// The calls that wait for a change, as for a provider to come back.
    waiting: Notify,
    documents: watch::Sender<u64>,
    notices: Notices,
    /// How long a provider that left keeps its names.
    memory: Duration,
}

/// A provider, as it attaches.
pub struct Attach {
    pub id: ProviderId,
    pub scope: Scope,
    pub grant: GrantId,
    pub provider: Arc<dyn Provider>,
    pub catalog: Catalog,
    /// How many calls it may be given at once.
    pub max_running: usize,
    /// What an operator is shown about it: a JSON object.
    pub about: RawJson,
    /// Whether it may take its id from a provider with another grant, with all that the id holds: its own grant is for
    /// this very id. From one that had come in without any, everybody may take the id, and nobody takes more.
    pub may_take_over: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    #[error("the id \"{}\" belongs to another {}", .0.id, .0.kind)]
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
    /// The longer name that it went by before it got this one.
    pub also: Option<Arc<str>>,
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
    /// What it offers and gets no traffic for, with the one that holds it.
    pub blocked: Vec<(String, ProviderId)>,
    /// Its tools that go by a longer name than they would, because another one has it.
    pub renamed: Vec<Renamed>,
    /// Its tools whose schemas have shown to be of no use, each with why.
    pub flawed: Vec<(Arc<str>, String)>,
    pub about: RawJson,
}

/// A tool that goes by a longer name than it wished for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renamed {
    pub name: Arc<str>,
    pub wanted: Arc<str>,
    /// Who goes by what it wanted.
    pub held_by: ProviderId,
    /// Whether that one is away.
    pub holder_away: bool,
}

impl Directory {
    pub fn new(notices: Notices, memory: Duration) -> Arc<Self> {
        let revision = watch::Sender::new(0);
        let (waiting, documents) = (Notify::new(), watch::Sender::new(0));
        Arc::new(Self { index: RwLock::default(), revision, waiting, documents, notices, memory })
    }

    /// Takes a provider in. One with the same id and grant is replaced, and told so; with another grant the newcomer
    /// is refused for as long as the other one is here or remembered, unless it may take over.
    pub fn attach(self: &Arc<Self>, attach: Attach) -> Result<Registration, AttachError> {
        let replaced = CancellationToken::new();
        let (id, scope) = (attach.id.clone(), attach.scope.clone());
        let presence = Presence::Online {
            provider: attach.provider,
            slots: Arc::new(Slots::new(attach.max_running)),
            since: Instant::now(),
            replaced: replaced.clone(),
        };
        // On its own, so that it is told though the newcomer be refused.
        self.sweep();
        let generation = self.change(Some(&scope), |index| {
            let member = Member::new(id.clone(), attach.scope, attach.grant, attach.about, presence);
            index.admit(member, attach.catalog, attach.may_take_over)
        })?;
        Ok(Registration { directory: Arc::clone(self), id, scope, generation, replaced })
    }

    /// Finds who answers to a name, among what the view can see.
    pub fn resolve(&self, name: &str, view: &View) -> Result<Route, Unresolved> {
        self.read(|index| resolve::resolve(index, name, view))
    }

    /// By whose permission a provider is here, or was.
    pub(crate) fn grant(&self, provider: &ProviderId) -> Option<GrantId> {
        self.read(|index| index.member(provider).map(|member| member.grant.clone()))
    }

    /// The tools of a view for which `keep` holds, from `cursor` on, at most `limit`.
    pub fn list(&self, view: &View, cursor: Option<&str>, limit: usize, keep: impl Fn(&ToolView) -> bool) -> ToolPage {
        self.read(|index| index.list(view, cursor, limit, keep))
    }

    /// Every provider of a kind, those that left a while ago included, by id.
    pub fn members(&self, kind: &str) -> Vec<MemberView> {
        self.read(|index| index.members(kind))
    }

    /// Every tool of a provider that is here, of whatever kind, that goes by a longer name than it wished for; by the
    /// provider's id.
    pub fn renamed(&self) -> Vec<(ProviderId, Renamed)> {
        self.read(Index::renamed)
    }

    /// What a provider's tool is exposed as, by the provider's own name for it.
    pub fn exposed_name(&self, id: &ProviderId, own: &str) -> Option<Arc<str>> {
        self.read(|index| index.exposed_name(id, own))
    }

    /// A provider's place below the ceiling that it shares with others, if it is here or remembered and has one: it is its
    /// own when it comes back.
    pub fn room(&self, id: &ProviderId) -> Option<Arc<Entered>> {
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
    pub fn documents_changed(&self) {
        self.documents.send_modify(|revision| *revision += 1);
        self.notices.send(Notice { to: None, body: NoticeBody::DocumentsChanged });
    }

    /// Grows with every change of the documents that there are.
    pub fn subscribe_documents(&self) -> watch::Receiver<u64> {
        self.documents.subscribe()
    }

    /// Forgets those that have been gone for too long. Called now and then, so that names come free though
    /// nothing else happens.
    pub fn sweep(&self) {
        self.change(None, |index| index.forget_expired(self.memory, REMEMBERED).then_some(()).ok_or(())).ok();
    }

    /// Forgets those who came by a grant that is worth nothing any more, and are away: what they held is free. Those who
    /// are here have to be told, and leave by themselves.
    pub fn forget_grant(&self, grant: &GrantId) {
        self.change(None, |index| index.forget_grant(grant).then_some(()).ok_or(())).ok();
    }

    fn read<T>(&self, work: impl FnOnce(&Index) -> T) -> T {
        work(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a change in this scope, or in several where it is not known, and sends a notice when it was one.
    fn change<T, E>(&self, scope: Option<&Scope>, work: impl FnOnce(&mut Index) -> Result<T, E>) -> Result<T, E> {
        let result = work(&mut self.index.write().unwrap_or_else(PoisonError::into_inner))?;
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
    /// Replaces what the provider offers.
    pub fn publish(&self, catalog: Catalog) {
        self.change(|index| index.publish(&self.id, self.generation, catalog));
    }

    /// Fires when a newer connection has taken the place.
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
