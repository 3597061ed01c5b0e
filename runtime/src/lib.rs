//! The runtime of `inboxed`: the one order, the stores and the consumer. Use it through the facade crate `inboxed`.

#![cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "mysql")),
    allow(dead_code, reason = "some parts have only databases for users")
)]

mod arrival;
pub mod broker;
mod clock;
mod consumer;
mod decode;
mod deliver;
mod doctor;
mod erased;
mod error;
mod failure;
mod fault;
mod finding;
mod handler;
mod health;
mod in_flight;
mod key;
mod key_check;
mod key_part;
mod lease;
mod message;
mod options;
mod outage;
mod panic;
mod pipeline;
mod proof;
mod redrive;
mod refusal;
mod retry;
mod route;
mod run;
mod run_error;
mod shutdown;
mod start;
pub mod store;
mod suspect;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
pub mod topology;

pub use consumer::Consumer;
pub use decode::{Decode, Json, Raw};
pub use deliver::{Delivered, Outcome};
pub use error::{BoxError, Class, Error, Permanent, Result, permanent};
pub use finding::{Check, Finding, Severity};
pub use handler::{
    BodyResult, Event, FromParts, FromRef, Handler, Identity, InboxConnection, OnConflict, Parts, Refusal, Spec, State,
};
pub use health::{Health, Report, SourceHealth};
pub use key::{Key, KeyError, KeyWriter, MAX_KEY_BYTES};
pub use key_part::KeyPart;
pub use message::{Delivery, Headers, Received};
pub use options::UnknownType;
pub use proof::Committed;
pub use retry::RetryPolicy;
pub use route::{Route, on};
pub use run_error::RunError;
pub use shutdown::Shutdown;
pub use store::{Inbox, InboxOptions, StartError};

/// What the attribute expands to. Not for use by hand; it may change in any release.
#[doc(hidden)]
pub mod __private {
    pub use futures_util::future::BoxFuture;

    pub use crate::handler::{AnyMessage, Prepared, body, message, prepare, transaction};
    pub use crate::key_check::{part, write};
}
