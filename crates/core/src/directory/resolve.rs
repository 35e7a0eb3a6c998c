//! From a name to the provider that answers to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::index::{Claim, Claims, Held, Index, Kind, Leaving, Member, Presence, ScopeIndex};
use crate::limits::Slots;
use crate::naming;
use crate::outcome::{CallError, CallErrorKind};
use crate::principal::{Scope, View};
use crate::provider::{Provider, ProviderId};
use crate::tool::Tool;

/// Where a call goes.
#[derive(Clone)]
pub struct Route {
    pub id: ProviderId,
    /// The exposed name; absent for a tool below an open prefix.
    pub exposed: Option<Arc<str>>,
    /// For a principal that may use some tools only: every name that leads to the tool, the one it was called by included.
    pub leading: Vec<Arc<str>>,
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
        /// The name that the tool has in lists, or else its own.
        shown: Arc<str>,
        /// As in [`Route`].
        leading: Vec<Arc<str>>,
        /// Every name that the tool has or claims.
        all_names: Vec<String>,
        /// Which tool it is, whatever it goes by.
        address: String,
        /// The name that it wants to have in lists.
        preferred_name: String,
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
    let held = index.held_among(view.scopes().filter_map(|scope| index.scopes.get(scope)), name);
    let found = held.and_then(|held| by_name(index, name, view, held)).or_else(|| by_provider(index, name, view));
    found.unwrap_or_else(|| {
        // The tools of a machine have names such as Bash and WebFetch, and hardly any others do.
        let of_host = name.starts_with(|first: char| first.is_ascii_uppercase());
        let hostless = of_host && !name.contains('.') && !name.contains("__") && !index.has_host();
        Err(Unresolved::Unknown { similar: similar(index, name, view), hostless, open: open(index, name, view) })
    })
}

/// The tool that a held name leads to, of the oldest provider that is online and may answer to the name.
fn by_name(index: &Index, name: &str, view: &View, held: Held<'_>) -> Option<Result<Route, Unresolved>> {
    let claim = serving(index, name, &held)?;
    let claim = described_in_lowercase(held.scope, name, claim).unwrap_or(claim);
    let offer = claim.offer.as_ref();
    let exposed = match offer {
        // The usual case needs no further look-up.
        Some(offer) if *offer.plain == *name && std::ptr::eq(claim, held.by) => Some(&offer.plain),
        Some(offer) => index.listed_as(&index.scopes_of(view), &claim.owner, offer),
        None => None,
    };
    let mut leading = Vec::new();
    if view.principal.is_limited() {
        leading.extend(offer.map(|offer| index.leading_names(&index.scopes_of(view), &claim.owner, offer)));
    }
    let leading = leading.into_iter().flatten().collect();
    let undescribed = || Arc::new(Tool::undescribed(name, &claim.owner.id));
    let tool = offer.map_or_else(undescribed, |offer| Arc::clone(&offer.tool));
    let found = route(index, name, view, &claim.owner.id, exposed, leading, tool)?;
    Some(found.map_err(|unresolved| with_rival(index, unresolved, view, claim)))
}

/// Which of the claims to a held name answers.
fn serving<'i>(index: &'i Index, name: &str, held: &Held<'i>) -> Option<&'i Claim> {
    let Held { scope, claims, by } = *held;
    let online = |claim: &&Claim| index.member(&claim.owner.id).is_some_and(Member::is_online);
    let same_rank = |claim: &&Claim| claim.rank() == by.rank();
    match by.kind {
        Kind::Suffixed => Some(by),
        // Where several tools have one short name, it is not known which one is meant.
        Kind::Short => {
            let mut others = claims.iter().filter(same_rank).filter(|claim| claim.kind == Kind::Short);
            others.all(|claim| claim.is_of(&by.owner)).then_some(by)
        }
        // Every host may stand in for another one of its rank.
        Kind::PreferredBare | Kind::Bare => {
            let mut hosts = claims.iter().filter(same_rank).filter(|claim| claim.kind.is_bare());
            hosts.find(online).or(Some(by))
        }
        Kind::Named if online(&by) => Some(by),
        Kind::Named => {
            let alike = |claim: &&Claim| match (&by.offer, &claim.offer) {
                _ if name.contains('.') => true,
                (Some(one), Some(other)) => one.is_like(other),
                (one, other) => one.is_none() && other.is_none(),
            };
            let mut same = claims.of_grant(&by.owner).filter(|claim| claim.kind == Kind::Named).filter(alike);
            same.find(online).or_else(|| under_own_name(index, scope, name, by)).or(Some(by))
        }
    }
}

/// A provider of the same grant that takes calls of a dotted tool by the tool's own name, though it does not describe it.
fn under_own_name<'i>(index: &'i Index, scope: &'i ScopeIndex, name: &str, by: &Claim) -> Option<&'i Claim> {
    let own = by.offer.as_ref().map(|offer| &offer.tool.name).filter(|own| own.contains('.') && ***own != *name)?;
    let held = index.held(scope, own)?;
    let claim = serving(index, own, &held)?;
    let online = index.member(&claim.owner.id)?.is_online();
    (online && claim.offer.is_none() && claim.owner.grant == by.owner.grant).then_some(claim)
}

/// The provider that the name begins with, if it is not known yet which tools that one has.
fn by_provider(index: &Index, name: &str, view: &View) -> Option<Result<Route, Unresolved>> {
    naming::spaces(name).find_map(|space| {
        let owner = index.id_owner(space)?;
        index.member(&owner.id).filter(|member| member.unlisted)?;
        let tool = Tool { short: Some(name[space.len() + 2..].into()), ..Tool::named(name) };
        route(index, name, view, &owner.id, None, Vec::new(), Arc::new(tool))
    })
}

/// What the same provider describes under this name, written in lowercase. Nodes ignore case, so what is known of the tool
/// must count for each spelling.
fn described_in_lowercase<'i>(scope: &'i ScopeIndex, name: &str, found: &Claim) -> Option<&'i Claim> {
    if found.offer.is_some() || !name.contains(char::is_uppercase) {
        return None;
    }
    let mut claims = scope.names.get(name.to_lowercase().as_str())?.of_grant(&found.owner);
    claims.find(|claim| claim.is_of(&found.owner) && claim.offer.is_some())
}

fn route(
    index: &Index,
    name: &str,
    view: &View,
    provider: &ProviderId,
    exposed: Option<&Arc<str>>,
    mut leading: Vec<Arc<str>>,
    tool: Arc<Tool>,
) -> Option<Result<Route, Unresolved>> {
    let member = index.member(provider)?;
    let scope = member.owner.scope.clone();
    if view.principal.is_limited() && leading.iter().all(|known| **known != *name) {
        leading.push(name.into());
    }
    Some(match &member.presence {
        Presence::Online { provider, slots, .. } => Ok(Route {
            id: member.owner.id.clone(),
            exposed: exposed.cloned(),
            leading,
            tool,
            provider: Arc::clone(provider),
            scope,
            slots: Arc::clone(slots),
        }),
        Presence::Offline { at, why, .. } => {
            let (all_names, address) = (tool.all_names(provider), tool.address(provider));
            let (provider, gone_for) = (provider.clone(), at.elapsed());
            let absence = Absence { provider, gone_for, stopped: *why == Leaving::Stopped, rival: None };
            let shown = Arc::clone(exposed.unwrap_or(&tool.name));
            let preferred_name = tool.preferred_name.clone();
            Err(Unresolved::Offline { absence, scope, shown, leading, all_names, address, preferred_name })
        }
    })
}

/// Adds the provider that offers a tool of the same name, where the holder of the name is away.
fn with_rival(index: &Index, unresolved: Unresolved, view: &View, claim: &Claim) -> Unresolved {
    // A principal that may use some tools only does not learn the names of others.
    let (Unresolved::Offline { absence, .. }, Some(offer), false) =
        (&unresolved, &claim.offer, view.principal.is_limited())
    else {
        return unresolved;
    };
    let scopes = index.scopes_of(view);
    let claims = scopes.iter().filter_map(|scope| Some((*scope, scope.names.get(&offer.plain)?)));
    let mut others = claims.flat_map(|(scope, claims)| claims.iter().map(move |other| (scope, other)));
    let rival = others.find_map(|(scope, other)| {
        let theirs = other.offer.as_ref().filter(|theirs| theirs.plain == offer.plain)?;
        index.member(&other.owner.id).filter(|member| member.is_online() && !other.is_of(&claim.owner))?;
        let hidden = index.kept_from(scope, &offer.plain, other).is_some();
        Some(Rival { provider: other.owner.id.clone(), name: (!hidden).then(|| Arc::clone(&theirs.suffixed)) })
    });
    let absence = Absence { rival, ..absence.clone() };
    match unresolved {
        Unresolved::Offline { scope, shown, leading, all_names, address, preferred_name, .. } => {
            Unresolved::Offline { absence, scope, shown, leading, all_names, address, preferred_name }
        }
        unknown @ Unresolved::Unknown { .. } => unknown,
    }
}

/// The longest open prefix that this would be an exposed name at or below, of a provider that is online. Which tool is meant
/// cannot be known: a `_` may have been a dot or not.
fn open(index: &Index, name: &str, view: &View) -> Option<(ProviderId, String)> {
    if view.principal.is_limited() || name.contains('.') {
        return None;
    }
    let scopes = view.scopes().filter_map(|scope| index.scopes.get(scope));
    let known = scopes.flat_map(|scope| scope.prefixes.iter().map(move |(prefix, claims)| (prefix, scope, claims)));
    // As many as are compared for similar names.
    let covering = known.take(2_000).filter(|(prefix, ..)| {
        let rest = name.strip_prefix(&*prefix.replace('.', "_"));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    });
    let held = covering.filter_map(|(prefix, scope, claims)| {
        let online = |claim: &&Claim| index.member(&claim.owner.id).is_some_and(Member::is_online);
        let mut online = claims.iter().filter(online);
        let taken = online.find(|claim| index.kept_from(scope, prefix, claim).is_none())?;
        Some((taken.owner.id.clone(), prefix.to_string()))
    });
    held.max_by(|(_, one), (_, other)| one.len().cmp(&other.len()).then_with(|| other.cmp(one)))
}

/// A few exposed names that may have been meant by this one.
fn similar(index: &Index, name: &str, view: &View) -> Vec<String> {
    // A principal that may use some tools only does not learn the names of others.
    if view.principal.is_limited() {
        return Vec::new();
    }
    let scopes = view.scopes().filter_map(|scope| index.scopes.get(scope));
    // A wrong name must not cost much more than a right one, however many tools there are.
    let plain = |(known, claims): &(&Arc<str>, &Claims)| {
        let offer =
            claims.iter().next().filter(|claim| claim.kind == Kind::Named).and_then(|claim| claim.offer.as_ref());
        offer.is_some_and(|offer| offer.plain == **known)
    };
    let known: Vec<_> = scopes.flat_map(|scope| &scope.names).filter(plain).map(|(name, _)| name).take(2_000).collect();
    let similar = crate::similar(name, known.iter().map(|known| &***known));
    let scopes = index.scopes_of(view);
    let can_be_called = |similar: &&str| {
        let held = index.held_among(scopes.iter().copied(), similar)?;
        let listed = index.listed_as(&scopes, &held.by.owner, held.by.offer.as_ref()?)?;
        (**listed == **similar).then_some(())
    };
    similar.into_iter().filter(|similar| can_be_called(similar).is_some()).map(str::to_owned).collect()
}
