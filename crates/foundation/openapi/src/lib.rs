//! An OpenAPI document as tools: each operation has a name, a description and a flat JSON Schema,
//! and converts its arguments into an HTTP request. This crate uses no network, no files and no
//! clock. The caller fetches the document and sends the requests, by its own rules for allowed
//! destinations.
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
//! // The user's settings match `document.settings_schema()`.
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
//! If a scheme has a client-credentials flow, the settings contain the client.
//! [`Operation::tokens`] returns the tokens to fetch. Send [`TokenRequest::request`], read the
//! answer with [`AccessToken::read`], cache the token while it is valid, and pass it to
//! [`Settings::token`]. For OAuth2 without that flow, and for OpenID Connect, the token is a
//! setting.
//!
//! # Guarantees
//!
//! * No argument changes the scheme, host, port or the server's base path. Only settings fill a
//!   server's variables, and only in the part of the URL that the author left open. The sender must
//!   still check [`HttpRequest::url`], because the document's author chose the host.
//! * No line break gets into a header. No argument adds a parameter or leaves its segment of the
//!   path.
//! * No `$ref` is ever fetched. Parsing takes bounded time and memory ([`Limits`]), and patterns
//!   are never compiled here.
//! * Errors and `Debug` texts contain no secret.
//!
//! # Why there is no typed model of the document
//!
//! Published documents often contain errors: a number in place of a text, a schema keyword of
//! another draft, a broken reference in a response that no call uses. A typed model (`oas3` is a
//! good one) rejects the whole document for any of these, and needs 3.0 converted to 3.1 first.
//!
//! So this crate reads the document as plain JSON. Parts that a call needs are looked up. Parts
//! that are not understood are left out and reported in [`Document::problems`]. Keywords of a
//! schema are kept only with values that JSON Schema allows, so that one error does not break the
//! validator.
//!
//! # Order
//!
//! Arguments are [`Json`], which preserves the order of an object's fields: their pairs in a query,
//! a form or a body are in the caller's order. Parts of the document are sorted by name.

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
pub use error::{
    DocumentError, DocumentErrorKind, Problem, ProblemKind, RequestError, RequestErrorKind,
};
pub use json::Json;
pub use operation::{Hints, Operation};
pub use read::Limits;
pub use request::HttpRequest;
pub use settings::Settings;
pub use token::{AccessToken, TokenRequest};
