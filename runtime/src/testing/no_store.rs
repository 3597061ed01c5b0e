//! A store that does nothing, by which the runtime's own cost is measured.

use std::ops::{Deref, DerefMut};

use crate::consumer::Consumer;
use crate::error::Error;
use crate::handler::{FromParts, InboxConnection, Parts};
use crate::store::{
    Claim, CommitError, Inbox, InboxOptions, Limits, Risk, Row, StartError, Store, Value, Verdict, sealed,
};

/// No database: every claim is fresh, and nothing is kept. For benchmarks of the runtime alone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use inboxed_runtime::testing::NoStore;
/// let consumer = NoStore::consumer("bench");
/// # let _ = consumer;
/// # });
/// ```
#[derive(Debug)]
pub struct NoStore;

/// The connection to no database, as a handler's transaction parameter.
#[derive(Debug)]
pub struct NoConnection;

impl NoStore {
    /// A consumer without a database. Once its handlers are registered, [`NoStore::start`] starts it.
    pub fn consumer(service: &str) -> Consumer<Self> {
        Consumer::new(service, Inbox::without_database())
    }

    /// Starts a consumer without asking the database that isn't there.
    pub fn start<S>(consumer: Consumer<Self, S>) -> Consumer<Self, S> {
        consumer.started_without_database()
    }
}

impl Deref for NoConnection {
    type Target = Self;

    fn deref(&self) -> &Self {
        self
    }
}

impl DerefMut for NoConnection {
    fn deref_mut(&mut self) -> &mut Self {
        self
    }
}

#[diagnostic::do_not_recommend]
impl InboxConnection for NoConnection {
    type Db = NoStore;
}

#[diagnostic::do_not_recommend]
impl<'a, S> FromParts<'a, NoStore, S> for &'a mut NoConnection {
    fn from_parts(parts: &mut Parts<'a, NoStore, S>) -> Result<Self, Error> {
        parts.connection.take().ok_or_else(|| Error::from("the transaction was already given to another parameter"))
    }
}

impl sealed::Sealed for NoStore {}

impl Store for NoStore {
    type Connection = NoConnection;
    type Pool = ();
    type Pooled = NoConnection;
    type Tx = NoConnection;
    type Shared = ();

    const SCHEMES: &'static [&'static str] = &[];
    const TITLE: &'static str = "no database";
    const NOW: &'static str = "";
    const FOR_UPDATE: &'static str = "";
    const SKIP_LOCKED: &'static str = "";
    const MIGRATIONS: &'static [&'static [&'static str]] = &[];
    const IS_LEAN: &'static str = "";

    fn on_conflict(_: &str) -> String {
        String::new()
    }

    fn incoming(_: &str) -> String {
        String::new()
    }

    async fn connect(_: &str, _: &InboxOptions<Self>) -> Result<(), StartError> {
        Ok(())
    }

    fn shared((): &(), _own: bool) {}

    async fn acquire((): &()) -> Result<NoConnection, sqlx::Error> {
        Ok(NoConnection)
    }

    async fn risks(_: &Inbox<Self>) -> Result<Vec<Risk>, Error> {
        Ok(Vec::new())
    }

    async fn differences(_: &Inbox<Self>) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    async fn begin(_: &Inbox<Self>, claims: &[Claim], _: Limits) -> Result<(NoConnection, Vec<Verdict>), Error> {
        Ok((NoConnection, claims.iter().map(|_| Verdict::Fresh { prior: None }).collect()))
    }

    async fn check(_: &mut NoConnection) -> Result<(), Error> {
        Ok(())
    }

    async fn commit(_: NoConnection) -> Result<(), CommitError> {
        Ok(())
    }

    async fn rollback(_: NoConnection) {}

    async fn close(_: NoConnection) {}

    async fn run(_: &mut NoConnection, _: &str, _: Vec<Value>) -> Result<Vec<Row>, sqlx::Error> {
        Ok(Vec::new())
    }
}
