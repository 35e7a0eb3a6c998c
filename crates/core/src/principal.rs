//! Who is asking, and what they can see.

use std::fmt;
use std::sync::Arc;

use crate::policy::{Pattern, matches_any};

/// Who is asking, as their token says.
#[derive(Debug, Clone)]
pub struct Principal {
    /// The token's id: unique, and never the token itself.
    pub id: Arc<str>,
    /// The token's name, for people.
    pub name: Arc<str>,
    pub role: Role,
    /// The tools it may use; what empty means is for [`Principal::includes`] to say.
    pub tools: Vec<Pattern>,
}

impl Principal {
    /// Whether its token is for some tools only. A participant's always is: it is made for channels, and may be in a web
    /// page where everybody can read it.
    pub fn is_limited(&self) -> bool {
        !self.tools.is_empty() || self.role == Role::Participant
    }

    /// Whether its token includes the tool that these names lead to. One that names no tools includes all of them, but a
    /// participant's none.
    pub fn includes(&self, names: &[impl AsRef<str>]) -> bool {
        !self.is_limited() || matches_any(&self.tools, names)
    }

    /// Whether it may have a model answer, which costs somebody money. A participant may only if its token names the model,
    /// among the tools, as `models/NAME`.
    pub fn may_ask(&self, model: &str) -> bool {
        match self.role {
            Role::Node | Role::Monitor => false,
            Role::Participant => matches_any(&self.tools, &[format!("models/{model}")]),
            Role::Operator | Role::Agent | Role::Caller | Role::User => true,
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
    /// A machine that watches the gateway's numbers. It reads them, and does nothing else.
    Monitor,
}

impl Role {
    pub const ALL: [Self; 7] =
        [Self::Operator, Self::Agent, Self::Caller, Self::Node, Self::Participant, Self::User, Self::Monitor];

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

    /// A node offers tools; it does not use them. Whoever watches does neither.
    pub fn may_call_tools(self) -> bool {
        !matches!(self, Self::Node | Self::Monitor)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who can see a tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    Everyone,
    Session(Arc<str>),
    Channel(Arc<str>),
    User(Arc<str>),
}

/// What one request can see: its principal, and the scopes that it is in besides [`Scope::Everyone`]. At most one of
/// these is a session and at most one a user; channels may be many.
#[derive(Debug, Clone)]
pub struct View {
    pub principal: Arc<Principal>,
    pub scopes: Vec<Scope>,
}

impl View {
    pub fn of(principal: Arc<Principal>) -> Self {
        Self { principal, scopes: Vec::new() }
    }

    /// The narrow scopes first, then the one that all share.
    pub fn scopes(&self) -> impl Iterator<Item = &Scope> {
        self.scopes.iter().chain(std::iter::once(&Scope::Everyone))
    }
}
