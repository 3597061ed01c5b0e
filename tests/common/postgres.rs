//! Postgres: its types, and its SQL where databases differ.

#![allow(dead_code, reason = "each test binary uses a part of it")]

#[path = "server.rs"]
mod server;
#[path = "shop.rs"]
mod shop;

use sqlx::AssertSqlSafe;

pub(crate) use self::server::*;
pub(crate) use self::shop::*;

pub(crate) type Db = sqlx::Postgres;
pub(crate) type Connection = sqlx::PgConnection;

/// The variable with the shared server's URL.
pub(crate) const VARIABLE: &str = "INBOXED_POSTGRES_URL";
/// The server's name for `scripts/services`.
pub(crate) const SERVICE: &str = "postgres";

pub(crate) const EFFECTS: &str = "CREATE TABLE effects (message TEXT NOT NULL)";

/// Makes a database.
pub(crate) fn create(name: &str) -> Vec<String> {
    // By default a deadlock is looked for after a second, and a test makes hundreds.
    vec![format!("CREATE DATABASE {name}"), format!("ALTER DATABASE {name} SET deadlock_timeout = '5ms'")]
}

/// Drops it.
pub(crate) fn discard(name: &str) -> String {
    format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")
}

/// A statement with `?` for each value, which are numbered here.
pub(crate) fn sql(statement: &str) -> AssertSqlSafe<String> {
    let mut parts = statement.split('?');
    let first = parts.next().unwrap_or_default().to_owned();
    AssertSqlSafe((1..).zip(parts).fold(first, |text, (number, part)| format!("{text}${number}{part}")))
}
