//! One operation: a tool, and the request of each of its calls.

use std::sync::Arc;

use indexmap::IndexMap;
use secrecy::ExposeSecret;
use url::Url;

use crate::body::{self, Body};
use crate::error::{RequestError, RequestErrorKind};
use crate::json::Json;
use crate::parameter::{Parameter, Place};
use crate::request::{Draft, HttpRequest};
use crate::security::{ClientFlow, Kind, Requirement};
use crate::server::Server;
use crate::settings::Settings;
use crate::token::TokenRequest;

/// An operation of a [`crate::Document`], with all precomputed data that a call needs.
#[derive(Debug, Clone)]
pub struct Operation {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) description: String,
    pub(crate) deprecated: bool,
    pub(crate) tags: Vec<String>,
    pub(crate) input_schema: Box<str>,
    pub(crate) pieces: Vec<Piece>,
    /// The query that some documents add to the path.
    pub(crate) fixed_query: Option<String>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Option<Body>,
    pub(crate) server: Arc<Server>,
    pub(crate) security: Requirement,
}

/// A piece of a path.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    /// Encoded text.
    Fixed(String),
    /// The index of a parameter.
    Variable(usize),
}

/// Properties of an operation that follow from its method, for tools' annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hints {
    pub read_only: bool,
    pub idempotent: bool,
    pub destructive: bool,
}

impl Operation {
    /// Returns the tool name. It matches `^[a-zA-Z0-9_-]{1,64}$`, and is unique in the document.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the `operationId` of the document.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns the HTTP method in uppercase.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the path of the document, such as `/pets/{petId}`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns summary and description, with a note if the operation is deprecated.
    pub fn description(&self) -> &str {
        &self.description
    }

    pub fn deprecated(&self) -> bool {
        self.deprecated
    }

    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// Returns a JSON Schema (2020-12) of the arguments, as text: parameters are flat, and the body
    /// is `_requestBody`.
    pub fn input_schema(&self) -> &str {
        &self.input_schema
    }

    pub fn hints(&self) -> Hints {
        let method = self.method.as_str();
        let read_only = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "QUERY");
        Hints {
            read_only,
            idempotent: read_only || matches!(method, "PUT" | "DELETE"),
            destructive: method == "DELETE",
        }
    }

    /// Returns the URL of the server, without the operation's path.
    pub fn server(&self, settings: &Settings) -> Result<Url, RequestError> {
        self.server.url(settings)
    }

    /// Returns the tokens to fetch before [`Self::request`], if the settings have OAuth2 clients
    /// but no tokens yet.
    pub fn tokens(&self, settings: &Settings) -> Result<Vec<TokenRequest>, RequestError> {
        let mut tokens = Vec::new();
        for (scheme, scopes) in self.security.choose(settings)? {
            let Kind::OAuth2 { client: Some(flow) } = &scheme.kind else { continue };
            let Some((id, secret)) = settings.client_of(&scheme.name) else { continue };
            if settings.token_of(&scheme.name).is_some()
                || settings.secret_of(&scheme.name).is_some()
            {
                continue;
            }
            let token_url = token_url(flow, &self.server(settings)?).ok_or_else(|| {
                let message = format!(
                    "the token URL of the security scheme \"{}\" is not a web address",
                    scheme.name
                );
                RequestError::new(RequestErrorKind::Server, "", message)
            })?;
            tokens.push(TokenRequest {
                scheme: scheme.name.clone(),
                token_url,
                scopes: scopes.clone(),
                client_id: id.to_owned(),
                client_secret: secret.expose_secret().into(),
            });
        }
        Ok(tokens)
    }

    /// Returns every URL from which a token may be fetched, for all alternatives.
    pub fn token_urls(&self, settings: &Settings) -> Vec<Url> {
        let Ok(base) = self.server(settings) else { return Vec::new() };
        let flows = self.security.schemes().filter_map(|scheme| match &scheme.kind {
            Kind::OAuth2 { client } => client.as_ref(),
            _ => None,
        });
        flows.filter_map(|flow| token_url(flow, &base)).collect()
    }

    /// Builds the request of a call. `arguments` is an object, or `null` for none. The caller has
    /// checked it against the input schema; constraints of the schema, such as a number's range,
    /// are not checked again.
    pub fn request(
        &self,
        arguments: &Json,
        settings: &Settings,
    ) -> Result<HttpRequest, RequestError> {
        let none = IndexMap::new();
        let arguments = match arguments {
            Json::Object(arguments) => arguments,
            Json::Null => &none,
            _ => {
                let message = "the arguments have to be an object";
                return Err(RequestError::new(RequestErrorKind::InvalidArgument, "", message));
            }
        };
        self.refuse_unknown(arguments)?;
        let base = self.server.url(settings)?;
        let mut draft = Draft::new(self.path_of(arguments)?);
        draft.set_header("Accept", "application/json, text/*;q=0.9, */*;q=0.8".to_owned());
        draft.query.extend(self.fixed_query.iter().map(|query| (String::new(), query.clone())));
        for parameter in self.parameters.iter().filter(|parameter| parameter.place != Place::Path) {
            if let Some(value) = value_of(parameter, arguments)? {
                parameter.write(value, &mut draft)?;
            }
        }
        if let Some(body) = &self.body {
            match arguments.get(body::ARGUMENT).filter(|value| !value.is_null()) {
                Some(value) => body.write(value, &mut draft)?,
                None if body.required => return Err(missing(body::ARGUMENT)),
                None => {}
            }
        }
        self.security.apply(settings, &mut draft)?;
        draft.finish(&self.method, &base)
    }

    fn path_of(&self, arguments: &IndexMap<String, Json>) -> Result<String, RequestError> {
        let mut path = String::new();
        let mut places = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Fixed(text) => path.push_str(text),
                Piece::Variable(index) => {
                    let parameter = &self.parameters[*index];
                    let value = value_of(parameter, arguments)?
                        .ok_or_else(|| missing(&parameter.argument))?;
                    places.push((path.len(), parameter));
                    path.push_str(&parameter.in_path(value)?);
                }
            }
        }
        // A segment ".." leads to the parent, even if its dots are encoded, so it cannot be sent as
        // a value.
        for (place, parameter) in places {
            let start = path[..place].rfind('/').map_or(0, |slash| slash + 1);
            let segment = path[start..].split('/').next().unwrap_or_default();
            if matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..") {
                return Err(RequestError::argument(
                    &parameter.argument,
                    "would lead to another path",
                ));
            }
        }
        Ok(path)
    }

    /// Rejects unknown arguments. A misspelled one would otherwise be ignored silently.
    fn refuse_unknown(&self, arguments: &IndexMap<String, Json>) -> Result<(), RequestError> {
        let body = self.body.is_some().then_some(body::ARGUMENT);
        let known = |name: &String| {
            body == Some(name.as_str())
                || self
                    .parameters
                    .iter()
                    .any(|parameter| parameter.argument == *name || parameter.alias() == Some(name))
        };
        let Some(unknown) = arguments.keys().find(|name| !known(name)) else { return Ok(()) };
        let names: Vec<_> = self
            .parameters
            .iter()
            .map(|parameter| parameter.argument.as_str())
            .chain(body)
            .collect();
        let names = if names.is_empty() {
            "it takes none".to_owned()
        } else {
            format!("it takes: {}", names.join(", "))
        };
        let unknown = crate::refs::shown(unknown);
        let message = format!("the operation has no argument \"{unknown}\"; {names}");
        Err(RequestError::new(RequestErrorKind::UnknownArgument, unknown, message))
    }
}

fn token_url(flow: &ClientFlow, base: &Url) -> Option<Url> {
    base.join(&flow.token_url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
}

/// Returns an argument by the tool's name for it, or else by the document's.
fn value_of<'a>(
    parameter: &Parameter,
    arguments: &'a IndexMap<String, Json>,
) -> Result<Option<&'a Json>, RequestError> {
    let value = arguments.get(&parameter.argument).or_else(|| arguments.get(parameter.alias()?));
    let value = value.filter(|value| !value.is_null());
    if value.is_none() && parameter.required {
        return Err(missing(&parameter.argument));
    }
    Ok(value)
}

fn missing(argument: &str) -> RequestError {
    let message = format!("the required argument \"{argument}\" is missing");
    RequestError::new(RequestErrorKind::MissingArgument, argument, message)
}
