//! MariaDB: its types, and its SQL where databases differ.

#![allow(dead_code, reason = "each test binary uses a part of it")]

#[path = "server.rs"]
mod server;
#[path = "shop.rs"]
mod shop;

pub(crate) use self::server::*;
pub(crate) use self::shop::*;

pub(crate) type Db = sqlx::MySql;
pub(crate) type Connection = sqlx::MySqlConnection;

/// The variable with the shared server's URL.
pub(crate) const VARIABLE: &str = "INBOXED_MYSQL_URL";
/// The server's name for `scripts/services`.
pub(crate) const SERVICE: &str = "mariadb";

/// The effects differ as their messages do, whatever the database takes for equal.
pub(crate) const EFFECTS: &str =
    "CREATE TABLE effects (message LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL)";

/// Makes a database in which letters are equal without their case and accents.
pub(crate) fn create(name: &str) -> Vec<String> {
    vec![format!("CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci")]
}

/// Drops it.
pub(crate) fn discard(name: &str) -> String {
    format!("SET lock_wait_timeout = 2; DROP DATABASE IF EXISTS {name}")
}

/// A statement with `?` for each value.
pub(crate) fn sql(statement: &'static str) -> &'static str {
    statement
}
