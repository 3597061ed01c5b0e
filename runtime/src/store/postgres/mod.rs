//! Postgres: claim, settings and savepoint in one round trip, on connections of the inbox's own.

mod claim;
mod code;
mod ending;
mod lanes;
mod literal;
mod schema;
#[cfg(test)]
mod tests;
mod transaction;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgColumn, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Column as _, PgConnection, PgPool, Postgres, Row as _, TypeInfo as _, ValueRef as _};

use claim::Statements;
pub(super) use code::class_of_code;
use lanes::Lanes;
use transaction::PgTransaction;

use super::{Claim, CommitError, Inbox, InboxOptions, Limits, Risk, Row, StartError, Store, Value, Verdict, sealed};
use crate::error::Error;
use crate::handler::{FromParts, InboxConnection, Parts};

/// As many as a consumer handles messages at once by default.
const DEFAULT_CONNECTIONS: u32 = 16;

/// How long a start waits for the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl sealed::Sealed for Postgres {}

#[diagnostic::do_not_recommend]
impl InboxConnection for PgConnection {
    type Db = Postgres;
}

#[diagnostic::do_not_recommend]
impl<'a, S> FromParts<'a, Postgres, S> for &'a mut PgConnection {
    fn from_parts(parts: &mut Parts<'a, Postgres, S>) -> Result<Self, Error> {
        parts.connection.take().ok_or_else(|| Error::from("the transaction was already given to another parameter"))
    }
}

impl InboxOptions<Postgres> {
    /// The schema of the inbox's tables, `public` by default. It must be there before [`Inbox::migrate`].
    ///
    /// The search path doesn't matter: every statement names the schema.
    pub fn schema(self, schema: impl Into<String>) -> Self {
        self.in_schema(schema.into())
    }
}

/// What an inbox keeps beside its pool.
#[derive(Debug)]
pub struct PgShared {
    lanes: Arc<Lanes>,
    statements: OnceLock<Statements>,
}

impl Store for Postgres {
    type Connection = PgConnection;
    type Pool = PgPool;
    type Pooled = PoolConnection<Postgres>;
    type Tx = PgTransaction;
    type Shared = PgShared;

    const SCHEMES: &'static [&'static str] = &["postgres", "postgresql"];
    const TITLE: &'static str = "Postgres";
    const NOW: &'static str = "(date_part('epoch', statement_timestamp()) * 1000000)::bigint";
    const FOR_UPDATE: &'static str = " FOR UPDATE";
    const SKIP_LOCKED: &'static str = " FOR UPDATE SKIP LOCKED";
    const DEFAULT_SCHEMA: Option<&'static str> = Some("public");
    const MIGRATIONS: &'static [&'static [&'static str]] = schema::MIGRATIONS;
    const IS_LEAN: &'static str = "SELECT (atttypid = 'uuid'::regtype)::integer FROM pg_attribute \
        WHERE attrelid = to_regclass('{inbox}') AND attname = 'message_key'";

    fn on_conflict(key: &str) -> String {
        format!("ON CONFLICT ({key}) DO UPDATE SET")
    }

    fn incoming(column: &str) -> String {
        format!("excluded.{column}")
    }

    async fn connect(url: &str, options: &InboxOptions<Self>) -> Result<PgPool, StartError> {
        let pool = PgPoolOptions::new()
            .max_connections(options.most_connections().unwrap_or(DEFAULT_CONNECTIONS))
            .acquire_timeout(CONNECT_TIMEOUT);
        pool.connect(url).await.map_err(StartError::Connect)
    }

    fn shared(pool: &PgPool, _: bool) -> PgShared {
        PgShared { lanes: Arc::new(Lanes::new(pool)), statements: OnceLock::new() }
    }

    async fn acquire(pool: &PgPool) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        pool.acquire().await
    }

    async fn risks(inbox: &Inbox<Self>) -> Result<Vec<Risk>, Error> {
        schema::risks(inbox).await
    }

    async fn differences(inbox: &Inbox<Self>) -> Result<Vec<String>, Error> {
        schema::differences(inbox).await
    }

    async fn begin(
        inbox: &Inbox<Self>,
        claims: &[Claim],
        limits: Limits,
    ) -> Result<(PgTransaction, Vec<Verdict>), Error> {
        let claims = &*inbox.hold(claims);
        let shared = inbox.shared();
        let statements = shared.statements.get_or_init(|| Statements::new(inbox));
        let (mut tx, inserted) = PgTransaction::open(&shared.lanes, statements, claims, limits).await?;
        match claim::verdicts(&mut tx, inbox, claims, &inserted).await {
            Ok(verdicts) => {
                if verdicts.iter().any(|verdict| matches!(verdict, Verdict::Fresh { .. })) {
                    tx.with_body();
                }
                Ok((tx, verdicts))
            }
            Err(error) => {
                tx.close().await;
                Err(error)
            }
        }
    }

    async fn begin_migration(inbox: &Inbox<Self>) -> Result<PgTransaction, Error> {
        let (mut tx, _) = Self::begin(inbox, &[], Limits::BOOKKEEPING).await?;
        // Any number will do that nobody else takes; the lock is this database's, until the transaction ends.
        Self::run(&mut tx, "SELECT pg_advisory_xact_lock(7596841059412331)", Vec::new()).await?;
        Ok(tx)
    }

    async fn check(tx: &mut PgTransaction) -> Result<(), Error> {
        tx.check().await
    }

    async fn commit(tx: PgTransaction) -> Result<(), CommitError> {
        tx.commit().await
    }

    async fn rollback(tx: PgTransaction) {
        tx.rollback().await;
    }

    async fn close(tx: PgTransaction) {
        tx.close().await;
    }

    async fn run(connection: &mut PgConnection, sql: &str, arguments: Vec<Value>) -> Result<Vec<Row>, sqlx::Error> {
        let sql = literal::fill(sql, &arguments)?;
        sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await?.iter().map(row).collect()
    }
}

/// A row of a statement that bound nothing: all values come as text.
fn row(row: &PgRow) -> Result<Row, sqlx::Error> {
    let value = |column: &PgColumn| {
        let index = column.ordinal();
        let raw = row.try_get_raw(index)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        match raw.type_info().name() {
            "INT2" | "INT4" | "INT8" => row.try_get_unchecked(index).map(Value::Int),
            "BYTEA" => row.try_get_unchecked(index).map(Value::Blob),
            "UUID" => digest(row.try_get_unchecked(index)?).map(Value::Digest),
            _ => row.try_get_unchecked(index).map(Value::Text),
        }
    };
    row.columns().iter().map(value).collect::<Result<_, _>>().map(Row)
}

/// The bytes of a UUID's text.
fn digest(text: &str) -> Result<[u8; 16], sqlx::Error> {
    crate::store::lean::digest_of_hex(&text.replace('-', ""))
        .ok_or_else(|| sqlx::Error::Decode("a UUID of another form than 8-4-4-4-12 digits".into()))
}
