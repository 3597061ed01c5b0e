//! The inbox's database: a sealed trait for what differs between databases, and everything else once for all of them.

mod attempts;
mod classify;
mod clock;
mod dead_letters;
mod inbox;
mod lean;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod prune;
mod registry;
mod schema;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(test)]
mod suite;
mod tables;
mod value;

use std::fmt::Debug;
use std::future::Future;
use std::ops::DerefMut;
use std::time::Duration;

pub use attempts::Attempts;
pub(crate) use classify::classify;
pub use dead_letters::{DeadLetter, DeadLetterError, DeadLetters, Filter, LetterId, LetterState, Reason};
pub(crate) use dead_letters::{LetterIdentity, NewLetter, Redriven};
pub use inbox::{Inbox, InboxOptions, StartError};
pub use prune::Pruned;
pub use registry::{ConsumerId, Registered, RegistryError};
pub(crate) use registry::{Registration, UNROUTED};
pub use schema::{Risk, SchemaError};
pub use value::{Row, Value};

use crate::error::Error;
use crate::handler::Identity;
use crate::key::Key;

pub(crate) mod sealed {
    /// Only the databases of this crate are inboxes: the promise rests on each one's transaction.
    pub trait Sealed {}
}

/// A database that can hold an inbox: `sqlx::Sqlite`, `sqlx::Postgres`. Sealed.
///
/// It holds what differs between databases; the bookkeeping around it is written once, over [`Store::run`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't hold an inbox",
    note = "an inbox lives in the database that the handlers write to; each is behind a feature of `inboxed` of its name"
)]
pub trait Store: Sized + Debug + Send + Sync + 'static + sealed::Sealed {
    /// The driver's connection, which a body takes.
    type Connection: Send + 'static;

    /// The driver's pool.
    type Pool: Clone + Send + Sync + 'static;

    /// A connection that goes back to its pool.
    type Pooled: DerefMut<Target = Self::Connection> + Send;

    /// An open transaction at sqlx's depth 1, so that a body's `begin()` is a savepoint. Dropping it rolls back.
    type Tx: DerefMut<Target = Self::Connection> + Send;

    /// What one inbox keeps beside its pool.
    type Shared: Debug + Send + Sync + 'static;

    /// The URL schemes that mean this database.
    const SCHEMES: &'static [&'static str];

    /// The database's name in messages.
    const TITLE: &'static str;

    /// The current time in microseconds since 1970 by the database's clock, as an SQL expression.
    const NOW: &'static str;

    /// What a SELECT ends with to lock its rows until the transaction ends, where a lock of the whole doesn't do so.
    const FOR_UPDATE: &'static str;

    /// As [`Store::FOR_UPDATE`], passing over the rows that another transaction holds.
    const SKIP_LOCKED: &'static str;

    /// Whether a DELETE waits for rows that it only looks at, if other transactions have them open.
    const DELETE_WAITS: bool = false;

    /// The schema of the tables if the user names none, where a statement has to name it.
    const DEFAULT_SCHEMA: Option<&'static str> = None;

    /// The statements that make the tables, one list for each version of the schema, with `{inbox}` and the like for
    /// the tables' names; a line that begins with `{lean}` or `{text}` is of that kind of inbox only.
    const MIGRATIONS: &'static [&'static [&'static str]];

    /// Asks whether the inbox's table is lean, with 1 or 0; no row if there is no such table.
    const IS_LEAN: &'static str;

    /// What follows an INSERT's values to change the row that holds this key already; assignments come after it.
    fn on_conflict(key: &str) -> String;

    /// The value that the INSERT would have put into the column, for those assignments.
    fn incoming(column: &str) -> String;

    /// Opens a pool of the inbox's own, with the session settings it needs.
    fn connect(url: &str, options: &InboxOptions<Self>) -> impl Future<Output = Result<Self::Pool, StartError>> + Send;

    /// What one inbox keeps beside this pool, which is the inbox's own or the user's.
    fn shared(pool: &Self::Pool, own: bool) -> Self::Shared;

    /// What stands before the tables' names, where neither the user's schema nor the default does.
    fn qualifier(_pool: &Self::Pool) -> Option<String> {
        None
    }

    /// A connection for reading. Run in a task that nothing drops.
    fn acquire(pool: &Self::Pool) -> impl Future<Output = Result<Self::Pooled, sqlx::Error>> + Send;

    /// What of the server's settings could make a reported commit be forgotten.
    fn risks(inbox: &Inbox<Self>) -> impl Future<Output = Result<Vec<Risk>, Error>> + Send;

    /// How the tables differ from what the migrations make, in words for an operator.
    fn differences(inbox: &Inbox<Self>) -> impl Future<Output = Result<Vec<String>, Error>> + Send;

    /// BEGIN and claim: inserts a row for each claim and sets the savepoint that [`Store::commit`] will look for.
    ///
    /// An error leaves nothing behind. Claims may come in any order; the verdicts come in theirs.
    fn begin(
        inbox: &Inbox<Self>,
        claims: &[Claim],
        limits: Limits,
    ) -> impl Future<Output = Result<(Self::Tx, Vec<Verdict>), Error>> + Send;

    /// Where tables are made: by default a transaction like any other, in which no two processes make them at once.
    fn begin_migration(inbox: &Inbox<Self>) -> impl Future<Output = Result<Self::Tx, Error>> + Send {
        async move { Ok(Self::begin(inbox, &[], Limits::BOOKKEEPING).await?.0) }
    }

    /// Whether the transaction is still the one that holds the claims.
    fn check(tx: &mut Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;

    /// The checked commit: fails if the transaction isn't the one that holds the claims, whatever the body did to it.
    fn commit(tx: Self::Tx) -> impl Future<Output = Result<(), CommitError>> + Send;

    /// Rolls back and returns the connection to the pool.
    fn rollback(tx: Self::Tx) -> impl Future<Output = ()> + Send;

    /// Ends the transaction by closing its connection: for one whose state isn't known.
    fn close(tx: Self::Tx) -> impl Future<Output = ()> + Send;

    /// Runs one bookkeeping statement with `?` placeholders and fetches its rows.
    fn run(
        connection: &mut Self::Connection,
        sql: &str,
        arguments: Vec<Value>,
    ) -> impl Future<Output = Result<Vec<Row>, sqlx::Error>> + Send;
}

/// One message's claim: the rows that no other transaction may hold.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The namespace.
    pub consumer: ConsumerId,
    /// The key, and the one before.
    pub identity: Identity,
    /// Eight bytes of the payload's SHA-256, by which a duplicate is told from a key conflict.
    pub payload: i64,
}

/// The payload of rows that were taken over from another table: nothing is known of it, so it differs from none.
pub(crate) const UNKNOWN_PAYLOAD: i64 = 0;

impl Claim {
    /// What the row keeps of the payload's digest: four bytes, since every row pays for them.
    pub(crate) fn stored_payload(&self) -> i64 {
        (self.payload << 32) >> 32
    }

    /// Whether a committed row is of the same payload, or of one that nobody knows any more.
    pub(crate) fn is_of_payload(&self, stored: i64) -> bool {
        [self.stored_payload(), UNKNOWN_PAYLOAD].contains(&stored)
    }

    /// The keys this claim holds: one, or two while an old key's rows live.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let Identity::Key { key, previous } = &self.identity;
        std::iter::once(key).chain(previous.as_ref())
    }
}

/// What the database answered to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The row is ours: the body may run.
    Fresh {
        /// What earlier attempts left behind, if any failed.
        prior: Option<Attempts>,
    },
    /// A committed row refused it.
    Duplicate {
        /// Whether the committed message had the same payload.
        same_payload: bool,
    },
    /// The same claim stands earlier in this group, at this index.
    Twin(usize),
}

/// The deadlines of one transaction.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long the claim may wait for another transaction.
    pub claim: Duration,
    /// How long the transaction may stay open, after which the database ends what runs in it.
    pub run: Duration,
}

/// Why a commit didn't succeed.
#[derive(Debug)]
pub enum CommitError {
    /// Nothing of the transaction remains, or what remains was committed by the body itself.
    Refused(Error),
    /// The connection was lost in the middle: only redelivery can find out.
    Unknown(Error),
}
