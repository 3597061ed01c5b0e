//! Attempts to break the promise from outside, by what a careless user or an unlucky operator might do.

#![cfg(all(feature = "macros", feature = "sqlite", feature = "memory"))]

#[path = "../common/mod.rs"]
mod common;

mod bodies;
mod database;
mod letters;
mod names;
mod pools;
mod settings;
mod sight;
mod soak;
