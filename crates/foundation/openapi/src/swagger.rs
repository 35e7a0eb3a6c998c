//! The parts that Swagger 2.0 writes differently from OpenAPI 3: the server, the format of lists,
//! and bodies (see `body`).
//!
//! A document is read directly, without converting it first: nothing is copied, references into it
//! stay valid, and problems are reported at their original positions.

use serde_json::{Map, Value, json};
use url::Url;

use crate::parameter::Place;
use crate::refs::{MAX_TEXT, Root};
use crate::style::{Style, Writing};

/// Returns `https` if the operation or the document lists it, or else `http`. If neither is listed,
/// returns the scheme with which the document was fetched.
pub(crate) fn scheme(root: Root<'_>, operation: &Value, source: Option<&Url>) -> &'static str {
    let listed = |holder: &Value| {
        let schemes = holder.get("schemes")?.as_array()?;
        let has = |name: &str| schemes.iter().any(|scheme| scheme.as_str() == Some(name));
        ["https", "http"].into_iter().find(|name| has(name))
    };
    let fetched =
        if source.is_some_and(|source| source.scheme() == "http") { "http" } else { "https" };
    listed(operation).or_else(|| listed(root.0)).unwrap_or(fetched)
}

/// Returns the server in the form of OpenAPI 3.
pub(crate) fn server(root: Root<'_>, scheme: &str) -> Value {
    let text = |holder: &Value, key: &str| {
        holder
            .get(key)
            .and_then(Value::as_str)
            .filter(|text| text.len() <= MAX_TEXT)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let base = text(root.0, "basePath");
    let base = if base.starts_with('/') { base } else { format!("/{base}") };
    if let Some(template) = root.0.get("x-ms-parameterized-host") {
        let prefix =
            if template.get("useSchemePrefix") == Some(&Value::Bool(false)) { "" } else { scheme };
        let separator = if prefix.is_empty() { "" } else { "://" };
        let url = format!("{prefix}{separator}{}{base}", text(template, "hostTemplate"));
        return json!({"url": url, "variables": variables(root, template)});
    }
    // Some authors write a whole URL.
    let host = text(root.0, "host");
    let host = host.split_once("://").map_or(host.as_str(), |(_, host)| host).trim_end_matches('/');
    // Without a host, the server is the one from which the document was fetched.
    let url = if host.is_empty() { base } else { format!("{scheme}://{host}{base}") };
    json!({"url": url})
}

fn variables(root: Root<'_>, template: &Value) -> Map<String, Value> {
    const MAX_VARIABLES: usize = 16;
    let parameters = template
        .get("parameters")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .take(MAX_VARIABLES);
    let parameters = parameters.filter_map(|parameter| root.follow(parameter, "").ok());
    let variables = parameters.filter_map(|parameter| {
        let name = parameter.get("name")?.as_str().filter(|name| name.len() <= MAX_TEXT)?;
        let known = ["default", "enum", "description"].into_iter();
        let fields = known.filter_map(|key| Some((key.to_owned(), parameter.get(key)?.clone())));
        Some((name.to_owned(), Value::Object(fields.collect())))
    });
    variables.collect()
}

/// Returns the notation of a list: `collectionFormat`, which is `csv` by default.
pub(crate) fn writing(written: &Value, place: Place) -> Writing {
    let format = written.get("collectionFormat").and_then(Value::as_str).unwrap_or("csv");
    let style = match (place, format) {
        (Place::Path | Place::Header, _) => Style::Simple,
        (_, "ssv") => Style::SpaceDelimited,
        (_, "tsv") => Style::TabDelimited,
        (_, "pipes") => Style::PipeDelimited,
        _ => Style::Form,
    };
    Writing { style, explode: style == Style::Form && format == "multi", allow_reserved: false }
}
