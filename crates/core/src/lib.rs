//! The model of Switchboard: tools, providers, calls, the directory that finds them and the router that runs them.
//!
//! The core does no I/O. It knows neither HTTP, nor WebSocket, nor MCP, nor SQL, and no kind of provider by name.
//! A *surface* turns its wire format into a [`CallRequest`] and hands it to the [`Router`]; a *provider* turns the
//! [`Call`] that it is given into its own wire format. What lies between is here, and is tested without a socket.
//!
//! Start reading at [`router`]: the life of a call is one function there.

pub mod aside;
pub mod audit;
pub mod budget;
pub mod call;
pub mod clock;
pub mod directory;
pub mod documents;
pub mod idempotency;
pub mod json;
pub mod limits;
pub mod link;
pub mod manner;
pub mod mask;
pub mod naming;
mod nearest;
pub mod notice;
pub mod outcome;
pub mod pending;
pub mod policy;
pub mod principal;
pub mod provider;
pub mod retention;
pub mod router;
pub mod schema;
pub mod shown;
pub mod store;
pub mod tool;

pub use aside::aside;
pub use audit::{AuditEvent, CallRecord, CallStarted, Journal, ProviderEvent};
pub use call::{
    Backlog, Call, CallId, CallRequest, CancelReason, Overrun, Question, TraceContext, Update, UpdateSink, Updates,
};
pub use directory::{Attach, AttachError, Directory, Registration, ToolPage, ToolView};
pub use documents::{DocumentError, Documents, DocumentsView, Listing, Watch};
pub use json::RawJson;
pub use manner::{Asking, LogLevel, Manner};
pub use nearest::{nearest, similar};
pub use notice::{Attendance, Notice, NoticeBody, Notices, Pending, SessionNews};
pub use outcome::{Attachment, Block, CallError, CallErrorKind, Outcome, Output};
pub use policy::{Pattern, Policy};
pub use principal::{Principal, Role, Scope, View};
pub use provider::{Grant, Provider, ProviderId, Rank};
pub use retention::Trimmer;
pub use router::{Finished, Router, RouterOptions, RunningCall};
pub use schema::Schema;
pub use tool::{Catalog, Tool};
