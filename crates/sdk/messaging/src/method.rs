//! Methods that this participant offers.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::context::{IntoMethodOutput, MethodContext, MethodOutput};
use crate::error::{Direction, ValidationError};
use crate::{AdvertisedMethod, Error};

/// The maximum number of reported errors in the arguments.
const MAX_MISTAKES: usize = 5;

type Handler = Arc<
    dyn Fn(Value, MethodContext) -> BoxFuture<'static, Result<MethodOutput, Error>> + Send + Sync,
>;

/// A method that others in the channel can call.
#[derive(Clone)]
pub struct Method {
    pub(crate) advertised: AdvertisedMethod,
    validator: Result<Arc<jsonschema::Validator>, String>,
    handler: Handler,
}

impl Method {
    /// Creates a method with typed parameters. Arguments that do not match the type's schema never
    /// reach the function: their caller receives the errors.
    ///
    /// The function may fail with any type that implements `Display`. An [`Error`] keeps its code;
    /// any other error becomes an `execution-error`.
    ///
    /// ```
    /// use sa_messaging::{Method, MethodContext};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Greet {
    ///     name: String,
    /// }
    ///
    /// let greet = Method::new("greet", async |args: Greet, _context: MethodContext| {
    ///     Ok::<_, String>(format!("Hello, {}!", args.name))
    /// });
    /// # let _ = greet.description("Say hello");
    /// ```
    pub fn new<A, F, R, O, E>(name: impl Into<String>, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send,
        F: Fn(A, MethodContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, E>> + Send + 'static,
        O: IntoMethodOutput,
        E: fmt::Display + Send + 'static,
    {
        let schema = schemars::SchemaGenerator::default().into_root_schema_for::<A>().to_value();
        let function = Arc::new(function);
        Self::with_handler(name.into(), schema, move |args, context| {
            let function = Arc::clone(&function);
            async move {
                let args = serde_json::from_value(args)
                    .map_err(|error| unusable(vec![error.to_string()]))?;
                function(args, context).await.map_err(failure)?.into_output()
            }
            .boxed()
        })
    }

    /// Creates a method with parameters that a JSON Schema describes.
    pub fn raw<F, R, O, E>(name: impl Into<String>, parameters: Value, function: F) -> Self
    where
        F: Fn(Value, MethodContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, E>> + Send + 'static,
        O: IntoMethodOutput,
        E: fmt::Display + Send + 'static,
    {
        Self::with_handler(name.into(), parameters, move |args, context| {
            let running = function(args, context);
            async move { running.await.map_err(failure)?.into_output() }.boxed()
        })
    }

    fn with_handler(
        name: String,
        parameters: Value,
        handler: impl Fn(Value, MethodContext) -> BoxFuture<'static, Result<MethodOutput, Error>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let validator =
            jsonschema::validator_for(&parameters).map(Arc::new).map_err(|error| error.to_string());
        let advertised = AdvertisedMethod {
            name,
            description: None,
            parameters,
            returns: None,
            streaming: false,
            timeout: None,
        };
        Self { advertised, validator, handler: Arc::new(handler) }
    }

    /// Sets a description, for people and models.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.advertised.description = Some(description.into());
        self
    }

    /// Sets the type of the result.
    #[must_use]
    pub fn returns<T: Serialize + JsonSchema>(self) -> Self {
        self.returns_schema(
            schemars::SchemaGenerator::default().into_root_schema_for::<T>().to_value(),
        )
    }

    /// Sets the JSON Schema of the result.
    #[must_use]
    pub fn returns_schema(mut self, schema: Value) -> Self {
        self.advertised.returns = Some(schema);
        self
    }

    /// Sets the timeout that callers should use.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.advertised.timeout = Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Declares whether the method sends parts before its result.
    #[must_use]
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.advertised.streaming = streaming;
        self
    }

    /// Returns the method's name.
    pub fn name(&self) -> &str {
        &self.advertised.name
    }

    /// Checks that the method can be offered.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let (name, what) = (
            &self.advertised.name,
            format!("the method \"{}\"", self.advertised.name.escape_debug()),
        );
        sa_protocol::validate_tool_name(name)
            .map_err(|error| Error::sent(&what, error.to_string()))?;
        let schema = self.validator.as_ref().map(drop);
        schema.map_err(|why| {
            Error::sent(&what, format!("the schema of its parameters is invalid: {why}"))
        })
    }

    /// Checks the arguments, and starts the method.
    pub(crate) fn run(
        &self,
        args: Value,
        context: MethodContext,
    ) -> Result<BoxFuture<'static, Result<MethodOutput, Error>>, Error> {
        // Missing arguments count as an empty object.
        let args = if args.is_null() { Value::Object(serde_json::Map::new()) } else { args };
        let validator = self.validator.as_ref().map_err(|why| Error::Execution(why.clone()))?;
        check_against(validator, &args).map_err(unusable)?;
        Ok((self.handler)(args, context))
    }
}

pub(crate) fn check_against(
    validator: &jsonschema::Validator,
    args: &Value,
) -> Result<(), Vec<String>> {
    if validator.is_valid(args) {
        return Ok(());
    }
    let mistake = |error: jsonschema::ValidationError<'_>| match error.instance_path().as_str() {
        "" => error.to_string(),
        place => format!("at {place}: {error}"),
    };
    Err(validator.iter_errors(args).take(MAX_MISTAKES).map(mistake).collect())
}

fn unusable(details: Vec<String>) -> Error {
    ValidationError { direction: Direction::Received, what: "the arguments".into(), details }.into()
}

/// Converts the error of a function. An [`Error`] keeps its code.
fn failure<E: fmt::Display + 'static>(error: E) -> Error {
    match (&error as &dyn Any).downcast_ref::<Error>() {
        Some(error) => error.clone(),
        None => Error::Execution(error.to_string()),
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Method").field("advertised", &self.advertised).finish_non_exhaustive()
    }
}
