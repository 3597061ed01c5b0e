//! Postgres in the store suite, and what only Postgres does.

mod adoption;
mod contention;
mod deadlines;
mod pooler;
mod rights;
mod sessions;
mod shape;
mod transactions;

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Postgres};

use crate::store::suite::{Fixture, server, suite};
use crate::store::{Inbox, Limits, Row, Store as _};

suite!(super::PgDatabase);

/// The whole suite again, on rows that hold digests.
mod lean {
    pub(super) type Rows = crate::store::suite::Lean<super::PgDatabase>;
    crate::store::suite::suite!(super::Rows);
}

/// A database of its own on the server that the environment names.
pub(crate) struct PgDatabase {
    inbox: Inbox<Postgres>,
    name: String,
}

impl PgDatabase {
    /// The options of the test's own connections.
    pub(crate) fn options(&self) -> PgConnectOptions {
        self.url().parse().unwrap()
    }
}

/// Limits so short that what outlives them shows.
const HASTY: Limits = Limits { claim: Duration::from_millis(300), run: Duration::from_millis(700) };

/// One statement on a connection of the pool.
async fn ask(inbox: &Inbox<Postgres>, sql: &str) -> Vec<Row> {
    Postgres::run(&mut inbox.acquire().await.unwrap(), &inbox.sql(sql), Vec::new()).await.unwrap()
}

/// The one number that a statement answers.
async fn count(inbox: &Inbox<Postgres>, sql: &str) -> i64 {
    ask(inbox, sql).await[0].int(0).unwrap()
}

/// The server's URL with another database.
fn url(database: &str) -> String {
    let server = server("INBOXED_POSTGRES_URL");
    let (host, _) = server.rsplit_once('/').unwrap();
    format!("{host}/{database}")
}

async fn on_server(statement: String) -> Result<(), sqlx::Error> {
    let mut server = PgConnection::connect(&server("INBOXED_POSTGRES_URL")).await?;
    server.execute(AssertSqlSafe(statement)).await?;
    server.close().await
}

impl Fixture for PgDatabase {
    type Db = Postgres;

    async fn bare() -> Self {
        let name = format!("inboxed_{:016x}", fastrand::u64(..));
        on_server(format!("CREATE DATABASE {name}")).await.unwrap();
        Self { inbox: Inbox::connect(&url(&name)).await.unwrap(), name }
    }

    fn inbox(&self) -> &Inbox<Postgres> {
        &self.inbox
    }

    fn url(&self) -> String {
        url(&self.name)
    }
}

impl Drop for PgDatabase {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // In a thread of its own: a drop can't wait for the runtime that it happens in.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(on_server(drop)).map_err(std::io::Error::other)
        });
        let _ = dropping.join();
    }
}
