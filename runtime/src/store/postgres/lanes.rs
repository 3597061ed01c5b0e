//! The connections that transactions run on: the inbox's own, opened through the pool and kept apart from it.
//!
//! A lane is *primed*: sqlx counts one open transaction on it for good. So BEGIN, claim and savepoint go as one text of
//! ours, and a body's `begin()` is a savepoint all the same. Such a connection can't go back to a pool whose next user
//! calls `begin()`.
//!
//! A lane's session is read-only and only our own BEGIN writes: what a body sends after it has ended the transaction is
//! refused, where it would commit by itself otherwise. Behind a pooler in transaction mode there is no session, so a lane
//! there has no such guard, and no prepared statements either.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{Connection as _, Database, Executor as _, PgConnection, PgPool, Postgres};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use super::claim::Times;
use super::code::refuses_parameter;
use super::ending::{Backend, Since};
use crate::error::{Class, Error};

pub(super) type Manager = <Postgres as Database>::TransactionManager;

/// How long a lane is kept: caches grow, passwords change, and a server may have become a standby.
const LIFETIME: Duration = Duration::from_mins(30);

/// How long a lane may lie unused: beyond it, firewalls forget a connection without telling.
const IDLE: Duration = Duration::from_mins(5);

/// The lanes of one inbox: at most as many as its pool may have connections.
#[derive(Debug)]
pub(super) struct Lanes {
    pool: PgPool,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Lane>>,
    pooled: OnceCell<bool>,
}

/// A primed connection.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) connection: PgConnection,
    pub(super) session: Session,
    opened: Instant,
    used: Instant,
}

/// What is known of a lane's session on the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    /// The server process; behind a pooler it is another for each transaction.
    pub(super) backend: Option<Backend>,
    /// Whether the claim's statement is prepared.
    pub(super) prepared: bool,
    /// The session's time limits.
    pub(super) times: Option<Times>,
}

impl Lanes {
    pub(super) fn new(pool: &PgPool) -> Self {
        let places = usize::try_from(pool.options().get_max_connections()).unwrap_or(1).max(1);
        Self {
            pool: pool.clone(),
            places: Arc::new(Semaphore::new(places)),
            idle: Mutex::default(),
            pooled: OnceCell::new(),
        }
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
        idle.retain(|lane| now.duration_since(lane.opened) < LIFETIME && now.duration_since(lane.used) < IDLE);
        idle.pop()
    }

    /// Opens a lane. Its tasks go on if nobody waits any more: connecting can't be cancelled safely in sqlx.
    pub(super) async fn open(self: &Arc<Self>, wait: Duration) -> Result<Lane, Error> {
        let this = Arc::clone(self);
        match tokio::time::timeout(wait, tokio::spawn(async move { this.connect().await })).await {
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

    /// Whether a pooler stands before the server: found out by a startup parameter, which none of them hands on, since a
    /// `SET` would reach other clients' transactions.
    pub(super) async fn pooled(&self) -> Result<bool, sqlx::Error> {
        let probe = async {
            let options = self.pool.connect_options();
            let options = options.as_ref().clone().options([("default_transaction_read_only", "on")]);
            let mut connection = match PgConnection::connect_with(&options).await {
                Ok(connection) => connection,
                Err(error) if refuses_parameter(&error) => return Ok(true),
                Err(error) => return Err(error),
            };
            let row = connection.fetch_one("SHOW default_transaction_read_only").await?;
            let handed_on = sqlx::Row::try_get_unchecked::<String, _>(&row, 0)? == "on";
            connection.close().await?;
            Ok(!handed_on)
        };
        self.pooled.get_or_try_init(|| probe).await.copied()
    }

    /// A connection of the inbox's own, without the pool's hooks.
    pub(super) async fn control(&self) -> Result<PgConnection, sqlx::Error> {
        PgConnection::connect_with(&self.pool.connect_options()).await
    }

    async fn connect(&self) -> Result<Lane, sqlx::Error> {
        if self.pool.is_closed() {
            return Err(sqlx::Error::PoolClosed);
        }
        let (mut connection, pooled) = if self.pooled().await? {
            let options = self.pool.connect_options().as_ref().clone().statement_cache_capacity(0);
            (PgConnection::connect_with(&options).await?, true)
        } else {
            // Through the pool, so that the user's `after_connect` has seen it.
            (self.pool.acquire().await?.detach(), false)
        };
        // From here on sqlx counts a transaction that isn't there.
        Manager::begin(&mut connection, None).await?;
        let rows = sqlx::raw_sql(if pooled { "ROLLBACK" } else { PRIME }).fetch_all(&mut connection).await?;
        let backend = rows.first().map(|row| Backend::from_row(row, Since::Session)).transpose()?;
        let now = Instant::now();
        let session = Session { backend, prepared: false, times: None };
        Ok(Lane { connection, session, opened: now, used: now })
    }
}

/// Ends the transaction by which sqlx was made to count one, and leaves a session in which only our own BEGIN writes and
/// no claim is committed but by our own COMMIT.
const PRIME: &str = "SET SESSION default_transaction_read_only = on; SET SESSION inboxed.guard = on; \
    SELECT pg_backend_pid(), (extract(epoch FROM backend_start) * 1000000)::bigint \
    FROM pg_stat_activity WHERE pid = pg_backend_pid(); COMMIT";
