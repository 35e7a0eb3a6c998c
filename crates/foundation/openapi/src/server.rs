//! The destination of a request: the server nearest to the operation, with its variables filled in.

use std::collections::BTreeMap;

use serde_json::Value;
use url::Url;

use crate::encode::encode;
use crate::error::{RequestError, RequestErrorKind};
use crate::refs::shown;
use crate::settings::{Settings, VARIABLE_PREFIX};

#[derive(Debug, Clone)]
pub(crate) struct Server {
    template: String,
    pub(crate) variables: BTreeMap<String, Variable>,
    /// The URL of the document; relative servers are relative to it.
    source: Option<Url>,
    /// The URL if the server has no variables, which is the usual case.
    fixed: Option<Url>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Variable {
    pub(crate) default: Option<String>,
    pub(crate) values: Vec<String>,
    pub(crate) description: Option<String>,
}

impl Server {
    /// Returns the first server of a `servers` list.
    pub(crate) fn first(servers: &Value, source: Option<&Url>) -> Option<Self> {
        servers.as_array()?.iter().find_map(|server| Self::new(server, source))
    }

    /// Returns the default server if the document names none.
    pub(crate) fn fallback(source: Option<&Url>) -> Self {
        Self::new(&serde_json::json!({"url": "/"}), source).expect("it has an address")
    }

    pub(crate) fn new(server: &Value, source: Option<&Url>) -> Option<Self> {
        let template = server.get("url")?.as_str()?.trim().to_owned();
        let mut variables = BTreeMap::new();
        for (name, variable) in
            server.get("variables").and_then(Value::as_object).into_iter().flatten()
        {
            let text = |value: &Value| match value {
                Value::String(text) => Some(text.clone()),
                Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
                _ => None,
            };
            let values = variable.get("enum").and_then(Value::as_array);
            let values: Vec<_> = values.into_iter().flatten().filter_map(text).collect();
            let description =
                variable.get("description").and_then(Value::as_str).map(str::to_owned);
            let default =
                variable.get("default").and_then(text).or_else(|| values.first().cloned());
            variables.insert(name.clone(), Variable { default, values, description });
        }
        let mut server = Self { template, variables, source: source.cloned(), fixed: None };
        if !server.template.contains('{') {
            server.fixed = server.url(&Settings::default()).ok();
        }
        Some(server)
    }

    /// Returns the server's URL. Its path is the prefix of all paths of the document.
    pub(crate) fn url(&self, settings: &Settings) -> Result<Url, RequestError> {
        if let Some(url) = &self.fixed {
            return Ok(url.clone());
        }
        let filled = self.fill(settings)?;
        let wrong = |why: &str| {
            let message = format!("the document's server \"{}\" {why}", shown(&self.template));
            RequestError::new(RequestErrorKind::Server, "", message)
        };
        let parsed = match (Url::parse(&filled), &self.source) {
            (Err(url::ParseError::RelativeUrlWithoutBase), Some(source)) => source.join(&filled),
            (parsed, _) => parsed,
        };
        let mut url = parsed.map_err(|error| match error {
            url::ParseError::RelativeUrlWithoutBase => wrong(
                "is relative, but the document's own address is unknown; use an absolute address",
            ),
            error => wrong(&format!("is not a valid address: {error}")),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("is neither http nor https"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("contains a username or a password; use a security scheme"));
        }
        url.set_fragment(None);
        Ok(url)
    }

    fn fill(&self, settings: &Settings) -> Result<String, RequestError> {
        let mut filled = String::new();
        let mut rest = self.template.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else { break };
            filled.push_str(before);
            let variable = self.variables.get(name);
            let value = match (
                settings.variable(name),
                variable.and_then(|variable| variable.default.as_deref()),
            ) {
                // The author may choose any value, even if a setting repeats it.
                (Some(set), Some(default)) if set == default => default.to_owned(),
                (Some(set), _) => {
                    let values = variable.map_or(&[][..], |variable| &variable.values);
                    let written =
                        &self.template[..self.template.len() - after.len() - name.len() - 2];
                    checked(name, set, values, position(written, after))?
                }
                (None, Some(default)) => default.to_owned(),
                (None, None) => {
                    let setting = format!("{VARIABLE_PREFIX}{name}");
                    let message =
                        format!("the server needs the setting \"{setting}\", which has no default");
                    return Err(RequestError::new(
                        RequestErrorKind::MissingSetting,
                        setting,
                        message,
                    ));
                }
            };
            filled.push_str(&value);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Scheme,
    /// The whole host: the author leaves it to the user.
    Host,
    /// A part of a host with a fixed end.
    Label,
    Port,
    Path,
    /// A position where any other value would change the host.
    Fixed,
}

/// Returns the part of the URL that contains a variable, based on the text before and after it.
fn position(before: &str, after: &str) -> Position {
    let Some((_, authority)) = before.split_once("//") else {
        return match before {
            "" if after.starts_with("://") => Position::Scheme,
            // There is no host, so it is a path on the document's own server.
            _ if before.starts_with('/') => Position::Path,
            _ => Position::Fixed,
        };
    };
    if authority.contains(['/', '?', '#']) {
        return Position::Path;
    }
    let next = after.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.ends_with(':') && next.is_empty() {
        Position::Port
    } else if authority.is_empty() && (next.is_empty() || next.starts_with(':')) {
        Position::Host
    } else if next
        .rfind('.')
        .is_some_and(|dot| dot + 1 < next.len() && !next[dot..].contains(['{', '}']))
    {
        Position::Label
    } else {
        Position::Fixed
    }
}

/// Checks a value of the user: it must be one that the author lists, or one that stays within its
/// part of the URL.
fn checked(
    name: &str,
    value: &str,
    values: &[String],
    position: Position,
) -> Result<String, RequestError> {
    let setting = format!("{VARIABLE_PREFIX}{name}");
    if !values.is_empty() {
        if values.iter().any(|known| known == value) {
            return Ok(value.to_owned());
        }
        let known = values.iter().take(20).map(|value| shown(value)).collect::<Vec<_>>().join(", ");
        return Err(RequestError::setting(&setting, format_args!("has to be one of: {known}")));
    }
    let letters = |extra: &str| {
        !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
    };
    let (fits, expected) = match position {
        Position::Scheme => (matches!(value, "http" | "https"), "has to be http or https"),
        Position::Host => (letters(".-"), "has to be a host name"),
        Position::Label => (letters("-"), "may only have letters, digits and dashes"),
        Position::Port => (value.parse::<u16>().is_ok(), "has to be a port"),
        Position::Path => (
            !value.split('/').any(|segment| matches!(segment, "" | "." | "..")),
            "has to be a path without a slash at its ends, and without \".\" or \"..\" in it",
        ),
        Position::Fixed => {
            (false, "would change the host, and the document lists no values for it")
        }
    };
    if !fits {
        return Err(RequestError::setting(&setting, expected));
    }
    if position == Position::Path {
        return Ok(value.split('/').map(encode).collect::<Vec<_>>().join("/"));
    }
    Ok(value.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_default_may_be_set_and_nothing_else_that_leaves_its_place() {
        let check = |template: &str, default: &str, expected: &str, forbidden: &str| {
            let server = json!([{ "url": template, "variables": { "v": { "default": default } } }]);
            let server = Server::first(&server, None).unwrap();
            let url = |value: &str| server.url(&Settings::default().server_variable("v", value));
            assert_eq!(url(default).unwrap().as_str(), expected, "{template}");
            assert_eq!(server.url(&Settings::default()).unwrap().as_str(), expected, "{template}");
            assert!(url(forbidden).is_err(), "{template}: {forbidden}");
        };
        check("http://{v}/", "api.example:8080", "http://api.example:8080/", "evil.example:8080");
        check("https://{v}example.com/", "eu.", "https://eu.example.com/", "evil.test/");
        check("https://api.example/{v}", "v1/", "https://api.example/v1/", "v2/");
    }
}
