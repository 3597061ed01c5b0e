//! MariaDB: its SQL where databases differ, and what it does with a body that breaks the rules.

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
#[path = "../promise/stuck.rs"]
mod stuck;

#[path = "../../common/mariadb.rs"]
mod database;

pub(crate) use self::database::*;

pub(crate) const STUCK: &str = "SELECT SLEEP(60)";
pub(crate) const NO_LIMIT: &str = "SET SESSION max_statement_time = 0";
/// How many other sessions of this database run the statement above.
pub(crate) const STUCK_SESSIONS: &str = "SELECT COUNT(*) FROM information_schema.processlist \
    WHERE db = DATABASE() AND info LIKE '%SLEEP(60)%' AND id <> CONNECTION_ID()";

/// Whether a body that swallows the error of its own COMMIT, ROLLBACK or plain statement keeps the rest: the server
/// refuses that statement alone here.
pub(crate) const SWALLOWED_ERRORS_KEEP_THE_REST: bool = true;
/// Whether DDL in a body is a part of its transaction; it is refused otherwise.
pub(crate) const DDL_IN_BODIES: bool = false;
