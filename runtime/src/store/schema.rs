//! The tables: made by `migrate`, checked by `verify`.

use std::fmt;

use super::tables::{Tables, lines_of_kind};
use super::{Inbox, InboxOptions, Row, StartError, Store};
use crate::error::{Class, Error};

/// The statements of one version.
pub(crate) type Step = &'static [&'static str];

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
    /// The tables hold digests of the keys, and this program says nothing of it.
    #[error(
        "the inbox's tables are lean and this program's inbox isn't, so that every message handled before would run again: \
         say `Inbox::options().lean()`, or give this inbox tables of its own by another `prefix`"
    )]
    Lean,
    /// The tables hold the keys' text, and this program says `lean`.
    #[error(
        "the inbox's tables hold the keys' text and this program says `lean`, so that every message handled before would run \
         again: leave `lean` out, or give this inbox tables of its own by another `prefix`"
    )]
    NotLean,
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
    /// Makes the tables, or brings them to this release's version. Many processes may do so at once. Tables of this version
    /// are left alone, so that an account without the right to make tables may call it too.
    ///
    /// # Errors
    /// [`SchemaError::Newer`] if a later release has been here, else the database's own error.
    pub async fn migrate(&self) -> Result<(), SchemaError> {
        self.migrate_by(Db::MIGRATIONS.to_vec()).await
    }

    /// As [`Inbox::migrate`], by these steps.
    pub(crate) async fn migrate_by(&self, steps: Vec<Step>) -> Result<(), SchemaError> {
        let known = number_of(&steps);
        if self.version().await.is_ok_and(|found| found == known) {
            return self.refuse_other_kind(&self.read(Db::IS_LEAN, Vec::new()).await?);
        }
        self.write_in(
            |inbox| Box::pin(Db::begin_migration(inbox)),
            move |inbox, connection| {
                Box::pin(async move {
                    inbox.run(connection, LEDGER, Vec::new()).await?;
                    let found = version_in(&inbox.run(connection, VERSION, Vec::new()).await?)?;
                    if found > known {
                        return Err(SchemaError::Newer { found, known });
                    }
                    inbox.refuse_other_kind(&inbox.run(connection, Db::IS_LEAN, Vec::new()).await?)?;
                    for (version, statements) in (1_i64..).zip(&steps).filter(|(version, _)| *version > found) {
                        for statement in *statements {
                            Db::run(connection, &inbox.ddl(statement), Vec::new()).await.map_err(Error::from)?;
                        }
                        inbox.run(connection, APPLIED, vec![version.into()]).await?;
                    }
                    Ok(())
                })
            },
        )
        .await
    }

    /// Checks tables that somebody may have made or changed by hand: columns, types, keys, collations, triggers.
    pub async fn verify(&self) -> Result<(), SchemaError> {
        let needed = number_of(Db::MIGRATIONS);
        let found = match self.version().await {
            // A connection that broke says nothing about the tables.
            Err(error) if error.class() == Class::Unavailable => return Err(error.into()),
            // A ledger that can't be read is one that isn't there: what else is wrong, the next statement tells.
            found => found.unwrap_or(0),
        };
        if found > needed {
            return Err(SchemaError::Newer { found, known: needed });
        }
        self.refuse_other_kind(&self.read(Db::IS_LEAN, Vec::new()).await?)?;
        let differences = Db::differences(self).await?;
        if found < needed {
            return Err(SchemaError::Older { found, needed });
        }
        if differences.is_empty() { Ok(()) } else { Err(SchemaError::Different(differences)) }
    }

    async fn version(&self) -> Result<i64, Error> {
        version_in(&self.read(VERSION, Vec::new()).await?)
    }

    /// Refuses tables of the other kind: rows of both would run messages twice.
    fn refuse_other_kind(&self, is_lean: &[Row]) -> Result<(), SchemaError> {
        let lean = is_lean.first().map(|row| row.int(0)).transpose().map_err(Error::from)?;
        match lean.map(|lean| lean != 0) {
            Some(true) if !self.is_lean() => Err(SchemaError::Lean),
            Some(false) if self.is_lean() => Err(SchemaError::NotLean),
            _ => Ok(()),
        }
    }
}

impl<Db: Store> InboxOptions<Db> {
    /// What [`Inbox::migrate`] runs with these options, one script for each version, for those who migrate by hand: with
    /// the schema, the prefix and the kind of rows that are set here. The folder `migrations` has those of the defaults.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")] {
    /// use inboxed_runtime::Inbox;
    ///
    /// let scripts = Inbox::<sqlx::Sqlite>::options().prefix("orders_inbox").migrations()?;
    /// assert!(scripts[0].contains("CREATE TABLE \"main\".orders_inbox ("));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A schema or a prefix that no table can have.
    pub fn migrations(&self) -> Result<Vec<String>, StartError> {
        let tables = self.tables()?;
        let script = |(version, statements): (usize, &Step)| {
            let ledger = if version == 1 { Some(LEDGER) } else { None };
            let applied = APPLIED.replacen('?', &version.to_string(), 1);
            let statements = ledger.into_iter().chain(statements.iter().copied()).chain([applied.as_str()]);
            let title = format!("-- Version {version} of the inbox's tables: what `Inbox::migrate` runs.\n");
            statements.fold(title, |script, statement| {
                let statement = fill::<Db>(&tables, statement).replace("\n    ", "\n");
                format!("{script}\n{statement};\n")
            })
        };
        Ok((1..).zip(Db::MIGRATIONS).map(script).collect())
    }
}

/// A statement that makes tables, with the lines of this kind of inbox only.
pub(crate) fn fill<Db: Store>(tables: &Tables, template: &str) -> String {
    tables.sql(&lines_of_kind(template, tables.is_lean())).replace("{now}", Db::NOW)
}

const LEDGER: &str =
    "CREATE TABLE IF NOT EXISTS {schema} (version BIGINT NOT NULL PRIMARY KEY, applied_at BIGINT NOT NULL)";

/// The tool `sqlite3` of many systems is too old for the clock's expression, and answers NULL.
const APPLIED: &str = "INSERT INTO {schema} (version, applied_at) VALUES (?, COALESCE({now}, 0))";

const VERSION: &str = "SELECT COALESCE(MAX(version), 0) FROM {schema}";

fn version_in(rows: &[Row]) -> Result<i64, Error> {
    Ok(rows.first().ok_or(sqlx::Error::RowNotFound)?.int(0)?)
}

fn number_of(steps: &[Step]) -> i64 {
    i64::try_from(steps.len()).unwrap_or(i64::MAX)
}
