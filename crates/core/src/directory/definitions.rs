//! Remembers the definition of each tool, and detects when a provider changes it.
//!
//! A model or a client decides by the definition: title, description, schemas, annotations. A
//! server that was trusted once can change them later. Every change is reported. Under
//! [`OnChange::Hold`] the accepted definition also stays listed, and calls of the tool fail until
//! an operator accepts the new one.
//!
//! A definition belongs to the grant that described the tool. The definition of a provider without
//! a token does not apply to a provider with the same id and a token.
//!
//! Definitions outlive the provider's connection and, through [`SavedDefinitions`], the process.
//! They are bounded for each grant separately, so that no grant can evict another one. Only an
//! operator adds installed providers, so they are not bounded. A provider cannot use eviction to
//! present a changed tool as a new one. After something was evicted, every unknown tool of that
//! provider counts as changed.

mod report;
mod text;
mod types;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

pub(super) use self::report::Report;
use self::text::{definition, differences, is_open_definition};
pub use self::types::{
    AcceptError, OnChange, SavedDefinitions, SavedFinding, SavedTool, ToolChange,
};
use super::index::prefixes;
use crate::clock;
use crate::provider::{Grant, ProviderId, Rank};
use crate::tool::{Catalog, Tool};

/// The limits of remembered providers for each grant. Beyond them, the provider with the oldest
/// list is forgotten.
const MAX_PROVIDERS: usize = 20_000;
const MAX_BYTES: usize = 16 << 20;
/// The limit of remembered tools that a provider does not list any more.
const MAX_UNLISTED_BYTES: usize = 1 << 20;
/// Stands for a definition that may have been forgotten.
const NOTHING: &str = "null";
/// The definition of a tool that its provider has but does not describe.
const UNDESCRIBED: &str = "{}";
/// Separates a provider from its grant in a key. No id contains a line break.
const SEPARATOR: char = '\n';

/// The description of a tool in a catalog. Computed before the directory is locked.
pub(super) struct Described {
    /// A JSON object with sorted keys; absent if changes are not watched.
    definition: Option<Arc<str>>,
    invisible: usize,
}

#[derive(Default)]
pub(super) struct Definitions {
    on_change: OnChange,
    /// By provider and grant.
    known: HashMap<Arc<str>, Known>,
    pools: HashMap<Arc<str>, Pool>,
    /// Counts the reviewed lists.
    lists: u64,
    newest_revision: i64,
    unsaved: BTreeSet<Arc<str>>,
}

/// The tools of one provider, as one grant described them.
#[derive(Default)]
struct Known {
    /// The kind and the id of the provider.
    provider: Arc<str>,
    pool: Option<Arc<str>>,
    /// The number of its last list.
    listed: u64,
    bytes: usize,
    /// Whether some of its definitions were forgotten.
    incomplete: bool,
    tools: HashMap<Arc<str>, Entry>,
}

/// The providers of one grant.
#[derive(Default)]
struct Pool {
    bytes: usize,
    by_list: BTreeMap<u64, Arc<str>>,
    /// Whether a provider was forgotten.
    incomplete: bool,
}

struct Entry {
    /// The listed definition.
    definition: Arc<str>,
    /// The number of invisible characters in the tool's texts.
    invisible: usize,
    /// The number of the last list that contained the tool.
    listed: u64,
    /// Boxed, because nearly no tool has a finding.
    finding: Option<Box<Finding>>,
}

/// A change that no operator has accepted yet.
#[derive(Default)]
struct Finding {
    revision: i64,
    /// The previously listed definition, if the new one is already listed.
    before: Option<Arc<str>>,
    /// The new definition, if it is not listed yet.
    proposed: Option<Proposed>,
    invisible: usize,
}

struct Proposed {
    definition: Arc<str>,
    /// Absent after a restart, until the provider lists the tool again. Also absent if the provider
    /// does not describe the tool any more.
    tool: Option<Box<Tool>>,
}

/// The effect of an accepted change on the provider's list.
pub(super) enum Accepted {
    /// No effect: the new definition is already listed, or the provider is not attached.
    Listed,
    /// This tool replaces the held one.
    Replace(Box<Tool>),
    /// The held tool is removed from the list, because its provider does not describe it.
    Remove,
}

/// Removes invisible characters from a catalog, and describes its tools.
pub(super) fn describe(catalog: &mut Catalog) -> Vec<Described> {
    let watched = catalog.watched;
    let describe = |tool: &mut Tool| {
        let invisible = tool.remove_invisible();
        Described { definition: watched.then(|| definition(tool)), invisible }
    };
    catalog.tools.iter_mut().map(describe).collect()
}

impl Definitions {
    pub(super) fn load(
        &mut self,
        on_change: OnChange,
        saved: impl IntoIterator<Item = (String, SavedDefinitions)>,
    ) {
        self.on_change = on_change;
        for (key, SavedDefinitions { pool, incomplete, tools }) in saved {
            let mut key: Arc<str> = key.into();
            let mut provider = Arc::clone(&key);
            if let Some(of_grant) = pool.as_ref().map(|pool| format!("{SEPARATOR}{pool}")) {
                if let Some(id) = key.strip_suffix(of_grant.as_str()) {
                    provider = id.into();
                } else {
                    // Earlier versions stored one record for all grants of a provider.
                    self.unsaved.insert(key);
                    key = format!("{provider}{of_grant}").into();
                    self.unsaved.insert(Arc::clone(&key));
                }
            }
            self.lists += 1;
            if let Some(pool) = pool.as_ref().filter(|_| incomplete) {
                self.pools.entry(Arc::clone(pool)).or_default().incomplete = true;
            }
            let mut known =
                Known { provider, pool, incomplete, listed: self.lists, ..Known::default() };
            for SavedTool { name, definition, invisible, finding } in tools {
                let finding =
                    finding.map(|SavedFinding { revision, before, proposed, invisible }| {
                        self.newest_revision = self.newest_revision.max(revision);
                        let proposed =
                            proposed.map(|definition| Proposed { definition, tool: None });
                        Box::new(Finding { revision, before, proposed, invisible })
                    });
                known.tools.insert(name, Entry { definition, invisible, listed: 0, finding });
            }
            known.count();
            self.insert(&key, known);
        }
    }

    /// Compares a provider's new list with the remembered definitions. Under [`OnChange::Hold`], a
    /// changed tool is replaced by the accepted one.
    pub(super) fn review(
        &mut self,
        id: &ProviderId,
        grant: &Grant,
        catalog: &mut Catalog,
        described: Vec<Described>,
    ) -> Report {
        let mut report = Report::default();
        let invisible =
            catalog.tools.iter().zip(&described).filter(|(_, described)| described.invisible > 0);
        if !catalog.watched {
            report.invisible.extend(
                invisible.map(|(tool, described)| (Arc::clone(&tool.name), described.invisible)),
            );
            return report;
        }
        let key = key(id, grant);
        self.lists += 1;
        let pool = pool(grant);
        let is_incomplete =
            |pool: &Arc<str>| self.pools.get(pool).is_some_and(|pool| pool.incomplete);
        let incomplete = pool.as_ref().is_some_and(is_incomplete);
        let mut known =
            self.remove(&key).unwrap_or_else(|| Known { incomplete, ..Known::default() });
        (known.listed, known.pool, known.provider) = (self.lists, pool, provider(id));
        let mut revision = self.newest_revision;
        let mut changed = false;
        for (tool, Described { definition, invisible }) in catalog.tools.iter_mut().zip(described) {
            let Some(definition) = definition else { continue };
            if known.incomplete
                && self.on_change == OnChange::Hold
                && !known.tools.contains_key(&tool.name)
            {
                let forgotten =
                    Entry { definition: NOTHING.into(), invisible: 0, listed: 0, finding: None };
                known.tools.insert(Arc::clone(&tool.name), forgotten);
            }
            let Some(entry) = known.tools.get_mut(&tool.name) else {
                let finding = (invisible > 0).then(|| {
                    report.invisible.push((Arc::clone(&tool.name), invisible));
                    Box::new(Finding {
                        revision: next(&mut revision),
                        invisible,
                        ..Finding::default()
                    })
                });
                let entry = Entry { definition, invisible, listed: known.listed, finding };
                known.tools.insert(Arc::clone(&tool.name), entry);
                changed = true;
                continue;
            };
            // If a tool is listed twice, the first one counts.
            if std::mem::replace(&mut entry.listed, known.listed) == known.listed {
                continue;
            }
            if std::mem::replace(&mut entry.invisible, invisible) != invisible {
                changed = true;
                if invisible > 0 {
                    report.invisible.push((Arc::clone(&tool.name), invisible));
                    let finding = entry.finding.get_or_insert_default();
                    (finding.invisible, finding.revision) = (invisible, next(&mut revision));
                }
            }
            changed |= entry.compare(tool, definition, self.on_change, &mut revision, &mut report);
        }
        changed |= known.drop_unlisted();
        if self.on_change == OnChange::Hold {
            changed |= known.keep_undescribed(id, catalog, &mut revision, &mut report);
        }
        self.newest_revision = revision;
        known.count();
        if changed {
            self.unsaved.insert(Arc::clone(&key));
        }
        self.insert(&key, known);
        report
    }

    /// Accepts a change. `current` is the provider's current grant in the directory. Several grants
    /// may have changes of one tool. The revision selects one; by default it is that of the current
    /// grant, or else the newest.
    pub(super) fn accept(
        &mut self,
        kind: &str,
        id: &str,
        tool: &str,
        revision: Option<i64>,
        current: Option<&Grant>,
    ) -> Result<Accepted, AcceptError> {
        let provider = format!("{kind}/{id}");
        let is_current = |known: &Known| current.is_some_and(|current| known.pool == pool(current));
        let found = self.known.iter().filter(|(_, known)| *known.provider == *provider).filter_map(
            |(key, known)| {
                let finding = known.tools.get(tool)?.finding.as_ref()?;
                Some((key, finding.revision, is_current(known)))
            },
        );
        let found: Vec<_> = found.collect();
        if found.is_empty() {
            return Err(AcceptError::Nothing);
        }
        let candidates = found
            .into_iter()
            .filter(|(_, found, _)| revision.is_none_or(|revision| revision == *found));
        let candidates = candidates.max_by_key(|(_, revision, current)| (*current, *revision));
        let (key, _, current) = candidates.ok_or(AcceptError::Newer)?;
        let key = Arc::clone(key);
        let entry = self
            .known
            .get_mut(&key)
            .and_then(|known| known.tools.get_mut(tool))
            .ok_or(AcceptError::Nothing)?;
        let proposed = entry.finding.take().and_then(|finding| finding.proposed);
        self.unsaved.insert(key);
        let Some(Proposed { definition, tool }) = proposed else { return Ok(Accepted::Listed) };
        entry.definition = definition;
        Ok(match tool {
            _ if !current => Accepted::Listed,
            Some(tool) => Accepted::Replace(tool),
            None if *entry.definition == *UNDESCRIBED => Accepted::Remove,
            None => Accepted::Listed,
        })
    }

    /// Returns every change that no operator has accepted, sorted by provider and tool. `listed`
    /// finds a tool's name in lists by its provider, the pool of its grant, and its own name.
    pub(super) fn changes(
        &self,
        listed: impl Fn(&str, Option<&str>, &str) -> Option<Arc<str>>,
    ) -> Vec<ToolChange> {
        let tools =
            self.known.values().flat_map(|known| known.tools.iter().map(move |tool| (known, tool)));
        let found = tools.filter_map(|(known, (name, entry))| {
            Some((known, name, entry, entry.finding.as_ref()?))
        });
        let mut found: Vec<_> = found.collect();
        found.sort_unstable_by_key(|(known, name, ..)| (&known.provider, *name, &known.pool));
        found
            .into_iter()
            .map(|(known, name, entry, finding)| {
                let (kind, id) = known.provider.split_once('/').unwrap_or((&known.provider, ""));
                let (was, now) = match (&finding.before, &finding.proposed) {
                    (_, Some(proposed)) => (&entry.definition, &proposed.definition),
                    (Some(before), None) => (before, &entry.definition),
                    (None, None) => (&entry.definition, &entry.definition),
                };
                ToolChange {
                    kind: kind.to_owned(),
                    id: id.to_owned(),
                    tool: Arc::clone(name),
                    name: listed(&known.provider, known.pool.as_deref(), name),
                    at_ms: finding.revision,
                    revision: finding.revision,
                    held: finding.proposed.is_some(),
                    changes: differences(was, now),
                    invisible: finding.invisible,
                }
            })
            .collect()
    }

    /// Forgets the definitions of a removed provider and its grant.
    pub(super) fn forget(&mut self, id: &ProviderId, grant: &Grant) {
        let key = key(id, grant);
        if self.remove(&key).is_some() {
            self.unsaved.insert(key);
        }
    }

    pub(super) fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Returns the definitions to save, by key; `None` for those to delete.
    pub(super) fn take_unsaved(&mut self) -> Vec<(Arc<str>, Option<SavedDefinitions>)> {
        let keys = std::mem::take(&mut self.unsaved);
        keys.into_iter()
            .map(|key| (Arc::clone(&key), self.known.get(&key).map(Known::saved)))
            .collect()
    }

    /// Marks a key as unsaved again after saving failed.
    pub(super) fn mark_unsaved(&mut self, key: Arc<str>) {
        self.unsaved.insert(key);
    }

    fn insert(&mut self, key: &Arc<str>, known: Known) {
        let pool = known.pool.clone();
        if let Some(name) = &pool {
            let pool = self.pools.entry(Arc::clone(name)).or_default();
            pool.bytes += known.bytes;
            pool.by_list.insert(known.listed, Arc::clone(key));
        }
        self.known.insert(Arc::clone(key), known);
        while let Some(oldest) = pool.as_ref().and_then(|pool| self.pools.get(pool)?.over_limits())
        {
            self.remove(&oldest);
            self.unsaved.insert(oldest);
            if let Some(pool) = pool.as_ref().and_then(|pool| self.pools.get_mut(pool)) {
                pool.incomplete = true;
            }
        }
    }

    /// Returns whether a change of a tool is held, even if the provider does not list the tool at
    /// the moment.
    pub(super) fn is_held(&self, id: &ProviderId, grant: &Grant, tool: &str) -> bool {
        if self.on_change == OnChange::Allow {
            return false;
        }
        let Some(known) = self.known.get(&*key(id, grant)) else { return false };
        let held = |name: &str| {
            known.tools.get(name).and_then(|entry| entry.finding.as_ref()?.proposed.as_ref())
        };
        held(tool).or_else(|| held(&tool.to_lowercase())).is_some()
    }

    fn remove(&mut self, key: &str) -> Option<Known> {
        let known = self.known.remove(key)?;
        if let Some(name) = &known.pool
            && let Some(pool) = self.pools.get_mut(name)
        {
            pool.bytes -= known.bytes;
            pool.by_list.remove(&known.listed);
            if pool.by_list.is_empty() && !pool.incomplete {
                self.pools.remove(name);
            }
        }
        Some(known)
    }
}

/// Returns whether this pool belongs to this grant.
pub(super) fn is_of(pool_name: Option<&str>, grant: &Grant) -> bool {
    pool(grant).as_deref() == pool_name
}

impl Pool {
    /// Returns the provider to forget, if the pool exceeds its limits. The newest one always stays.
    fn over_limits(&self) -> Option<Arc<str>> {
        let over_limit = self.by_list.len() > MAX_PROVIDERS || self.bytes > MAX_BYTES;
        let oldest = self.by_list.values().next().filter(|_| over_limit && self.by_list.len() > 1);
        oldest.map(Arc::clone)
    }
}

impl Known {
    fn count(&mut self) {
        self.bytes = self.tools.iter().map(|(name, entry)| name.len() + entry.bytes()).sum();
    }

    /// Forgets unlisted tools beyond the limit. Returns `true` if there were any.
    fn drop_unlisted(&mut self) -> bool {
        let listed = self.listed;
        let mut unlisted: Vec<_> =
            self.tools.iter().filter(|(_, entry)| entry.listed != listed).collect();
        if unlisted.iter().map(|(_, entry)| entry.bytes()).sum::<usize>() <= MAX_UNLISTED_BYTES {
            return false;
        }
        unlisted.sort_unstable_by_key(|(_, entry)| std::cmp::Reverse(entry.listed));
        let mut bytes = 0;
        let over_limit = unlisted.into_iter().filter(|(_, entry)| {
            bytes += entry.bytes();
            bytes > MAX_UNLISTED_BYTES
        });
        for name in over_limit.map(|(name, _)| Arc::clone(name)).collect::<Vec<_>>() {
            self.tools.remove(&name);
        }
        self.incomplete = true;
        true
    }

    /// Lists tools that the provider has described before, still has below a prefix, and does not
    /// describe any more. They are held with the accepted definition. Otherwise a provider could
    /// remove a schema by omitting the tool.
    fn keep_undescribed(
        &mut self,
        id: &ProviderId,
        catalog: &mut Catalog,
        revision: &mut i64,
        report: &mut Report,
    ) -> bool {
        if catalog.prefixes.is_empty() {
            return false;
        }
        let open: HashSet<&str> = catalog.prefixes.iter().map(String::as_str).collect();
        let is_covered = |name: &str| prefixes(name).any(|prefix| open.contains(prefix));
        let mut changed = false;
        let mut held = Vec::new();
        for (name, entry) in &mut self.tools {
            let was_described =
                *entry.definition != *UNDESCRIBED && !is_open_definition(&entry.definition);
            if entry.listed == self.listed || !is_covered(name) || !was_described {
                continue;
            }
            let known = entry.finding.as_ref().and_then(|finding| finding.proposed.as_ref());
            if known.is_none_or(|proposed| *proposed.definition != *UNDESCRIBED) {
                report.add(name, &entry.definition, UNDESCRIBED);
                report.held = true;
                entry.finding.get_or_insert_default().revision = next(revision);
                changed = true;
            }
            let proposed = Proposed { definition: UNDESCRIBED.into(), tool: None };
            entry.finding.get_or_insert_default().proposed = Some(proposed);
            held.push(Tool::undescribed(name, id).defined_as(&entry.definition));
        }
        catalog.tools.extend(held);
        changed
    }

    fn saved(&self) -> SavedDefinitions {
        let tools = self.tools.iter().map(|(name, entry)| SavedTool {
            name: Arc::clone(name),
            definition: Arc::clone(&entry.definition),
            invisible: entry.invisible,
            finding: entry.finding.as_ref().map(|finding| SavedFinding {
                revision: finding.revision,
                before: finding.before.clone(),
                proposed: finding
                    .proposed
                    .as_ref()
                    .map(|proposed| Arc::clone(&proposed.definition)),
                invisible: finding.invisible,
            }),
        });
        SavedDefinitions {
            pool: self.pool.clone(),
            incomplete: self.incomplete,
            tools: tools.collect(),
        }
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        let other = self.finding.as_ref().map_or(0, |finding| {
            let proposed = finding.proposed.as_ref().map_or(0, |proposed| {
                proposed.definition.len() + proposed.tool.as_ref().map_or(0, |tool| tool.weight())
            });
            proposed + finding.before.as_ref().map_or(0, |before| before.len())
        });
        128 + self.definition.len() + other
    }

    /// Compares a tool with its remembered definition. Returns `true` if there is something to
    /// save.
    fn compare(
        &mut self,
        tool: &mut Tool,
        definition: Arc<str>,
        on_change: OnChange,
        revision: &mut i64,
        report: &mut Report,
    ) -> bool {
        if definition == self.definition {
            // The provider reverted the change.
            let withdrawn =
                self.finding.as_mut().is_some_and(|finding| finding.proposed.take().is_some());
            self.finding.take_if(|finding| finding.is_empty());
            return withdrawn;
        }
        let known = self.finding.as_ref().and_then(|finding| finding.proposed.as_ref());
        let is_new = known.is_none_or(|proposed| proposed.definition != definition);
        if is_new || on_change == OnChange::Allow {
            report.add(&tool.name, &self.definition, &definition);
            report.held |= on_change == OnChange::Hold;
            self.finding.get_or_insert_default().revision = next(revision);
        }
        let finding = self.finding.get_or_insert_default();
        match on_change {
            OnChange::Allow => {
                let before = std::mem::replace(&mut self.definition, definition);
                finding.proposed = None;
                finding.before.get_or_insert(before);
                finding.before.take_if(|before| **before == *self.definition);
                self.finding.take_if(|finding| finding.is_empty());
            }
            OnChange::Hold => {
                let accepted = tool.defined_as(&self.definition);
                let proposed = Box::new(std::mem::replace(tool, accepted));
                finding.proposed = Some(Proposed { definition, tool: Some(proposed) });
            }
        }
        is_new || on_change == OnChange::Allow
    }
}

impl Finding {
    fn is_empty(&self) -> bool {
        self.before.is_none() && self.proposed.is_none() && self.invisible == 0
    }
}

fn provider(id: &ProviderId) -> Arc<str> {
    format!("{}/{}", id.kind, id.id).into()
}

/// Returns the pool that limits a grant's definitions: one for each grant. Installed providers are
/// not bounded.
fn pool(grant: &Grant) -> Option<Arc<str>> {
    (grant.rank != Rank::Installed).then(|| format!("{:?} {}", grant.rank, grant.id).into())
}

fn key(id: &ProviderId, grant: &Grant) -> Arc<str> {
    match pool(grant) {
        Some(pool) => format!("{}/{}{SEPARATOR}{pool}", id.kind, id.id).into(),
        None => provider(id),
    }
}

/// Returns the next revision. Revisions are timestamps, so they increase across restarts. No two
/// are equal.
fn next(newest: &mut i64) -> i64 {
    *newest = clock::now_ms().max(*newest + 1);
    *newest
}
