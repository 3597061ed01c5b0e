//! Transactions that meet, and bodies that hold one for too long: waited for, run again, never half kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::store::Reason;
use inboxed::{Consumer, Inbox, Outcome, State, idempotent};
use serde::Deserialize;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{Connection as _, Sqlite, SqliteConnection};

use crate::common::{Event, Shop, at_once, consumer, deliver, effect, event, record, run_dry};

#[derive(Deserialize)]
struct Move {
    id: String,
    from: i64,
    to: i64,
}

/// Updates two rows in the order that the message names.
#[idempotent(key = "move:{id}")]
async fn move_stock(message: Move, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    for row in [message.from, message.to] {
        sqlx::query("UPDATE stock SET moves = moves + 1 WHERE id = ?").bind(row).execute(&mut *tx).await?;
    }
    Ok(effect(tx, &message.id).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn p04_rows_locked_in_opposite_orders_have_every_effect_and_no_dead_letter() {
    let shop = Shop::open().await;
    shop.execute("CREATE TABLE stock (id INTEGER PRIMARY KEY, moves INTEGER); INSERT INTO stock VALUES (1, 0), (2, 0)")
        .await;
    let broker = Memory::new();
    for pair in 0..200 {
        broker.publish("moves", format!(r#"{{"id":"{pair} a","from":1,"to":2}}"#));
        broker.publish("moves", format!(r#"{{"id":"{pair} b","from":2,"to":1}}"#));
    }
    let app = shop.consumer().concurrency(4).handle("moves", move_stock);
    run_dry(&app, &broker, &["moves"]).await;

    assert_eq!(shop.effects().await.len(), 400);
    assert_eq!(shop.number("SELECT SUM(moves) FROM stock").await, 800);
    assert_eq!(broker.counts("moves").deliveries, 400, "nothing was given back");
    assert!(shop.letters().await.is_empty());
}

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
async fn enter(message: Event, State(ledger): State<Ledger>, tx: &mut SqliteConnection) -> inboxed::Result<()> {
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
    assert_eq!(shop.number("SELECT COUNT(*) FROM inbox_attempts").await, 0, "not counted");

    holder.close().await.unwrap();
    assert_eq!(deliver(&app, "events", event("a")).await, Outcome::Done);
    assert_eq!(shop.effects().await, ["a"]);
    assert!(shop.letters().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn m02_new_and_repeated_keys_at_twenty_workers_have_one_effect_each() {
    let shop = Shop::open().await;
    let broker = Memory::builder().reorder(64).seed(2).build();
    for id in 0..1_000 {
        broker.publish("events", event(&format!("k{id}")));
        if id % 10 == 0 {
            broker.publish("events", event(&format!("k{id}")));
        }
    }
    let app = shop.consumer().concurrency(20).handle("events", record);
    run_dry(&app, &broker, &["events"]).await;

    assert_eq!(shop.effects().await.len(), 1_000);
    assert_eq!(shop.number("SELECT COUNT(DISTINCT message) FROM effects").await, 1_000);
    assert_eq!(broker.counts("events").deliveries, 1_100, "nothing was given back");
    assert!(shop.letters().await.is_empty());
}

/// Writes before and after a statement that meets the lock of another database, and swallows what it met.
#[idempotent(key = "event:{id}")]
async fn carry_on(message: Event, State(ledger): State<Ledger>, tx: &mut SqliteConnection) -> inboxed::Result<()> {
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

#[tokio::test]
async fn m07_body_never_waits_for_a_lock_of_the_inboxs_database() {
    let shop = Shop::open().await;
    let app = shop.consumer().timeout(Duration::from_millis(100)).retry(at_once(1)).handle("events", record);
    assert_eq!(deliver(&app, "events", event("before")).await, Outcome::Done);
    let mut other = SqliteConnection::connect(&shop.url()).await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE; INSERT INTO effects VALUES ('other')").execute(&mut other).await.unwrap();
    // The claim waits in vain; no body was entered, and nothing is counted.
    assert!(matches!(deliver(&app, "events", event("a")).await, Outcome::Retry(_)));
    assert_eq!(shop.number("SELECT COUNT(*) FROM inbox_attempts").await, 0);

    sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();
    assert_eq!(deliver(&app, "events", event("a")).await, Outcome::Done);
    assert_eq!(shop.effects().await, ["a", "before", "other"]);
}

/// A provider that is slow on its first calls.
#[derive(Clone)]
struct Provider {
    slow_calls_left: Arc<AtomicU32>,
}

#[idempotent(key = "event:{id}", timeout = "40ms")]
async fn call_inside(
    message: Event,
    State(provider): State<Provider>,
    tx: &mut SqliteConnection,
) -> inboxed::Result<()> {
    effect(tx, &message.id).await?;
    let slow = |left: u32| left.checked_sub(1);
    if provider.slow_calls_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, slow).is_ok() {
        tokio::time::sleep(Duration::from_hours(1)).await;
    }
    Ok(())
}

#[tokio::test]
async fn p10_transaction_held_over_a_slow_call_is_rolled_back_and_retried() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    let provider = Provider { slow_calls_left: Arc::new(AtomicU32::new(20)) };
    let app = shop.consumer().concurrency(5).state(provider).handle("events", call_inside);
    let ids = ('a'..='t').map(String::from).collect::<Vec<_>>();
    for id in &ids {
        broker.publish("events", event(id));
    }
    run_dry(&app, &broker, &["events"]).await;
    assert_eq!(shop.effects().await, ids);
    assert!(broker.counts("events").deliveries >= 40, "twenty bodies were rolled back, and claims waited for them");
    assert!(shop.letters().await.is_empty());
}

/// The pool of the inbox, in the hands of a body, and how often that takes a second connection.
#[derive(Clone)]
struct Greedy {
    pool: SqlitePool,
    times_left: Arc<AtomicU32>,
}

#[idempotent(key = "event:{id}", timeout = "300ms")]
async fn take_a_second(message: Event, State(greedy): State<Greedy>, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    effect(tx, &message.id).await?;
    if greedy.times_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
        greedy.pool.acquire().await?;
    }
    Ok(())
}

/// A consumer over a pool of one connection that the body asks for a second.
async fn greedy_consumer(shop: &Shop, patience: Duration) -> Consumer<Sqlite, Greedy> {
    let options = shop.inbox.pool().connect_options().as_ref().clone();
    let pool =
        SqlitePoolOptions::new().max_connections(1).acquire_timeout(patience).connect_with(options).await.unwrap();
    let state = Greedy { pool: pool.clone(), times_left: Arc::new(AtomicU32::new(2)) };
    consumer(Inbox::new(pool)).retry(at_once(2)).state(state).handle("events", take_a_second)
}

#[tokio::test]
async fn p10_body_that_waits_for_its_own_pool_ends_with_a_message() {
    let shop = Shop::open().await;
    let app = greedy_consumer(&shop, Duration::from_hours(1)).await;
    assert!(matches!(deliver(&app, "events", event("a")).await, Outcome::Retry(_)));
    assert_eq!(deliver(&app, "events", event("a")).await, Outcome::DeadLettered);
    let letters = shop.letters().await;
    assert_eq!(letters[0].reason, Reason::AttemptsExhausted);
    assert!(letters[0].error.contains("ran for longer than 300ms"), "{}", letters[0].error);
    assert_eq!(deliver(&app, "events", event("b")).await, Outcome::Done, "the pool isn't empty for ever");
    assert_eq!(shop.effects().await, ["b"]);
}

#[tokio::test]
async fn p10_pool_wait_is_given_back_uncounted() {
    let shop = Shop::open().await;
    let app = greedy_consumer(&shop, Duration::from_millis(20)).await;
    for _ in 0..2 {
        assert!(matches!(deliver(&app, "events", event("a")).await, Outcome::Retry(_)));
    }
    assert_eq!(shop.number("SELECT COUNT(*) FROM inbox_attempts").await, 0);
    assert_eq!(deliver(&app, "events", event("a")).await, Outcome::Done);
    assert_eq!(shop.effects().await, ["a"]);
}
