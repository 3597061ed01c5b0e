//! A database of its own for each test on a server: the shared one that the environment names, or one that the test
//! started itself.

use inboxed::Inbox;
use sqlx::{AssertSqlSafe, Connection as _};

use super::{Connection, Db, EFFECTS, Shop, VARIABLE, create, discard};
use crate::common::services::shared;

/// A database with a random name, which [`open`] makes, and which is dropped at the end.
pub(crate) struct Database {
    server: String,
    name: String,
}

impl Default for Database {
    fn default() -> Self {
        Self::on(shared(VARIABLE))
    }
}

impl Database {
    pub(crate) fn on(server: String) -> Self {
        Self { server, name: format!("inboxed_{:016x}", fastrand::u64(..)) }
    }

    pub(crate) fn url(&self) -> String {
        self.through(&self.server)
    }

    /// The URL of the same database through another server: a pooler.
    pub(crate) fn through(&self, server: &str) -> String {
        format!("{}/{}", server.rsplit_once('/').unwrap().0, self.name)
    }
}

impl Shop {
    /// The URL of a database that can be written while a transaction of the inbox's is open: the same one.
    pub(crate) fn other_url(&self) -> String {
        self.url()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, drop) = (self.server.clone(), discard(&self.name));
        // In a thread of its own: a drop can't wait for the runtime that it happens in.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _ = runtime.block_on(execute_on(&server, drop));
        });
        let _ = dropping.join();
    }
}

async fn execute_on(url: &str, statement: String) -> sqlx::Result<()> {
    let mut connection = Connection::connect(url).await?;
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
    connection.close().await
}

/// Opens the inbox of a database, which is made first if it isn't there.
pub(crate) async fn open(url: &str) -> Inbox<Db> {
    if let Ok(inbox) = Inbox::connect(url).await {
        return inbox;
    }
    let (server, name) = url.rsplit_once('/').unwrap();
    for statement in create(name) {
        execute_on(&format!("{server}/inboxed"), statement).await.unwrap();
    }
    let inbox = Inbox::connect(url).await.unwrap();
    inbox.migrate().await.unwrap();
    sqlx::raw_sql(EFFECTS).execute(inbox.pool()).await.unwrap();
    inbox
}
