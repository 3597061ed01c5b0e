//! The connections that transactions run on: the inbox's own, opened through the pool and kept apart from it.
//!
//! A lane is *primed*: sqlx counts one open transaction on it for good. So begin and claim go as one text of ours, and a
//! body's `begin()` is a savepoint all the same. Such a connection can't go back to a pool whose next user calls `begin()`.
//! Its session has our settings once, and holds the two statements that each message needs prepared.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, Database, Executor as _, MySql, MySqlConnection, MySqlPool, Row as _};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::batch::{Batches, Times};
use crate::error::{Class, Error};
use crate::store::Inbox;

pub(super) type Manager = <MySql as Database>::TransactionManager;

/// How long a lane is kept: caches grow, passwords change, and a server may have become a replica.
const LIFETIME: Duration = Duration::from_mins(30);

/// How long a lane may lie unused: beyond it, firewalls forget a connection without telling.
const IDLE: Duration = Duration::from_mins(5);

/// A lane's random name: of its XA transactions, and of a lock by which a control connection finds its session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marker(u64);

impl Marker {
    fn new() -> Self {
        Self(fastrand::u64(..))
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inboxed-{:016x}", self.0)
    }
}

/// What a server understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `MariaDB`, which prepares several statements as one.
    MariaDb,
    /// `MySQL`, and what calls itself so.
    MySql,
}

impl Dialect {
    fn of(version: &str) -> Self {
        if version.contains("MariaDB") { Self::MariaDb } else { Self::MySql }
    }
}

/// The lanes of one inbox: at most as many as its pool may have connections.
#[derive(Debug)]
pub(super) struct Lanes {
    pool: MySqlPool,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Lane>>,
}

/// A primed connection.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) connection: MySqlConnection,
    pub(super) session: Session,
    opened: Instant,
    used: Instant,
}

/// What is known of a lane's session on the server.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) marker: Marker,
    pub(super) dialect: Dialect,
    /// The database in which names without one are looked up.
    pub(super) database: Option<String>,
    /// An expression that asks whether it still is.
    pub(super) is_home: String,
    /// Begin and claim as one statement.
    pub(super) claim: Arc<str>,
    /// The time limits that were set last.
    pub(super) times: Option<Times>,
}

impl Lanes {
    pub(super) fn new(pool: &MySqlPool) -> Self {
        let places = usize::try_from(pool.options().get_max_connections()).unwrap_or(1).max(1);
        Self { pool: pool.clone(), places: Arc::new(Semaphore::new(places)), idle: Mutex::default() }
    }

    /// Waits for the right to hold a lane.
    pub(super) async fn place(&self, wait: Duration) -> Result<OwnedSemaphorePermit, Error> {
        // Nearly always there is one, and no timer is needed.
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        match tokio::time::timeout(wait, Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(closed)) => Err(Error::with_class(closed, Class::Unavailable)),
            Err(_) => {
                let text = "all of the inbox's connections are in transactions for longer than the claim may wait: allow \
                            more of them, or handle fewer messages at once";
                Err(Error::with_class(text, Class::Unavailable))
            }
        }
    }

    /// A lane that was used before, the latest first.
    pub(super) fn reuse(&self) -> Option<Lane> {
        let now = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|lane| {
            now.duration_since(lane.opened) < LIFETIME && now.duration_since(lane.used) < lane.session.longest_idle()
        });
        idle.pop()
    }

    /// Opens a lane. Its task goes on if nobody waits any more: connecting can't be cancelled safely in sqlx.
    pub(super) async fn open(inbox: &Inbox<MySql>, wait: Duration) -> Result<Lane, Error> {
        let inbox = inbox.clone();
        let opened = tokio::spawn(async move { inbox.lanes().connect(&inbox).await });
        match tokio::time::timeout(wait, opened).await {
            Ok(Ok(lane)) => Ok(lane?),
            Ok(Err(stopped)) => Err(Error::with_class(stopped, Class::Unavailable)),
            Err(_) => Err(Error::from(sqlx::Error::PoolTimedOut)),
        }
    }

    /// Keeps a lane whose transaction has ended well.
    pub(super) fn keep(&self, mut lane: Lane) {
        lane.used = Instant::now();
        if !self.pool.is_closed() && Manager::get_transaction_depth(&lane.connection) == 1 {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(lane);
        }
    }

    /// Drops the idle lanes: one of them has turned out to be dead.
    pub(super) fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// How a control connection of the inbox's own is opened, without the pool's hooks.
    pub(super) fn connect_options(&self) -> Arc<MySqlConnectOptions> {
        self.pool.connect_options()
    }

    async fn connect(&self, inbox: &Inbox<MySql>) -> Result<Lane, sqlx::Error> {
        if self.pool.is_closed() {
            return Err(sqlx::Error::PoolClosed);
        }
        // Through the pool, so that the user's `after_connect` has seen it.
        let mut connection = self.pool.acquire().await?.detach();
        // From here on sqlx counts a transaction that isn't there.
        Manager::begin(&mut connection, None).await?;
        let marker = Marker::new();
        let rows = connection.fetch_all(AssertSqlSafe(Batches::prime(marker))).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let version = row.try_get_unchecked::<String, _>(0)?;
        let database = row.try_get_unchecked::<Option<String>, _>(1)?;
        let is_home = Batches::is_home(database.as_deref());
        let dialect = Dialect::of(&version);
        #[cfg(test)]
        let dialect = inbox.shared().as_if.get().copied().unwrap_or(dialect);
        if dialect == Dialect::MariaDb {
            connection.execute(AssertSqlSafe(Batches::prepare_commit(marker))).await?;
        }
        let now = Instant::now();
        let claim = inbox.batches().claim_as_one(marker).into();
        let session = Session { marker, dialect, database, is_home, claim, times: None };
        Ok(Lane { connection, session, opened: now, used: now })
    }
}

impl Lane {
    /// Says goodbye; the server rolls back what is open.
    pub(super) async fn hang_up(self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), self.connection.close()).await;
    }
}

impl Session {
    /// How long a lane may lie unused before the server ends its session.
    fn longest_idle(&self) -> Duration {
        match (self.dialect, self.times) {
            (Dialect::MySql, Some(times)) => IDLE.min(times.idle()),
            _ => IDLE,
        }
    }
}
