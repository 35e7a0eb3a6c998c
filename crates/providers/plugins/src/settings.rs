//! The settings that users store for a plugin. They are validated by the manifest's schema,
//! encrypted at rest, and bound to one set of origins.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use parking_lot::RwLock;
use sa_core::store::{Expect, Records, StoreError};
use sa_core::{CallError, Principal, RawJson, Role, Schema};
use sa_protocol::plugin::ascii_json;
use sa_text::closest;
use sa_vault::{Vault, VaultError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::warn;

use crate::secrets;

const BUCKET: &str = "plugin-settings";
/// Replaces a secret in displayed settings. In new settings it represents the stored value.
pub const MASK: &str = "***";
/// The maximum size of settings, which are sent in a header.
pub const MAX_SETTINGS: usize = 6 * 1024;
/// The maximum length of a setting's name that an error repeats.
const MAX_NAME: usize = 64;
/// The owner of the settings for users without their own.
pub const SHARED: &str = "*";

/// The owner of the operator's settings. It is not the id of a token.
const OPERATOR: &str = "operator";

/// Returns the owner of a principal's settings. The operator is one person with several tokens: a
/// replaceable one in the file, and the console's sessions, which expire. Settings that are
/// stored with one token apply to all of them. No other role can have these names.
pub fn owner_of(principal: &Principal) -> &str {
    let operator =
        principal.role == Role::Operator && matches!(&*principal.name, "operator" | "console");
    if operator { OPERATOR } else { &principal.id }
}

/// Returns whether the owner of settings no longer exists. `is_token` tells whether a valid token
/// has this id.
pub(crate) fn is_orphaned(owner: &str, is_token: impl Fn(&str) -> bool) -> bool {
    ![SHARED, OPERATOR].contains(&owner) && !is_token(owner)
}

pub(crate) type Settings = Map<String, Value>;

/// A manifest's settings schema.
#[derive(Debug, Clone)]
pub(crate) struct SettingsSchema {
    value: Value,
    schema: Schema,
}

impl SettingsSchema {
    pub(crate) fn new(value: Value) -> Self {
        let schema = Schema::with_formats(RawJson::of(&value));
        Self { value, schema }
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// Adds the defaults of absent settings.
    pub(crate) fn with_defaults(&self, mut settings: Settings) -> Settings {
        fill(&mut settings, &self.value);
        settings
    }

    /// Checks that a plugin can be called with these settings. The error names the field, never
    /// its value.
    pub(crate) fn check(&self, settings: &Settings) -> Result<(), CallError> {
        Ok(self.schema.validate_secret(&RawJson::of(&Value::Object(settings.clone())))?)
    }

    /// Rejects a name that the schema does not list: it is probably misspelled, and the intended
    /// setting would be missing.
    fn check_names(&self, settings: &Settings) -> Result<(), SettingsError> {
        let Some((name, known)) = secrets::undescribed(settings, &self.value) else {
            return Ok(());
        };
        let last = name.rsplit('/').next().unwrap_or(&name);
        let meant = match closest(last, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("known settings: {}", known.join(", ")),
        };
        // A long name may be a secret value that was entered as the name.
        let shown: String = if name.chars().count() > MAX_NAME { "…".into() } else { name };
        Err(SettingsError::Invalid(format!("the plugin has no setting \"{shown}\"; {meant}")))
    }

    /// Returns the settings for display, without secrets.
    pub(crate) fn masked(&self, settings: &Settings) -> Value {
        secrets::masked(settings, &self.value)
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn fill(settings: &mut Settings, schema: &Value) {
    for (name, field) in properties(schema) {
        match (settings.get_mut(name), field.get("default")) {
            (Some(Value::Object(inner)), _) => fill(inner, field),
            (None, Some(default)) => drop(settings.insert(name.clone(), default.clone())),
            _ => {}
        }
    }
}

/// Encodes settings as the value of a header.
pub(crate) fn header(settings: &Settings) -> String {
    ascii_json(&Value::Object(settings.clone()))
}

/// Parses the settings header of a host.
pub(crate) fn parse_header(bytes: &[u8]) -> Result<Settings, String> {
    if bytes.len() > MAX_SETTINGS {
        return Err(format!("the settings have more than {MAX_SETTINGS} bytes"));
    }
    let text =
        std::str::from_utf8(bytes).map_err(|_| "the settings header is not text".to_owned())?;
    if text.trim().is_empty() {
        return Ok(Settings::new());
    }
    match RawJson::parse(text).and_then(|json| json.to_value()) {
        Ok(Value::Object(settings)) => Ok(settings),
        Ok(Value::Null) => Ok(Settings::new()),
        Ok(_) => Err("the settings header must hold a JSON object".into()),
        // The parser's own message may quote the value.
        Err(_) => Err("the settings header is not JSON".into()),
    }
}

/// The stored settings of one owner for a plugin.
pub(crate) struct Stored {
    pub(crate) settings: Settings,
    /// The only origins that these may be sent to.
    pub(crate) origins: BTreeSet<String>,
    /// The owner: a principal, or [`SHARED`].
    pub(crate) owner: Arc<str>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Sealed {
    origins: BTreeSet<String>,
    sealed: String,
}

/// All stored settings, also encrypted in memory.
pub(crate) struct SettingsStore {
    records: Arc<dyn Records>,
    vault: Arc<Vault>,
    known: RwLock<HashMap<String, Sealed>>,
}

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SettingsStore {
    pub(crate) async fn load(
        records: Arc<dyn Records>,
        vault: Arc<Vault>,
    ) -> Result<Self, StoreError> {
        let mut known = HashMap::new();
        for (key, record) in records.list(BUCKET).await? {
            match serde_json::from_slice(&record.value) {
                Ok(sealed) => drop(known.insert(key, sealed)),
                Err(error) => {
                    warn!(%error, "the stored settings of a plugin are invalid; store them again");
                }
            }
        }
        Ok(Self { records, vault, known: RwLock::new(known) })
    }

    /// Returns the settings of this owner, or else the shared ones.
    pub(crate) fn find(&self, plugin: &str, owner: &str) -> Result<Option<Stored>, SettingsError> {
        match self.get(plugin, owner)? {
            Some(own) => Ok(Some(own)),
            None => self.get(plugin, SHARED),
        }
    }

    pub(crate) fn get(&self, plugin: &str, owner: &str) -> Result<Option<Stored>, SettingsError> {
        let key = key(plugin, owner);
        let Some(sealed) = self.known.read().get(&key).cloned() else {
            return Ok(None);
        };
        let bytes = BASE64_STANDARD.decode(&sealed.sealed).map_err(|_| VaultError::Sealed)?;
        let text = self.vault.open(&key, &bytes)?;
        let settings = serde_json::from_str(&text).map_err(|_| VaultError::Sealed)?;
        Ok(Some(Stored { settings, origins: sealed.origins, owner: owner.into() }))
    }

    /// Stores settings for these origins, and replaces the previous ones. A masked value, or an
    /// absent secret, keeps its previous value for the same origins.
    pub(crate) async fn put(
        &self,
        plugin: &str,
        owner: &str,
        settings: Settings,
        origins: &BTreeSet<String>,
        schema: Option<&SettingsSchema>,
    ) -> Result<Settings, SettingsError> {
        let former =
            self.get(plugin, owner).unwrap_or_default().filter(|former| former.origins == *origins);
        let mut settings = Value::Object(settings);
        let former = former.map(|former| former.settings);
        restore(&mut settings, former.clone().map(Value::Object).as_ref(), "")?;
        let Value::Object(mut settings) = settings else {
            return Err(SettingsError::Invalid("the settings must be an object".into()));
        };
        if let Some(schema) = schema {
            schema.check_names(&settings)?;
            secrets::keep(
                &mut settings,
                former.as_ref().unwrap_or(&Settings::new()),
                schema.value(),
            );
        }
        if header(&settings).len() > MAX_SETTINGS {
            return Err(SettingsError::Invalid(format!(
                "the settings have more than {MAX_SETTINGS} bytes"
            )));
        }
        if let Some(schema) = schema {
            let whole = schema.with_defaults(settings.clone());
            schema.check(&whole).map_err(|error| SettingsError::Invalid(error.message))?;
        }
        let key = key(plugin, owner);
        let bytes = self.vault.seal(&key, &Value::Object(settings.clone()).to_string())?;
        let sealed = Sealed { origins: origins.clone(), sealed: BASE64_STANDARD.encode(bytes) };
        let json = serde_json::to_vec(&sealed)
            .map_err(|error| SettingsError::Invalid(error.to_string()))?;
        self.records.put(BUCKET, &key, Bytes::from(json), Expect::Anything).await?;
        self.known.write().insert(key, sealed);
        Ok(settings)
    }

    pub(crate) async fn delete(&self, plugin: &str, owner: &str) -> Result<bool, StoreError> {
        let key = key(plugin, owner);
        let deleted = self.records.delete(BUCKET, &key).await?;
        self.known.write().remove(&key);
        Ok(deleted)
    }

    /// Deletes all settings for which `which` returns `true`, given the plugin and the owner.
    pub(crate) async fn delete_where(
        &self,
        which: impl Fn(&str, &str) -> bool,
    ) -> Result<(), StoreError> {
        let keys: Vec<String> = self.known.read().keys().cloned().collect();
        for key in keys {
            if let Some((plugin, owner)) = key.split_once('/')
                && which(plugin, owner)
            {
                self.delete(plugin, owner).await?;
            }
        }
        Ok(())
    }
}

/// Returns the record key. An identifier contains no slash.
fn key(plugin: &str, owner: &str) -> String {
    format!("{plugin}/{owner}")
}

fn restore(value: &mut Value, former: Option<&Value>, path: &str) -> Result<(), SettingsError> {
    match value {
        Value::String(text) if text == MASK => {
            let former = former.ok_or_else(|| {
                SettingsError::Invalid(format!("\"{path}\" is \"{MASK}\", which stands for a stored value, but no value is stored for this server; enter it again"))
            })?;
            *value = former.clone();
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                restore(value, former.and_then(|former| former.get(name)), &path)?;
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                restore(
                    item,
                    former.and_then(|former| former.get(index)),
                    &format!("{path}/{index}"),
                )?;
            }
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> SettingsSchema {
        SettingsSchema::new(json!({
            "type": "object", "required": ["apiKey"],
            "properties": {
                "apiKey": { "type": "string", "minLength": 8, "format": "password" },
                "endpoint": { "type": "string", "default": "https://api.example.com" },
                "more": { "type": "object", "properties": { "pin": { "writeOnly": true }, "depth": { "default": 3 } } }
            }
        }))
    }

    fn object(value: Value) -> Settings {
        let Value::Object(settings) = value else { panic!("{value}") };
        settings
    }

    #[test]
    fn settings_of_the_operator_and_of_valid_tokens_are_kept() {
        let principal = |name: &str, role| Principal::new("token id", name, role);
        let is_token = |id: &str| id == "token id";
        for (name, role) in [("operator", Role::Operator), ("console", Role::Operator)] {
            assert!(!is_orphaned(owner_of(&principal(name, role)), |_| false), "{name}");
        }
        let agent = principal("ann", Role::Agent);
        assert!(!is_orphaned(owner_of(&agent), is_token));
        assert!(is_orphaned(owner_of(&agent), |_| false));
        assert!(!is_orphaned(SHARED, |_| false));
    }

    #[test]
    fn defaults_are_filled_in_and_mistakes_named_without_values() {
        let whole = schema().with_defaults(object(json!({ "apiKey": "12345678", "more": {} })));
        assert_eq!(
            Value::Object(whole.clone()),
            json!({ "apiKey": "12345678", "endpoint": "https://api.example.com", "more": { "depth": 3 } })
        );
        assert!(schema().check(&whole).is_ok());
        assert_eq!(
            schema().check(&Settings::new()).unwrap_err().message,
            "missing \"apiKey\" (string)"
        );
        let short = schema().check(&object(json!({ "apiKey": "canary" }))).unwrap_err().message;
        assert!(short.contains("apiKey") && !short.contains("canary"), "{short}");
    }

    #[test]
    fn a_format_is_checked() {
        let schema = SettingsSchema::new(
            json!({ "properties": { "endpoint": { "type": "string", "format": "uri" } } }),
        );
        assert!(schema.check(&object(json!({ "endpoint": "https://a.example" }))).is_ok());
        let wrong =
            schema.check(&object(json!({ "endpoint": "canary endpoint" }))).unwrap_err().message;
        assert!(
            wrong.contains("endpoint") && wrong.contains("uri") && !wrong.contains("canary"),
            "{wrong}"
        );
    }

    #[test]
    fn only_what_is_described_and_no_secret_is_shown() {
        let settings = object(
            json!({ "apiKey": "canary-1", "endpoint": "e", "more": { "pin": "canary-2", "depth": 1 }, "else": ["canary-3"] }),
        );
        assert_eq!(
            schema().masked(&settings),
            json!({ "apiKey": "***", "endpoint": "e", "more": { "pin": "***", "depth": 1 }, "else": "***" })
        );
        let secrets = secrets::secrets(&settings, Some(schema().value()));
        assert_eq!(secrets.len(), 3);
    }

    #[test]
    fn a_header_that_is_no_settings_is_refused_without_repeating_it() {
        assert_eq!(parse_header(b"").unwrap().len(), 0);
        assert_eq!(parse_header(br#"{"a":1}"#).unwrap().len(), 1);
        for bad in [&b"canary"[..], b"[\"canary\"]", b"\xff", &[b'x'; MAX_SETTINGS + 1]] {
            assert!(!parse_header(bad).unwrap_err().contains("canary"));
        }
    }

    #[test]
    fn the_mask_stands_for_what_was_there() {
        let former = json!({ "apiKey": "old", "more": { "pin": "p" } });
        let mut new = json!({ "apiKey": "***", "more": { "pin": "***", "depth": 2 } });
        restore(&mut new, Some(&former), "").unwrap();
        assert_eq!(new, json!({ "apiKey": "old", "more": { "pin": "p", "depth": 2 } }));
        assert!(restore(&mut json!({ "apiKey": "***" }), None, "").is_err());
    }

    proptest::proptest! {
        #[test]
        fn a_header_is_read_as_it_is_written_or_refused_without_a_word_of_it(
            value in sa_hostile::json(&["apiKey", "canary"]), noise in sa_hostile::noise(),
            nearly in sa_hostile::nearly(serde_json::json!({ "apiKey": "canary", "n": 1 })),
        ) {
            if let Value::Object(settings) = value {
                let written = header(&settings);
                proptest::prop_assert!(written.is_ascii() && !written.contains(char::is_control));
                proptest::prop_assert_eq!(parse_header(written.as_bytes()).unwrap(), settings);
            }
            for bytes in [noise, nearly.into_bytes()] {
                if let Err(why) = parse_header(&bytes) {
                    proptest::prop_assert!(!why.contains("canary") && why.len() < 200);
                }
            }
        }
    }
}
