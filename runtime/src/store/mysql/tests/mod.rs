//! MySQL in the store suite, and what only MySQL and MariaDB do. Needs a server: `scripts/services start mariadb`.

mod adoption;
mod codes;
mod contention;
mod deadlines;
mod fixture;
mod in_full;
mod lanes;
mod rights;
mod shape;
mod transactions;
mod users_pool;

use std::time::Duration;

use sqlx::MySql;

use crate::store::suite::suite;
use crate::store::{Inbox, Limits, Store as _};

suite!(super::fixture::MySqlDatabase);

/// The whole suite again, on rows that hold digests.
mod lean {
    pub(super) type Rows = crate::store::suite::Lean<super::fixture::MySqlDatabase>;
    crate::store::suite::suite!(super::Rows);
}

/// Limits so short that what outlives them shows.
const HASTY: Limits = Limits { claim: Duration::from_millis(300), run: Duration::from_secs(2) };

/// The server's number of a transaction's session.
async fn session(tx: &mut sqlx::MySqlConnection) -> i64 {
    MySql::run(tx, "SELECT CONNECTION_ID()", Vec::new()).await.unwrap()[0].int(0).unwrap()
}

/// One statement on a connection of the pool.
async fn ask(inbox: &Inbox<MySql>, sql: &str) -> Vec<crate::store::Row> {
    MySql::run(&mut inbox.acquire().await.unwrap(), sql, Vec::new()).await.unwrap()
}
