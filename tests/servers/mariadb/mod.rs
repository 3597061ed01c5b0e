//! MariaDB: its types, its SQL, and what it does with a body that breaks the rules.

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
#[path = "../promise/shop.rs"]
mod shop;
#[path = "../promise/stuck.rs"]
mod stuck;

use inboxed::store::Risk;

pub(crate) type Db = sqlx::MySql;
pub(crate) type Connection = sqlx::MySqlConnection;

/// The variable with the shared server's URL.
pub(crate) const VARIABLE: &str = "INBOXED_MYSQL_URL";
/// The server's name for `scripts/services`.
pub(crate) const SERVICE: &str = "mariadb";

pub(crate) const EFFECT: &str = "INSERT INTO effects (message) VALUES (?)";
pub(crate) const MOVE: &str = "UPDATE stock SET moves = moves + 1 WHERE id = ?";
pub(crate) const STUCK: &str = "SELECT SLEEP(60)";
pub(crate) const NO_LIMIT: &str = "SET SESSION max_statement_time = 0";
/// How many other sessions of this database run the statement above.
pub(crate) const STUCK_SESSIONS: &str = "SELECT COUNT(*) FROM information_schema.processlist \
    WHERE db = DATABASE() AND info LIKE '%SLEEP(60)%' AND id <> CONNECTION_ID()";

/// Whether a body that swallows the error of its own COMMIT, ROLLBACK or plain statement keeps the rest: the server
/// refuses that statement alone here.
pub(crate) const SWALLOWED_ERRORS_KEEP_THE_REST: bool = true;

/// How the server forgets what it has committed, once it is killed, and the name of that for an inbox.
pub(crate) const FORGETFUL: [&str; 1] = ["SET GLOBAL innodb_flush_log_at_trx_commit = 0"];
pub(crate) const RISK: Risk = Risk::FlushLogNotAtCommit;

/// Makes a database.
pub(crate) fn create(name: &str) -> Vec<String> {
    vec![format!("CREATE DATABASE {name}")]
}

/// Drops it.
pub(crate) fn discard(name: &str) -> String {
    format!("SET lock_wait_timeout = 2; DROP DATABASE IF EXISTS {name}")
}
