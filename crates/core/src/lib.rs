//! The model of Switchboard: tools, providers, calls, the directory that finds them and the router
//! that runs them.
//!
//! The core does no I/O. It knows no wire format, no SQL, and no kind of provider by name. A
//! *surface* converts its wire format into a [`CallRequest`] and passes it to the [`Router`]. A
//! *provider* converts the [`Call`] that it receives into its own wire format. The logic in between
//! is in this crate, and is tested without a socket.
//!
//! Start reading at [`router`], where one function describes the life of a call.

pub mod audit;
pub mod call;
pub mod client_capabilities;
pub mod clock;
pub mod directory;
pub mod documents;
pub mod idempotency;
pub mod limits;
pub mod link;
pub mod naming;
pub mod notice;
pub mod outcome;
pub mod passthrough;
pub mod pending;
pub mod policy;
pub mod principal;
pub mod provider;
pub mod retention;
pub mod router;
pub mod store;
pub mod tool;
pub mod visible_tools;

pub use audit::{AuditEvent, CallRecord, CallStarted, Journal, ProviderEvent};
pub use call::{
    Backlog, Call, CallId, CallRequest, CancelReason, Overrun, Question, TraceContext, Update,
    UpdateSink, Updates,
};
pub use client_capabilities::{ClientCapabilities, LogLevel, QuestionMode};
pub use directory::{Attach, AttachError, Directory, Registration, ToolPage, ToolView};
pub use documents::{DocumentAnswer, DocumentError, Documents, DocumentsView, Listing, Watch};
pub use notice::{Notice, NoticeBody, Notices, Pending, ReaderGuard, SessionNoticeKind};
pub use outcome::{Attachment, Block, CallError, CallErrorKind, Outcome, Output};
pub use passthrough::Passthrough;
pub use policy::{Pattern, Policy};
pub use principal::{Principal, Role, Scope, View};
pub use provider::{Grant, Provider, ProviderId, Rank};
pub use retention::Trimmer;
pub use router::{Finished, Router, RouterOptions, RunningCall};
pub use sa_schema::Schema;
pub use sa_text::RawJson;
pub use tool::{Catalog, Tool};
