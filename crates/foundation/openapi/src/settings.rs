//! The settings of a user or an operator for a document: secrets by security scheme, and server
//! variables by name.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use crate::security::{Kind, Scheme};
use crate::server::Variable;

/// The prefix of the settings for server variables.
pub(crate) const VARIABLE_PREFIX: &str = "server_";

/// The values for [`crate::Operation::request`]. Their `Debug` output is redacted.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    secrets: BTreeMap<String, SecretString>,
    clients: BTreeMap<String, (String, SecretString)>,
    tokens: BTreeMap<String, SecretString>,
    variables: BTreeMap<String, String>,
}

impl Settings {
    /// Sets the secret of a scheme: the API key, the bearer token, or `username:password` for basic
    /// authentication.
    #[must_use]
    pub fn secret(mut self, scheme: impl Into<String>, value: impl Into<String>) -> Self {
        self.secrets.insert(scheme.into(), SecretString::from(value.into()));
        self
    }

    /// Sets the client of an OAuth2 scheme.
    #[must_use]
    pub fn client(
        mut self,
        scheme: impl Into<String>,
        id: impl Into<String>,
        secret: impl Into<String>,
    ) -> Self {
        self.clients.insert(scheme.into(), (id.into(), SecretString::from(secret.into())));
        self
    }

    /// Sets the access token that was fetched for an OAuth2 scheme: see
    /// [`crate::Operation::tokens`].
    #[must_use]
    pub fn token(mut self, scheme: impl Into<String>, token: SecretString) -> Self {
        self.tokens.insert(scheme.into(), token);
        self
    }

    /// Sets the value of a server variable. Only an operator or a user sets these, never a model.
    #[must_use]
    pub fn server_variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    pub(crate) fn secret_of(&self, scheme: &str) -> Option<&str> {
        self.secrets
            .get(scheme)
            .map(SecretString::expose_secret)
            .filter(|secret| !secret.is_empty())
    }

    pub(crate) fn client_of(&self, scheme: &str) -> Option<(&str, &SecretString)> {
        self.clients.get(scheme).map(|(id, secret)| (id.as_str(), secret))
    }

    pub(crate) fn token_of(&self, scheme: &str) -> Option<&str> {
        self.tokens.get(scheme).map(SecretString::expose_secret)
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Reads the settings from an object that matches the document's settings schema. Other fields
    /// are ignored.
    pub(crate) fn pick<'a>(
        schemes: impl Iterator<Item = &'a Scheme>,
        variables: impl Iterator<Item = &'a str>,
        settings: &Value,
    ) -> Self {
        let text =
            |name: &str| settings.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let mut picked = Self::default();
        for scheme in schemes {
            let name = &scheme.name;
            let token = matches!(scheme.kind, Kind::OAuth2 { .. })
                .then(|| text(&access_token(name)))
                .flatten();
            if let Some(secret) = text(name).or(token) {
                picked = picked.secret(name, secret);
            } else if let Some(pair) = settings.get(name).filter(|value| value.is_object()) {
                // Other hosts store these settings as two fields of one object.
                let part = |key: &str| pair.get(key).and_then(Value::as_str);
                if let (Some(username), Some(password)) = (part("username"), part("password")) {
                    picked = picked.secret(name, format!("{username}:{password}"));
                }
            }
            if let (Some(id), Some(secret)) = (text(&client_id(name)), text(&client_secret(name))) {
                picked = picked.client(name, id, secret);
            }
        }
        for name in variables {
            if let Some(value) = text(&format!("{VARIABLE_PREFIX}{name}")) {
                picked = picked.server_variable(name, value);
            }
        }
        picked
    }
}

/// Returns a JSON Schema of a document's settings. Each setting has a flag whether all operations
/// need it. The settings of OAuth2 are never `required`, because a client and a token are
/// alternatives.
pub(crate) fn schema<'a>(
    schemes: impl Iterator<Item = (&'a Scheme, bool)>,
    variables: impl Iterator<Item = (&'a str, &'a Variable, bool)>,
) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    let mut add = |name: String, schema: Value, needed: bool| {
        if needed && !required.contains(&name) {
            required.push(name.clone());
        }
        properties.insert(name, schema);
    };
    for (scheme, needed) in schemes {
        let said = scheme.description.as_deref();
        let secret = |title: &str, words: &str| {
            let description =
                said.map_or_else(|| words.to_owned(), |said| format!("{words} {said}"));
            json!({"type": "string", "format": "password", "minLength": 1, "title": title, "description": description})
        };
        let name = &scheme.name;
        match &scheme.kind {
            Kind::ApiKey { name: key, .. } => {
                add(name.clone(), secret(key, "The API key."), needed);
            }
            Kind::Basic => {
                add(
                    name.clone(),
                    secret(name, "Username and password, as username:password."),
                    needed,
                );
            }
            Kind::Http(_) | Kind::OpenIdConnect => {
                add(
                    name.clone(),
                    secret(name, "The token, without a prefix such as Bearer."),
                    needed,
                );
            }
            Kind::OAuth2 { client: None } => {
                let mut token = secret(name, "An access token.");
                token["x-alias"] = json!(access_token(name));
                add(name.clone(), token, false);
            }
            Kind::OAuth2 { client: Some(client) } => {
                let description = format!("The client's id, for tokens from {}.", client.token_url);
                let id = json!({"type": "string", "minLength": 1, "title": "Client id", "description": description});
                add(client_id(name), id, false);
                add(client_secret(name), secret("Client secret", "The client's secret."), false);
                let token = secret("Access token", "An access token, instead of a client.");
                add(access_token(name), token, false);
            }
            Kind::Unsupported(_) => {}
        }
    }
    for (name, variable, everywhere) in variables {
        let mut schema = json!({"type": "string", "title": name});
        if let Some(description) = &variable.description {
            schema["description"] = json!(description);
        }
        if let Some(default) = &variable.default {
            schema["default"] = json!(default);
        }
        if !variable.values.is_empty() {
            schema["enum"] = json!(variable.values);
        }
        add(format!("{VARIABLE_PREFIX}{name}"), schema, everywhere && variable.default.is_none());
    }
    required.sort_unstable();
    json!({"type": "object", "properties": properties, "required": required})
}

pub(crate) fn client_id(scheme: &str) -> String {
    format!("{scheme}_clientId")
}

/// Returns the setting's name for the token of an OAuth2 scheme, as other hosts name it.
pub(crate) fn access_token(scheme: &str) -> String {
    format!("{scheme}_accessToken")
}

pub(crate) fn client_secret(scheme: &str) -> String {
    format!("{scheme}_clientSecret")
}
