//! One write transaction, from its place in the queue to its checked commit.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, Database, Executor as _, Sqlite, SqliteConnection, SqlitePool};
use sqlx_core::transaction::TransactionManager;

use super::fuse::Fuse;
use super::queue::{self, Turn};
use crate::error::{Class, Error};
use crate::store::{CommitError, Inbox, Limits, classify};

type Manager = <Sqlite as Database>::TransactionManager;

/// A transaction that holds SQLite's write lock. Dropped unfinished, it is rolled back by closing its connection.
#[derive(Debug)]
pub struct SqliteTransaction {
    connection: PoolConnection<Sqlite>,
    fuse: Option<Fuse>,
    finished: bool,
    // Dropped after the connection: the next in the queue should find the lock free.
    _turn: Turn,
}

impl SqliteTransaction {
    /// Waits for its turn, then for other processes, and begins. `guarded` transactions run a body.
    pub(super) async fn open(inbox: &Inbox<Sqlite>, guarded: bool, limits: Limits) -> Result<Self, Error> {
        let deadline = Instant::now() + limits.claim;
        let turn = inbox.shared().queue.turn(limits.claim).await?;
        let mut connection = acquire(inbox.pool(), left(deadline)).await?;
        if let Err(error) = begin(&mut connection, inbox.shared().busy_timeout, deadline).await {
            connection.close_on_drop();
            return Err(error);
        }
        let mut tx = Self { connection, fuse: None, finished: false, _turn: turn };
        if guarded {
            let fuse = Fuse::new(limits.run);
            fuse.arm(&mut tx.connection).await?;
            tx.fuse = Some(fuse);
        }
        Ok(tx)
    }

    /// Whether the savepoint that was set after the claim is still there.
    pub(super) async fn check(&mut self) -> Result<(), Error> {
        let renew = self.connection.execute("RELEASE SAVEPOINT inboxed; SAVEPOINT inboxed").await;
        renew.map(drop).map_err(|error| ended_by_body(&error))
    }

    pub(super) async fn commit(mut self) -> Result<(), CommitError> {
        if let Err(error) = self.connection.execute("RELEASE SAVEPOINT inboxed").await {
            self.close().await;
            return Err(CommitError::Refused(ended_by_body(&error)));
        }
        // A savepoint that a body forgot would turn sqlx's COMMIT into its RELEASE.
        if Manager::get_transaction_depth(&self.connection) != 1 {
            self.close().await;
            let text =
                "the body left a transaction open that it began with `begin()`: commit it or drop it; nothing was kept";
            return Err(CommitError::Refused(Error::from(text)));
        }
        if let Some(fuse) = &self.fuse {
            fuse.allow_commit();
        }
        if let Err(error) = Manager::commit(&mut self.connection).await {
            let class = classify(&error);
            self.close().await;
            // BUSY and refused constraints leave the transaction as it was; after an input or output error nobody knows.
            return Err(match class {
                Class::Unavailable => CommitError::Unknown(error.into()),
                _ => CommitError::Refused(error.into()),
            });
        }
        self.give_back().await;
        Ok(())
    }

    pub(super) async fn rollback(mut self) {
        let rolled_back = Manager::get_transaction_depth(&self.connection) == 1
            && Manager::rollback(&mut self.connection).await.is_ok();
        if rolled_back {
            self.give_back().await;
        } else {
            self.close().await;
        }
    }

    /// Ends what runs on the connection and waits until the database is out of the transaction.
    pub(super) async fn close(self) {
        let mut this = self;
        if let Some(fuse) = &this.fuse {
            fuse.cut();
        }
        // Fails if the body or an error has ended the transaction before, which is as good.
        let _ = this.connection.execute("ROLLBACK").await;
    }

    /// Hands the connection back as it came.
    async fn give_back(&mut self) {
        let disarmed = match &self.fuse {
            Some(_) => Fuse::disarm(&mut self.connection).await.is_ok(),
            None => true,
        };
        self.finished = disarmed;
    }
}

impl Drop for SqliteTransaction {
    fn drop(&mut self) {
        if !self.finished {
            if let Some(fuse) = &self.fuse {
                fuse.cut();
            }
            self.connection.close_on_drop();
        }
    }
}

impl Deref for SqliteTransaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for SqliteTransaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// A connection, for which sqlx waits in a task of its own: its waiting can't be cancelled safely.
async fn acquire(pool: &SqlitePool, wait: Duration) -> Result<PoolConnection<Sqlite>, Error> {
    match tokio::time::timeout(wait, tokio::spawn(pool.acquire())).await {
        Ok(Ok(connection)) => Ok(connection?),
        Ok(Err(stopped)) => Err(Error::with_class(stopped, Class::Unavailable)),
        Err(_) => Err(Error::from(sqlx::Error::PoolTimedOut)),
    }
}

/// BEGIN at sqlx's depth 1, asking again while another process holds the write lock.
async fn begin(
    connection: &mut SqliteConnection,
    busy_timeout: Option<Duration>,
    deadline: Instant,
) -> Result<(), Error> {
    let timeout = match busy_timeout {
        Some(known) => i64::try_from(known.as_millis()).unwrap_or(i64::MAX),
        None => sqlx::query_scalar("PRAGMA busy_timeout").fetch_one(&mut *connection).await?,
    };
    // SQLite's own waiting blocks the connection's thread, and its growing pauses starve one of several processes.
    let begin = format!("PRAGMA busy_timeout = 0; BEGIN IMMEDIATE; PRAGMA busy_timeout = {timeout}");
    loop {
        match connection.begin_with(sqlx::AssertSqlSafe(begin.as_str())).await {
            Ok(transaction) => {
                // Its end is ours: `SqliteTransaction` commits or rolls back on the connection itself.
                std::mem::forget(transaction);
                return Ok(());
            }
            Err(error) if classify(&error) == Class::Contention => {
                if left(deadline).is_zero() {
                    let text = "another process holds the write lock for longer than the claim may wait";
                    return Err(Error::with_class(text, Class::Unavailable));
                }
                tokio::time::sleep(queue::pause().min(left(deadline))).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn ended_by_body(error: &sqlx::Error) -> Error {
    match classify(error) {
        Class::Failure => Error::from(format!(
            "the transaction is not the one that holds the claim ({error}): the body ended it by COMMIT or ROLLBACK, or \
             swallowed an error by which the database ended it. Nothing was kept; leave the transaction's end to the \
             inbox, use `begin()` for a part of it, and pass every database error on"
        )),
        class => Error::with_class(error.to_string(), class),
    }
}
