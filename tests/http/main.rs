//! Webhooks on real sockets, served by axum: the same tests over SQLite and Postgres.

#![cfg(all(feature = "macros", feature = "http", feature = "memory", feature = "sqlite", feature = "postgres"))]
#![allow(missing_docs, reason = "handlers of tests")]
#![allow(clippy::duplicate_mod, reason = "the tests in `promise` are compiled for each database's connection type")]

mod client;
#[path = "../common/mod.rs"]
mod common;
mod postgres;
mod server;
mod sqlite;
