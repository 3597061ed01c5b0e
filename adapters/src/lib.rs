//! The brokers of `inboxed`, each behind the feature of its name. Use them through the facade crate `inboxed`.

#[cfg(feature = "memory")]
pub mod memory;
