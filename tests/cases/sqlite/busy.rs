//! Locks of `SQLite` that are held elsewhere, in the inbox's file and in another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use inboxed::{Outcome, State, idempotent};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{Connection as _, SqliteConnection};

use super::{Connection, Shop, deliver, effect};
use crate::common::{Event, at_once, event};

/// Another database of the user's that somebody keeps locked.
#[derive(Clone)]
struct Ledger {
    pool: SqlitePool,
    entered: Arc<AtomicU32>,
}

impl Ledger {
    async fn beside(shop: &Shop) -> Self {
        let options = shop.other_url().parse::<SqliteConnectOptions>().unwrap().busy_timeout(Duration::ZERO);
        let pool = SqlitePoolOptions::new().max_connections(2).connect_with(options).await.unwrap();
        sqlx::raw_sql("CREATE TABLE entries (message TEXT NOT NULL)").execute(&pool).await.unwrap();
        Self { pool, entered: Arc::default() }
    }

    /// Holds the write lock until the connection is dropped.
    async fn locked(&self) -> SqliteConnection {
        let mut holder = SqliteConnection::connect_with(&self.pool.connect_options()).await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut holder).await.unwrap();
        holder
    }
}

/// Writes its effect, and then meets the lock.
#[idempotent(key = "event:{id}")]
async fn enter(message: Event, State(ledger): State<Ledger>, tx: &mut Connection) -> inboxed::Result<()> {
    ledger.entered.fetch_add(1, Ordering::SeqCst);
    effect(tx, &message.id).await?;
    sqlx::query("DELETE FROM entries WHERE message = ?").bind(&message.id).execute(&ledger.pool).await?;
    Ok(())
}

#[tokio::test]
async fn p04_busy_database_reruns_the_whole_transaction_and_is_no_failure_of_the_body() {
    let shop = Shop::open().await;
    let ledger = Ledger::beside(&shop).await;
    let app = shop.consumer().retry(at_once(1)).state(ledger.clone()).handle("events", enter);
    let holder = ledger.locked().await;
    assert!(matches!(deliver(&app, "events", event("a")).await, Outcome::Retry(_)));
    assert!(ledger.entered.load(Ordering::SeqCst) > 1, "it was run again at once");
    assert_eq!(shop.effects().await, [""; 0]);
    assert_eq!(shop.counted().await, 0, "not counted");

    holder.close().await.unwrap();
    assert_eq!(deliver(&app, "events", event("a")).await, Outcome::Done);
    assert_eq!(shop.effects().await, ["a"]);
    assert!(shop.letters().await.is_empty());
}

/// Writes before and after a statement that meets the lock of another database, and swallows what it met.
#[idempotent(key = "event:{id}")]
async fn carry_on(message: Event, State(ledger): State<Ledger>, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, &format!("{} first", message.id)).await?;
    let met = sqlx::query("DELETE FROM entries").execute(&ledger.pool).await;
    assert!(met.is_err());
    Ok(effect(tx, &format!("{} second", message.id)).await?)
}

#[tokio::test]
async fn m07_lock_that_was_waited_for_in_vain_keeps_all_of_a_body_or_nothing() {
    let shop = Shop::open().await;
    let ledger = Ledger::beside(&shop).await;
    let _holder = ledger.locked().await;
    let app =
        shop.consumer().retry(at_once(1)).state(ledger.clone()).handle("returns", enter).handle("swallows", carry_on);
    // Returned: the whole transaction is rolled back.
    assert!(matches!(deliver(&app, "returns", event("a")).await, Outcome::Retry(_)));
    assert_eq!(shop.effects().await, [""; 0]);
    // Swallowed: the lock was another database's, so the transaction is whole, and so is what it keeps.
    assert_eq!(deliver(&app, "swallows", event("b")).await, Outcome::Done);
    assert_eq!(shop.effects().await, ["b first", "b second"]);
}
