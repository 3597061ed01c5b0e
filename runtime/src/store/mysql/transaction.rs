//! One transaction, from its lane to its checked commit.
//!
//! It is an XA transaction that is committed in one phase. In a plain one a body's own COMMIT would commit its claim, and
//! its ROLLBACK would let the rest of its effects be committed one by one; after a deadlock that it swallowed, too. In
//! XA the server refuses all of them, and DDL, with error 1399 or 1614, and the claim stays with the effect.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor as _, MySql, MySqlConnection};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::OwnedSemaphorePermit;

use super::batch::{Batches, SAVEPOINT, Times};
use super::code;
use super::control::Ending;
use super::lanes::{Dialect, Lane, Lanes, Manager};
use crate::error::{Class, Error};
use crate::store::lean::digest_of_hex;
use crate::store::{Claim, CommitError, Inbox, Limits, Store, classify};

/// How long a commit may take before its outcome counts as unknown.
const COMMIT_PATIENCE: Duration = Duration::from_mins(1);

/// How long a rollback may take before the session is ended from outside.
const ROLLBACK_PATIENCE: Duration = Duration::from_secs(5);

/// How long one migration waits for another.
const MIGRATION_PATIENCE: Duration = Duration::from_mins(1);

/// An open transaction. Dropped unfinished, it is rolled back by ending its session.
#[derive(Debug)]
pub struct MySqlTransaction {
    lane: Lane,
    // Dropped after the connection, and before the place: a new session should find the old one gone.
    ending: Ending,
    kind: Kind,
    /// Whether the lane has served before, so that its session may be gone.
    reused: bool,
    inbox: Inbox<MySql>,
    place: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Kind {
    Transaction,
    /// DDL commits each statement by itself; the lock of this name keeps other migrations away.
    Migration(String),
}

impl MySqlTransaction {
    /// A lane on which nothing has begun yet.
    pub(super) async fn new(inbox: &Inbox<MySql>, wait: Duration) -> Result<Self, Error> {
        let place = inbox.lanes().place(wait).await?;
        let (lane, reused) = match inbox.lanes().reuse() {
            Some(lane) => (lane, true),
            None => (Lanes::open(inbox, wait).await?, false),
        };
        let ending = Ending::new(inbox.lanes().connect_options(), lane.session.marker);
        Ok(Self { lane, ending, kind: Kind::Transaction, reused, inbox: inbox.clone(), place })
    }

    pub(super) fn lane(&mut self) -> &mut Lane {
        &mut self.lane
    }

    pub(super) fn is_reused(&self) -> bool {
        self.reused
    }

    /// Makes these limits the session's, if they aren't yet.
    pub(super) async fn settle(&mut self, limits: Limits) -> Result<(), sqlx::Error> {
        let (session, times) = (&mut self.lane.session, Times::of(limits));
        if session.times != Some(times) {
            session.times = None;
            self.lane.connection.execute(AssertSqlSafe(times.set(session.dialect))).await?;
            session.times = Some(times);
        }
        Ok(())
    }

    /// Begins and claims one key, and answers how many rows were met.
    pub(super) async fn begin_and_claim(&mut self, claim: &Claim) -> Result<u64, sqlx::Error> {
        let Lane { connection, session, .. } = &mut self.lane;
        if session.dialect == Dialect::MySql {
            let in_full = self.inbox.batches().begin_and_claim(session, claim);
            let in_full = in_full.map_err(|error| sqlx::Error::Encode(error.to_string().into()))?;
            return Ok(connection.execute(AssertSqlSafe(in_full)).await?.rows_affected());
        }
        let (consumer, key) = (claim.consumer.0, claim.identity.name().as_str());
        let digest = if self.inbox.is_lean() { digest_of_hex(key) } else { None };
        let key = digest.as_ref().map_or(key.as_bytes(), <[u8; 16]>::as_slice);
        let claim = sqlx::query(AssertSqlSafe(Arc::clone(&session.claim)))
            .bind(consumer)
            .bind(key)
            .bind(claim.stored_payload())
            .bind(consumer)
            .bind(key);
        Ok(claim.execute(connection).await?.rows_affected())
    }

    /// Takes the lock under which tables are made.
    pub(super) async fn for_migration(inbox: &Inbox<MySql>) -> Result<Self, Error> {
        let mut this = Self::new(inbox, MIGRATION_PATIENCE).await?;
        // Database and prefix together are longer than a lock's name may be.
        let lock = format!("CONCAT('inboxed-', MD5('{}'))", inbox.sql("{inbox}"));
        let home = Batches::go_home(&this.lane.session);
        this.lane.connection.execute(AssertSqlSafe(home)).await?;
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
        let renew = format!("RELEASE {SAVEPOINT}; {SAVEPOINT}");
        let renewed = self.lane.connection.execute(AssertSqlSafe(renew)).await;
        renewed.map(drop).map_err(|error| ended_by_body(&error))
    }

    pub(super) async fn commit(mut self) -> Result<(), CommitError> {
        if let Kind::Migration(lock) = &self.kind {
            let release = format!("SELECT RELEASE_LOCK({lock})");
            if self.lane.connection.execute(AssertSqlSafe(release)).await.is_ok() {
                self.give_back();
            }
            return Ok(());
        }
        // A savepoint that a body forgot is one that it meant to commit or roll back.
        if Manager::get_transaction_depth(&self.lane.connection) != 1 {
            self.hang_up().await;
            let text =
                "the body left a transaction open that it began with `begin()`: commit it or drop it; nothing was kept";
            return Err(CommitError::Refused(Error::from(text)));
        }
        let commit = Batches::commit(&self.lane.session);
        match tokio::time::timeout(COMMIT_PATIENCE, self.lane.connection.execute(AssertSqlSafe(commit))).await {
            Ok(Ok(_)) => {
                self.give_back();
                Ok(())
            }
            Ok(Err(error)) => {
                let swallowed = code::lacks_savepoint(&error) && self.ended_by_database().await;
                self.hang_up().await;
                if swallowed {
                    let text = "the database ended the transaction, by a deadlock or a timeout, and the body swallowed \
                                that error: nothing was kept; pass every database error on";
                    return Err(CommitError::Refused(Error::with_class(text, Class::Contention)));
                }
                Err(not_committed(&error))
            }
            Err(_) => {
                self.close().await;
                let text = "the database hasn't answered a COMMIT for a minute";
                Err(CommitError::Unknown(Error::with_class(text, Class::Unavailable)))
            }
        }
    }

    pub(super) async fn rollback(mut self) {
        let whole = Manager::get_transaction_depth(&self.lane.connection) == 1;
        if whole && matches!(tokio::time::timeout(ROLLBACK_PATIENCE, self.roll_back()).await, Ok(Ok(()))) {
            self.give_back();
        } else {
            self.close().await;
        }
    }

    /// Takes back a transaction that has begun in the database where an earlier body left the session, and returns to
    /// the session's own.
    pub(super) async fn start_again(&mut self) -> Result<(), sqlx::Error> {
        let start_again = Batches::start_again(&self.lane.session);
        self.lane.connection.execute(AssertSqlSafe(start_again)).await.map(drop)
    }

    /// Ends the session, whatever runs in it, and waits until the database is out of the transaction.
    pub(super) async fn close(self) {
        let Self { lane, ending, place, .. } = self;
        ending.end().await;
        drop((lane, place));
    }

    /// Closes the connection, on which nothing runs.
    pub(super) async fn hang_up(self) {
        let Self { lane, mut ending, place, .. } = self;
        ending.disarm();
        lane.hang_up().await;
        drop(place);
    }

    /// A savepoint that isn't there says nothing of why: where the database has ended the transaction, XA can't.
    async fn ended_by_database(&mut self) -> bool {
        let end = Batches::end(self.lane.session.marker);
        let ended = self.lane.connection.execute(AssertSqlSafe(end)).await;
        ended.is_err_and(|error| code::number(&error).is_some())
    }

    async fn roll_back(&mut self) -> Result<(), sqlx::Error> {
        let Lane { connection, session, .. } = &mut self.lane;
        let (end, rollback) = (Batches::end(session.marker), Batches::rollback(session.marker));
        let look = Batches::look_for_home(session);
        match connection.execute(AssertSqlSafe(format!("{end}; {rollback}; {look}"))).await {
            Ok(_) => return Ok(()),
            Err(error) if code::number(&error).is_none() => return Err(error),
            // After a deadlock the database has ended it before us, and says so once more.
            Err(_) => {}
        }
        match connection.execute(AssertSqlSafe(rollback)).await {
            Err(error) if !code::ended_by_database(&error) => return Err(error),
            _ => {}
        }
        connection.execute(AssertSqlSafe(look)).await.map(drop)
    }

    fn give_back(self) {
        let Self { lane, mut ending, inbox, place, .. } = self;
        ending.disarm();
        inbox.lanes().keep(lane);
        drop(place);
    }
}

impl Deref for MySqlTransaction {
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        &self.lane.connection
    }
}

impl DerefMut for MySqlTransaction {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        &mut self.lane.connection
    }
}

/// What an error of the commit says. Some tell that nothing can have been kept; after any other it isn't known.
fn not_committed(error: &sqlx::Error) -> CommitError {
    if code::lacks_savepoint(error) || code::is_of_xa(error) || code::is_not_prepared(error) {
        return CommitError::Refused(ended_by_body(error));
    }
    let class = classify(error);
    let text = Error::with_class(error.to_string(), if class == Class::Failure { Class::Unavailable } else { class });
    let by_server = code::number(error).is_some();
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
