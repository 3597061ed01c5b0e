//! The brokers of `inboxed`, and webhooks, each behind the feature of its name. Use them through the facade crate `inboxed`.

#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "memory")]
pub mod memory;
