//! On an `SQLite` file.

use tempfile::TempDir;

#[path = "../promise/answers.rs"]
mod answers;
#[path = "../promise/departures.rs"]
mod departures;
#[path = "../promise/limits.rs"]
mod limits;
#[path = "../promise/sender.rs"]
mod sender;
#[path = "../promise/shop.rs"]
mod shop;
#[path = "../promise/shutdown.rs"]
mod shutdown;
#[path = "../promise/signature.rs"]
mod signature;

pub(crate) type Db = sqlx::Sqlite;
pub(crate) type Connection = sqlx::SqliteConnection;

pub(crate) const EFFECT: &str = "INSERT INTO effects (message) VALUES (?)";

/// A file of the test's own.
pub(crate) struct Database(TempDir);

impl Database {
    pub(crate) fn make() -> impl Future<Output = Self> {
        std::future::ready(Self(tempfile::tempdir().unwrap()))
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite://{}", self.0.path().join("shop.sqlite").display())
    }
}
