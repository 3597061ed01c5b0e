//! One transaction, from its connection to its checked commit.
//!
//! It is an XA transaction that is committed in one phase. In a plain one a body's own COMMIT would commit its claim, and
//! its ROLLBACK would let the rest of its effects be committed one by one; after a deadlock that it swallowed, too. In
//! XA the server refuses all of them, and DDL, with error 1399 or 1614, and the claim stays with the effect.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Connection as _, Database, Either, Executor as _, MySql, MySqlConnection};
use sqlx_core::transaction::TransactionManager;

use super::batch::Batches;
use super::{code, control};
use crate::error::{Class, Error};
use crate::store::{CommitError, Inbox, Store, classify};

type Manager = <MySql as Database>::TransactionManager;

/// How long a commit may take before its outcome counts as unknown.
const COMMIT_PATIENCE: Duration = Duration::from_mins(1);

/// How long one migration waits for another.
const MIGRATION_PATIENCE: Duration = Duration::from_mins(1);

/// A transaction's random name: of its XA branch, of the rows it claims in a group, and of a lock by which a control
/// connection finds its session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marker(u64);

impl Marker {
    fn new() -> Self {
        Self(fastrand::u64(..))
    }

    /// As the table holds it.
    pub(super) fn claim(self) -> i64 {
        self.0.cast_signed()
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inboxed-{:016x}", self.0)
    }
}

/// An open transaction. Dropped unfinished, it is rolled back by ending its session.
#[derive(Debug)]
pub struct MySqlTransaction {
    connection: PoolConnection<MySql>,
    options: Arc<MySqlConnectOptions>,
    marker: Marker,
    kind: Kind,
    finished: bool,
}

#[derive(Debug)]
enum Kind {
    Transaction,
    /// DDL commits each statement by itself; the lock of this name keeps other migrations away.
    Migration(String),
}

impl MySqlTransaction {
    /// A connection on which nothing has begun yet.
    pub(super) async fn new(inbox: &Inbox<MySql>) -> Result<Self, Error> {
        let connection = inbox.pool().acquire().await?;
        let options = inbox.pool().connect_options();
        Ok(Self { connection, options, marker: Marker::new(), kind: Kind::Transaction, finished: false })
    }

    pub(super) fn marker(&self) -> Marker {
        self.marker
    }

    /// Sends statements of which the last one leaves a transaction open, and raises sqlx's depth to 1.
    pub(super) async fn start(&mut self, statements: String) -> Result<(), sqlx::Error> {
        let transaction = self.connection.begin_with(AssertSqlSafe(statements)).await?;
        // Its end is ours: `MySqlTransaction` commits or rolls back on the connection itself.
        std::mem::forget(transaction);
        Ok(())
    }

    /// Takes the lock under which tables are made.
    pub(super) async fn for_migration(inbox: &Inbox<MySql>) -> Result<Self, Error> {
        let mut this = Self::new(inbox).await?;
        // Database and prefix together are longer than a lock's name may be.
        let lock = format!("CONCAT('inboxed-', MD5(CONCAT(DATABASE(), '.{}')))", inbox.tables().prefix());
        let take = format!("SELECT GET_LOCK({lock}, {})", MIGRATION_PATIENCE.as_secs());
        this.kind = Kind::Migration(lock);
        let rows = <MySql as Store>::run(&mut this, &take, Vec::new()).await?;
        if rows.first().is_some_and(|row| row.int(0).is_ok_and(|taken| taken == 1)) {
            return Ok(this);
        }
        let text = "another process has been making the inbox's tables for a minute";
        Err(Error::with_class(text, Class::Unavailable))
    }

    /// Whether the savepoint that was set after the claim is still there.
    pub(super) async fn check(&mut self) -> Result<(), Error> {
        let renew = self.connection.execute("RELEASE SAVEPOINT inboxed; SAVEPOINT inboxed").await;
        renew.map(drop).map_err(|error| ended_by_body(&error))
    }

    pub(super) async fn commit(mut self) -> Result<(), CommitError> {
        if let Kind::Migration(lock) = &self.kind {
            let release = format!("SELECT RELEASE_LOCK({lock})");
            self.finished = self.connection.execute(AssertSqlSafe(release)).await.is_ok();
            return Ok(());
        }
        // A savepoint that a body forgot is one that it meant to commit or roll back.
        if Manager::get_transaction_depth(&self.connection) != 1 {
            self.hang_up();
            let text =
                "the body left a transaction open that it began with `begin()`: commit it or drop it; nothing was kept";
            return Err(CommitError::Refused(Error::from(text)));
        }
        let mut answers = 0;
        let sent = tokio::time::timeout(COMMIT_PATIENCE, self.send(Batches::commit(self.marker), &mut answers)).await;
        match sent {
            Ok(Ok(())) => {
                self.give_back();
                Ok(())
            }
            // Only the settings' return has failed.
            Ok(Err(_)) if answers >= Batches::COMMITTED => {
                self.hang_up();
                Ok(())
            }
            Ok(Err(error)) => {
                let swallowed = answers == 0 && code::number(&error).is_some() && self.ended_by_database().await;
                self.hang_up();
                if swallowed {
                    let text = "the database ended the transaction, by a deadlock or a timeout, and the body swallowed \
                                that error: nothing was kept; pass every database error on";
                    return Err(CommitError::Refused(Error::with_class(text, Class::Contention)));
                }
                Err(refused(&error, answers))
            }
            Err(_) => {
                self.close().await;
                let text = "the database hasn't answered a COMMIT for a minute";
                Err(CommitError::Unknown(Error::with_class(text, Class::Unavailable)))
            }
        }
    }

    pub(super) async fn rollback(mut self) {
        if Manager::get_transaction_depth(&self.connection) == 1 && self.end_rolled_back().await.is_ok() {
            self.give_back();
        } else {
            self.close().await;
        }
    }

    /// Rolls back a transaction of which sqlx doesn't know yet, and returns the connection.
    pub(super) async fn rollback_unstarted(mut self) {
        if self.end_rolled_back().await.is_ok() {
            self.finished = true;
        }
    }

    /// Ends the session, whatever runs in it, and waits until the database is out of the transaction.
    pub(super) async fn close(mut self) {
        self.hang_up();
        control::end_session(&self.options, self.marker).await;
    }

    /// Closes the connection, on which nothing runs.
    pub(super) fn hang_up(&mut self) {
        self.connection.close_on_drop();
        self.finished = true;
    }

    /// Sends statements, and counts those that were answered before an error.
    async fn send(&mut self, statements: String, answers: &mut usize) -> Result<(), sqlx::Error> {
        let mut results = sqlx::raw_sql(AssertSqlSafe(statements)).fetch_many(&mut *self.connection);
        while let Some(result) = results.try_next().await? {
            *answers += usize::from(matches!(result, Either::Left(_)));
        }
        Ok(())
    }

    /// A savepoint that isn't there says nothing of why: where the database has ended the transaction, XA can't.
    async fn ended_by_database(&mut self) -> bool {
        let ended = self.connection.execute(AssertSqlSafe(Batches::end(self.marker))).await;
        ended.is_err_and(|error| code::number(&error).is_some())
    }

    async fn end_rolled_back(&mut self) -> Result<(), sqlx::Error> {
        let whole = format!(
            "{}; {}; {}",
            Batches::end(self.marker),
            Batches::rollback(self.marker),
            Batches::restore(self.marker)
        );
        match self.connection.execute(AssertSqlSafe(whole)).await {
            Ok(_) => return Ok(()),
            Err(error) if code::number(&error).is_none() => return Err(error),
            // After a deadlock the database has ended it before us, and says so once more.
            Err(_) => {}
        }
        match self.connection.execute(AssertSqlSafe(Batches::rollback(self.marker))).await {
            Err(error) if !code::ended_by_database(&error) => return Err(error),
            _ => {}
        }
        self.connection.execute(AssertSqlSafe(Batches::restore(self.marker))).await.map(drop)
    }

    /// Hands the connection back as it came: sqlx's depth goes back to 0 by a ROLLBACK that has nothing to do and
    /// travels with the pool's own ping.
    fn give_back(&mut self) {
        Manager::start_rollback(&mut self.connection);
        self.finished = true;
    }
}

impl Drop for MySqlTransaction {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        self.connection.close_on_drop();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (options, marker) = (Arc::clone(&self.options), self.marker);
            runtime.spawn(async move { control::end_session(&options, marker).await });
        }
    }
}

impl Deref for MySqlTransaction {
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        &self.connection
    }
}

impl DerefMut for MySqlTransaction {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        &mut self.connection
    }
}

/// What an error of the commit says: before XA COMMIT was sent nothing can have been kept.
fn refused(error: &sqlx::Error, answers: usize) -> CommitError {
    let by_server = code::number(error).is_some();
    if by_server && answers + 1 < Batches::COMMITTED {
        return CommitError::Refused(ended_by_body(error));
    }
    let class = classify(error);
    let text = Error::with_class(error.to_string(), if class == Class::Failure { Class::Unavailable } else { class });
    if by_server && class == Class::Contention { CommitError::Refused(text) } else { CommitError::Unknown(text) }
}

fn ended_by_body(error: &sqlx::Error) -> Error {
    match classify(error) {
        Class::Failure => Error::from(format!(
            "the transaction is not the one that holds the claim ({error}): the body ended it, or a part of it, or \
             swallowed an error by which the database ended it. Nothing was kept; leave the transaction's end to the \
             inbox, use `begin()` for a part of it, and pass every database error on"
        )),
        class => Error::with_class(error.to_string(), class),
    }
}
