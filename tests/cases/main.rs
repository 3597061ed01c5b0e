//! Faults that people who do this job reported in public, each as a test named by its id: bytes in, effects counted.
//!
//! | id | test, or why it has none here |
//! |---|---|

#![cfg(all(feature = "macros", feature = "sqlite", feature = "memory"))]

#[path = "../common/mod.rs"]
mod common;

mod envelope;
mod key;
mod limit;
mod replay;
mod retry;
mod store;
