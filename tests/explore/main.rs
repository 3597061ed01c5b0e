//! The checks that say "exactly once", and what turns them red: a handler under `explore`, and consumers by hand.

#![cfg(all(feature = "macros", feature = "sqlite", feature = "memory", feature = "testing"))]
#![allow(missing_docs, reason = "handlers of tests")]

mod handlers;
mod loops;
