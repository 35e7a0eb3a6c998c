//! An OpenAPI document as tools: each operation has a name, a description and a flat JSON Schema, and makes an HTTP
//! request of its arguments. No network, no files, no clock: fetching the document and sending the request is the
//! caller's part, with its rules for where requests may go.
//!
//! ```
//! use sa_openapi::{Document, Settings};
//! use serde_json::json;
//!
//! let document = Document::parse(br#"
//! openapi: 3.1.0
//! servers: [{ url: "https://api.example.com/v1" }]
//! security: [{ key: [] }]
//! components:
//!   securitySchemes:
//!     key: { type: apiKey, in: header, name: X-Api-Key }
//! paths:
//!   /pets/{petId}:
//!     get:
//!       operationId: getPet
//!       parameters:
//!         - { name: petId, in: path, required: true, schema: { type: integer } }
//!         - { name: fields, in: query, explode: false, schema: { type: array, items: { type: string } } }
//! "#, None)?;
//! let operation = document.operation("getPet").unwrap();
//!
//! // What the user has set fits `document.settings_schema()`.
//! let settings = document.settings(&json!({"key": "k-123"}));
//! let arguments = json!({"petId": 7, "fields": ["name", "age"]}).into();
//! let request = operation.request(&arguments, &settings)?;
//! assert_eq!(request.method, "GET");
//! assert_eq!(request.url.as_str(), "https://api.example.com/v1/pets/7?fields=name,age");
//! assert!(request.headers.contains(&("X-Api-Key".to_owned(), "k-123".to_owned())));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # OAuth2
//!
//! Where a scheme has a client-credentials flow, the settings hold the client. [`Operation::tokens`] says which tokens
//! are needed; send [`TokenRequest::request`], read the answer with [`AccessToken::read`], keep it as long as it lasts,
//! and give it back with [`Settings::token`]. OAuth2 without that flow, and OpenID Connect, take a token as a setting.
//!
//! # What a caller can rely on
//!
//! * No argument changes scheme, host, port or the server's base path; only settings fill a server's variables, and
//!   only within the place that the author left for them. [`HttpRequest::url`] is still to be checked by whoever sends
//!   it: the document's author chose the host.
//! * No line break gets into a header, no argument adds a parameter or leaves its segment of the path.
//! * No `$ref` is ever fetched. Reading takes bounded time and memory ([`Limits`]); patterns are never compiled here.
//! * Errors and `Debug` texts contain no secret.
//!
//! # Why there is no typed model of the document
//!
//! Published documents are sloppy: a number where a text belongs, a schema keyword of another draft, a broken reference
//! in a response that no call looks at. A typed model (`oas3` is a good one) refuses the whole document for any of
//! these, and 3.0 would have to be lifted to 3.1 before it sees it. So the document is read as plain JSON: what a call
//! needs is looked up, what is not understood is left out and told in [`Document::problems`], and keywords of a schema
//! are kept only with values that JSON Schema allows, so that one mistake does not spoil the validator.
//!
//! # Order
//!
//! Arguments are [`Json`], which keeps the order of an object's fields: the pairs that they become in a query, a form or a
//! body are in the caller's order. What comes from the document is sorted by name.

mod body;
mod collect;
mod document;
mod encode;
mod error;
mod json;
mod multipart;
mod names;
mod operation;
mod parameter;
mod read;
mod refs;
mod request;
mod schema;
mod security;
mod server;
mod settings;
mod style;
mod swagger;
mod token;

pub use document::Document;
pub use error::{DocumentError, DocumentErrorKind, Problem, ProblemKind, RequestError, RequestErrorKind};
pub use json::Json;
pub use operation::{Hints, Operation};
pub use read::Limits;
pub use request::HttpRequest;
pub use settings::Settings;
pub use token::{AccessToken, TokenRequest};
