//! SQLite, by hand and by `inboxed`.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use inboxed::{Consumer, Inbox, idempotent};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;

use crate::contest::{ACCOUNTS, Contest, Counts};
use crate::order::OrderPlaced;

const TABLES: &str = "
    CREATE TABLE processed_messages (message_key TEXT PRIMARY KEY, processed_at INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)";

const CLAIM: &str = "INSERT INTO processed_messages (message_key, processed_at) VALUES (?, unixepoch())
    ON CONFLICT (message_key) DO NOTHING";

const EFFECT: &str = "UPDATE account SET balance = balance + ? WHERE id = ?";

const COUNTS: &str = "SELECT (SELECT COUNT(*) FROM inbox), (SELECT COUNT(*) FROM processed_messages),
    (SELECT SUM(balance) FROM account)";

pub(crate) struct Sqlite {
    inbox: Inbox<sqlx::Sqlite>,
    folder: TempDir,
}

#[idempotent(key = "order:{order_id}:placed")]
async fn pay(order: OrderPlaced, tx: &mut SqliteConnection) -> sqlx::Result<()> {
    sqlx::query(EFFECT).bind(order.amount).bind(order.account).execute(tx).await?;
    Ok(())
}

impl Sqlite {
    fn file(&self) -> PathBuf {
        self.folder.path().join("shop.db")
    }
}

impl Contest for Sqlite {
    type Db = sqlx::Sqlite;
    type Connection = SqliteConnection;

    const NAME: &'static str = "sqlite";
    const LOWEST: f64 = 0.95;

    async fn open(_workers: u32) -> anyhow::Result<Self> {
        // Not in /tmp, which is in memory on some machines.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let file = folder.path().join("shop.db");
        let inbox = Inbox::connect(&format!("sqlite://{}", file.display())).await?;
        inbox.migrate().await?;
        sqlx::raw_sql(TABLES).execute(inbox.pool()).await?;
        let accounts = "INSERT INTO account WITH RECURSIVE numbers AS
            (SELECT 1 AS id UNION ALL SELECT id + 1 FROM numbers WHERE id < ?) SELECT id, 0 FROM numbers";
        sqlx::query(accounts).bind(ACCOUNTS).execute(inbox.pool()).await?;
        Ok(Self { inbox, folder })
    }

    async fn settings(&self) -> anyhow::Result<String> {
        let mut by_hand = self.connect().await?;
        let mut ours = self.inbox.pool().acquire().await?;
        let mut settings = Vec::new();
        for (whose, connection) in [("by hand", &mut by_hand), ("inboxed", &mut *ours)] {
            let journal = sqlx::query_scalar::<_, String>("PRAGMA journal_mode").fetch_one(&mut *connection).await?;
            let synchronous = sqlx::query_scalar::<_, i64>("PRAGMA synchronous").fetch_one(connection).await?;
            settings.push(format!("{whose}: journal_mode = {journal}, synchronous = {synchronous} (2 is FULL)"));
        }
        Ok(settings.join("; "))
    }

    async fn data(&self) -> anyhow::Result<PathBuf> {
        Ok(self.folder.path().to_owned())
    }

    async fn connect(&self) -> anyhow::Result<SqliteConnection> {
        let options = SqliteConnectOptions::new()
            .filename(self.file())
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        Ok(SqliteConnection::connect_with(&options).await?)
    }

    async fn by_hand(connection: &mut SqliteConnection, body: &[u8]) -> anyhow::Result<()> {
        let order: OrderPlaced = serde_json::from_slice(body)?;
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await.context("the file was locked for too long")?;
        let claimed = sqlx::query(CLAIM).bind(order.key()).execute(&mut *tx).await?;
        ensure!(claimed.rows_affected() == 1, "a fresh message is a duplicate");
        sqlx::query(EFFECT).bind(order.amount).bind(order.account).execute(&mut *tx).await?;
        Ok(tx.commit().await?)
    }

    fn consumer(&self) -> Consumer<sqlx::Sqlite> {
        Consumer::new("shop", self.inbox.clone()).handle("orders", pay)
    }

    async fn counts(&self) -> anyhow::Result<Counts> {
        let (inboxed, by_hand, effects) = sqlx::query_as(COUNTS).fetch_one(self.inbox.pool()).await?;
        Ok(Counts { inboxed, by_hand, effects })
    }

    async fn discard(self) -> anyhow::Result<()> {
        self.inbox.pool().close().await;
        Ok(self.folder.close()?)
    }
}
