//! From a name to the provider that answers to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::index::{Claim, Claims, Index, Leaving, Listed, Member, Presence, ScopeIndex};
use crate::limits::Slots;
use crate::outcome::{CallError, CallErrorKind};
use crate::principal::{Scope, View};
use crate::provider::{GrantId, Provider, ProviderId};
use crate::tool::Tool;

/// Where a call goes.
#[derive(Clone)]
pub struct Route {
    pub id: ProviderId,
    /// The exposed name; absent for a tool below an open prefix.
    pub exposed: Option<Arc<str>>,
    /// Another exposed name that leads here: one that the tool went by, or that of the tool it stands in for.
    pub also: Option<Arc<str>>,
    pub tool: Arc<Tool>,
    pub provider: Arc<dyn Provider>,
    /// Where the tool is.
    pub scope: Scope,
    pub(crate) slots: Arc<Slots>,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("id", &self.id).field("tool", &self.tool.name).finish_non_exhaustive()
    }
}

/// Why a name leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unresolved {
    Unknown {
        similar: Vec<String>,
        /// Whether it is a bare name, and there is no host on which such names run.
        hostless: bool,
        /// Who takes calls that the name may have been made from, without saying which: the provider, and its open prefix.
        open: Option<(ProviderId, String)>,
    },
    Offline {
        absence: Absence,
        /// Where the tool is.
        scope: Scope,
        /// The names that lead to the tool.
        names: Vec<Arc<str>>,
        /// Those that it may have besides.
        aliases: Vec<String>,
        /// Which tool it is, whatever it goes by.
        address: String,
        /// The name that it wants to have in lists.
        wish: String,
    },
}

/// A provider that is away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    pub provider: ProviderId,
    pub gone_for: Duration,
    /// Whether it said that it leaves.
    pub stopped: bool,
    /// Who else would go by the name of the tool, and is here.
    pub rival: Option<Rival>,
}

/// A provider that offers a tool whose name another one has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rival {
    pub provider: ProviderId,
    /// What its tool is called by meanwhile; `None` when the other one keeps it from being called at all.
    pub name: Option<Arc<str>>,
}

impl Unresolved {
    pub fn into_error(self, name: &str) -> CallError {
        match self {
            Self::Unknown { similar, hostless, open } => {
                let error = CallError::new(CallErrorKind::NotFound, format!("there is no tool \"{}\"", excerpt(name)));
                if !similar.is_empty() {
                    error.hint(format!("did you mean {}?", similar.join(", ")))
                } else if let Some((provider, prefix)) = open {
                    error.hint(format!(
                        "the {provider} does not say which tools it has; it takes {prefix} and what is below it, by dotted \
                         names: call {prefix} or {prefix}.NAME"
                    ))
                } else if hostless {
                    error.hint(
                        "list the tools with: switchboard tools   (a bare name such as Bash runs on the primary \
                         execution host, and none is connected; start one with: switchboard node --id NAME)",
                    )
                } else {
                    error.hint("list the tools with: switchboard tools")
                }
            }
            Self::Offline { absence, .. } => absence.into_error(name),
        }
    }
}

/// One that said goodbye is waited for this part of the time that one is waited for that was lost: it may be restarted, but
/// most likely somebody stopped it.
const FAREWELL: u32 = 4;

impl Absence {
    /// How much longer it is waited for, of so much in all.
    pub(crate) fn patience(&self, patience: Duration) -> Duration {
        let patience = if self.stopped { patience / FAREWELL } else { patience };
        patience.saturating_sub(self.gone_for)
    }

    /// The same some time later.
    pub(crate) fn after(&self, time: Duration) -> Self {
        Self { gone_for: self.gone_for + time, ..self.clone() }
    }

    /// Why a tool of this name cannot be called.
    pub(crate) fn into_error(self, name: &str) -> CallError {
        let provider = &self.provider;
        let again = format!("start the {} again, then retry", provider.kind);
        let hint = match &self.rival {
            None => again,
            Some(Rival { provider: other, name: Some(name) }) => {
                format!("{again}; or call {name}: the {other} has it, and would go by the same name")
            }
            Some(Rival { provider: other, name: None }) => format!(
                "{again}; the {other} offers it, too, but with another token: it gets these calls when the {provider} is \
                 forgotten, or has its token revoked"
            ),
        };
        CallError::undelivered(format!(
            "the tool \"{}\" exists, but its {provider} {} {} s ago",
            excerpt(name),
            if self.stopped { "was stopped" } else { "went away" },
            self.gone_for.as_secs()
        ))
        .hint(hint)
    }
}

fn excerpt(name: &str) -> String {
    name.chars().take(128).collect()
}

pub(super) fn resolve(index: &Index, name: &str, view: &View) -> Result<Route, Unresolved> {
    let scopes = || view.scopes().filter_map(|scope| index.scopes.get(scope));
    // What is listed comes first, in whatever scope: a provider in a narrower one must not take a listed name by
    // having it as its own name.
    let found = scopes()
        .find_map(|scope| by_exposed_name(index, scope, name))
        // Then the narrowest scope in which the name is held decides, though its holder be away: what was meant for
        // a session's own machine must not run on the one that all share.
        .or_else(|| scopes().find_map(|scope| by_own_name(index, scope, name)))
        .or_else(|| by_short_name(index, scopes(), name))
        .or_else(|| by_provider(index, name, view));
    let found = found.map(|found| found.map_err(|unresolved| with_rival(index, unresolved, view)));
    found.unwrap_or_else(|| {
        // The tools of a machine have names such as Bash and WebFetch, and hardly any others do.
        let of_host = name.starts_with(|first: char| first.is_ascii_uppercase());
        let hostless = of_host && !name.contains('.') && !name.contains("__") && !index.has_host();
        Err(Unresolved::Unknown { similar: similar(index, name, view), hostless, open: open(index, name, view) })
    })
}

fn by_exposed_name(index: &Index, scope: &ScopeIndex, name: &str) -> Option<Result<Route, Unresolved>> {
    let now = scope.former.get(name).map_or(name, |now| now);
    let (exposed, listed) = scope.exposed.get_key_value(now)?;
    if blocker_of(index, scope, listed).is_some() {
        return None;
    }
    let member = index.member(&listed.member)?;
    if !member.is_online()
        && let Some(stand_in) = stand_in(index, scope, listed)
    {
        return Some(Ok(Route { also: Some(Arc::clone(exposed)), ..stand_in }));
    }
    Some(route(member, Some(scope), Some(exposed), || Arc::clone(&listed.tool)))
}

/// The same tool of another provider, which its own name leads to while this one is away.
fn stand_in(index: &Index, scope: &ScopeIndex, listed: &Listed) -> Option<Route> {
    let name = &listed.tool.name;
    let found = if name.contains('.') { by_own_name(index, scope, name)?.ok()? } else { return None };
    // A wish can name its provider, and then it means that one alone.
    (found.tool.wish == listed.tool.wish).then_some(found)
}

/// Says who else would go by the name of a tool whose provider is away.
fn with_rival(index: &Index, unresolved: Unresolved, view: &View) -> Unresolved {
    match unresolved {
        // Whoever may use only some tools is not told the names of others.
        Unresolved::Offline { absence, scope, names, aliases, address, wish } if !view.principal.is_limited() => {
            let wishes = names.first().into_iter().flat_map(|exposed| index.wishes(exposed));
            let rival = wishes.filter(|wish| view.scopes().any(|scope| *scope == wish.scope)).find_map(|wish| {
                let (scope, listed) = (index.scopes.get(&wish.scope)?, index.listed(wish)?);
                let here = index.member(&listed.member).filter(|member| member.is_online())?;
                let name = blocker_of(index, scope, listed).is_none().then(|| Arc::clone(&wish.name));
                Some(Rival { provider: here.id.clone(), name })
            });
            Unresolved::Offline { absence: Absence { rival, ..absence }, scope, names, aliases, address, wish }
        }
        other => other,
    }
}

/// The first of the hosts that have a tool of this name.
fn by_bare_name(index: &Index, scope: &ScopeIndex, name: &str) -> Option<Result<Route, Unresolved>> {
    let hosts = scope.bare.get(name)?.iter().filter_map(|claim| Some((index.member(&claim.member)?, claim)));
    let (member, claim) = hosts.min_by_key(|(member, _)| member.host_order())?;
    let (exposed, tool) = claim.tool.as_ref()?;
    Some(route(member, Some(scope), Some(exposed), || Arc::clone(tool)))
}

/// The only tool of this short name. Where there are several, nobody can know which one is meant.
fn by_short_name<'i>(
    index: &'i Index,
    scopes: impl Iterator<Item = &'i ScopeIndex>,
    name: &str,
) -> Option<Result<Route, Unresolved>> {
    let mut claims =
        scopes.flat_map(|scope| scope.short.get(name).into_iter().flatten().map(move |claim| (scope, claim)));
    let ((scope, only), None) = (claims.next()?, claims.next()) else { return None };
    let (exposed, tool) = only.tool.as_ref()?;
    Some(route(index.member(&only.member)?, Some(scope), Some(exposed), || Arc::clone(tool)))
}

/// The provider that the name begins with, if nobody knows yet what that one has.
fn by_provider(index: &Index, name: &str, view: &View) -> Option<Result<Route, Unresolved>> {
    let (id, short) = name.split_once("__")?;
    let member = view.scopes().find_map(|scope| index.unlisted(id, scope))?;
    Some(route(member, None, None, || Arc::new(Tool { short: Some(short.into()), ..Tool::named(name) })))
}

/// The longest claim that covers the name and is not blocked; of equal ones the oldest that is online.
fn by_own_name(index: &Index, scope: &ScopeIndex, name: &str) -> Option<Result<Route, Unresolved>> {
    let dotted = name.contains('.');
    if !dotted && let Some(found) = by_bare_name(index, scope, name) {
        return Some(found);
    }
    for covering in prefixes(name) {
        // The oldest first, and a described tool before the same provider's open prefix of the same name.
        let candidates = || {
            let claims = scope.claims.get(covering).into_iter().flat_map(Claims::iter);
            claims
                .filter(|claim| claim.tool.is_none() || covering.len() == name.len())
                .filter_map(|claim| Some((index.member(&claim.member)?, claim)))
                // A host that is not to be called by bare names is not to be called by that of a prefix either.
                .filter(|(member, _)| dotted || member.bare_names)
                .filter(|(member, _)| blocker(index, scope, covering, &member.id).is_none())
        };
        let found = candidates().find(|(member, _)| member.is_online()).or_else(|| candidates().next());
        if let Some((member, claim)) = found {
            let claim = described_in_lowercase(scope, name, claim).unwrap_or(claim);
            let exposed = claim.tool.as_ref().map(|(exposed, _)| exposed);
            let undescribed = || Arc::new(Tool::undescribed(name, &member.id));
            let tool = || claim.tool.as_ref().map_or_else(undescribed, |(_, tool)| Arc::clone(tool));
            return Some(route(member, Some(scope), exposed, tool));
        }
    }
    None
}

/// What the same provider describes under this name, written in lowercase. Nodes take capitals for the same name, and what is
/// known of the tool must count for whoever writes it with them.
fn described_in_lowercase<'i>(scope: &'i ScopeIndex, name: &str, found: &Claim) -> Option<&'i Claim> {
    if found.tool.is_some() || !name.contains(char::is_uppercase) {
        return None;
    }
    let mut claims = scope.claims.get(&name.to_lowercase())?.iter();
    claims.find(|claim| claim.member == found.member && claim.tool.is_some())
}

fn route(
    member: &Member,
    scope: Option<&ScopeIndex>,
    exposed: Option<&Arc<str>>,
    tool: impl FnOnce() -> Arc<Tool>,
) -> Result<Route, Unresolved> {
    // Hardly any scope has former names, and calls elsewhere are spared the look.
    let also =
        scope.filter(|scope| !scope.former.is_empty()).and_then(|scope| scope.exposed.get(exposed?)?.former.clone());
    match &member.presence {
        Presence::Online { provider, slots, .. } => Ok(Route {
            id: member.id.clone(),
            exposed: exposed.cloned(),
            also,
            tool: tool(),
            provider: Arc::clone(provider),
            scope: member.scope.clone(),
            slots: Arc::clone(slots),
        }),
        Presence::Offline { at, why, .. } => {
            let tool = tool();
            let names = exposed.cloned().into_iter().chain([Arc::clone(&tool.name)]).chain(also).collect();
            let (aliases, address) = (tool.aliases(&member.id), tool.address(&member.id));
            let scope = member.scope.clone();
            let (provider, gone_for) = (member.id.clone(), at.elapsed());
            let absence = Absence { provider, gone_for, stopped: *why == Leaving::Stopped, rival: None };
            let wish = tool.wish.clone();
            Err(Unresolved::Offline { absence, scope, names, aliases, address, wish })
        }
    }
}

/// Who keeps a listed tool from being listed. Only a dotted name can be kept: it is the whole address of its tool,
/// while a plain one (`Bash`) is exposed together with its provider's id, where it is in nobody's way.
pub(super) fn blocker_of<'a>(index: &'a Index, scope: &'a ScopeIndex, listed: &Listed) -> Option<&'a ProviderId> {
    let name = &listed.tool.name;
    if name.contains('.') { blocker(index, scope, name, &listed.member) } else { None }
}

/// Who keeps `id` from what it claims at `name`: an older provider with another grant that holds the same name, or a
/// prefix above it.
pub(super) fn blocker<'a>(
    index: &'a Index,
    scope: &'a ScopeIndex,
    name: &str,
    id: &ProviderId,
) -> Option<&'a ProviderId> {
    let member = index.member(id)?;
    // Whom the foremost of the others does not go before, none of them does.
    foremost(index, scope, name, Some(&member.grant)).find(|other| other.goes_before(member)).map(|other| &other.id)
}

/// For a name and every prefix above it, who stands foremost among those that claim it; leaving out those with this grant.
pub(super) fn foremost<'a>(
    index: &'a Index,
    scope: &'a ScopeIndex,
    name: &str,
    but: Option<&GrantId>,
) -> impl Iterator<Item = &'a Member> {
    prefixes(name).filter_map(move |covering| {
        let claim = scope.claims.get(covering)?.foremost(covering.len() < name.len(), but)?;
        index.member(&claim.member)
    })
}

/// `a.b.c`, `a.b`, `a`.
fn prefixes(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.rfind('.').map(|dot| &name[..dot]))
}

/// The longest open prefix that this would be an exposed name at or below, of somebody who is here. Which tool is meant cannot be
/// known: a `_` may have been a dot or not.
fn open(index: &Index, name: &str, view: &View) -> Option<(ProviderId, String)> {
    if view.principal.is_limited() || name.contains('.') {
        return None;
    }
    let scopes = view.scopes().filter_map(|scope| index.scopes.get(scope));
    let known = scopes.flat_map(|scope| scope.claims.iter().map(move |(prefix, claims)| (prefix, scope, claims)));
    // As many as are looked at for similar names.
    let covering = known.take(2_000).filter(|(prefix, ..)| {
        let rest = name.strip_prefix(&*prefix.replace('.', "_"));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    });
    let held = covering.filter_map(|(prefix, scope, claims)| {
        let here = claims.iter().filter(|claim| claim.tool.is_none()).filter_map(|claim| index.member(&claim.member));
        let mut here = here.filter(|member| member.is_online());
        let taken = here.find(|member| blocker(index, scope, prefix, &member.id).is_none())?;
        Some((taken.id.clone(), prefix.clone()))
    });
    held.max_by(|(_, one), (_, other)| one.len().cmp(&other.len()).then_with(|| other.cmp(one)))
}

/// A few exposed names that somebody who typed this may have meant.
fn similar(index: &Index, name: &str, view: &View) -> Vec<String> {
    // Whoever may use only some tools is not told the names of others.
    if view.principal.is_limited() {
        return Vec::new();
    }
    let scopes = view.scopes().filter_map(|scope| index.scopes.get(scope));
    // A wrong name must not cost more than a right one by much, however many tools there are.
    let known = scopes.flat_map(|scope| scope.exposed.iter().map(move |(name, listed)| (name, scope, listed)));
    let known: Vec<_> = known.take(2_000).collect();
    let mut similar = crate::similar(name, known.iter().map(|(name, ..)| &***name));
    // One that gets no calls is of no help.
    let can_be_called = |similar: &str| {
        let found = known.iter().find(|(name, ..)| &***name == similar);
        found.is_some_and(|(_, scope, listed)| blocker_of(index, scope, listed).is_none())
    };
    similar.retain(|name| can_be_called(name));
    similar.into_iter().map(str::to_owned).collect()
}
