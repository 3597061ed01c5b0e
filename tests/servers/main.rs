//! The promise on database servers, end to end: the same tests on Postgres and MariaDB, each in a database of its own.

#![cfg(all(feature = "macros", feature = "postgres", feature = "mysql", feature = "memory", feature = "testing"))]
#![allow(missing_docs, reason = "handlers of tests")]
#![allow(clippy::duplicate_mod, reason = "the tests in `promise` are compiled for each database's connection type")]

#[path = "../common/mod.rs"]
mod common;

mod mariadb;
mod postgres;
