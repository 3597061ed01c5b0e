//! The tables: made by `migrate`, checked by `verify`.

use std::fmt;

use super::{Inbox, Store};
use crate::error::{Class, Error};

/// A property of the server by which it may forget a commit that it reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Risk {
    /// SQLite's `synchronous` is below FULL: a power cut may take back the last commits.
    SynchronousBelowFull,
    /// The database is in memory: it ends with the process.
    InMemory,
    /// MySQL's `innodb_flush_log_at_trx_commit` isn't 1: a crash of the machine may take back the last second's commits.
    FlushLogNotAtCommit,
    /// The inbox's table isn't of the engine `InnoDB`: its rows belong to no transaction.
    NotInnoDb,
    /// Postgres runs with `fsync = off`: a power cut may take back the last commits, or the whole database.
    FsyncOff,
    /// The inbox's table is UNLOGGED: a crash of the server empties it.
    Unlogged,
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SynchronousBelowFull => {
                "`PRAGMA synchronous` is below FULL: set it to FULL on every connection of the pool, or `.allow(Risk::SynchronousBelowFull)`"
            }
            Self::InMemory => "the database is in memory: give it a file, or `.allow(Risk::InMemory)`",
            Self::FlushLogNotAtCommit => {
                "`innodb_flush_log_at_trx_commit` is not 1: set it to 1 on the server, or `.allow(Risk::FlushLogNotAtCommit)`"
            }
            Self::NotInnoDb => {
                "the inbox's table is not of the engine InnoDB: `ALTER TABLE … ENGINE = InnoDB`, or `.allow(Risk::NotInnoDb)`"
            }
            Self::FsyncOff => "the server runs with `fsync = off`: switch it on, or `.allow(Risk::FsyncOff)`",
            Self::Unlogged => {
                "a crash of the server empties an UNLOGGED table: `ALTER TABLE … SET LOGGED` on the inbox's, or `.allow(Risk::Unlogged)`"
            }
        })
    }
}

/// One line for all of them.
pub(crate) fn list(risks: &[Risk]) -> String {
    risks.iter().map(Risk::to_string).collect::<Vec<_>>().join("; ")
}

/// How the tables differ from those that this version needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// There are no tables yet, or not all of them.
    #[error(
        "the inbox's tables are at version {found} and this program needs {needed}: call `Inbox::migrate` before the start"
    )]
    Older {
        /// The version in the database; 0 if there are no tables.
        found: i64,
        /// The version that this program needs.
        needed: i64,
    },
    /// A later release has migrated the tables.
    #[error("the inbox's tables are at version {found} and this program knows {known}: run a release that knows it")]
    Newer {
        /// The version in the database.
        found: i64,
        /// The latest version that this program knows.
        known: i64,
    },
    /// Somebody has made or changed the tables otherwise.
    #[error("the inbox's tables differ from what `Inbox::migrate` makes; change them back: {}", .0.join("; "))]
    Different(Vec<String>),
    /// The tables couldn't be read.
    #[error("the inbox's tables can't be read: {0}")]
    Database(Error),
}

impl From<Error> for SchemaError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl<Db: Store> Inbox<Db> {
    /// Makes the tables, or brings them to this release's version. Many processes may do so at once.
    ///
    /// # Errors
    /// [`SchemaError::Newer`] if a later release has been here, else the database's own error.
    pub async fn migrate(&self) -> Result<(), SchemaError> {
        self.write_in(
            |inbox| Box::pin(Db::begin_migration(inbox)),
            |inbox, connection| {
                Box::pin(async move {
                    inbox.run(connection, LEDGER, Vec::new()).await?;
                    let (found, known) = (version(&inbox, connection).await?, latest::<Db>());
                    if found > known {
                        return Err(SchemaError::Newer { found, known });
                    }
                    for (version, statements) in (1_i64..).zip(Db::MIGRATIONS).filter(|(version, _)| *version > found) {
                        for statement in *statements {
                            inbox.run(connection, statement, Vec::new()).await?;
                        }
                        let applied = "INSERT INTO {schema} (version, applied_at) VALUES (?, {now})";
                        inbox.run(connection, applied, vec![version.into()]).await?;
                    }
                    Ok(())
                })
            },
        )
        .await
    }

    /// Checks tables that somebody may have made or changed by hand: columns, types, keys, collations, triggers.
    pub async fn verify(&self) -> Result<(), SchemaError> {
        let needed = latest::<Db>();
        let mut connection = self.acquire().await.map_err(Error::from)?;
        let found = match version(self, &mut connection).await {
            // A connection that broke says nothing about the tables.
            Err(error) if error.class() == Class::Unavailable => return Err(error.into()),
            // A ledger that can't be read is one that isn't there: what else is wrong, the next statement tells.
            found => found.unwrap_or(0),
        };
        drop(connection);
        if found > needed {
            return Err(SchemaError::Newer { found, known: needed });
        }
        let differences = Db::differences(self).await?;
        if found < needed {
            return Err(SchemaError::Older { found, needed });
        }
        if differences.is_empty() { Ok(()) } else { Err(SchemaError::Different(differences)) }
    }
}

const LEDGER: &str =
    "CREATE TABLE IF NOT EXISTS {schema} (version BIGINT NOT NULL PRIMARY KEY, applied_at BIGINT NOT NULL)";

fn latest<Db: Store>() -> i64 {
    i64::try_from(Db::MIGRATIONS.len()).unwrap_or(i64::MAX)
}

async fn version<Db: Store>(inbox: &Inbox<Db>, connection: &mut Db::Connection) -> Result<i64, Error> {
    let rows = inbox.run(connection, "SELECT COALESCE(MAX(version), 0) FROM {schema}", Vec::new()).await?;
    Ok(rows.first().ok_or(sqlx::Error::RowNotFound)?.int(0)?)
}
