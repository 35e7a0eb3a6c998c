//! The principal of a request, and its view of the tools.

use std::fmt;
use std::sync::Arc;

use sa_limits::budget::Holder;

use crate::naming;
use crate::policy::{Pattern, matches_any};

/// The identity and the rights of a client, as given by its token.
///
/// A token that names no tool, channel or model is unrestricted: it has all rights of its role. A
/// token that names any of them is narrowed: it has these, and no others of the three kinds.
#[derive(Debug, Clone)]
pub struct Principal {
    /// The token's id: unique, and never the token itself.
    pub id: Arc<str>,
    /// The token's name, for people.
    pub name: Arc<str>,
    pub role: Role,
    /// The tools that the token names.
    pub tools: Vec<Pattern>,
    /// The channels that the token names.
    pub channels: Vec<Pattern>,
    /// The models that the token names.
    pub models: Vec<Pattern>,
}

impl Principal {
    /// Creates a principal with a token that is not narrowed.
    pub fn new(id: impl Into<Arc<str>>, name: impl Into<Arc<str>>, role: Role) -> Self {
        let (tools, channels, models) = (Vec::new(), Vec::new(), Vec::new());
        Self { id: id.into(), name: name.into(), role, tools, channels, models }
    }

    /// Returns the same principal without the restrictions of its token.
    #[must_use]
    pub fn unnarrowed(&self, role: Role) -> Self {
        Self::new(Arc::clone(&self.id), Arc::clone(&self.name), role)
    }

    /// Returns the budget holder for this principal.
    pub fn holder(&self) -> Holder {
        self.holder_with(&self.id)
    }

    /// Does the same for budgets that use the token's name instead of its id.
    pub fn holder_by_name(&self) -> Holder {
        self.holder_with(&self.name)
    }

    fn holder_with(&self, id: &Arc<str>) -> Holder {
        match self.role {
            Role::Operator => Holder::operator(Arc::clone(id)),
            _ => Holder::named(Arc::clone(id)),
        }
    }

    fn is_narrowed(&self) -> bool {
        [&self.tools, &self.channels, &self.models].into_iter().any(|patterns| !patterns.is_empty())
    }

    /// Returns whether its token is for some tools only. This is always so for a participant. Its
    /// token is created for channels, and may be public on a web page.
    pub fn is_limited(&self) -> bool {
        self.is_narrowed() || self.role == Role::Participant
    }

    /// Returns whether its token includes the tool that these names lead to.
    pub fn includes(&self, names: &[impl AsRef<str>]) -> bool {
        !self.is_limited() || matches_any(&self.tools, names)
    }

    /// Returns whether its token can include any tool of a provider that everyone can see.
    pub fn may_include_from(&self, provider: &str) -> bool {
        let begins = |id: &str| {
            let prefix = format!("{id}__");
            self.tools.iter().any(|pattern| pattern.may_begin_with(&prefix))
        };
        // The id may be written in both spellings.
        !self.is_limited()
            || begins(provider)
            || naming::space(provider).is_some_and(|space| begins(&space))
    }

    /// Returns whether it may use this channel at all. An operator may use every channel, because
    /// it could create a token for it.
    pub fn may_enter(&self, channel: &str) -> bool {
        match self.role {
            Role::Node | Role::Monitor => false,
            Role::Operator => true,
            Role::Agent | Role::Caller | Role::Participant | Role::User => {
                !self.is_narrowed() || matches_any(&self.channels, &[channel])
            }
        }
    }

    /// Returns whether it may request an answer of a model, which costs money. A participant may
    /// only if its token names the model.
    pub fn may_ask(&self, model: &str) -> bool {
        match self.role {
            Role::Node | Role::Monitor => false,
            Role::Operator => true,
            Role::Agent | Role::Caller | Role::Participant | Role::User => {
                !self.is_limited() || matches_any(&self.models, &[model])
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    Operator,
    Agent,
    Caller,
    Node,
    Participant,
    User,
    /// A monitoring system that reads the gateway's metrics, and does nothing else.
    Monitor,
}

impl Role {
    pub const ALL: [Self; 7] = [
        Self::Operator,
        Self::Agent,
        Self::Caller,
        Self::Node,
        Self::Participant,
        Self::User,
        Self::Monitor,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Agent => "agent",
            Self::Caller => "caller",
            Self::Node => "node",
            Self::Participant => "participant",
            Self::User => "user",
            Self::Monitor => "monitor",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// A node offers tools and does not call them. A monitor does neither.
    pub fn may_call_tools(self) -> bool {
        !matches!(self, Self::Node | Self::Monitor)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The visibility of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    Everyone,
    Session(Arc<str>),
    Channel(Arc<str>),
    User(Arc<str>),
}

/// The visible scopes of one request: its principal, and its scopes besides [`Scope::Everyone`].
/// These contain at most one session and at most one user, and any number of channels.
#[derive(Debug, Clone)]
pub struct View {
    pub principal: Arc<Principal>,
    pub scopes: Vec<Scope>,
}

impl View {
    pub fn of(principal: Arc<Principal>) -> Self {
        Self { principal, scopes: Vec::new() }
    }

    /// Yields the narrow scopes first, then the shared one.
    pub fn scopes(&self) -> impl Iterator<Item = &Scope> {
        self.scopes.iter().chain(std::iter::once(&Scope::Everyone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the use of the tool `a`, the channel `a` and the model `a` with a token that names
    /// these.
    #[track_caller]
    fn check(
        role: Role,
        (tools, channels, models): (&[&str], &[&str], &[&str]),
        expected: (bool, bool, bool),
    ) {
        let patterns =
            |texts: &[&str]| texts.iter().map(|text| Pattern::new(text)).collect::<Vec<_>>();
        let (tools, channels, models) = (patterns(tools), patterns(channels), patterns(models));
        let tested = Principal { tools, channels, models, ..Principal::new("t", "test", role) };
        assert_eq!(
            (tested.includes(&["a"]), tested.may_enter("a"), tested.may_ask("a")),
            expected,
            "{tested:?}"
        );
    }

    #[test]
    fn a_token_with_patterns_includes_only_their_matches() {
        for role in [Role::Agent, Role::Caller, Role::User] {
            check(role, (&[], &[], &[]), (true, true, true));
            check(role, (&["a"], &[], &[]), (true, false, false));
            check(role, (&["b"], &[], &[]), (false, false, false));
            check(role, (&["*"], &[], &[]), (true, false, false));
            check(role, (&[], &["a*"], &[]), (false, true, false));
            check(role, (&[], &[], &["*"]), (false, false, true));
            check(role, (&["b"], &["a"], &["b", "a"]), (false, true, true));
        }
    }

    #[test]
    fn a_participant_has_channels_by_itself_and_nothing_else() {
        check(Role::Participant, (&[], &[], &[]), (false, true, false));
        check(Role::Participant, (&["*"], &[], &[]), (true, false, false));
        check(Role::Participant, (&["a"], &["a"], &["a"]), (true, true, true));
        check(Role::Participant, (&[], &["b"], &[]), (false, false, false));
    }

    #[test]
    fn an_operator_manages_everything() {
        check(Role::Operator, (&[], &[], &[]), (true, true, true));
        check(Role::Operator, (&["b"], &[], &[]), (false, true, true));
        check(Role::Node, (&[], &[], &[]), (true, false, false));
    }
}
