//! `SQLite`: a file of its own for each test.

#[path = "shop.rs"]
mod shop;

use inboxed::Inbox;
use tempfile::TempDir;

pub(crate) use self::shop::*;

pub(crate) type Db = sqlx::Sqlite;
pub(crate) type Connection = sqlx::SqliteConnection;

/// A folder for a file that [`open`] makes, which is deleted at the end.
pub(crate) struct Database(TempDir);

impl Default for Database {
    fn default() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Database {
    pub(crate) fn url(&self) -> String {
        format!("sqlite://{}", self.0.path().join("shop.sqlite").display())
    }
}

impl Shop {
    /// The URL of a database that can be written while a transaction of the inbox's is open: a file beside it.
    pub(crate) fn other_url(&self) -> String {
        format!("sqlite://{}?mode=rwc", self.database.0.path().join("other.sqlite").display())
    }
}

/// Opens the inbox of a database, which is made first if it isn't there.
pub(crate) async fn open(url: &str) -> Inbox<Db> {
    let inbox = Inbox::connect(url).await.unwrap();
    inbox.migrate().await.unwrap();
    let effects = "CREATE TABLE IF NOT EXISTS effects (message TEXT NOT NULL)";
    sqlx::raw_sql(effects).execute(inbox.pool()).await.unwrap();
    inbox
}

/// A statement with `?` for each value.
pub(crate) fn sql(statement: &'static str) -> &'static str {
    statement
}
