//! SQLite: one writer at a time, chosen by a fair queue in this process and by short polls between processes.

mod claim;
mod code;
mod fuse;
mod lane;
mod queue;
mod schema;
#[cfg(test)]
mod tests;
mod transaction;

use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Column as _, Row as _, Sqlite, SqliteConnection, SqlitePool, TypeInfo as _, ValueRef as _};

pub(super) use code::class_of_code;
use lane::Lanes;
use queue::WriterQueue;
use transaction::SqliteTransaction;

use super::{Claim, CommitError, Inbox, InboxOptions, Limits, Risk, Row, StartError, Store, Value, Verdict, sealed};
use crate::error::{Class, Error};
use crate::handler::{FromParts, InboxConnection, Parts};

/// How long a connection of the inbox's own pool waits for another process's short write, outside our transactions.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a start keeps trying to open a file that other processes are opening too.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// One writes at a time whatever the number; the others read.
const DEFAULT_CONNECTIONS: u32 = 8;

impl sealed::Sealed for Sqlite {}

#[diagnostic::do_not_recommend]
impl InboxConnection for SqliteConnection {
    type Db = Sqlite;
}

#[diagnostic::do_not_recommend]
impl<'a, S> FromParts<'a, Sqlite, S> for &'a mut SqliteConnection {
    fn from_parts(parts: &mut Parts<'a, Sqlite, S>) -> Result<Self, Error> {
        parts.connection.take().ok_or_else(|| Error::from("the transaction was already given to another parameter"))
    }
}

/// What an inbox keeps beside its pool.
#[derive(Debug)]
pub struct SqliteShared {
    queue: WriterQueue,
    lanes: Lanes,
    /// The text that begins a transaction and claims one key.
    claiming: OnceLock<Arc<str>>,
    /// The busy timeout of the connections, where the pool is the inbox's own; a user's is asked for each time.
    busy_timeout: Option<Duration>,
}

impl Store for Sqlite {
    type Connection = SqliteConnection;
    type Pool = SqlitePool;
    type Pooled = PoolConnection<Sqlite>;
    type Tx = SqliteTransaction;
    type Shared = SqliteShared;

    const SCHEMES: &'static [&'static str] = &["sqlite"];
    const TITLE: &'static str = "Sqlite";
    const NOW: &'static str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";
    // Else a temporary table of the same name would take the claims.
    const DEFAULT_SCHEMA: Option<&'static str> = Some("main");
    // Every bookkeeping transaction holds SQLite's one write lock from its BEGIN.
    const FOR_UPDATE: &'static str = "";
    const SKIP_LOCKED: &'static str = "";
    const MIGRATIONS: &'static [&'static [&'static str]] = schema::MIGRATIONS;
    const IS_LEAN: &'static str =
        "SELECT type = 'BLOB' FROM pragma_table_info('{prefix}', 'main') WHERE name = 'message_key'";

    fn on_conflict(key: &str) -> String {
        format!("ON CONFLICT ({key}) DO UPDATE SET")
    }

    fn incoming(column: &str) -> String {
        format!("excluded.{column}")
    }

    async fn connect(url: &str, options: &InboxOptions<Self>) -> Result<SqlitePool, StartError> {
        let in_memory = url.contains(":memory:") || url.contains("mode=memory");
        let mut connect = SqliteConnectOptions::from_str(url)
            .map_err(StartError::Connect)?
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT);
        if !in_memory {
            connect = connect.journal_mode(SqliteJournalMode::Wal);
        }
        if !url.contains("mode=") {
            connect = connect.create_if_missing(true);
        }
        let pool = SqlitePoolOptions::new().test_before_acquire(false);
        let pool = if in_memory {
            // A database in memory ends with its last connection, and its connections lock each other out of tables.
            pool.max_connections(1).min_connections(1).idle_timeout(None).max_lifetime(None)
        } else {
            pool.max_connections(options.most_connections().unwrap_or(DEFAULT_CONNECTIONS))
        };
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        loop {
            // Going over to WAL answers BUSY at once while another process does the same, whatever the busy timeout.
            match pool.clone().connect_with(connect.clone()).await {
                Ok(pool) => return Ok(pool),
                Err(error) if super::classify(&error) == Class::Contention && Instant::now() < deadline => {
                    tokio::time::sleep(queue::pause()).await;
                }
                Err(error) => return Err(StartError::Connect(error)),
            }
        }
    }

    fn shared(pool: &SqlitePool, own: bool) -> SqliteShared {
        SqliteShared {
            queue: WriterQueue::of(&pool.connect_options()),
            lanes: Lanes::default(),
            claiming: OnceLock::new(),
            busy_timeout: own.then_some(BUSY_TIMEOUT),
        }
    }

    async fn acquire(pool: &SqlitePool) -> Result<PoolConnection<Sqlite>, sqlx::Error> {
        pool.acquire().await
    }

    async fn risks(inbox: &Inbox<Self>) -> Result<Vec<Risk>, Error> {
        let mut risks = Vec::new();
        let synchronous = inbox.read("PRAGMA synchronous", Vec::new()).await?;
        if synchronous.first().ok_or(sqlx::Error::RowNotFound)?.int(0)? < 2 {
            risks.push(Risk::SynchronousBelowFull);
        }
        let databases = inbox.read("PRAGMA database_list", Vec::new()).await?;
        let main = databases.iter().find(|database| database.text(1).is_ok_and(|name| name == "main"));
        if main.is_none_or(|main| main.text(2).is_ok_and(str::is_empty)) {
            risks.push(Risk::InMemory);
        }
        Ok(risks)
    }

    async fn differences(inbox: &Inbox<Self>) -> Result<Vec<String>, Error> {
        schema::differences(inbox).await
    }

    async fn begin(
        inbox: &Inbox<Self>,
        claims: &[Claim],
        limits: Limits,
    ) -> Result<(SqliteTransaction, Vec<Verdict>), Error> {
        let claims = &*inbox.hold(claims);
        let opening = claim::opening(inbox, claims);
        let (mut tx, opened) = SqliteTransaction::open(inbox, &opening, !claims.is_empty(), limits).await?;
        match claim::verdicts(&mut tx, inbox, claims, opened).await {
            Ok(verdicts) => Ok((tx, verdicts)),
            Err(error) => {
                tx.close().await;
                Err(error)
            }
        }
    }

    async fn check(tx: &mut SqliteTransaction) -> Result<(), Error> {
        tx.check().await
    }

    async fn commit(tx: SqliteTransaction) -> Result<(), CommitError> {
        tx.commit().await
    }

    async fn rollback(tx: SqliteTransaction) {
        tx.rollback().await;
    }

    async fn close(tx: SqliteTransaction) {
        tx.close().await;
    }

    async fn run(connection: &mut SqliteConnection, sql: &str, arguments: Vec<Value>) -> Result<Vec<Row>, sqlx::Error> {
        let query = sqlx::query_with(AssertSqlSafe(sql), bind(arguments)?);
        query.fetch_all(connection).await?.iter().map(row).collect()
    }
}

fn bind(values: Vec<Value>) -> Result<SqliteArguments, sqlx::Error> {
    use sqlx::Arguments as _;
    let mut arguments = SqliteArguments::default();
    for value in values {
        match value {
            Value::Null => arguments.add(None::<i64>),
            Value::Int(value) => arguments.add(value),
            Value::Text(value) => arguments.add(value),
            Value::Blob(value) => arguments.add(value),
            Value::Digest(value) => arguments.add(value.to_vec()),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

fn row(row: &sqlx::sqlite::SqliteRow) -> Result<Row, sqlx::Error> {
    let value = |column: &sqlx::sqlite::SqliteColumn| {
        let index = column.ordinal();
        let raw = row.try_get_raw(index)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        match raw.type_info().name() {
            "INTEGER" => row.try_get_unchecked(index).map(Value::Int),
            "BLOB" => row.try_get_unchecked(index).map(Value::Blob),
            _ => row.try_get_unchecked(index).map(Value::Text),
        }
    };
    row.columns().iter().map(value).collect::<Result<_, _>>().map(Row)
}
