//! Tokens: 256 random bits, shown once, stored as hashes, bound to a principal, revocable at any
//! time.

mod stored;

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use parking_lot::RwLock;
use sa_core::store::{Expect, Records, StoreError};
use sa_core::{Role, clock};
use sa_http::{Authenticate, ChannelGrant, Identity, Refused, StoredToken, StoredTokens};
use subtle::ConstantTimeEq as _;

pub(crate) use stored::MODEL_TOOL;
pub use stored::TokenRecord;
use stored::{Hash, Known};

/// The prefix of all tokens, which makes them recognisable to secret scanners and to people.
const PREFIX: &str = "sb_";

/// The names of the operator's own tokens, in its file and in the console.
const OPERATORS: [&str; 2] = ["operator", "console"];

/// The id prefix of console sessions.
const CONSOLE: &str = "console_";
/// The id prefix of tokens that the demo created for its node.
const DEMO: &str = "demo_";

/// All tokens of this gateway. They are stored, and looked up in an in-memory copy.
pub struct Tokens {
    records: Arc<dyn Records>,
    known: RwLock<HashMap<Hash, Arc<Known>>>,
    /// The errors of stored tokens that cannot be read, so that their hash or rights are unknown.
    unreadable: Vec<String>,
    /// Held while a token is created, from the check of its name until it is stored.
    making: tokio::sync::Mutex<()>,
    /// Returns the time; `None` while the clock is not trusted.
    trusted_now_ms: Box<dyn Fn() -> Option<i64> + Send + Sync>,
}

/// The properties of a new token.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    pub role: Role,
    pub tools: Vec<String>,
    pub models: Vec<String>,
    pub node_id: Option<String>,
    pub expires_ms: Option<i64>,
    pub channels: ChannelGrant,
}

impl NewToken {
    /// Creates an unrestricted token that does not expire.
    pub fn new(name: impl Into<String>, role: Role) -> Self {
        let (tools, models, channels) = (Vec::new(), Vec::new(), ChannelGrant::default());
        Self { name: name.into(), role, tools, models, node_id: None, expires_ms: None, channels }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The name is already used by another participant in channels.
    #[error("{0}")]
    Taken(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The reason why a token was not revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRevoked {
    /// No valid token has this id or name, or several have the name.
    Unclear,
    /// It is the last token with which an operator can sign in.
    LastOperator,
}

/// The maximum lifetime of a token in seconds: a hundred years. Larger values would exceed the
/// range of dates.
pub const MAX_LIFE_S: u64 = 36_500 * 86_400;

impl Authenticate for Tokens {
    /// Returns the identity of a token. Takes the same time for all unknown tokens.
    fn authenticate(&self, token: &str) -> Result<Identity, Refused> {
        if token.is_empty() {
            return Err(Refused::Missing);
        }
        let hash = hash(token);
        let known = self.known.read().get(&hash).cloned();
        let known =
            known.filter(|known| bool::from(known.hash.ct_eq(&hash))).ok_or(Refused::Unknown)?;
        if known.record.revoked_ms.is_some() {
            return Err(Refused::Revoked);
        }
        if known.record.expires_ms.is_some_and(|at| at <= clock::now_ms()) {
            return Err(Refused::Expired);
        }
        Ok(known.identity.clone())
    }
}

impl StoredTokens for Tokens {
    /// The demo's token does not count. A revoked token does: revoking the last one must not allow
    /// access without a token.
    fn any(&self, role: Role) -> bool {
        let known = self.known.read();
        let mut known = known.values().map(|known| &known.record);
        !self.unreadable.is_empty()
            || known.any(|token| token.role == role.as_str() && !is_of_demo(&token.id))
    }

    fn list(&self, role: Role) -> Vec<StoredToken> {
        let tokens = self.list().into_iter().filter(|token| token.role == role.as_str());
        tokens.map(|token| StoredToken { is_over: self.is_over(&token), id: token.id }).collect()
    }

    fn has_expired(&self, expires_ms: Option<i64>) -> bool {
        expires_ms.is_some_and(|at| (self.trusted_now_ms)().is_some_and(|now| at <= now))
    }
}

impl Tokens {
    /// Reads the tokens. `trusted_now_ms` returns the time, or `None` while the clock is not
    /// trusted.
    pub async fn load(
        records: Arc<dyn Records>,
        trusted_now_ms: impl Fn() -> Option<i64> + Send + Sync + 'static,
    ) -> Result<Self, StoreError> {
        let (known, unreadable) = stored::all(&*records).await?;
        let known = known.into_iter().map(|known| (known.hash, Arc::new(known))).collect();
        Ok(Self {
            records,
            known: RwLock::new(known),
            unreadable,
            making: tokio::sync::Mutex::default(),
            trusted_now_ms: Box::new(trusted_now_ms),
        })
    }

    /// Returns the errors of unreadable tokens. They authenticate no client. Any of them may be of
    /// any kind, so code that relies on the absence of a kind must consider them.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// Reports whether no token has ever been created.
    pub fn is_new(&self) -> bool {
        self.unreadable.is_empty() && self.known.read().is_empty()
    }

    /// Returns whether the token is revoked, or has expired for certain. While the clock is not
    /// trusted, no token counts as expired: the actions that follow cannot be undone.
    pub(crate) fn is_over(&self, token: &TokenRecord) -> bool {
        token.revoked_ms.is_some() || self.has_expired(token.expires_ms)
    }

    /// Returns the ids of the tokens with which an operator can sign in.
    pub fn for_operators(&self) -> Vec<String> {
        let now = clock::now_ms();
        let valid = self.list().into_iter().filter(|token| token.lets_operators_in(now));
        valid.map(|token| token.id).collect()
    }

    /// Creates a token. The secret value is only returned here.
    pub async fn create(&self, new: NewToken) -> Result<(TokenRecord, String), CreateError> {
        let _making = self.making.lock().await;
        if let Some(taken) = self.speaks_as_another(&new.name, new.role) {
            return Err(CreateError::Taken(taken));
        }
        let token = fresh();
        let record = self.adopt(&token, new).await?;
        Ok((record, token))
    }

    /// Adds an existing token: the operator's, from its file, after the store was lost.
    pub async fn adopt(&self, token: &str, new: NewToken) -> Result<TokenRecord, StoreError> {
        self.adopt_as(format!("tok_{}", uuid::Uuid::now_v7().simple()), token, new).await
    }

    /// Opens a console session: an operator token that expires. Expired sessions are deleted, so
    /// that daily sign-ins do not fill the list of tokens.
    pub async fn open_console_session(
        &self,
        life_ms: i64,
    ) -> Result<(TokenRecord, String), StoreError> {
        let over = |token: &TokenRecord| is_console_session(&token.id) && self.is_over(token);
        for token in self.list().into_iter().filter(over) {
            stored::delete(&*self.records, &token.id).await?;
            let mut known = self.known.write();
            known.retain(|_, known| known.record.id != token.id);
        }
        let new = NewToken {
            expires_ms: Some(clock::now_ms().saturating_add(life_ms)),
            ..NewToken::new("console", Role::Operator)
        };
        let token = fresh();
        let id = format!("{CONSOLE}{}", uuid::Uuid::now_v7().simple());
        let record = self.adopt_as(id, &token, new).await?;
        Ok((record, token))
    }

    async fn adopt_as(
        &self,
        id: String,
        token: &str,
        new: NewToken,
    ) -> Result<TokenRecord, StoreError> {
        let record = TokenRecord {
            id,
            name: new.name,
            role: new.role.as_str().into(),
            hash: blake3::Hash::from(hash(token)).to_hex().to_string(),
            created_ms: clock::now_ms(),
            expires_ms: new.expires_ms,
            revoked_ms: None,
            tools: new.tools,
            models: new.models,
            node_id: new.node_id,
            channels: new.channels,
        };
        self.store(&record, Expect::Absent).await?;
        Ok(record)
    }

    /// Revokes a token by its id, or by its name if the name is unique. All its users are
    /// disconnected immediately, even if the disk fails. [`Tokens::persist`] makes the revocation
    /// durable. A revoked token can be revoked again if that was not written. The last operator
    /// token is only revoked if `even_last_operator` is set.
    pub fn revoke(
        &self,
        id_or_name: &str,
        even_last_operator: bool,
    ) -> Result<TokenRecord, NotRevoked> {
        let mut known = self.known.write();
        let valid = || {
            known.iter().filter(|(_, known)| known.record.revoked_ms.is_none() || !known.written)
        };
        let mut found: Vec<_> =
            valid().filter(|(_, known)| known.record.id == id_or_name).collect();
        if found.is_empty() {
            found = valid().filter(|(_, known)| known.record.name == id_or_name).collect();
        }
        let [(hash, old)] = found[..] else { return Err(NotRevoked::Unclear) };
        let now = clock::now_ms();
        let others = || known.values().filter(|other| other.record.id != old.record.id);
        if !even_last_operator
            && old.record.lets_operators_in(now)
            && !others().any(|other| other.record.lets_operators_in(now))
        {
            return Err(NotRevoked::LastOperator);
        }
        let (hash, old) = (*hash, Arc::clone(old));
        let revoked_ms = old.record.revoked_ms.or(Some(now));
        let record = TokenRecord { revoked_ms, ..old.record.clone() };
        let revoked = Known {
            record: record.clone(),
            hash: old.hash,
            identity: old.identity.clone(),
            written: false,
        };
        known.insert(hash, Arc::new(revoked));
        drop(known);
        old.identity.revoked.cancel();
        Ok(record)
    }

    /// Stores a revocation, so that it survives a restart.
    pub async fn persist(&self, record: &TokenRecord) -> Result<(), StoreError> {
        self.store(record, Expect::Anything).await
    }

    /// Returns all tokens, oldest first, including revoked ones.
    pub fn list(&self) -> Vec<TokenRecord> {
        let known = self.known.read();
        let mut records: Vec<_> = known.values().map(|known| known.record.clone()).collect();
        records.sort_by(|a, b| a.id.cmp(&b.id));
        records
    }

    /// Returns an error if a token with this name could be mistaken for another participant in
    /// channels. The name of a participant must be unique among all tokens that may send. The
    /// operator's names are reserved.
    fn speaks_as_another(&self, name: &str, role: Role) -> Option<String> {
        if !role.may_call_tools() {
            return None;
        }
        if OPERATORS.contains(&name) && role != Role::Operator {
            return Some(format!("the name \"{name}\" is reserved for operators in channels"));
        }
        let known = self.known.read();
        let speaks = |other: &TokenRecord| {
            other.name == name
                && !self.is_over(other)
                && match Role::parse(&other.role) {
                    Some(Role::Participant) => true,
                    Some(Role::Node | Role::Monitor) | None => false,
                    Some(_) => role == Role::Participant,
                }
        };
        known.values().any(|known| speaks(&known.record)).then(|| {
            format!(
                "there is already a valid token \"{}\", and its name identifies a sender in channels",
                sa_text::printable(name)
            )
        })
    }

    /// Creates the token of the demo node. It does not disable access for nodes without a token,
    /// because no operator requested it.
    pub async fn create_for_demo(&self) -> Result<String, StoreError> {
        let new =
            NewToken { node_id: Some("demo".into()), ..NewToken::new("demo-node", Role::Node) };
        let token = fresh();
        self.adopt_as(format!("{DEMO}{}", uuid::Uuid::now_v7().simple()), &token, new).await?;
        Ok(token)
    }

    async fn store(&self, record: &TokenRecord, expect: Expect) -> Result<(), StoreError> {
        let mut known = stored::put(&*self.records, record, expect).await?;
        let mut all = self.known.write();
        if let Some(old) = all.get(&known.hash) {
            // Existing connections hold this identity and watch its `revoked` token.
            known.identity = old.identity.clone();
        }
        all.insert(known.hash, Arc::new(known));
        Ok(())
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

fn fresh() -> String {
    format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()))
}

/// Reports whether the token id belongs to the demo node.
pub fn is_of_demo(id: &str) -> bool {
    id.starts_with(DEMO)
}

pub fn is_console_session(id: &str) -> bool {
    id.starts_with(CONSOLE)
}

fn hash(token: &str) -> Hash {
    *blake3::hash(token.as_bytes()).as_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::records_for_tests::MemoryRecords;

    fn new(name: &str, role: Role) -> NewToken {
        NewToken::new(name, role)
    }

    async fn load(records: &Arc<MemoryRecords>) -> Tokens {
        Tokens::load(Arc::clone(records) as _, || Some(clock::now_ms())).await.unwrap()
    }

    #[tokio::test]
    async fn a_token_that_expired_by_a_wrong_clock_keeps_its_record_and_its_name() {
        let trusted = Arc::new(AtomicBool::new(false));
        let is_trusted = Arc::clone(&trusted);
        let now = move || is_trusted.load(Ordering::Relaxed).then(clock::now_ms);
        let tokens = Tokens::load(Arc::new(MemoryRecords::default()), now).await.unwrap();
        let speaker = || new("alice", Role::Participant);
        tokens.create(NewToken { expires_ms: Some(1), ..speaker() }).await.unwrap();
        tokens.open_console_session(-1).await.unwrap();
        tokens.open_console_session(60_000).await.unwrap();
        assert_eq!(tokens.list().len(), 3);
        assert!(matches!(tokens.create(speaker()).await, Err(CreateError::Taken(_))));
        trusted.store(true, Ordering::Relaxed);
        tokens.open_console_session(60_000).await.unwrap();
        assert_eq!(tokens.list().len(), 3, "the expired session is deleted");
        assert!(tokens.create(speaker()).await.is_ok());
    }

    #[tokio::test]
    async fn a_token_is_over_when_it_is_revoked_or_has_expired_for_certain() {
        let trusted = Arc::new(AtomicBool::new(false));
        let is_trusted = Arc::clone(&trusted);
        let now = move || is_trusted.load(Ordering::Relaxed).then(clock::now_ms);
        let tokens = Tokens::load(Arc::new(MemoryRecords::default()), now).await.unwrap();
        assert!(!tokens.any(Role::Node));
        for (name, expires_ms) in [("valid", None), ("expired", Some(1)), ("revoked", None)] {
            tokens.create(NewToken { expires_ms, ..new(name, Role::Node) }).await.unwrap();
        }
        tokens.create(new("bot", Role::Agent)).await.unwrap();
        tokens.revoke("revoked", false).unwrap();
        let over = || {
            let listed = StoredTokens::list(&tokens, Role::Node).into_iter();
            let over = listed.filter(|token| token.is_over).map(|token| token.id);
            let mut names: Vec<_> = over.map(|id| name_of(&tokens, &id)).collect();
            names.sort();
            names
        };
        assert_eq!(StoredTokens::list(&tokens, Role::Node).len(), 3);
        assert_eq!(over(), ["revoked"], "the clock may be wrong");
        trusted.store(true, Ordering::Relaxed);
        assert_eq!(over(), ["expired", "revoked"]);
        assert!(tokens.any(Role::Node) && !tokens.any(Role::Monitor));
    }

    fn name_of(tokens: &Tokens, id: &str) -> String {
        tokens.list().into_iter().find(|token| token.id == id).unwrap().name
    }

    #[tokio::test]
    async fn a_token_of_an_older_gateway_is_as_narrow_as_it_says() {
        let records = Arc::new(MemoryRecords::default());
        let tokens = load(&records).await;
        let (record, token) = tokens.create(new("page", Role::Participant)).await.unwrap();
        let mut old = serde_json::to_value(&record).unwrap();
        old["tools"] = serde_json::json!(["demo_*", "models/gpt*"]);
        records.put("tokens", &record.id, old.to_string().into(), Expect::Anything).await.unwrap();
        let tokens = load(&records).await;
        let identity = tokens.authenticate(&token).unwrap();
        let principal = &identity.principal;
        assert!(principal.includes(&["demo_echo"]) && !principal.includes(&["models/gpt"]));
        assert!(principal.may_ask("gpt-9") && !principal.may_ask("other"));
        assert!(!identity.rights("room").read, "it names tools and models, so it has no channels");
        assert_eq!(tokens.list()[0].models, ["gpt*"]);
    }

    #[tokio::test]
    async fn the_last_token_for_operators_goes_only_where_that_is_said() {
        let tokens = load(&Arc::default()).await;
        let make = async |name: &str, expires_ms| {
            tokens.create(NewToken { expires_ms, ..new(name, Role::Operator) }).await.unwrap()
        };
        make("first", None).await;
        make("second", None).await;
        make("over", Some(1)).await;
        tokens.open_console_session(60_000).await.unwrap();
        assert!(tokens.revoke("first", false).is_ok());
        assert_eq!(tokens.revoke("second", false).unwrap_err(), NotRevoked::LastOperator);
        assert!(tokens.revoke("over", false).is_ok(), "it let nobody in");
        assert!(tokens.revoke("second", true).is_ok());
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_is_named_and_opens_nothing() {
        let records = Arc::new(MemoryRecords::default());
        let tokens = load(&records).await;
        assert!(tokens.is_new() && !tokens.any(Role::Node));
        let (record, token) = tokens.create(new("builder", Role::Node)).await.unwrap();
        let good = serde_json::to_value(&record).unwrap();
        let damages =
            [("hash", "no hash".into()), ("role", "admiral".into()), ("id", "tok_other".into())];
        let damages = damages
            .into_iter()
            .chain([("tools", serde_json::Value::from("all")), ("name", 5.into())]);
        for (field, value) in damages {
            let mut bad = good.clone();
            bad[field] = value;
            records
                .put("tokens", &record.id, bad.to_string().into(), Expect::Anything)
                .await
                .unwrap();
            let tokens = load(&records).await;
            let [said] = tokens.unreadable() else { panic!("{field}: {:?}", tokens.unreadable()) };
            assert!(said.contains(&record.id), "{said}");
            assert_eq!(tokens.authenticate(&token).unwrap_err(), Refused::Unknown);
            // The unreadable token may have been the only node token. Nodes without a token must
            // still be refused.
            assert!(tokens.any(Role::Node) && !tokens.is_new(), "{field}");
        }
    }

    #[tokio::test]
    async fn a_full_disk_keeps_no_token_alive() {
        let records = Arc::new(MemoryRecords::default());
        let tokens = load(&records).await;
        let (_, token) = tokens.create(new("bot", Role::Agent)).await.unwrap();
        let identity = tokens.authenticate(&token).unwrap();

        records.full.store(true, Ordering::Relaxed);
        let revoked = tokens.revoke("bot", false).unwrap();
        assert!(tokens.persist(&revoked).await.is_err());
        assert!(identity.revoked.is_cancelled());
        assert_eq!(tokens.authenticate(&token).unwrap_err(), Refused::Revoked);

        // The revocation can be repeated once the disk has space, and is then durable.
        records.full.store(false, Ordering::Relaxed);
        let again = tokens.revoke("bot", false).expect("what is not written can be repeated");
        tokens.persist(&again).await.unwrap();
        assert_eq!(tokens.revoke("bot", false).unwrap_err(), NotRevoked::Unclear);
        let restarted = load(&records).await;
        assert_eq!(restarted.authenticate(&token).unwrap_err(), Refused::Revoked);
    }
}
