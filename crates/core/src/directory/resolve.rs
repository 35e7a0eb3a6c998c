//! Resolves a name to a provider.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sa_text::excerpt;

use super::index::{Claim, Claims, Held, Index, Kind, Member, OfflineReason, Presence, ScopeIndex};
use crate::limits::Slots;
use crate::naming;
use crate::outcome::{CallError, CallErrorKind};
use crate::principal::{Scope, View};
use crate::provider::{Provider, ProviderId};
use crate::tool::Tool;

/// The maximum length of a name in a message.
const MAX_NAME: usize = 128;

/// The destination of a call.
#[derive(Clone)]
pub struct Route {
    pub id: ProviderId,
    /// The exposed name; absent for a tool below an open prefix.
    pub exposed: Option<Arc<str>>,
    /// All names that lead to the tool, including the called one. Only filled for a principal that
    /// may use some tools only.
    pub leading: Vec<Arc<str>>,
    pub tool: Arc<Tool>,
    pub provider: Arc<dyn Provider>,
    /// The scope of the tool's provider.
    pub scope: Scope,
    pub(crate) slots: Arc<Slots>,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("id", &self.id)
            .field("tool", &self.tool.name)
            .finish_non_exhaustive()
    }
}

/// The reason why a name cannot be resolved.
#[expect(clippy::large_enum_variant, reason = "it is returned beside a route, which is as large")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unresolved {
    Unknown {
        similar: Vec<String>,
        /// Whether it is a bare name, and no host can run it.
        hostless: bool,
    },
    Offline {
        absence: Absence,
        /// The scope of the tool's provider.
        scope: Scope,
        /// The tool's name in lists, or else its own.
        listed_name: Arc<str>,
        /// As in [`Route`].
        leading: Vec<Arc<str>>,
        /// Every name that the tool has or claims.
        all_names: Vec<String>,
        /// Identifies the tool independently of its names.
        address: String,
        /// The tool's preferred name in lists.
        preferred_name: String,
    },
}

/// A provider that is offline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    pub provider: ProviderId,
    pub gone_for: Duration,
    /// Whether it announced that it stops.
    pub stopped: bool,
    /// An online provider that claims the same name.
    pub rival: Option<Rival>,
}

/// A provider that offers a tool with a name that another one holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rival {
    pub provider: ProviderId,
    /// The current name of its tool; `None` if the holder prevents calls of the tool.
    pub name: Option<Arc<str>>,
}

impl Unresolved {
    pub fn into_error(self, name: &str) -> CallError {
        match self {
            Self::Unknown { similar, hostless } => {
                let error = CallError::new(
                    CallErrorKind::NotFound,
                    format!("there is no tool \"{}\"", excerpt(MAX_NAME, name)),
                );
                if !similar.is_empty() {
                    error.hint(did_you_mean(&similar))
                } else if hostless {
                    error.hint(
                        "run `switchboard tools` to list the tools   (a bare name such as Bash runs on the primary \
                         execution host, and none is connected; start one with: `switchboard node --id NAME`)",
                    )
                } else {
                    error.hint("run `switchboard tools` to list the tools")
                }
            }
            Self::Offline { absence, .. } => absence.into_error(name),
        }
    }
}

/// The wait timeout is divided by this for a provider that announced that it stops. It may restart,
/// but most likely a person stopped it.
const STOPPED_DIVISOR: u32 = 4;

impl Absence {
    /// Returns the remaining time to wait for the provider, out of a total timeout.
    pub(crate) fn timeout(&self, timeout: Duration) -> Duration {
        let timeout = if self.stopped { timeout / STOPPED_DIVISOR } else { timeout };
        timeout.saturating_sub(self.gone_for)
    }

    /// Returns this absence after more time has passed.
    pub(crate) fn after(&self, time: Duration) -> Self {
        Self { gone_for: self.gone_for + time, ..self.clone() }
    }

    /// Returns the error for a call of a tool with this name.
    pub(crate) fn into_error(self, name: &str) -> CallError {
        let provider = &self.provider;
        let again = format!("start the {} again, then retry", provider.kind);
        let hint = match &self.rival {
            None => again,
            Some(Rival { provider: other, name: Some(name) }) => {
                format!("{again}; or call {name}, which is the same tool on the {other}")
            }
            Some(Rival { provider: other, name: None }) => format!(
                "{again}; the {other} also offers it, but with another token: it receives these calls when the \
                 {provider} is forgotten or its token is revoked"
            ),
        };
        CallError::undelivered(format!(
            "the tool \"{}\" exists, but its {provider} {} {} s ago",
            excerpt(MAX_NAME, name),
            if self.stopped { "was stopped" } else { "disconnected" },
            self.gone_for.as_secs()
        ))
        .hint(hint)
    }
}

pub(crate) fn did_you_mean(similar: &[String]) -> String {
    format!("did you mean {}?", similar.join(", "))
}

pub(super) fn resolve(index: &Index, name: &str, view: &View) -> Result<Route, Unresolved> {
    if !naming::is_exposable(name)
        && let Some(exposed) = index.written(&index.scopes_of(view), name)
    {
        return resolve(index, exposed, view);
    }
    let held = index.held_among(view.scopes().filter_map(|scope| index.scopes.get(scope)), name);
    let found = held
        .and_then(|held| by_name(index, name, view, held))
        .or_else(|| by_provider(index, name, view));
    let found = found.or_else(|| {
        let dotted = index.dotted(&index.scopes_of(view), name)?;
        Some(resolve(index, &dotted, view))
    });
    found.unwrap_or_else(|| {
        let hostless = naming::is_of_host(name) && !index.has_host();
        Err(Unresolved::Unknown { similar: similar(index, name, view), hostless })
    })
}

/// Resolves a held name to a tool of the oldest provider that is online and may serve the name.
fn by_name(
    index: &Index,
    name: &str,
    view: &View,
    held: Held<'_>,
) -> Option<Result<Route, Unresolved>> {
    let claim = serving(index, name, &held)?;
    let claim = described_in_lowercase(held.scope, name, claim).unwrap_or(claim);
    let offer = claim.offer.as_ref();
    let exposed = match offer {
        // The common case needs no further lookup.
        Some(offer) if *offer.plain == *name && std::ptr::eq(claim, held.by) => Some(&offer.plain),
        Some(offer) => index.listed_as(&index.scopes_of(view), &claim.owner, offer),
        None => None,
    };
    let found = if let Some(offer) = offer {
        let limited = view.principal.is_limited();
        let names = || index.leading_names(&index.scopes_of(view), &claim.owner, offer);
        let leading = if limited { names() } else { Vec::new() };
        route(index, name, view, &claim.owner.id, exposed, leading, Arc::clone(&offer.tool))
    } else {
        // It may serve an exposed name by the tool's own name.
        let own = held.by.offer.as_ref().map_or(name, |offer| &*offer.tool.name);
        undescribed(index, name, own, view, &claim.owner.id)
    };
    Some(found?.map_err(|unresolved| with_rival(index, unresolved, view, claim)))
}

/// Resolves the name `called` to the tool `name` at or below an open prefix of this provider.
fn undescribed(
    index: &Index,
    called: &str,
    name: &str,
    view: &View,
    provider: &ProviderId,
) -> Option<Result<Route, Unresolved>> {
    // No tool has such a name. A node that trims names would confuse it with another tool.
    if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return None;
    }
    let grant = &index.member(provider)?.owner.grant;
    let held = index.definitions.is_held(provider, grant, name);
    let tool = Arc::new(Tool { held, ..Tool::undescribed(name, provider) });
    let mut leading = Vec::new();
    if view.principal.is_limited() {
        let (scopes, underscored) = (index.scopes_of(view), naming::underscored(name));
        let leads = match index.held_among(scopes.iter().copied(), &underscored) {
            // This provider may stand in for one that describes the tool.
            Some(held) => {
                held.by.offer.as_ref().is_some_and(|offer| *offer.tool.name == *name)
                    && serving(index, &underscored, &held)
                        .is_some_and(|claim| claim.owner.id == *provider)
            }
            None => index.dotted(&scopes, &underscored).is_some_and(|dotted| dotted == name),
        };
        leading.push(name.into());
        leading.extend(leads.then(|| underscored.into()));
    }
    route(index, called, view, provider, None, leading, tool)
}

/// Finds the tool with a name that continues that of an open tool, which was called by the name
/// `called`. Also returns the name of the found tool.
pub(super) fn below(
    index: &Index,
    open: &Route,
    called: &str,
    rest: &str,
    view: &View,
) -> (String, Result<Route, Unresolved>) {
    let name = format!("{}.{rest}", open.tool.name);
    if name.len() > naming::MAX_DOTTED {
        return (name, Err(Unresolved::Unknown { similar: Vec::new(), hostless: false }));
    }
    // A suffixed name is for one provider. Names below it belong to that provider if its grant
    // holds them.
    let of_one = open.tool.exposed_names(&open.id).1 == called && {
        let held = index.held_among(index.scopes_of(view), &name);
        let owner = index.member(&open.id).map(|member| &member.owner);
        held.zip(owner).is_some_and(|(held, owner)| held.by.owner.grant == owner.grant)
    };
    let found = if of_one { undescribed(index, &name, &name, view, &open.id) } else { None };
    let found = found.unwrap_or_else(|| resolve(index, &name, view));
    (name, found)
}

/// Returns the claim that serves a held name.
fn serving<'i>(index: &'i Index, name: &str, held: &Held<'i>) -> Option<&'i Claim> {
    let Held { scope, claims, by } = *held;
    let online = |claim: &&Claim| index.member(&claim.owner.id).is_some_and(Member::is_online);
    let same_rank = |claim: &&Claim| claim.rank() == by.rank();
    match by.kind {
        Kind::Suffixed => Some(by),
        // If several tools have the same short name, it is ambiguous.
        Kind::Short => {
            let mut others =
                claims.iter().filter(same_rank).filter(|claim| claim.kind == Kind::Short);
            others.all(|claim| claim.is_of(&by.owner)).then_some(by)
        }
        // Every host can replace another one of its rank.
        Kind::PreferredBare | Kind::Bare => {
            let mut hosts = claims.iter().filter(same_rank).filter(|claim| claim.kind.is_bare());
            hosts.find(online).or(Some(by))
        }
        Kind::Named | Kind::Open if online(&by) => Some(by),
        Kind::Named | Kind::Open => {
            let is_same = |claim: &&Claim| match (&by.offer, &claim.offer) {
                _ if name.contains('.') => true,
                (Some(one), Some(other)) => one.is_like(other),
                (one, other) => one.is_none() && other.is_none(),
            };
            let mut same =
                claims.of_grant(&by.owner).filter(|claim| claim.kind.is_named()).filter(is_same);
            same.find(online).or_else(|| under_own_name(index, scope, name, by)).or(Some(by))
        }
    }
}

/// Returns a provider of the same grant that accepts calls of a dotted tool by the tool's own name,
/// without describing it. It stands in for the spelling of that name only: rules for another name
/// would not apply to a tool without a description.
fn under_own_name<'i>(
    index: &'i Index,
    scope: &'i ScopeIndex,
    name: &str,
    by: &Claim,
) -> Option<&'i Claim> {
    let own = by
        .offer
        .as_ref()
        .map(|offer| &offer.tool.name)
        .filter(|own| own.contains('.') && naming::underscored(own) == name)?;
    let held = index.held(scope, own)?;
    let claim = serving(index, own, &held)?;
    let online = index.member(&claim.owner.id)?.is_online();
    (online && claim.offer.is_none() && claim.owner.grant == by.owner.grant).then_some(claim)
}

/// Resolves a name by the provider id that it begins with, if the tools of that provider are not
/// known yet.
fn by_provider(index: &Index, name: &str, view: &View) -> Option<Result<Route, Unresolved>> {
    naming::spaces(name).find_map(|space| {
        let owner = index.id_owner(space)?;
        index.member(&owner.id).filter(|member| member.unlisted)?;
        let tool = Tool { short: Some(name[space.len() + 2..].into()), ..Tool::named(name) };
        route(index, name, view, &owner.id, None, Vec::new(), Arc::new(tool))
    })
}

/// Returns the described tool of the same provider with this name in lowercase. Nodes ignore case,
/// so the description must apply to each spelling.
fn described_in_lowercase<'i>(
    scope: &'i ScopeIndex,
    name: &str,
    found: &Claim,
) -> Option<&'i Claim> {
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
            let absence = Absence {
                provider,
                gone_for,
                stopped: *why == OfflineReason::Stopped,
                rival: None,
            };
            let listed_name = Arc::clone(exposed.unwrap_or(&tool.name));
            let preferred_name = tool.preferred_name.clone();
            Err(Unresolved::Offline {
                absence,
                scope,
                listed_name,
                leading,
                all_names,
                address,
                preferred_name,
            })
        }
    })
}

/// Adds the provider that offers a tool of the same name, if the holder of the name is offline.
fn with_rival(index: &Index, unresolved: Unresolved, view: &View, claim: &Claim) -> Unresolved {
    // A principal that may use some tools only does not learn the names of others.
    let (Unresolved::Offline { absence, .. }, Some(offer), false) =
        (&unresolved, &claim.offer, view.principal.is_limited())
    else {
        return unresolved;
    };
    let scopes = index.scopes_of(view);
    let claims = scopes.iter().filter_map(|scope| Some((*scope, scope.names.get(&offer.plain)?)));
    let mut others =
        claims.flat_map(|(scope, claims)| claims.iter().map(move |other| (scope, other)));
    let rival = others.find_map(|(scope, other)| {
        let other_offer =
            other.offer.as_ref().filter(|other_offer| other_offer.plain == offer.plain)?;
        index
            .member(&other.owner.id)
            .filter(|member| member.is_online() && !other.is_of(&claim.owner))?;
        let hidden = index.blocked_by(scope, &offer.plain, other).is_some();
        Some(Rival {
            provider: other.owner.id.clone(),
            name: (!hidden).then(|| Arc::clone(&other_offer.suffixed)),
        })
    });
    let absence = Absence { rival, ..absence.clone() };
    match unresolved {
        Unresolved::Offline {
            scope,
            listed_name,
            leading,
            all_names,
            address,
            preferred_name,
            ..
        } => Unresolved::Offline {
            absence,
            scope,
            listed_name,
            leading,
            all_names,
            address,
            preferred_name,
        },
        unknown @ Unresolved::Unknown { .. } => unknown,
    }
}

/// Returns a few exposed names as suggestions for this one.
pub(super) fn similar(index: &Index, name: &str, view: &View) -> Vec<String> {
    // A principal that may use some tools only does not learn the names of others.
    if view.principal.is_limited() {
        return Vec::new();
    }
    let scopes = view.scopes().filter_map(|scope| index.scopes.get(scope));
    // The search is bounded, so that a wrong name does not cost much more than a right one.
    let plain = |(known, claims): &(&Arc<str>, &Claims)| {
        let offer = claims
            .iter()
            .next()
            .filter(|claim| claim.kind.is_named())
            .and_then(|claim| claim.offer.as_ref());
        offer.is_some_and(|offer| offer.plain == **known)
    };
    let known: Vec<_> = scopes
        .flat_map(|scope| &scope.names)
        .filter(plain)
        .map(|(name, _)| name)
        .take(2_000)
        .collect();
    let similar = sa_text::similar(name, known.iter().map(|known| &***known));
    let scopes = index.scopes_of(view);
    let can_be_called = |similar: &&str| {
        let held = index.held_among(scopes.iter().copied(), similar)?;
        let listed = index.listed_as(&scopes, &held.by.owner, held.by.offer.as_ref()?)?;
        (**listed == **similar).then_some(())
    };
    similar
        .into_iter()
        .filter(|similar| can_be_called(similar).is_some())
        .map(str::to_owned)
        .collect()
}
