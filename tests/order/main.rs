//! The one order, statement by statement: on the memory broker and a SQLite file, through the public API alone.

#![cfg(all(feature = "macros", feature = "sqlite", feature = "memory", feature = "testing", feature = "anyhow"))]
#![allow(missing_docs, reason = "handlers of tests")]

#[path = "../common/mod.rs"]
mod common;

mod bodies;
mod classes;
mod commit;
mod copies;
mod deliver;
mod doctor;
mod failures;
mod leases;
mod outage;
mod redrive;
mod refused;
mod routes;
mod shutdown;
mod sources;
mod start;
mod support;
mod suspects;
mod telemetry;
