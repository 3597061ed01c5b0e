//! Accounts, their handlers and their books. Compiled for each database, whose types and SQL are in the module around it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use inboxed::{Consumer, Inbox, RetryPolicy, State, idempotent};
use sqlx::{AssertSqlSafe, Connection as _, Pool};

use super::{Connection, Db, EFFECT, POST, controls};
use crate::arguments::{Control, Run};
use crate::consumer::{CONCURRENCY, patiently, run_at};
use crate::fault::Faults;
use crate::ledger::{ACCOUNTS, Message, SOURCES};
use crate::tally::Tally;
use crate::verdict::Books;

/// The effect: a balance, and a row in a table without any unique index. Twice is seen in both.
pub(super) async fn post(message: &Message, tx: &mut Connection) -> sqlx::Result<()> {
    sqlx::query(POST).bind(message.amount).bind(message.account).execute(&mut *tx).await?;
    let effect = sqlx::query(EFFECT).bind(message.id).bind(message.account).bind(message.amount);
    effect.execute(tx).await.map(drop)
}

#[idempotent(key = "deposit:{id}")]
async fn deposit(message: Message, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(post(&message, tx).await?)
}

/// As above within a transaction of its own, which is a savepoint, beside another that it takes back.
#[idempotent(key = "transfer:{id}")]
async fn transfer(message: Message, tx: &mut Connection) -> inboxed::Result<()> {
    let mut kept = tx.begin().await?;
    post(&message, &mut kept).await?;
    kept.commit().await?;
    let mut undone = tx.begin().await?;
    post(&message, &mut undone).await?;
    Ok(undone.rollback().await?)
}

/// A control: what it writes isn't in the claim's transaction.
#[idempotent(key = "message:{id}")]
async fn through_a_pool(message: Message, tx: &mut Connection, State(pool): State<Pool<Db>>) -> inboxed::Result<()> {
    let _ = tx;
    let mut own = pool.begin().await?;
    post(&message, &mut own).await?;
    Ok(own.commit().await?)
}

/// Makes the tables.
pub(crate) async fn prepare(url: &str) -> anyhow::Result<()> {
    let inbox = Inbox::<Db>::connect(url).await?;
    inbox.migrate().await?;
    let accounts = (0..ACCOUNTS).map(|account| format!("({account}, 0)")).collect::<Vec<_>>().join(", ");
    for statement in [
        "CREATE TABLE balances (account BIGINT PRIMARY KEY, balance BIGINT NOT NULL)",
        "CREATE TABLE effects (id BIGINT NOT NULL, account BIGINT NOT NULL, amount BIGINT NOT NULL)",
        "CREATE TABLE by_hand_claims (id BIGINT PRIMARY KEY)",
        "CREATE TABLE by_hand_seen (id BIGINT NOT NULL)",
        &format!("INSERT INTO balances (account, balance) VALUES {accounts}"),
    ] {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(inbox.pool()).await?;
    }
    Ok(())
}

/// Consumes in this process until its end is asked for.
pub(crate) async fn consume(run: &Run, faults: Faults, tally: Arc<Tally>) -> anyhow::Result<()> {
    let connections = u32::try_from(CONCURRENCY * SOURCES.len())?;
    let options = || Inbox::<Db>::options().max_connections(connections);
    let inbox = patiently(async || Ok(options().connect(&run.database_url).await?)).await?;
    // One failure makes a dead letter, so that an outage that counted as one is seen.
    let once = RetryPolicy::default().attempts(1).backoff(Duration::from_millis(50), Duration::from_millis(500));
    let app = Consumer::new("soak", inbox).retry(once).concurrency(CONCURRENCY).grace(Duration::from_secs(5));
    let app = app.horizon(Duration::from_hours(1));
    match run.control {
        None => run_at(app.handle(SOURCES[0], deposit).handle(SOURCES[1], transfer), run, faults, tally).await,
        Some(Control::Pool) => {
            // Another than the inbox's, whose connections may all be waiting for this one.
            let app = app.state(Pool::<Db>::connect(&run.database_url).await?);
            let app = app.handle(SOURCES[0], through_a_pool).handle(SOURCES[1], through_a_pool);
            run_at(app, run, faults, tally).await
        }
        Some(control) => controls::consume(control, run, faults, tally).await,
    }
}

/// What stands in the database, by queries that know nothing of the inbox but the names of its tables.
pub(crate) async fn books(url: &str) -> anyhow::Result<Books> {
    let mut connection = Connection::connect(url).await?;
    let rows: Vec<(i64, i64, i64)> =
        sqlx::query_as("SELECT id, account, amount FROM effects").fetch_all(&mut connection).await?;
    let balances: Vec<(i64, i64)> =
        sqlx::query_as("SELECT account, balance FROM balances").fetch_all(&mut connection).await?;
    let mut count = async |sql| sqlx::query_scalar::<_, i64>(sql).fetch_one(&mut connection).await;
    Ok(Books {
        effects: count("SELECT COUNT(*) FROM effects").await?,
        distinct: count("SELECT COUNT(DISTINCT id) FROM effects").await?,
        claims: count("SELECT COUNT(*) FROM inbox").await?,
        dead_letters: count("SELECT COUNT(*) FROM inbox_dead_letters").await?,
        rows: rows.into_iter().map(|(id, account, amount)| Message { id, account, amount }).collect(),
        balances: balances.into_iter().collect::<HashMap<_, _>>(),
    })
}
