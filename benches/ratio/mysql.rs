//! MySQL and MariaDB, by hand and by `inboxed`.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use inboxed::{Consumer, Inbox, idempotent};
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};

use crate::contest::{ACCOUNTS, Contest, Counts};
use crate::order::OrderPlaced;
use crate::scratch::Scratch;

const TABLES: [&str; 2] = [
    "CREATE TABLE processed_messages (message_key VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
        processed_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP) ENGINE = InnoDB",
    "CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL) ENGINE = InnoDB",
];

/// A duplicate is error 1062, as `inboxed` has it.
const CLAIM: &str = "INSERT INTO processed_messages (message_key) VALUES (?)";

const EFFECT: &str = "UPDATE account SET balance = balance + ? WHERE id = ?";

const SETTINGS: &str = "SELECT CONCAT(VERSION(),
    ', innodb_flush_log_at_trx_commit = ', @@innodb_flush_log_at_trx_commit,
    ', innodb_flush_method = ', @@innodb_flush_method, ', innodb_doublewrite = ', @@innodb_doublewrite,
    ', log_bin = ', @@log_bin, ', sync_binlog = ', @@sync_binlog)";

const COUNTS: &str = "SELECT (SELECT COUNT(*) FROM inbox), (SELECT COUNT(*) FROM processed_messages),
    (SELECT CAST(SUM(balance) AS SIGNED) FROM account)";

pub(crate) struct MySql {
    inbox: Inbox<sqlx::MySql>,
    database: Scratch<sqlx::MySql>,
}

#[idempotent(key = "order:{order_id}:placed")]
async fn pay(order: OrderPlaced, tx: &mut MySqlConnection) -> sqlx::Result<()> {
    sqlx::query(EFFECT).bind(order.amount).bind(order.account).execute(tx).await?;
    Ok(())
}

impl Contest for MySql {
    type Db = sqlx::MySql;
    type Connection = MySqlConnection;

    const NAME: &'static str = "mysql";
    const LOWEST: f64 = 0.95;

    async fn open(workers: u32) -> anyhow::Result<Self> {
        let database = Scratch::create("INBOXED_MYSQL_URL").await?;
        let inbox = Inbox::options().max_connections(workers).connect(&database.url()).await?;
        inbox.migrate().await?;
        for table in TABLES {
            sqlx::raw_sql(table).execute(inbox.pool()).await?;
        }
        let accounts = (1..=ACCOUNTS).map(|id| format!("({id}, 0)")).collect::<Vec<_>>().join(", ");
        sqlx::raw_sql(AssertSqlSafe(format!("INSERT INTO account VALUES {accounts}"))).execute(inbox.pool()).await?;
        Ok(Self { inbox, database })
    }

    async fn settings(&self) -> anyhow::Result<String> {
        Ok(sqlx::query_scalar(SETTINGS).fetch_one(self.inbox.pool()).await?)
    }

    async fn data(&self) -> anyhow::Result<PathBuf> {
        let folder = sqlx::query_scalar::<_, String>("SELECT @@datadir").fetch_one(self.inbox.pool()).await?;
        // Nothing is written among the server's own files.
        Ok(Path::new(&folder).parent().unwrap_or(Path::new("/")).to_owned())
    }

    async fn connect(&self) -> anyhow::Result<MySqlConnection> {
        Ok(MySqlConnection::connect(&self.database.url()).await?)
    }

    async fn by_hand(connection: &mut MySqlConnection, body: &[u8]) -> anyhow::Result<()> {
        let order: OrderPlaced = serde_json::from_slice(body)?;
        let mut tx = connection.begin().await?;
        let claimed = sqlx::query(CLAIM).bind(order.key()).execute(&mut *tx).await?;
        ensure!(claimed.rows_affected() == 1, "a fresh message is a duplicate");
        sqlx::query(EFFECT).bind(order.amount).bind(order.account).execute(&mut *tx).await?;
        Ok(tx.commit().await?)
    }

    fn consumer(&self) -> Consumer<sqlx::MySql> {
        Consumer::new("shop", self.inbox.clone()).handle("orders", pay)
    }

    async fn counts(&self) -> anyhow::Result<Counts> {
        let (inboxed, by_hand, effects) = sqlx::query_as(COUNTS).fetch_one(self.inbox.pool()).await?;
        Ok(Counts { inboxed, by_hand, effects })
    }

    async fn discard(self) -> anyhow::Result<()> {
        self.database.discard("").await
    }
}
