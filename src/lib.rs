//! Exactly-once effects on at-least-once delivery.

#[cfg(feature = "memory")]
pub use inboxed_adapters::memory;
pub use inboxed_runtime::*;

#[cfg(feature = "macros")]
#[doc = include_str!("../docs/event.md")]
pub use inboxed_macros::Event;
#[cfg(feature = "macros")]
#[doc = include_str!("../docs/key_part.md")]
pub use inboxed_macros::KeyPart;
#[cfg(feature = "macros")]
#[doc = include_str!("../docs/idempotent.md")]
pub use inboxed_macros::idempotent;
