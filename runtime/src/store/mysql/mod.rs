//! MySQL and MariaDB: `InnoDB`, one XA transaction a message, so that the database itself refuses a body's own COMMIT.

mod batch;
mod claim;
mod code;
mod control;
mod lanes;
mod schema;
#[cfg(test)]
mod tests;
mod transaction;

use std::str::FromStr;
use std::sync::OnceLock;

use sqlx::mysql::{MySqlArguments, MySqlColumn, MySqlConnectOptions, MySqlPoolOptions, MySqlRow};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Column as _, MySql, MySqlConnection, MySqlPool, Row as _, TypeInfo as _, ValueRef as _};

use batch::Batches;
pub(super) use code::class_of_code;
use lanes::Lanes;
use transaction::MySqlTransaction;

use super::{Claim, CommitError, Inbox, InboxOptions, Limits, Risk, Row, StartError, Store, Value, Verdict, sealed};
use crate::error::Error;
use crate::handler::{FromParts, InboxConnection, Parts};

/// Each open message holds one.
const DEFAULT_CONNECTIONS: u32 = 16;

impl sealed::Sealed for MySql {}

#[diagnostic::do_not_recommend]
impl InboxConnection for MySqlConnection {
    type Db = MySql;
}

#[diagnostic::do_not_recommend]
impl<'a, S> FromParts<'a, MySql, S> for &'a mut MySqlConnection {
    fn from_parts(parts: &mut Parts<'a, MySql, S>) -> Result<Self, Error> {
        parts.connection.take().ok_or_else(|| Error::from("the transaction was already given to another parameter"))
    }
}

/// What an inbox keeps beside its pool.
#[derive(Debug)]
pub struct MySqlShared {
    lanes: Lanes,
    batches: OnceLock<Batches>,
    /// What to take a server for, in place of what it says of itself.
    #[cfg(test)]
    as_if: OnceLock<lanes::Dialect>,
}

impl Store for MySql {
    type Connection = MySqlConnection;
    type Pool = MySqlPool;
    type Pooled = PoolConnection<MySql>;
    type Tx = MySqlTransaction;
    type Shared = MySqlShared;

    const SCHEMES: &'static [&'static str] = &["mysql", "mariadb"];
    const TITLE: &'static str = "MySql";
    // Without the session's time zone, in which an hour comes twice a year.
    const NOW: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const FOR_UPDATE: &'static str = " FOR UPDATE";
    const SKIP_LOCKED: &'static str = " FOR UPDATE SKIP LOCKED";
    const DELETE_WAITS: bool = true;
    const MIGRATIONS: &'static [&'static [&'static str]] = schema::MIGRATIONS;
    const IS_LEAN: &'static str = "SELECT data_type = 'binary' FROM information_schema.columns \
        WHERE table_schema = DATABASE() AND table_name = '{prefix}' AND column_name = 'message_key'";

    fn on_conflict(_: &str) -> String {
        "ON DUPLICATE KEY UPDATE".to_owned()
    }

    fn incoming(column: &str) -> String {
        format!("VALUES({column})")
    }

    async fn connect(url: &str, options: &InboxOptions<Self>) -> Result<MySqlPool, StartError> {
        let connect = MySqlConnectOptions::from_str(url).map_err(StartError::Connect)?;
        let pool = MySqlPoolOptions::new()
            .max_connections(options.most_connections().unwrap_or(DEFAULT_CONNECTIONS))
            // A dead connection is noticed by BEGIN, before anything has happened: no round trip for it each time.
            .test_before_acquire(false);
        pool.connect_with(connect).await.map_err(StartError::Connect)
    }

    fn shared(pool: &MySqlPool, _: bool) -> MySqlShared {
        MySqlShared {
            lanes: Lanes::new(pool),
            batches: OnceLock::new(),
            #[cfg(test)]
            as_if: OnceLock::new(),
        }
    }

    fn qualifier(pool: &MySqlPool) -> Option<String> {
        let options = pool.connect_options();
        // What couldn't stand in any literal is left to the session.
        let database = options.get_database().filter(|name| !name.is_empty() && !name.contains(['\'', '"', '`', '\\']));
        database.map(|database| format!("`{database}`."))
    }

    async fn acquire(pool: &MySqlPool) -> Result<PoolConnection<MySql>, sqlx::Error> {
        pool.acquire().await
    }

    async fn risks(inbox: &Inbox<Self>) -> Result<Vec<Risk>, Error> {
        schema::risks(inbox).await
    }

    async fn differences(inbox: &Inbox<Self>) -> Result<Vec<String>, Error> {
        schema::differences(inbox).await
    }

    async fn begin_migration(inbox: &Inbox<Self>) -> Result<MySqlTransaction, Error> {
        MySqlTransaction::for_migration(inbox).await
    }

    async fn begin(
        inbox: &Inbox<Self>,
        claims: &[Claim],
        limits: Limits,
    ) -> Result<(MySqlTransaction, Vec<Verdict>), Error> {
        claim::begin(inbox, claims, limits).await
    }

    async fn check(tx: &mut MySqlTransaction) -> Result<(), Error> {
        tx.check().await
    }

    async fn commit(tx: MySqlTransaction) -> Result<(), CommitError> {
        tx.commit().await
    }

    async fn rollback(tx: MySqlTransaction) {
        tx.rollback().await;
    }

    async fn close(tx: MySqlTransaction) {
        tx.close().await;
    }

    async fn run(connection: &mut MySqlConnection, sql: &str, arguments: Vec<Value>) -> Result<Vec<Row>, sqlx::Error> {
        // MySQL prepares neither SAVEPOINT nor much of DDL.
        let rows = if arguments.is_empty() {
            sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await?
        } else {
            sqlx::query_with(AssertSqlSafe(sql), bind(arguments)?).fetch_all(connection).await?
        };
        rows.iter().map(row).collect()
    }
}

impl Inbox<MySql> {
    fn lanes(&self) -> &Lanes {
        &self.shared().lanes
    }

    fn batches(&self) -> &Batches {
        self.shared().batches.get_or_init(|| Batches::new(self))
    }
}

fn bind(values: Vec<Value>) -> Result<MySqlArguments, sqlx::Error> {
    use sqlx::Arguments as _;
    let mut arguments = MySqlArguments::default();
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

/// Our tables keep text as VARBINARY, compared byte by byte, and bytes as BLOB or BINARY.
fn row(row: &MySqlRow) -> Result<Row, sqlx::Error> {
    let value = |column: &MySqlColumn| {
        let index = column.ordinal();
        let raw = row.try_get_raw(index)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        let kind = raw.type_info();
        if kind.name().contains("INT") || kind.name() == "BOOLEAN" {
            row.try_get_unchecked(index).map(Value::Int)
        } else if kind.name().ends_with("BLOB") || kind.name() == "BINARY" {
            row.try_get_unchecked(index).map(Value::Blob)
        } else {
            row.try_get_unchecked(index).map(Value::Text)
        }
    };
    row.columns().iter().map(value).collect::<Result<_, _>>().map(Row)
}
