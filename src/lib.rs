//! Exactly-once effects on at-least-once delivery.

pub use inboxed_runtime::*;

#[cfg(feature = "macros")]
pub use inboxed_macros::{Event, KeyPart, idempotent};
