//! Postgres: its types, its SQL, and what it does with a body that breaks the rules.

#[path = "../promise/bodies.rs"]
mod bodies;
#[path = "../promise/deadlocks.rs"]
mod deadlocks;
#[path = "../promise/exploring.rs"]
mod exploring;
#[path = "../promise/killed.rs"]
mod killed;
#[path = "../promise/outcomes.rs"]
mod outcomes;
#[path = "../promise/renamed.rs"]
mod renamed;
#[path = "../promise/services_apart.rs"]
mod services_apart;
mod settings;
#[path = "../promise/shop.rs"]
mod shop;
#[path = "../promise/stuck.rs"]
mod stuck;

use inboxed::store::Risk;

pub(crate) type Db = sqlx::Postgres;
pub(crate) type Connection = sqlx::PgConnection;

/// The variable with the shared server's URL.
pub(crate) const VARIABLE: &str = "INBOXED_POSTGRES_URL";
/// The server's name for `scripts/services`.
pub(crate) const SERVICE: &str = "postgres";

pub(crate) const EFFECT: &str = "INSERT INTO effects (message) VALUES ($1)";
pub(crate) const MOVE: &str = "UPDATE stock SET moves = moves + 1 WHERE id = $1";
pub(crate) const STUCK: &str = "SELECT pg_sleep(60)";
pub(crate) const NO_LIMIT: &str = "SET LOCAL statement_timeout = 0";
/// How many other sessions of this database run the statement above.
pub(crate) const STUCK_SESSIONS: &str = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
    AND state = 'active' AND query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()";

/// Whether a body that swallows the error of its own COMMIT, ROLLBACK or plain statement keeps the rest: an error fails
/// the whole transaction here.
pub(crate) const SWALLOWED_ERRORS_KEEP_THE_REST: bool = false;

/// How the server forgets what it has committed, once it is killed, and the name of that for an inbox.
pub(crate) const FORGETFUL: [&str; 2] = ["ALTER TABLE inbox SET UNLOGGED", "ALTER TABLE effects SET UNLOGGED"];
pub(crate) const RISK: Risk = Risk::Unlogged;

/// Makes a database.
pub(crate) fn create(name: &str) -> Vec<String> {
    // By default a deadlock is looked for after a second, and a test makes many.
    vec![format!("CREATE DATABASE {name}"), format!("ALTER DATABASE {name} SET deadlock_timeout = '20ms'")]
}

/// Drops it.
pub(crate) fn discard(name: &str) -> String {
    format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")
}
