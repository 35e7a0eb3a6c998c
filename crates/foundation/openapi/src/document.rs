//! A whole document, parsed once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;
use url::Url;

use crate::collect::Reading;
use crate::error::{DocumentError, DocumentErrorKind, Problem};
use crate::operation::Operation;
use crate::read::{self, Limits};
use crate::refs::{Root, shown};
use crate::security::{self, Scheme, Together};
use crate::server::Variable;
use crate::settings::{self, Settings};

/// An OpenAPI document with its callable operations. Cloning is cheap: clones share the contents.
#[derive(Debug, Clone)]
pub struct Document(Arc<Contents>);

#[derive(Debug)]
struct Contents {
    title: String,
    description: String,
    version: String,
    operations: Vec<Operation>,
    by_name: HashMap<String, usize>,
    problems: Vec<Problem>,
}

impl Document {
    /// Parses a document as JSON or YAML: OpenAPI 3.0, 3.1 or 3.2, or Swagger 2.0. `source` is the
    /// URL of the document; servers may be relative to it.
    pub fn parse(bytes: &[u8], source: Option<&Url>) -> Result<Self, DocumentError> {
        Self::parse_within(bytes, source, &Limits::default())
    }

    pub fn parse_within(
        bytes: &[u8],
        source: Option<&Url>,
        limits: &Limits,
    ) -> Result<Self, DocumentError> {
        let value = read::read(bytes, limits)?;
        Self::from_value(&value, source, limits)
    }

    /// Reads a document that is part of another one. The outer document's reader has limited its
    /// size and depth.
    pub fn from_value(
        value: &Value,
        source: Option<&Url>,
        limits: &Limits,
    ) -> Result<Self, DocumentError> {
        let version = version(value)?;
        let root = Root(value);
        let mut problems = Vec::new();
        let schemes = security::schemes(root, version, &mut problems);
        let mut reading = Reading::new(root, version, source, limits, &schemes, problems);
        let operations = reading.operations()?;
        let problems = reading.problems;
        if operations.is_empty() {
            let message = match problems.first() {
                Some(problem) => format!("no operation can be called; {problem}"),
                None => "the document has no operations; add some under \"paths\"".to_owned(),
            };
            return Err(DocumentError::new(DocumentErrorKind::Empty, "/paths", message));
        }
        let by_name =
            operations.iter().enumerate().map(|(index, operation)| (operation.name.clone(), index));
        let info = |key: &str| match value.get("info").and_then(|info| info.get(key)) {
            Some(Value::String(text)) => text.clone(),
            Some(number @ Value::Number(_)) => number.to_string(),
            _ => String::new(),
        };
        Ok(Self(Arc::new(Contents {
            title: info("title"),
            description: info("description"),
            version: info("version"),
            by_name: by_name.collect(),
            operations,
            problems,
        })))
    }

    pub fn title(&self) -> &str {
        &self.0.title
    }

    pub fn description(&self) -> &str {
        &self.0.description
    }

    /// Returns the version of the API, not of OpenAPI.
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// Returns the operations, sorted by path.
    pub fn operations(&self) -> &[Operation] {
        &self.0.operations
    }

    /// Returns the operation with this tool name.
    pub fn operation(&self, name: &str) -> Option<&Operation> {
        self.0.by_name.get(name).map(|index| &self.0.operations[*index])
    }

    /// Returns the parts that are left out or may not work as intended, for the maintainer of the
    /// document.
    pub fn problems(&self) -> &[Problem] {
        &self.0.problems
    }

    /// Returns a JSON Schema of the settings for the operations: the secrets of the security
    /// schemes, each named after its scheme, and the variables of servers.
    ///
    /// Only settings that every operation needs are `required`: some operations can be called
    /// without the others, and [`Operation::request`] names a missing one.
    pub fn settings_schema(&self) -> Value {
        let operations = &self.0.operations;
        let needed = |scheme: &Scheme| {
            let within =
                |together: &Together| together.iter().any(|(other, _)| other.name == scheme.name);
            operations.iter().all(|operation| {
                let alternatives = &operation.security.alternatives;
                !alternatives.is_empty() && alternatives.iter().all(within)
            })
        };
        let everywhere = |name: &str| {
            operations.iter().all(|operation| operation.server.variables.contains_key(name))
        };
        let (schemes, variables) = (self.schemes(), self.variables());
        let schemes = schemes.values().map(|scheme| (scheme.as_ref(), needed(scheme)));
        let variables =
            variables.into_iter().map(|(name, variable)| (name, variable, everywhere(name)));
        settings::schema(schemes, variables)
    }

    /// Reads settings from an object that matches [`Self::settings_schema`].
    pub fn settings(&self, values: &Value) -> Settings {
        let schemes = self.schemes();
        Settings::pick(schemes.values().map(AsRef::as_ref), self.variables().into_keys(), values)
    }

    /// Returns the security schemes that any operation can use.
    fn schemes(&self) -> BTreeMap<&str, &Arc<Scheme>> {
        let schemes = self.0.operations.iter().flat_map(|operation| operation.security.schemes());
        schemes.map(|scheme| (scheme.name.as_str(), scheme)).collect()
    }

    fn variables(&self) -> BTreeMap<&str, &Variable> {
        let variables = self.0.operations.iter().flat_map(|operation| &operation.server.variables);
        variables.map(|(name, variable)| (name.as_str(), variable)).collect()
    }
}

/// The specifications, as far as they differ in the form of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// Swagger 2.0.
    Swagger,
    /// OpenAPI 3.0.
    Three,
    /// OpenAPI 3.1 and later.
    ThreeOne,
}

fn version(value: &Value) -> Result<Version, DocumentError> {
    let text = |key: &str| match value.get(key) {
        Some(Value::String(text)) => Some(text.trim().to_owned()),
        // In YAML, an unquoted version is a number.
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    if let Some(version) = text("swagger") {
        if version == "2" || version == "2.0" {
            return Ok(Version::Swagger);
        }
        let message =
            format!("Swagger {} is not supported; Swagger 2.0 and OpenAPI 3 are", shown(&version));
        return Err(DocumentError::new(DocumentErrorKind::Version, "/swagger", message));
    }
    let Some(version) = text("openapi") else {
        let message = "this is not an OpenAPI document: it has no field \"openapi\" with a version such as \"3.1.0\"";
        return Err(DocumentError::new(DocumentErrorKind::NotOpenApi, "", message));
    };
    if version.split('.').next() != Some("3") {
        let message = format!(
            "OpenAPI {} is not supported; 3.0, 3.1, 3.2 and Swagger 2.0 are",
            shown(&version)
        );
        return Err(DocumentError::new(DocumentErrorKind::Version, "/openapi", message));
    }
    let old = version == "3" || version == "3.0" || version.starts_with("3.0.");
    Ok(if old { Version::Three } else { Version::ThreeOne })
}
