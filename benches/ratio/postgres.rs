//! Postgres, by hand and by `inboxed`.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use inboxed::{Consumer, Inbox, idempotent};
use sqlx::{Connection as _, PgConnection};

use crate::contest::{ACCOUNTS, Contest, Counts};
use crate::order::OrderPlaced;
use crate::pgbench;
use crate::scratch::Scratch;

const TABLES: &str = "
    CREATE TABLE processed_messages (message_key TEXT PRIMARY KEY, processed_at TIMESTAMPTZ NOT NULL DEFAULT now());
    CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL)";

const CLAIM: &str = "INSERT INTO processed_messages (message_key) VALUES ($1) ON CONFLICT (message_key) DO NOTHING";

const EFFECT: &str = "UPDATE account SET balance = balance + $1 WHERE id = $2";

const SETTINGS: &str = "SELECT string_agg(name || ' = ' || setting, ', ' ORDER BY name) FROM pg_settings
    WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_sync_method')";

const COUNTS: &str = "SELECT (SELECT count(*) FROM inbox), (SELECT count(*) FROM processed_messages),
    (SELECT sum(balance)::bigint FROM account)";

pub(crate) struct Postgres {
    inbox: Inbox<sqlx::Postgres>,
    workers: u32,
    database: Scratch<sqlx::Postgres>,
}

#[idempotent(key = "order:{order_id}:placed")]
async fn pay(order: OrderPlaced, tx: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query(EFFECT).bind(order.amount).bind(order.account).execute(tx).await?;
    Ok(())
}

impl Contest for Postgres {
    type Db = sqlx::Postgres;
    type Connection = PgConnection;

    const NAME: &'static str = "postgres";
    const LOWEST: f64 = 1.0;

    async fn open(workers: u32) -> anyhow::Result<Self> {
        let database = Scratch::create("INBOXED_POSTGRES_URL").await?;
        let inbox = Inbox::options().max_connections(workers).connect(&database.url()).await?;
        inbox.migrate().await?;
        sqlx::raw_sql(TABLES).execute(inbox.pool()).await?;
        let accounts = "INSERT INTO account SELECT id, 0 FROM generate_series(1, $1) AS id";
        sqlx::query(accounts).bind(i32::try_from(ACCOUNTS)?).execute(inbox.pool()).await?;
        Ok(Self { inbox, workers, database })
    }

    async fn settings(&self) -> anyhow::Result<String> {
        Ok(sqlx::query_scalar(SETTINGS).fetch_one(self.inbox.pool()).await?)
    }

    async fn data(&self) -> anyhow::Result<PathBuf> {
        let folder = sqlx::query_scalar::<_, String>("SHOW data_directory").fetch_one(self.inbox.pool()).await?;
        // Nothing is written among the server's own files.
        Ok(Path::new(&folder).parent().unwrap_or(Path::new("/")).to_owned())
    }

    async fn connect(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(&self.database.url()).await?)
    }

    async fn by_hand(connection: &mut PgConnection, body: &[u8]) -> anyhow::Result<()> {
        let order: OrderPlaced = serde_json::from_slice(body)?;
        let mut tx = connection.begin().await?;
        let claimed = sqlx::query(CLAIM).bind(order.key()).execute(&mut *tx).await?;
        ensure!(claimed.rows_affected() == 1, "a fresh message is a duplicate");
        sqlx::query(EFFECT).bind(order.amount).bind(order.account).execute(&mut *tx).await?;
        Ok(tx.commit().await?)
    }

    fn consumer(&self) -> Consumer<sqlx::Postgres> {
        Consumer::new("shop", self.inbox.clone()).handle("orders", pay)
    }

    async fn tool(&self, round: u32) -> anyhow::Result<Option<f64>> {
        pgbench::run(&self.database.url(), self.workers, round).await.map(Some)
    }

    async fn counts(&self) -> anyhow::Result<Counts> {
        let (inboxed, by_hand, effects) = sqlx::query_as(COUNTS).fetch_one(self.inbox.pool()).await?;
        Ok(Counts { inboxed, by_hand, effects })
    }

    async fn discard(self) -> anyhow::Result<()> {
        self.database.discard(" WITH (FORCE)").await
    }
}
