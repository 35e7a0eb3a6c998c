//! Security schemes and requirements, which authenticate the caller to the server.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::document::Version;
use crate::encode::encode;
use crate::error::{Problem, ProblemKind, RequestError, RequestErrorKind};
use crate::refs::{Root, join, shown};
use crate::request::{Draft, forbidden_header, header_name, header_value};
use crate::settings::{Settings, access_token, client_id, client_secret};

/// One entry of `components.securitySchemes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scheme {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    ApiKey {
        place: KeyPlace,
        name: String,
    },
    Basic,
    /// `Authorization: WORD secret`, in which the word is usually `Bearer`.
    Http(String),
    OpenIdConnect,
    /// Without a client-credentials flow, the user must provide the token.
    OAuth2 {
        client: Option<ClientFlow>,
    },
    Unsupported(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyPlace {
    Header,
    Query,
    Cookie,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientFlow {
    pub(crate) token_url: String,
}

impl Scheme {
    pub(crate) fn read(name: &str, scheme: &Value) -> Result<Self, String> {
        let text = |key: &str| scheme.get(key).and_then(Value::as_str).unwrap_or_default();
        let kind = match text("type") {
            "apiKey" => {
                let place = match text("in") {
                    "header" => KeyPlace::Header,
                    "query" => KeyPlace::Query,
                    "cookie" => KeyPlace::Cookie,
                    other => {
                        return Err(format!(
                            "\"in\" has to be header, query or cookie, not \"{}\"",
                            shown(other)
                        ));
                    }
                };
                let name = text("name").to_owned();
                if name.is_empty() {
                    return Err("the API key has no \"name\"".to_owned());
                }
                if place != KeyPlace::Query && !header_name(&name) {
                    return Err(format!(
                        "\"{}\" is not a valid name for a header or cookie",
                        shown(&name)
                    ));
                }
                // Of the forbidden headers, only `Authorization` may carry a key.
                if place == KeyPlace::Header
                    && forbidden_header(&name)
                    && !name.eq_ignore_ascii_case("authorization")
                {
                    return Err(format!("the header \"{name}\" cannot carry a key"));
                }
                Kind::ApiKey { place, name }
            }
            "http" => match text("scheme").to_ascii_lowercase().as_str() {
                "basic" => Kind::Basic,
                "bearer" => Kind::Http("Bearer".to_owned()),
                scheme @ ("digest" | "mutual" | "negotiate" | "hoba" | "scram-sha-1"
                | "scram-sha-256" | "vapid") => Kind::Unsupported(scheme.to_owned()),
                _ if header_name(text("scheme")) => Kind::Http(text("scheme").to_owned()),
                _ => return Err("\"scheme\" has to be a word such as basic or bearer".to_owned()),
            },
            // Swagger 2.0 has this type, and only one flow per scheme.
            "basic" => Kind::Basic,
            "oauth2" => {
                let flow = scheme.pointer("/flows/clientCredentials");
                let flow = flow.or(Some(scheme).filter(|_| text("flow") == "application"));
                let client = flow.and_then(|flow| flow.get("tokenUrl")).and_then(Value::as_str);
                Kind::OAuth2 { client: client.map(|url| ClientFlow { token_url: url.to_owned() }) }
            }
            "openIdConnect" => Kind::OpenIdConnect,
            other => Kind::Unsupported(shown(other)),
        };
        let description = scheme.get("description").and_then(Value::as_str).map(str::to_owned);
        Ok(Self { name: name.to_owned(), description, kind })
    }

    /// Returns whether the settings contain the secret, or at least the client that can fetch a
    /// token.
    fn available(&self, settings: &Settings) -> bool {
        match &self.kind {
            Kind::Unsupported(_) => false,
            Kind::OAuth2 { client } => {
                settings.token_of(&self.name).is_some()
                    || settings.secret_of(&self.name).is_some()
                    || (client.is_some() && settings.client_of(&self.name).is_some())
            }
            _ => settings.secret_of(&self.name).is_some(),
        }
    }

    /// Returns the first setting of the scheme, and a description of all its settings.
    fn settings(&self) -> (String, String) {
        let name = &self.name;
        match &self.kind {
            Kind::OAuth2 { client: Some(_) } => {
                let (id, secret, token) =
                    (client_id(name), client_secret(name), access_token(name));
                let words = format!("\"{id}\" and \"{secret}\", or \"{token}\"");
                (id, words)
            }
            _ => (name.clone(), format!("\"{name}\"")),
        }
    }

    fn apply(&self, settings: &Settings, draft: &mut Draft) -> Result<(), RequestError> {
        let missing = || {
            let message =
                format!("the token for \"{}\" has to be fetched before the call", self.name);
            RequestError::new(RequestErrorKind::MissingToken, &self.name, message)
        };
        let token =
            settings.token_of(&self.name).filter(|_| matches!(self.kind, Kind::OAuth2 { .. }));
        let secret = token.or_else(|| settings.secret_of(&self.name)).ok_or_else(missing)?;
        let value = |text: String| {
            header_value(&text).map_err(|why| RequestError::setting(&self.name, why)).map(|()| text)
        };
        match &self.kind {
            Kind::ApiKey { place: KeyPlace::Header, name } => {
                draft.set_header(name, value(secret.to_owned())?);
            }
            Kind::ApiKey { place: KeyPlace::Query, name } => {
                draft.query.push((encode(name), encode(secret)));
            }
            Kind::ApiKey { place: KeyPlace::Cookie, name } => {
                if secret.contains([';', ',', '"', '\\']) || secret.contains(char::is_whitespace) {
                    return Err(RequestError::setting(
                        &self.name,
                        "has a character that a cookie cannot carry",
                    ));
                }
                draft.cookies.push((name.clone(), value(secret.to_owned())?));
            }
            Kind::Basic if !secret.contains(':') => {
                return Err(RequestError::setting(
                    &self.name,
                    "has to be written as username:password",
                ));
            }
            Kind::Basic => {
                draft.set_header("Authorization", format!("Basic {}", STANDARD.encode(secret)));
            }
            Kind::Http(word) => {
                draft.set_header("Authorization", value(format!("{word} {secret}"))?);
            }
            Kind::OpenIdConnect | Kind::OAuth2 { .. } => {
                draft.set_header("Authorization", value(format!("Bearer {secret}"))?);
            }
            Kind::Unsupported(_) => return Err(missing()),
        }
        Ok(())
    }
}

/// Schemes that are required together, with their scopes.
pub(crate) type Together = Vec<(Arc<Scheme>, Vec<String>)>;

/// Alternatives, one of which is required.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requirement {
    pub(crate) alternatives: Arc<[Together]>,
}

static NOTHING: &Together = &Vec::new();

impl Requirement {
    pub(crate) fn read(
        security: &Value,
        pointer: &str,
        schemes: &[Arc<Scheme>],
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut alternatives = Vec::new();
        for (index, alternative) in security.as_array().into_iter().flatten().enumerate().take(64) {
            let mut together = Vec::new();
            for (name, scopes) in alternative.as_object().into_iter().flatten() {
                let Some(scheme) = schemes.iter().find(|scheme| scheme.name == *name) else {
                    let message = format!(
                        "the security scheme \"{}\" is not usable or not defined; requests are sent without it",
                        shown(name)
                    );
                    let pointer = join(&join(pointer, index), name);
                    problems.push(Problem::new(ProblemKind::BrokenReference, pointer, message));
                    continue;
                };
                let scopes = scopes
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .map(str::to_owned);
                together.push((scheme.clone(), scopes.collect()));
            }
            alternatives.push(together);
        }
        Self { alternatives: alternatives.into() }
    }

    /// Returns the first alternative for which the settings are sufficient, or an empty one if that
    /// is allowed.
    pub(crate) fn choose(&self, settings: &Settings) -> Result<&Together, RequestError> {
        let able = |together: &&Together| {
            !together.is_empty() && together.iter().all(|(scheme, _)| scheme.available(settings))
        };
        if let Some(chosen) = self.alternatives.iter().find(able) {
            return Ok(chosen);
        }
        if self.alternatives.is_empty() || self.alternatives.iter().any(Vec::is_empty) {
            return Ok(NOTHING);
        }
        Err(self.missing(settings))
    }

    pub(crate) fn apply(&self, settings: &Settings, draft: &mut Draft) -> Result<(), RequestError> {
        self.choose(settings)?.iter().try_for_each(|(scheme, _)| scheme.apply(settings, draft))
    }

    pub(crate) fn schemes(&self) -> impl Iterator<Item = &Arc<Scheme>> {
        self.alternatives.iter().flatten().map(|(scheme, _)| scheme)
    }

    /// Returns an error with the missing settings of each alternative.
    fn missing(&self, settings: &Settings) -> RequestError {
        let mut ways = Vec::new();
        let mut unsupported = Vec::new();
        let mut first = String::new();
        for together in self.alternatives.iter() {
            let lacking = together.iter().filter(|(scheme, _)| !scheme.available(settings));
            let (mut names, mut possible) = (Vec::new(), true);
            for (scheme, _) in lacking {
                if let Kind::Unsupported(kind) = &scheme.kind {
                    possible = false;
                    unsupported.push(format!("\"{}\" ({kind})", scheme.name));
                }
                names.push(scheme.settings());
            }
            if possible {
                if let Some((name, _)) = names.first().filter(|_| first.is_empty()) {
                    first.clone_from(name);
                }
                ways.push(
                    names.into_iter().map(|(_, words)| words).collect::<Vec<_>>().join(" and "),
                );
            }
        }
        let message = match (ways.as_slice(), first.as_str()) {
            ([], _) => {
                format!("the operation asks for {}, which is not supported", unsupported.join(", "))
            }
            ([way], _) => format!("the operation needs the setting {way}, which is not set"),
            (ways, _) => format!(
                "the operation needs one of these settings, and none is set: {}",
                ways.join("; ")
            ),
        };
        RequestError::new(RequestErrorKind::MissingSetting, first, message)
    }
}

/// The maximum number of schemes.
const MAX_SCHEMES: usize = 100;

/// Returns all readable schemes of the document.
pub(crate) fn schemes(
    root: Root<'_>,
    version: Version,
    problems: &mut Vec<Problem>,
) -> Vec<Arc<Scheme>> {
    let mut schemes = Vec::new();
    let place = if version == Version::Swagger {
        "/securityDefinitions"
    } else {
        "/components/securitySchemes"
    };
    for (name, scheme) in
        root.0.pointer(place).and_then(Value::as_object).into_iter().flatten().take(MAX_SCHEMES)
    {
        let pointer = join(place, name);
        match root.follow(scheme, &pointer) {
            Err(problem) => problems.push(problem),
            Ok(scheme) => match Scheme::read(name, scheme) {
                Ok(scheme) => {
                    if let Kind::Unsupported(kind) = &scheme.kind {
                        let message = format!(
                            "the security scheme is of the kind \"{kind}\", which is not supported"
                        );
                        problems.push(Problem::new(ProblemKind::Unsupported, &pointer, message));
                    }
                    schemes.push(Arc::new(scheme));
                }
                Err(why) => problems.push(Problem::new(ProblemKind::Malformed, pointer, why)),
            },
        }
    }
    schemes
}
