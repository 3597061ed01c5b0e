//! One transaction, from BEGIN and claim to its checked commit.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::OwnedSemaphorePermit;

use super::code::tells_of_the_body;
use super::ending::{Backend, Ending};
use super::lanes::{Lane, Lanes, Manager};
use crate::error::{Class, Error};
use crate::store::{CommitError, classify};

/// How much longer than the server this side waits for an answer.
const NETWORK: Duration = Duration::from_secs(1);

/// How long a rollback may take before the connection is given up.
const ROLLBACK: Duration = Duration::from_secs(5);

/// How long a commit may take, on a server that waits for a standby, before its outcome counts as unknown.
const COMMIT: Duration = Duration::from_secs(30);

/// `statement_timeout` is lifted: cut short while it waits for a standby, COMMIT would report success all the same.
const COMMIT_SQL: &str = "RELEASE SAVEPOINT inboxed; \
    SELECT set_config('statement_timeout', '0', true), set_config('inboxed.guard', 'off', true); COMMIT";

/// A transaction on a connection of its own. Dropped unfinished, it is ended by closing its session.
#[derive(Debug)]
pub struct PgTransaction {
    lane: Lane,
    // Dropped after the connection, and before the place: a new session should find the old one gone.
    ending: Ending,
    /// Whether a body may have prepared statements.
    ran_body: bool,
    lanes: Arc<Lanes>,
    place: OwnedSemaphorePermit,
}

impl PgTransaction {
    /// Begins by one text, which must end inside the transaction, and whose first row must be [`Backend`]'s two numbers.
    /// The rows after it come back.
    pub(super) async fn open(lanes: &Arc<Lanes>, sql: &str, wait: Duration) -> Result<(Self, Vec<PgRow>), Error> {
        let deadline = Instant::now() + wait;
        let place = lanes.place(wait).await?;
        if let Some(lane) = lanes.reuse() {
            match Self::on(lanes, lane, sql, deadline).await {
                Ok((lane, backend, rows)) => return Ok((Self::assemble(lanes, lane, backend, place), rows)),
                // The server has been away since; nothing has happened on a connection that was lost before the claim.
                Err(error) if error.lost_connection => lanes.forget_idle(),
                Err(error) => return Err(error.error),
            }
        }
        let lane = lanes.open(left(deadline)).await?;
        let (lane, backend, rows) = Self::on(lanes, lane, sql, deadline).await.map_err(|error| error.error)?;
        Ok((Self::assemble(lanes, lane, backend, place), rows))
    }

    fn assemble(lanes: &Arc<Lanes>, lane: Lane, backend: Backend, place: OwnedSemaphorePermit) -> Self {
        let ending = Ending::new(Arc::clone(lanes), backend);
        Self { lane, ending, ran_body: false, lanes: Arc::clone(lanes), place }
    }

    async fn on(
        lanes: &Lanes,
        mut lane: Lane,
        sql: &str,
        deadline: Instant,
    ) -> Result<(Lane, Backend, Vec<PgRow>), NotBegun> {
        let begun = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut lane.connection);
        let error = match tokio::time::timeout(left(deadline) + NETWORK, begun).await {
            Ok(Ok(mut rows)) => {
                let backend = backend(&rows)?;
                rows.remove(0);
                return Ok((lane, backend, rows));
            }
            Ok(Err(error)) => error,
            Err(_) => return Err(sqlx::Error::PoolTimedOut.into()),
        };
        let class = classify(&error);
        if class != Class::Unavailable && is_of_the_server(&error, "57014") {
            rolled_back(lanes, lane).await;
            let text = "another transaction holds the message's key for longer than the claim may wait";
            return Err(Error::with_class(text, Class::Unavailable).into());
        }
        // A connection to a server that became read-only must not be used again.
        if class == Class::Contention || class == Class::Failure && !is_of_the_server(&error, "25006") {
            rolled_back(lanes, lane).await;
        }
        Err(error.into())
    }

    /// Notes that a body will run.
    pub(super) fn with_body(&mut self) {
        self.ran_body = true;
    }

    /// Whether the savepoint that was set after the claim is still there.
    pub(super) async fn check(&mut self) -> Result<(), Error> {
        let renew = self.lane.connection.execute("RELEASE SAVEPOINT inboxed; SAVEPOINT inboxed").await;
        renew.map(drop).map_err(ended_by_body)
    }

    pub(super) async fn commit(mut self) -> Result<(), CommitError> {
        // A savepoint that a body forgot would be committed with the rest, though its end never came.
        if Manager::get_transaction_depth(&self.lane.connection) != 1 {
            self.close().await;
            let text =
                "the body left a transaction open that it began with `begin()`: commit it or drop it; nothing was kept";
            return Err(CommitError::Refused(Error::from(text)));
        }
        let committed = tokio::time::timeout(COMMIT, self.lane.connection.execute(COMMIT_SQL)).await;
        match committed {
            Ok(Ok(_)) => {
                self.give_back();
                Ok(())
            }
            Ok(Err(error)) if error.as_database_error().is_some() && classify(&error) != Class::Unavailable => {
                self.close().await;
                Err(CommitError::Refused(ended_by_body(error)))
            }
            // Not ended from outside: the server may be waiting for its standby, and that wait is the durability.
            Ok(Err(error)) => {
                self.ending.disarm();
                Err(CommitError::Unknown(error.into()))
            }
            Err(_) => {
                self.ending.disarm();
                let text = "the commit wasn't answered in time";
                Err(CommitError::Unknown(Error::with_class(text, Class::Unavailable)))
            }
        }
    }

    pub(super) async fn rollback(mut self) {
        if Manager::get_transaction_depth(&self.lane.connection) != 1 {
            return self.close().await;
        }
        let rolled_back = async {
            self.lane.connection.execute("ROLLBACK").await?;
            // A migration may have changed what a prepared statement means; it would fail in every attempt.
            if self.ran_body && self.lane.connection.cached_statements_size() > 0 {
                self.lane.connection.clear_cached_statements().await?;
            }
            Ok::<_, sqlx::Error>(())
        };
        match tokio::time::timeout(ROLLBACK, rolled_back).await {
            Ok(Ok(())) => self.give_back(),
            _ => self.close().await,
        }
    }

    /// Ends the session, whatever runs in it, and waits until its locks are free.
    pub(super) async fn close(self) {
        let Self { lane, ending, place, .. } = self;
        ending.end().await;
        drop((lane, place));
    }

    fn give_back(self) {
        let Self { lane, mut ending, lanes, place, .. } = self;
        ending.disarm();
        lanes.keep(lane);
        drop(place);
    }
}

/// Why a transaction couldn't begin.
struct NotBegun {
    error: Error,
    lost_connection: bool,
}

impl From<sqlx::Error> for NotBegun {
    fn from(error: sqlx::Error) -> Self {
        let shutdown = is_of_the_server(&error, "57P");
        let lost_connection = shutdown || matches!(error, sqlx::Error::Io(_) | sqlx::Error::Protocol(_));
        Self { error: error.into(), lost_connection }
    }
}

impl From<Error> for NotBegun {
    fn from(error: Error) -> Self {
        Self { error, lost_connection: false }
    }
}

fn is_of_the_server(error: &sqlx::Error, code: &str) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|found| found.starts_with(code))
}

/// Keeps a lane on which BEGIN or the claim failed, if it can still be rolled back.
async fn rolled_back(lanes: &Lanes, mut lane: Lane) {
    if let Ok(Ok(_)) = tokio::time::timeout(ROLLBACK, lane.connection.execute("ROLLBACK")).await {
        lanes.keep(lane);
    }
}

fn backend(rows: &[PgRow]) -> Result<Backend, sqlx::Error> {
    let row = super::row(rows.first().ok_or(sqlx::Error::RowNotFound)?)?;
    Ok(Backend { process: row.int(0)?, began: row.int(1)? })
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

fn ended_by_body(error: sqlx::Error) -> Error {
    if tells_of_the_body(&error) {
        return Error::from(format!(
            "the transaction is not the one that holds the claim ({error}): the body ended it by COMMIT or ROLLBACK, or \
             swallowed an error by which the database ended it. Nothing was kept; leave the transaction's end to the \
             inbox, use `begin()` for a part of it, and pass every database error on"
        ));
    }
    error.into()
}

impl Deref for PgTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.lane.connection
    }
}

impl DerefMut for PgTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.lane.connection
    }
}
