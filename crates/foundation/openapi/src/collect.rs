//! Collects the operations of a document's paths.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use url::Url;

use crate::body;
use crate::document::Version;
use crate::encode::encode_path;
use crate::error::{DocumentError, DocumentErrorKind, Problem, ProblemKind};
use crate::names;
use crate::operation::{Operation, Piece};
use crate::parameter::{self, Parameter, Place};
use crate::read::Limits;
use crate::refs::{MAX_TEXT, Root, join, shown};
use crate::schema::Collector;
use crate::security::{KeyPlace, Kind, Requirement, Scheme};
use crate::server::Server;
use crate::swagger;

const METHODS: [&str; 9] =
    ["get", "put", "post", "delete", "options", "head", "patch", "trace", "query"];

/// The maximum length of a description. Longer ones are truncated, because a model reads all of
/// them.
const MAX_DESCRIPTION: usize = 4_096;

/// The maximum number of parameters of a path, and of an operation.
const MAX_PARAMETERS: usize = 200;

/// The maximum number of problems that are stored.
const MAX_PROBLEMS: usize = 500;

pub(crate) struct Reading<'a> {
    pub(crate) root: Root<'a>,
    pub(crate) version: Version,
    pub(crate) source: Option<&'a Url>,
    pub(crate) limits: &'a Limits,
    pub(crate) schemes: &'a [Arc<Scheme>],
    pub(crate) security: Requirement,
    pub(crate) problems: Vec<Problem>,
    taken: HashSet<String>,
    schema_bytes: usize,
    /// A cache of parsed values of the document, by their address. Many operations share a server
    /// or a requirement, and a document could make each of them large.
    servers: HashMap<*const Value, Option<Arc<Server>>>,
    /// The server of Swagger 2.0, by its scheme.
    by_scheme: HashMap<&'static str, Option<Arc<Server>>>,
    requirements: HashMap<*const Value, Requirement>,
}

/// An operation's position in the document.
struct Site<'a> {
    path: &'a str,
    method: String,
    item: &'a Value,
    item_pointer: String,
    operation: &'a Value,
    pointer: String,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(
        root: Root<'a>,
        version: Version,
        source: Option<&'a Url>,
        limits: &'a Limits,
        schemes: &'a [Arc<Scheme>],
        mut problems: Vec<Problem>,
    ) -> Self {
        let security = root.0.get("security").unwrap_or(&Value::Null);
        let security = Requirement::read(security, "/security", schemes, &mut problems);
        Self {
            root,
            version,
            source,
            limits,
            schemes,
            security,
            problems,
            taken: HashSet::new(),
            schema_bytes: 0,
            servers: HashMap::new(),
            by_scheme: HashMap::new(),
            requirements: HashMap::new(),
        }
    }

    pub(crate) fn operations(&mut self) -> Result<Vec<Operation>, DocumentError> {
        let mut operations = Vec::new();
        for site in self.sites()? {
            let mut problems = Vec::new();
            match self.operation(&site, &mut problems) {
                Ok(operation) => operations.push(operation),
                Err(mut problem) => {
                    let which = format!("{} {} is left out: ", site.method, shown(site.path));
                    problem.message.insert_str(0, &which);
                    problems.push(problem);
                }
            }
            problems.truncate(MAX_PROBLEMS.saturating_sub(self.problems.len()));
            self.problems.append(&mut problems);
            if self.schema_bytes > self.limits.total_schema_bytes {
                let message = format!(
                    "the schemas of all operations together are larger than {} bytes; split the document",
                    self.limits.total_schema_bytes
                );
                return Err(DocumentError::new(DocumentErrorKind::TooLarge, "/paths", message));
            }
        }
        Ok(operations)
    }

    fn sites(&mut self) -> Result<Vec<Site<'a>>, DocumentError> {
        let mut sites = Vec::new();
        let paths = self.root.0.get("paths").and_then(Value::as_object);
        for (path, item) in paths.into_iter().flatten().filter(|(path, _)| !path.starts_with("x-"))
        {
            let item = if path.len() <= MAX_TEXT {
                self.root.follow(item, &join("/paths", path))
            } else {
                let message =
                    format!("the path {}… is too long; its operations are left out", shown(path));
                Err(Problem::new(ProblemKind::Malformed, "/paths", message))
            };
            let item_pointer = join("/paths", path);
            let item = match item {
                Ok(item) => item,
                Err(problem) => {
                    if self.problems.len() < MAX_PROBLEMS {
                        self.problems.push(problem);
                    }
                    continue;
                }
            };
            let known = METHODS
                .iter()
                .filter_map(|method| Some((*method, item.get(*method)?, item_pointer.clone())));
            let more =
                item.get("additionalOperations").and_then(Value::as_object).into_iter().flatten();
            let more = more.map(|(method, operation)| {
                (method.as_str(), operation, join(&item_pointer, "additionalOperations"))
            });
            for (method, operation, place) in known.chain(more) {
                let usable =
                    method.len() <= 32 && method.bytes().all(|byte| byte.is_ascii_alphabetic());
                if !operation.is_object() || !usable {
                    continue;
                }
                if sites.len() >= self.limits.operations {
                    let message =
                        format!("the document has more than {} operations", self.limits.operations);
                    return Err(DocumentError::new(DocumentErrorKind::TooLarge, "/paths", message));
                }
                let pointer = join(&place, method);
                let (method, item_pointer) = (method.to_ascii_uppercase(), item_pointer.clone());
                sites.push(Site { path, method, item, item_pointer, operation, pointer });
            }
        }
        Ok(sites)
    }

    fn operation(
        &mut self,
        site: &Site<'a>,
        problems: &mut Vec<Problem>,
    ) -> Result<Operation, Problem> {
        let written = site.operation;
        let security = match written.get("security") {
            Some(security) => {
                let known = self.requirements.entry(std::ptr::from_ref(security));
                let read = || {
                    Requirement::read(
                        security,
                        &join(&site.pointer, "security"),
                        self.schemes,
                        problems,
                    )
                };
                known.or_insert_with(read).clone()
            }
            None => self.security.clone(),
        };
        let (path, fixed_query) = split_path(site.path);
        let (mut declared, in_body) = self.parameters(site, &security, problems)?;
        let variables = variables(path);
        declared.retain(|declared| {
            let Parameter { place, name, .. } = &declared.parameter;
            let used = *place != Place::Path || variables.contains(&name.as_str());
            if !used {
                let message =
                    format!("the path has no variable \"{}\" for this parameter", shown(name));
                problems.push(Problem::new(ProblemKind::Ignored, &site.pointer, message));
            }
            used
        });
        let body = match written.get("requestBody") {
            _ if self.version == Version::Swagger => {
                let consumes = written.get("consumes").or_else(|| self.root.0.get("consumes"));
                body::Declared::of_parameters(self.root, in_body, consumes, problems)
            }
            Some(body) => body::Declared::read(
                self.root,
                body,
                &join(&site.pointer, "requestBody"),
                problems,
            )?,
            None => None,
        };
        let mut parameters: Vec<_> =
            declared.iter().map(|declared| declared.parameter.clone()).collect();
        for name in &variables {
            if !parameters.iter().any(|known| known.place == Place::Path && known.name == *name) {
                parameters.push(parameter::undeclared(name));
            }
        }
        name_arguments(&mut parameters, body.is_some());
        let input_schema =
            self.input_schema(&declared, &parameters, body.as_ref(), &site.pointer, problems)?;
        let id = written.get("operationId").and_then(Value::as_str);
        let id = id.filter(|id| !id.is_empty() && id.len() <= MAX_TEXT);
        let deprecated = written.get("deprecated") == Some(&Value::Bool(true));
        let tags = written.get("tags").and_then(Value::as_array).into_iter().flatten();
        let server = match self.version {
            Version::Swagger => {
                let scheme = swagger::scheme(self.root, written, self.source);
                let read =
                    || Server::new(&swagger::server(self.root, scheme), self.source).map(Arc::new);
                self.by_scheme.entry(scheme).or_insert_with(read).clone()
            }
            Version::Three | Version::ThreeOne => {
                let servers =
                    [written.get("servers"), site.item.get("servers"), self.root.0.get("servers")];
                servers.into_iter().flatten().find_map(|servers| self.server(servers))
            }
        };
        Ok(Operation {
            name: names::operation(id, &site.method, site.path, &mut self.taken),
            id: id.map(str::to_owned),
            method: site.method.clone(),
            path: site.path.to_owned(),
            description: describe(site, deprecated),
            deprecated,
            tags: tags
                .filter_map(Value::as_str)
                .filter(|tag| tag.len() <= 100)
                .map(str::to_owned)
                .take(16)
                .collect(),
            input_schema: input_schema.into(),
            pieces: pieces(path, &parameters),
            fixed_query: fixed_query.map(str::to_owned),
            parameters,
            body: body.map(|declared| declared.body),
            server: server.unwrap_or_else(|| Arc::new(Server::fallback(self.source))),
            security,
        })
    }

    fn server(&mut self, servers: &Value) -> Option<Arc<Server>> {
        let read = || Server::first(servers, self.source).map(Arc::new);
        self.servers.entry(std::ptr::from_ref(servers)).or_insert_with(read).clone()
    }

    /// Returns the parameters of the path and the operation; the operation's own take precedence.
    /// Also returns the body parameters of Swagger 2.0. Parameters that carry a security scheme are
    /// left out: the secret comes from the settings, and no model should be asked for it.
    fn parameters(
        &self,
        site: &Site<'a>,
        security: &Requirement,
        problems: &mut Vec<Problem>,
    ) -> Result<(Vec<parameter::Declared<'a>>, Vec<body::InBody<'a>>), Problem> {
        let mut found: Vec<parameter::Declared<'a>> = Vec::new();
        let mut in_body: Vec<body::InBody<'a>> = Vec::new();
        let schemes: BTreeMap<_, _> =
            security.schemes().map(|scheme| (&scheme.name, scheme)).collect();
        for (holder, pointer) in [(site.operation, &site.pointer), (site.item, &site.item_pointer)]
        {
            let pointer = join(pointer, "parameters");
            let written = holder.get("parameters").and_then(Value::as_array).into_iter().flatten();
            for (index, written) in written.enumerate().take(MAX_PARAMETERS) {
                let pointer = join(&pointer, index);
                let written = self.root.follow(written, &pointer)?;
                if self.version == Version::Swagger && body::InBody::is_one(written) {
                    in_body.push(body::InBody { written, pointer });
                    continue;
                }
                let Some(declared) =
                    parameter::Declared::read(self.version, written, &pointer, problems)
                else {
                    continue;
                };
                let Parameter { name, place, .. } = &declared.parameter;
                let known = found
                    .iter()
                    .any(|other| other.parameter.place == *place && other.parameter.name == *name);
                let secret = schemes.values().any(|scheme| match &scheme.kind {
                    Kind::ApiKey { place: KeyPlace::Header, name: key } => {
                        *place == Place::Header && key.eq_ignore_ascii_case(name)
                    }
                    Kind::ApiKey { place: KeyPlace::Query, name: key } => {
                        *place == Place::Query && key == name
                    }
                    Kind::ApiKey { place: KeyPlace::Cookie, name: key } => {
                        *place == Place::Cookie && key == name
                    }
                    _ => false,
                });
                if !known && !secret {
                    found.push(declared);
                }
            }
        }
        found.sort_by_key(|declared| declared.parameter.place);
        Ok((found, in_body))
    }

    fn input_schema(
        &mut self,
        declared: &[parameter::Declared<'a>],
        parameters: &[Parameter],
        body: Option<&body::Declared<'a>>,
        pointer: &str,
        problems: &mut Vec<Problem>,
    ) -> Result<String, Problem> {
        let mut outcome = Err(too_large(pointer));
        for terse in [false, true] {
            let mut collector =
                Collector::new(self.root, self.version, terse, self.limits.schema_bytes);
            outcome = assemble(&mut collector, declared, parameters, body);
            // A rejected schema was as much work as one that fits.
            self.schema_bytes += self.limits.schema_bytes - collector.left();
            if outcome.as_ref().is_ok_and(|text| text.len() > self.limits.schema_bytes) {
                outcome = Err(too_large(pointer));
            }
            if outcome.as_ref().is_err_and(|problem| problem.kind == ProblemKind::TooLarge) {
                continue;
            }
            problems.append(&mut collector.problems);
            break;
        }
        outcome
    }
}

fn too_large(pointer: &str) -> Problem {
    let message = "the schema of the operation's input is too large for a tool; make it smaller";
    Problem::new(ProblemKind::TooLarge, pointer, message)
}

/// Builds one object for all parameters and the body.
fn assemble<'a>(
    collector: &mut Collector<'a>,
    declared: &[parameter::Declared<'a>],
    parameters: &[Parameter],
    body: Option<&body::Declared<'a>>,
) -> Result<String, Problem> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (index, parameter) in parameters.iter().enumerate() {
        let schema = match declared.get(index) {
            Some(declared) => declared.schema(collector)?,
            None => json!({"type": "string"}),
        };
        if parameter.required {
            required.push(parameter.argument.as_str());
        }
        properties.insert(parameter.argument.clone(), schema);
    }
    if let Some(body) = body {
        if body.body.required {
            required.push(body::ARGUMENT);
        }
        properties.insert(body::ARGUMENT.to_owned(), body.schema(collector)?);
    }
    let definitions = collector.definitions()?;
    let mut schema =
        json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if !definitions.is_empty() {
        schema["$defs"] = Value::Object(definitions);
    }
    Ok(schema.to_string())
}

fn name_arguments(parameters: &mut [Parameter], body: bool) {
    let mut taken: HashSet<String> = body.then(|| body::ARGUMENT.to_owned()).into_iter().collect();
    for parameter in parameters.iter_mut() {
        parameter.argument = names::argument(&parameter.name, parameter.place.name(), &taken);
        taken.insert(parameter.argument.clone());
    }
    let mut claims: HashSet<String> = taken;
    for parameter in parameters {
        parameter.by_name = claims.insert(parameter.name.clone());
    }
}

fn describe(site: &Site<'_>, deprecated: bool) -> String {
    let text = |holder: &Value, key: &str| {
        let text = holder.get(key).and_then(Value::as_str).map(str::trim);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let summary = text(site.operation, "summary").or_else(|| text(site.item, "summary"));
    let details = text(site.operation, "description").or_else(|| text(site.item, "description"));
    let mut words = match (summary, details) {
        (Some(summary), Some(details)) if summary != details => format!("{summary}\n\n{details}"),
        (Some(words), _) | (None, Some(words)) => words,
        (None, None) => format!("{} {}", site.method, site.path),
    };
    if deprecated {
        words.insert_str(0, "Deprecated. ");
    }
    if words.len() > MAX_DESCRIPTION {
        words.truncate(words.floor_char_boundary(MAX_DESCRIPTION));
        words.push('…');
    }
    words
}

/// Splits a path from the query that some authors add to it. A `#` and the text after it only make
/// the key unique. So does the list of query parameters that Springfox adds, as in `{?a,b}`.
fn split_path(path: &str) -> (&str, Option<&str>) {
    let path = path.split('#').next().unwrap_or_default();
    let path = path.split("{?").next().unwrap_or_default();
    match path.split_once('?') {
        Some((path, query)) if !query.contains('{') && !query.is_empty() => (path, Some(query)),
        Some((path, _)) => (path, None),
        None => (path, None),
    }
}

fn variables(path: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = path;
    while let Some((name, after)) =
        rest.split_once('{').and_then(|(_, after)| after.split_once('}'))
    {
        if !names.contains(&name) && !name.is_empty() {
            names.push(name);
        }
        rest = after;
    }
    names
}

fn pieces(path: &str, parameters: &[Parameter]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut fixed = if path.starts_with('/') { String::new() } else { "/".to_owned() };
    let mut rest = path;
    while let Some((before, (name, after))) =
        rest.split_once('{').and_then(|(before, after)| Some((before, after.split_once('}')?)))
    {
        fixed.push_str(&encode_path(before));
        let index =
            parameters.iter().position(|known| known.place == Place::Path && known.name == name);
        if let Some(index) = index {
            pieces.push(Piece::Fixed(std::mem::take(&mut fixed)));
            pieces.push(Piece::Variable(index));
        }
        rest = after;
    }
    fixed.push_str(&encode_path(rest));
    pieces.push(Piece::Fixed(fixed));
    pieces
}
