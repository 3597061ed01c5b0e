//! SQLite in the store suite, and what only SQLite does.

mod differences;
mod processes;
mod writer;

use std::path::PathBuf;

use sqlx::Sqlite;
use tempfile::TempDir;

use crate::store::Inbox;
use crate::store::suite::{Fixture, suite};

suite!(super::SqliteFile);

/// The whole suite again, on rows that hold digests.
mod lean {
    pub(super) type Rows = crate::store::suite::Lean<super::SqliteFile>;
    crate::store::suite::suite!(super::Rows);
}

/// A database file in a folder of its own.
pub(crate) struct SqliteFile {
    inbox: Inbox<Sqlite>,
    folder: TempDir,
}

impl SqliteFile {
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("shop.db")
    }
}

impl Fixture for SqliteFile {
    type Db = Sqlite;

    async fn bare() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("shop.db").display());
        Self { inbox: Inbox::connect(&url).await.unwrap(), folder }
    }

    fn inbox(&self) -> &Inbox<Sqlite> {
        &self.inbox
    }

    fn url(&self) -> String {
        format!("sqlite://{}", self.path().display())
    }
}
