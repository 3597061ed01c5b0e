//! Exactly-once effects on at-least-once delivery.

#[cfg(feature = "memory")]
pub use inboxed_adapters::memory;
pub use inboxed_runtime::*;

#[cfg(feature = "macros")]
pub use inboxed_macros::{Event, KeyPart, idempotent};
