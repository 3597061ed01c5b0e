//! One write transaction, from its place in the queue to its checked commit.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, Connection as _, Either, Executor as _, Sqlite, SqliteConnection};
use sqlx_core::transaction::TransactionManager as _;

use super::bind;
use super::fuse::Fuse;
use super::lane::{Lane, Manager, Pooled, Writer};
use super::queue::{self, Turn};
use crate::error::{Class, Error};
use crate::store::{CommitError, Inbox, Limits, Value, classify};

/// The check, and the commit if it holds.
const COMMIT: &str = "RELEASE SAVEPOINT inboxed; COMMIT";

/// A transaction that holds SQLite's write lock. Dropped unfinished, it is rolled back by closing its connection.
#[derive(Debug)]
pub struct SqliteTransaction {
    // Dropped before the connection, which waits for the end of what runs on it.
    cutting: Cutting,
    writer: Writer,
    inbox: Inbox<Sqlite>,
    // Dropped after the connection: the next in the queue should find the lock free.
    _turn: Turn,
}

/// What a lane begins with: a text that begins with BEGIN, and its arguments.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) sql: Arc<str>,
    pub(super) arguments: Vec<Value>,
}

/// Cuts the fuse when it is dropped.
#[derive(Debug, Default)]
struct Cutting(Option<Fuse>);

impl Drop for Cutting {
    fn drop(&mut self) {
        if let Some(fuse) = &self.0 {
            fuse.cut();
        }
    }
}

impl SqliteTransaction {
    /// Waits for its turn, then for other processes, and begins. `guarded` transactions run a body. The rows are those of
    /// the opening, if it could be used.
    pub(super) async fn open(
        inbox: &Inbox<Sqlite>,
        opening: &Opening,
        guarded: bool,
        limits: Limits,
    ) -> Result<(Self, Option<Vec<SqliteRow>>), Error> {
        let deadline = Instant::now() + limits.claim;
        let shared = inbox.shared();
        let turn = shared.queue.turn(limits.claim).await?;
        let guard = guarded.then_some(limits.run);
        match shared.lanes.writer(inbox.pool(), left(deadline)).await? {
            Writer::Lane(lane) => {
                let cutting = Cutting(Some(lane.fuse.clone()));
                let mut tx = Self { cutting, writer: Writer::Lane(lane), inbox: inbox.clone(), _turn: turn };
                let rows = tx.begin_on_lane(opening, guard, deadline).await?;
                Ok((tx, Some(rows)))
            }
            Writer::Pooled(mut pooled) => {
                begin(&mut pooled, shared.busy_timeout, deadline).await?;
                let mut cutting = Cutting::default();
                if let Some(run) = guard {
                    let fuse = Fuse::default();
                    fuse.set(&mut pooled).await?;
                    fuse.guard(run);
                    cutting.0 = Some(fuse);
                }
                let tx = Self { cutting, writer: Writer::Pooled(pooled), inbox: inbox.clone(), _turn: turn };
                Ok((tx, None))
            }
        }
    }

    /// The opening, again while another process holds the write lock.
    async fn begin_on_lane(
        &mut self,
        opening: &Opening,
        guard: Option<Duration>,
        deadline: Instant,
    ) -> Result<Vec<SqliteRow>, Error> {
        loop {
            if let (Some(fuse), Some(run)) = (&self.cutting.0, guard) {
                fuse.guard(run);
            }
            let sql = AssertSqlSafe(Arc::clone(&opening.sql));
            let query = sqlx::query_with(sql, bind(opening.arguments.clone())?);
            match query.fetch_all(&mut **self).await {
                Ok(rows) => return Ok(rows),
                Err(error) => wait_for_others(error, deadline).await?,
            }
        }
    }

    /// Whether the savepoint that was set after the claim is still there.
    pub(super) async fn check(&mut self) -> Result<(), Error> {
        let renew = self.execute("RELEASE SAVEPOINT inboxed; SAVEPOINT inboxed").await;
        renew.map(drop).map_err(|error| ended_by_body(&error))
    }

    pub(super) async fn commit(mut self) -> Result<(), CommitError> {
        // A savepoint that a body forgot would be committed with the rest, though its end never came.
        if !self.is_outermost().await {
            self.close().await;
            let text =
                "the body left a transaction open that it began with `begin()`: commit it or drop it; nothing was kept";
            return Err(CommitError::Refused(Error::from(text)));
        }
        if let Some(fuse) = &self.cutting.0 {
            fuse.free();
        }
        let committed = match &mut self.writer {
            Writer::Lane(lane) => commit_lane(lane).await,
            Writer::Pooled(pooled) => commit_pooled(pooled).await,
        };
        match committed {
            Ok(()) => {
                self.give_back().await;
                Ok(())
            }
            Err(NotCommitted::Unreleased(error)) => {
                self.close().await;
                Err(CommitError::Refused(ended_by_body(&error)))
            }
            Err(NotCommitted::Commit(error)) => {
                let class = classify(&error);
                self.close().await;
                // BUSY and refused constraints leave the transaction as it was; after an input or output error nobody knows.
                Err(match class {
                    Class::Unavailable => CommitError::Unknown(error.into()),
                    _ => CommitError::Refused(error.into()),
                })
            }
        }
    }

    /// Whether everything that the body began inside has ended.
    async fn is_outermost(&mut self) -> bool {
        // A dropped `begin()` is rolled back by the driver's own thread, which answers a ping after that.
        Manager::get_transaction_depth(self) == 1
            || self.ping().await.is_ok() && Manager::get_transaction_depth(self) == 1
    }

    pub(super) async fn rollback(mut self) {
        let rolled_back = self.is_outermost().await
            && match &mut self.writer {
                Writer::Lane(lane) => lane.connection.execute("ROLLBACK").await.is_ok(),
                Writer::Pooled(pooled) => Manager::rollback(pooled).await.is_ok(),
            };
        if rolled_back {
            self.give_back().await;
        } else {
            self.close().await;
        }
    }

    /// Ends what runs on the connection and waits until the database is out of the transaction.
    pub(super) async fn close(mut self) {
        if let Some(fuse) = &self.cutting.0 {
            fuse.cut();
        }
        // Fails if the body or an error has ended the transaction before, which is as good.
        let _ = self.execute("ROLLBACK").await;
    }

    /// Hands the connection back as it came.
    async fn give_back(self) {
        let Self { mut cutting, writer, inbox, _turn } = self;
        let fuse = cutting.0.take();
        match writer {
            Writer::Lane(lane) => {
                lane.fuse.free();
                inbox.shared().lanes.keep(lane, inbox.pool());
            }
            Writer::Pooled(mut pooled) => {
                if fuse.is_none() || Fuse::unset(&mut pooled).await.is_ok() {
                    pooled.give_back();
                }
            }
        }
    }
}

impl Deref for SqliteTransaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        match &self.writer {
            Writer::Lane(lane) => &lane.connection,
            Writer::Pooled(pooled) => pooled,
        }
    }
}

impl DerefMut for SqliteTransaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        match &mut self.writer {
            Writer::Lane(lane) => &mut lane.connection,
            Writer::Pooled(pooled) => pooled,
        }
    }
}

/// At which of its two statements a commit has failed.
enum NotCommitted {
    /// The savepoint isn't there any more.
    Unreleased(sqlx::Error),
    Commit(sqlx::Error),
}

async fn commit_lane(lane: &mut Lane) -> Result<(), NotCommitted> {
    let mut results = lane.connection.fetch_many(sqlx::query_with(COMMIT, SqliteArguments::default()));
    let mut released = false;
    loop {
        match results.try_next().await {
            Ok(Some(Either::Left(_))) => released = true,
            Ok(Some(Either::Right(_))) => {}
            Ok(None) => return Ok(()),
            Err(error) if released => return Err(NotCommitted::Commit(error)),
            Err(error) => return Err(NotCommitted::Unreleased(error)),
        }
    }
}

async fn commit_pooled(pooled: &mut Pooled) -> Result<(), NotCommitted> {
    pooled.execute("RELEASE SAVEPOINT inboxed").await.map_err(NotCommitted::Unreleased)?;
    Manager::commit(pooled).await.map_err(NotCommitted::Commit)
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// Waits a little if another process holds the write lock, else passes the error on.
async fn wait_for_others(error: sqlx::Error, deadline: Instant) -> Result<(), Error> {
    if classify(&error) != Class::Contention {
        return Err(error.into());
    }
    if left(deadline).is_zero() {
        let text = "another process holds the write lock for longer than the claim may wait";
        return Err(Error::with_class(text, Class::Unavailable));
    }
    tokio::time::sleep(queue::pause().min(left(deadline))).await;
    Ok(())
}

/// BEGIN at sqlx's depth 1 on a connection that goes back to its pool.
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
        match connection.begin_with(AssertSqlSafe(begin.as_str())).await {
            Ok(transaction) => {
                // Its end is ours: `SqliteTransaction` commits or rolls back on the connection itself.
                std::mem::forget(transaction);
                return Ok(());
            }
            Err(error) => wait_for_others(error, deadline).await?,
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
