//! Postgres: its SQL where databases differ, and what it does with a body that breaks the rules.

#[path = "../promise/bodies.rs"]
mod bodies;
#[path = "../promise/exploring.rs"]
mod exploring;
mod forgetful;
#[path = "../promise/killed.rs"]
mod killed;
#[path = "../promise/outcomes.rs"]
mod outcomes;
#[path = "../promise/renamed.rs"]
mod renamed;
#[path = "../promise/services_apart.rs"]
mod services_apart;
mod settings;
#[path = "../promise/stuck.rs"]
mod stuck;

#[path = "../../common/postgres.rs"]
mod database;

pub(crate) use self::database::*;

pub(crate) const STUCK: &str = "SELECT pg_sleep(60)";
pub(crate) const NO_LIMIT: &str = "SET LOCAL statement_timeout = 0";
/// How many other sessions of this database run the statement above.
pub(crate) const STUCK_SESSIONS: &str = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
    AND state = 'active' AND query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()";

/// Whether a body that swallows the error of its own COMMIT, ROLLBACK or plain statement keeps the rest: an error fails
/// the whole transaction here.
pub(crate) const SWALLOWED_ERRORS_KEEP_THE_REST: bool = false;
/// Whether DDL in a body is a part of its transaction; it is refused otherwise.
pub(crate) const DDL_IN_BODIES: bool = true;
