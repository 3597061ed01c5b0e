//! A database of the run's own on a server.

use std::marker::PhantomData;

use anyhow::{Context as _, anyhow};
use sqlx::{AssertSqlSafe, Connection as _, Database, Executor};

/// A database with a random name, until it is discarded.
pub(crate) struct Scratch<Db> {
    server: String,
    name: String,
    driver: PhantomData<fn() -> Db>,
}

impl<Db: Database> Scratch<Db>
where
    for<'c> &'c mut Db::Connection: Executor<'c, Database = Db>,
{
    /// On the server whose URL is in this variable.
    pub(crate) async fn create(variable: &str) -> anyhow::Result<Self> {
        let server = std::env::var(variable).map_err(|_| {
            anyhow!("{variable} isn't set: run `scripts/services start` and `eval \"$(scripts/services env)\"`")
        })?;
        let name = format!("inboxed_ratio_{:016x}", fastrand::u64(..));
        let scratch = Self { server, name, driver: PhantomData };
        scratch.execute(format!("CREATE DATABASE {}", scratch.name)).await?;
        Ok(scratch)
    }

    pub(crate) fn url(&self) -> String {
        let server = self.server.rsplit_once('/').map_or(self.server.as_str(), |(server, _)| server);
        format!("{server}/{}", self.name)
    }

    /// Drops the database; `how` ends the statement.
    pub(crate) async fn discard(&self, how: &str) -> anyhow::Result<()> {
        self.execute(format!("DROP DATABASE {}{how}", self.name)).await
    }

    async fn execute(&self, sql: String) -> anyhow::Result<()> {
        let server = self.server.rsplit('@').next().unwrap_or_default();
        let mut connection = Db::Connection::connect(&self.server)
            .await
            .with_context(|| format!("no database server at {server}: run `scripts/services start`"))?;
        connection.execute(AssertSqlSafe(sql)).await?;
        Ok(connection.close().await?)
    }
}
