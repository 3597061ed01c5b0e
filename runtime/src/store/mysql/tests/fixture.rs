//! A database of its own on a real server.

use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, MySql, MySqlConnection, MySqlPool};

use crate::store::Inbox;
use crate::store::suite::{Fixture, server};

/// A database with a random name, dropped at the end.
pub(crate) struct MySqlDatabase {
    inbox: Inbox<MySql>,
    options: MySqlConnectOptions,
    name: String,
}

impl MySqlDatabase {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A pool such as a user has.
    pub(crate) async fn pool(&self, connections: u32) -> MySqlPool {
        MySqlPoolOptions::new()
            .max_connections(connections)
            .connect_with(self.options.clone().database(&self.name))
            .await
            .unwrap()
    }

    /// Runs statements on a connection of their own.
    pub(crate) async fn execute(&self, sql: &str) {
        let mut connection = MySqlConnection::connect(&self.url()).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// The single number that a statement answers.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let mut connection = MySqlConnection::connect(&self.url()).await.unwrap();
        let number = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        number
    }
}

impl Fixture for MySqlDatabase {
    type Db = MySql;

    async fn bare() -> Self {
        let options = server("INBOXED_MYSQL_URL").parse::<MySqlConnectOptions>().unwrap();
        let name = format!("inboxed_{:016x}", fastrand::u64(..));
        let mut connection = MySqlConnection::connect_with(&options).await.unwrap();
        // A default that folds case and accents, as many servers have it: the tables mustn't inherit it.
        let create = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let server = server("INBOXED_MYSQL_URL");
        let url = format!("{}/{name}", &server[..server.rfind('/').unwrap()]);
        let inbox = Inbox::options().max_connections(12).connect(&url).await.unwrap();
        Self { inbox, options, name }
    }

    fn inbox(&self) -> &Inbox<MySql> {
        &self.inbox
    }

    fn url(&self) -> String {
        let server = server("INBOXED_MYSQL_URL");
        let end = server.rfind('/').unwrap();
        format!("{}/{}", &server[..end], self.name)
    }
}

impl Drop for MySqlDatabase {
    fn drop(&mut self) {
        let (options, name) = (self.options.clone(), self.name.clone());
        // The test's runtime ends with the test, so that this needs one of its own.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut connection = MySqlConnection::connect_with(&options).await.unwrap();
                let drop = format!("SET lock_wait_timeout = 2; DROP DATABASE {name}");
                let _ = sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut connection).await;
            });
        });
        let _ = dropped.join();
    }
}
