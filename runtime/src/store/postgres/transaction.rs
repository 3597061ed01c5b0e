//! One transaction, from BEGIN and claim to its checked commit.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::OwnedSemaphorePermit;

use super::claim::Statements;
use super::code::tells_of_the_body;
use super::ending::{Backend, Ending, Since};
use super::lanes::{Lane, Lanes, Manager, Session};
use crate::error::{Class, Error};
use crate::store::{Claim, CommitError, Limits, classify};

/// How much longer than the server this side waits for an answer.
const NETWORK: Duration = Duration::from_secs(1);

/// How long a rollback may take before the connection is given up.
const ROLLBACK: Duration = Duration::from_secs(5);

/// How long a commit may take, on a server that waits for a standby, before its outcome counts as unknown.
const COMMIT: Duration = Duration::from_secs(30);

/// `statement_timeout` is lifted: cut short while it waits for a standby, COMMIT would report success all the same.
const COMMIT_SQL: &str =
    "RELEASE SAVEPOINT inboxed; SET LOCAL inboxed.guard = off; SET LOCAL statement_timeout = 0; COMMIT";

/// A transaction on a connection of its own. Dropped unfinished, it is ended by closing its session.
#[derive(Debug)]
pub struct PgTransaction {
    lane: Lane,
    // Dropped after the connection, and before the place: a new session should find the old one gone.
    ending: Ending,
    /// The lane's state if this commits.
    committed: Session,
    /// Whether a body may have prepared statements.
    ran_body: bool,
    lanes: Arc<Lanes>,
    place: OwnedSemaphorePermit,
}

impl PgTransaction {
    /// Begins and claims; the rows that were claimed come back.
    pub(super) async fn open(
        lanes: &Arc<Lanes>,
        statements: &Statements,
        claims: &[Claim],
        limits: Limits,
    ) -> Result<(Self, Vec<PgRow>), Error> {
        let deadline = Instant::now() + limits.claim;
        let place = lanes.place(limits.claim).await?;
        let mut reused = lanes.reuse();
        loop {
            let known = reused.is_some();
            let lane = match reused.take() {
                Some(lane) => lane,
                None => lanes.open(left(deadline)).await?,
            };
            let sql = statements.begin(claims, limits, &lane.session)?;
            let committed = Statements::after(claims, limits, &lane.session);
            match begin(lanes, lane, &sql, deadline).await {
                Ok((lane, backend, rows)) => {
                    let ending = Ending::new(Arc::clone(lanes), backend);
                    let tx = Self { lane, ending, committed, ran_body: false, lanes: Arc::clone(lanes), place };
                    return Ok((tx, rows));
                }
                // The server has been away since; nothing has happened on a session that was lost before the claim.
                Err(error) if known && error.lost_session => lanes.forget_idle(),
                Err(error) => return Err(error.error),
            }
        }
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
                self.lane.session = self.committed;
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
            Ok(Ok(())) => {
                // What a transaction sets for the session goes with it; what it prepares stays.
                self.lane.session = Session { times: None, ..self.committed };
                self.give_back();
            }
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

async fn begin(
    lanes: &Lanes,
    mut lane: Lane,
    sql: &str,
    deadline: Instant,
) -> Result<(Lane, Backend, Vec<PgRow>), NotBegun> {
    let begun = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut lane.connection);
    let error = match tokio::time::timeout(left(deadline) + NETWORK, begun).await {
        Ok(Ok(mut rows)) => {
            let backend = match lane.session.backend {
                Some(backend) => backend,
                None => Backend::from_row(rows.first().ok_or(sqlx::Error::RowNotFound)?, Since::Transaction)?,
            };
            if lane.session.backend.is_none() {
                rows.remove(0);
            }
            return Ok((lane, backend, rows));
        }
        Ok(Err(error)) => error,
        Err(_) => return Err(sqlx::Error::PoolTimedOut.into()),
    };
    if code_of(&error, "57014") {
        let text = "another transaction holds the message's key for longer than the claim may wait";
        return Err(Error::with_class(text, Class::Unavailable).into());
    }
    // A server that became a standby refuses to write: its session is of no more use.
    if classify(&error) == Class::Contention {
        keep_rolled_back(lanes, lane).await;
    }
    Err(error.into())
}

/// Why a transaction couldn't begin.
struct NotBegun {
    error: Error,
    /// The server has ended the session, or it lacks what it had.
    lost_session: bool,
}

impl From<sqlx::Error> for NotBegun {
    fn from(error: sqlx::Error) -> Self {
        let connection = matches!(error, sqlx::Error::Io(_) | sqlx::Error::Protocol(_));
        let lost_session = connection || ["57P", "26000", "25006"].iter().any(|code| code_of(&error, code));
        Self { error: error.into(), lost_session }
    }
}

impl From<Error> for NotBegun {
    fn from(error: Error) -> Self {
        Self { error, lost_session: false }
    }
}

fn code_of(error: &sqlx::Error, start: &str) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code.starts_with(start))
}

/// Keeps a lane on which the claim met another transaction.
async fn keep_rolled_back(lanes: &Lanes, mut lane: Lane) {
    lane.session.times = None;
    lane.session.prepared = false;
    if let Ok(Ok(_)) = tokio::time::timeout(ROLLBACK, lane.connection.execute("ROLLBACK; DEALLOCATE ALL")).await {
        lanes.keep(lane);
    }
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
