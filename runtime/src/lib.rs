//! The runtime of `inboxed`: the one order, the stores and the consumer. Use it through the facade crate `inboxed`.

pub mod broker;
mod decode;
mod error;
mod handler;
mod key;
mod key_check;
mod key_part;
mod lease;
mod message;
mod proof;
pub mod store;

pub use decode::{Decode, Json, Raw};
pub use error::{BoxError, Class, Error, Permanent, Result, permanent};
pub use handler::{
    BodyResult, Event, FromParts, FromRef, Handler, Identity, InboxConnection, OnConflict, Parts, Refusal, Spec, State,
};
pub use key::{Key, KeyError, KeyWriter, MAX_KEY_BYTES};
pub use key_part::KeyPart;
pub use message::{Delivery, Headers, Received};
pub use proof::Committed;
pub use store::{Inbox, InboxOptions, StartError};

/// What the attribute expands to. Not for use by hand; it may change in any release.
#[doc(hidden)]
pub mod __private {
    pub use futures_util::future::BoxFuture;

    pub use crate::handler::{AnyMessage, AnyState, Prepared, body, message, prepare};
    pub use crate::key_check::{part, write};
}
