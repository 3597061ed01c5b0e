//! The connection that an inbox writes on: taken out of the pool for good, since SQLite has one writer at a time anyway.
//!
//! A lane is *primed*: sqlx counts one open transaction on it for good. So BEGIN, claim and savepoint go as one text of
//! ours, and a body's `begin()` is a savepoint all the same. The fuse stays on it, and its statements stay prepared. It
//! never waits for a lock by SQLite's own means, which block its thread; only in WAL mode a commit has nobody to wait
//! for, so other files, and databases in memory, are written through the pool. So is a pool of one connection, which is
//! taken at its word.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{Database, Executor as _, Row as _, Sqlite, SqliteConnection, SqlitePool};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::OnceCell;

use super::fuse::Fuse;
use crate::error::{Class, Error};

pub(super) type Manager = <Sqlite as Database>::TransactionManager;

/// How long a lane is kept: caches grow.
const LIFETIME: Duration = Duration::from_mins(30);

/// The lane of an inbox, while no transaction has it.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    idle: Mutex<Option<Lane>>,
    /// Whether the database is in WAL mode.
    wal: OnceCell<bool>,
}

/// A primed connection with its fuse.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) connection: SqliteConnection,
    pub(super) fuse: Fuse,
    opened: Instant,
}

/// What a transaction writes on.
#[derive(Debug)]
pub(super) enum Writer {
    Lane(Lane),
    Pooled(Pooled),
}

/// A connection of the pool, which is closed when it is dropped unless it was given back.
#[derive(Debug)]
pub(super) struct Pooled {
    connection: PoolConnection<Sqlite>,
    as_it_came: bool,
}

impl Pooled {
    pub(super) fn give_back(mut self) {
        self.as_it_came = true;
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if !self.as_it_came {
            self.connection.close_on_drop();
        }
    }
}

impl Deref for Pooled {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

impl Lanes {
    /// The lane, or the pool's connection where there can't be one.
    pub(super) async fn writer(&self, pool: &SqlitePool, wait: Duration) -> Result<Writer, Error> {
        if let Some(lane) = self.take().filter(|lane| lane.opened.elapsed() < LIFETIME) {
            return Ok(Writer::Lane(lane));
        }
        Box::pin(self.open(pool, wait)).await
    }

    async fn open(&self, pool: &SqlitePool, wait: Duration) -> Result<Writer, Error> {
        let mut connection = acquire(pool, wait).await?;
        let apart =
            pool.options().get_max_connections() > 1 && *self.wal.get_or_try_init(|| is_wal(&mut connection)).await?;
        Ok(if apart {
            Writer::Lane(Lane::prime(connection.detach()).await?)
        } else {
            Writer::Pooled(Pooled { connection, as_it_came: false })
        })
    }

    /// Keeps a lane whose transaction has ended well.
    pub(super) fn keep(&self, lane: Lane, pool: &SqlitePool) {
        if !pool.is_closed() && Manager::get_transaction_depth(&lane.connection) == 1 {
            *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(lane);
        }
    }

    fn take(&self) -> Option<Lane> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Lane {
    async fn prime(mut connection: SqliteConnection) -> Result<Self, sqlx::Error> {
        // From here on sqlx counts a transaction that isn't there.
        Manager::begin(&mut connection, None).await?;
        connection.execute("COMMIT; PRAGMA busy_timeout = 0").await?;
        let fuse = Fuse::default();
        fuse.set(&mut connection).await?;
        Ok(Self { connection, fuse, opened: Instant::now() })
    }
}

/// A connection, for which sqlx waits in a task of its own: its waiting can't be cancelled safely.
async fn acquire(pool: &SqlitePool, wait: Duration) -> Result<PoolConnection<Sqlite>, Error> {
    match tokio::time::timeout(wait, tokio::spawn(pool.acquire())).await {
        Ok(Ok(connection)) => Ok(connection?),
        Ok(Err(stopped)) => Err(Error::with_class(stopped, Class::Unavailable)),
        Err(_) => Err(Error::from(sqlx::Error::PoolTimedOut)),
    }
}

async fn is_wal(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    let mode = connection.fetch_one("PRAGMA main.journal_mode").await?;
    Ok(mode.try_get_unchecked::<String, _>(0)? == "wal")
}
