//! On the Postgres server that the environment names.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

#[path = "../promise/answers.rs"]
mod answers;
#[path = "../promise/departures.rs"]
mod departures;
#[path = "../promise/limits.rs"]
mod limits;
mod outage;
#[path = "../promise/sender.rs"]
mod sender;
#[path = "../promise/shop.rs"]
mod shop;
#[path = "../promise/shutdown.rs"]
mod shutdown;
#[path = "../promise/signature.rs"]
mod signature;

pub(crate) type Db = sqlx::Postgres;
pub(crate) type Connection = PgConnection;

pub(crate) const EFFECT: &str = "INSERT INTO effects (message) VALUES ($1)";

/// A database of the test's own, which is dropped at the end.
pub(crate) struct Database {
    server: String,
    name: String,
}

impl Database {
    pub(crate) async fn make() -> Self {
        let server = std::env::var("INBOXED_POSTGRES_URL").expect(
            "INBOXED_POSTGRES_URL isn't set: run `scripts/services start` and `eval \"$(scripts/services env)\"`",
        );
        let database = Self { server, name: format!("inboxed_{:016x}", fastrand::u64(..)) };
        database.tell_server(&format!("CREATE DATABASE {}", database.name)).await;
        database
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/{}", self.server.rsplit_once('/').unwrap().0, self.name)
    }

    /// Refuses new connections, or lets them in again, and ends those that are there.
    pub(crate) async fn let_in(&self, let_in: bool) {
        let name = &self.name;
        self.tell_server(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {let_in}")).await;
        let sessions = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        self.tell_server(&sessions).await;
    }

    async fn tell_server(&self, sql: &str) {
        let mut connection = PgConnection::connect(&self.server).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, sql) = (self.server.clone(), format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
        // In a thread of its own: a drop can't wait for the runtime that it happens in.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let mut connection = PgConnection::connect(&server).await?;
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await
            })
        });
        let _ = dropping.join();
    }
}
