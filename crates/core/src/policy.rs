//! Authorization of calls.

use std::fmt;
use std::sync::Arc;

use crate::directory::ToolView;
use crate::outcome::{CallError, CallErrorKind};
use crate::principal::{Principal, Role, Scope};

/// The gateway's own rules, in addition to the rights of a principal's role and token.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Tools that no principal may call.
    pub deny: Vec<Pattern>,
}

impl Policy {
    /// Checks whether a principal may call a tool. `scope` is the tool's scope, and `listed_name`
    /// the name for messages. `leading` are the names that lead to the tool, and `all` every name
    /// that it has or claims.
    ///
    /// A rule that denies any of the names denies the tool, and ignores case. A token includes the
    /// tool only by a leading name. Another tool may hold the other names, and the token was
    /// created for that one.
    ///
    /// The error names the tool, so it is for principals that see it: see [`Policy::shows`].
    pub fn authorise(
        &self,
        principal: &Principal,
        scope: &Scope,
        listed_name: &str,
        leading: &[Arc<str>],
        all: impl FnOnce() -> Vec<String>,
    ) -> Result<(), CallError> {
        self.authorise_role(principal)?;
        if !self.shows(principal, scope, leading) {
            let message = format!(
                "the token \"{}\" does not include the tool \"{listed_name}\"",
                principal.name
            );
            return Err(refused(message).hint("ask an operator for a token whose tools include it"));
        }
        if !self.deny.is_empty() && (self.denies(leading) || self.denies(&all())) {
            return Err(refused(format!(
                "the gateway's policy denies the tool \"{listed_name}\" to everyone"
            ))
            .hint("see policy.deny in the gateway's configuration"));
        }
        Ok(())
    }

    /// Returns whether a principal may know of the tool with these names.
    ///
    /// Channel rights control a channel's methods, and were checked before the channel came into
    /// view. A token that names tools includes no other methods. A participant's token is an
    /// exception, because it is created for channels.
    pub fn shows(&self, principal: &Principal, scope: &Scope, names: &[impl AsRef<str>]) -> bool {
        let by_channel = principal.role == Role::Participant || principal.tools.is_empty();
        (by_channel && matches!(scope, Scope::Channel(_))) || principal.includes(names)
    }

    /// Case is ignored, because a node may accept a name in any case.
    fn denies(&self, names: &[impl AsRef<str>]) -> bool {
        names.iter().any(|name| self.deny.iter().any(|rule| rule.matches_any_case(name.as_ref())))
    }

    /// Does the same as [`Policy::authorise`] for a tool in a list.
    pub fn allows(&self, principal: &Principal, tool: &ToolView) -> bool {
        let all = || tool.tool.all_names(&tool.provider);
        self.authorise(principal, &tool.scope, &tool.name, &tool.leading, all).is_ok()
    }
}

impl Policy {
    /// Checks the role alone, before the tool is known.
    pub fn authorise_role(&self, principal: &Principal) -> Result<(), CallError> {
        if principal.role.may_call_tools() {
            return Ok(());
        }
        Err(refused(format!("a {} token cannot call tools", principal.role))
            .hint("run `switchboard token create NAME --role agent` to create an agent token"))
    }
}

fn refused(message: String) -> CallError {
    CallError::new(CallErrorKind::NotAllowed, message)
}

pub(crate) fn matches_any(patterns: &[Pattern], names: &[impl AsRef<str>]) -> bool {
    patterns.iter().any(|pattern| names.iter().any(|name| pattern.matches(name.as_ref())))
}

/// A tool name in which `*` matches any run of characters.
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern(Box<str>);

impl Pattern {
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the pattern can match a name that begins with `prefix`.
    pub fn may_begin_with(&self, prefix: &str) -> bool {
        match self.0.split_once('*') {
            Some((literal, _)) => literal.starts_with(prefix) || prefix.starts_with(literal),
            None => self.0.starts_with(prefix),
        }
    }

    /// Returns whether the pattern matches a name. The time is linear in the name for each `*`,
    /// because there is no backtracking beyond the last one.
    pub fn matches(&self, name: &str) -> bool {
        self.matches_with(name, u8::eq)
    }

    /// Does the same without regard to case.
    pub fn matches_any_case(&self, name: &str) -> bool {
        if self.0.is_ascii() && name.is_ascii() {
            return self.matches_with(name, u8::eq_ignore_ascii_case);
        }
        Self::new(&self.0.to_lowercase()).matches(&name.to_lowercase())
    }

    fn matches_with(&self, name: &str, equal: impl Fn(&u8, &u8) -> bool) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut p, mut n) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while n < name.len() {
            if pattern.get(p) == Some(&b'*') {
                star = Some((p, n));
                p += 1;
            } else if pattern.get(p).is_some_and(|byte| equal(byte, &name[n])) {
                p += 1;
                n += 1;
            } else if let Some((star_p, star_n)) = star {
                p = star_p + 1;
                n = star_n + 1;
                star = Some((star_p, n));
            } else {
                return false;
            }
        }
        pattern[p..].iter().all(|byte| *byte == b'*')
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::Role;

    #[track_caller]
    fn check(pattern: &str, name: &str, expected: bool) {
        assert_eq!(Pattern::new(pattern).matches(name), expected, "{pattern} on {name}");
    }

    #[test]
    fn beginnings() {
        for (pattern, expected) in [
            ("*", true),
            ("*__read", true),
            ("ma*", true),
            ("mail__*", true),
            ("mail__send", true),
            ("mail", false),
            ("mail_*", true),
            ("mailbox__*", false),
            ("notes*", false),
            ("", false),
        ] {
            assert_eq!(Pattern::new(pattern).may_begin_with("mail__"), expected, "{pattern}");
        }
    }

    #[test]
    fn patterns() {
        check("*", "", true);
        check("*", "anything", true);
        check("a*c", "abc", true);
        check("a*c", "ac", true);
        check("a*c", "ab", false);
        check("*__Bash", "laptop__Bash", true);
        check("*__Bash", "laptop__Bash2", false);
        check("macos.*.search", "macos.notes.search", true);
        check("a*b*c", "a-b-b-c", true);
        check("", "a", false);
        check("", "", true);
        // Exponential for a matcher that backtracks to earlier stars.
        check(&"a*".repeat(40), &"a".repeat(5_000), true);
        check(&format!("{}b", "a*".repeat(40)), &"a".repeat(5_000), false);
    }

    fn principal(role: Role, tools: &[&str]) -> Principal {
        let tools = tools.iter().map(|text| Pattern::new(text)).collect();
        Principal { tools, ..Principal::new("t1", "test", role) }
    }

    #[test]
    fn a_rule_may_use_any_of_a_tools_names() {
        let names: [Arc<str>; 2] = ["macos_notes_search".into(), "macos.notes.search".into()];
        let may = |policy: &Policy, role, tools: &[&str]| {
            let allowed =
                policy.authorise(&principal(role, tools), &Scope::Everyone, "it", &names, Vec::new);
            allowed.map_err(|error| error.kind)
        };
        let policy = Policy { deny: vec![Pattern::new("macos.notes.*")] };
        let denied = Err(CallErrorKind::NotAllowed);
        assert_eq!(may(&policy, Role::Operator, &[]), denied);
        let policy = Policy::default();
        assert_eq!(may(&policy, Role::Agent, &[]), Ok(()));
        assert_eq!(may(&policy, Role::Agent, &["macos_*"]), Ok(()));
        assert_eq!(may(&policy, Role::Agent, &["linux_*"]), denied);
        assert_eq!(may(&policy, Role::Node, &[]), denied);
    }

    #[test]
    fn a_participant_has_the_tools_that_it_is_given_and_the_methods_of_its_channels() {
        let policy = Policy { deny: vec![Pattern::new("secret*")] };
        let allowed = |tools: &[&str], scope: &Scope, name: &str| {
            policy
                .authorise(
                    &principal(Role::Participant, tools),
                    scope,
                    name,
                    &[name.into()],
                    Vec::new,
                )
                .is_ok()
        };
        let channel = Scope::Channel("room".into());
        for scope in [Scope::Everyone, Scope::Session("s".into()), Scope::User("u".into())] {
            assert!(!allowed(&[], &scope, "laptop__Bash"), "{scope:?}");
            assert!(!allowed(&["notes*"], &scope, "laptop__Bash"), "{scope:?}");
            assert!(allowed(&["laptop__*"], &scope, "laptop__Bash"), "{scope:?}");
            assert!(allowed(&["*"], &scope, "laptop__Bash"), "{scope:?}");
        }
        assert!(allowed(&[], &channel, "pubsub_worker_search"));
        assert!(allowed(&["notes*"], &channel, "pubsub_worker_search"));
        assert!(!allowed(&["*"], &channel, "secret"), "what is denied to everyone");
        let agent = principal(Role::Agent, &["notes*"]);
        let name = "pubsub_worker_search";
        assert!(policy.authorise(&agent, &channel, name, &[name.into()], Vec::new).is_err());
        let only_channels =
            Principal { channels: vec![Pattern::new("room")], ..principal(Role::Agent, &[]) };
        assert!(policy.authorise(&only_channels, &channel, name, &[name.into()], Vec::new).is_ok());
        let shell = "laptop__Bash";
        assert!(
            policy
                .authorise(&only_channels, &Scope::Everyone, shell, &[shell.into()], Vec::new)
                .is_err()
        );
    }
}
