//! Copies of a running message are set aside: they hold no connection, and its outcome is theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::{Consumer, Error, Inbox, Outcome, State, idempotent};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Sqlite, SqliteConnection};
use tokio::sync::Semaphore;

use super::support::{Order, Shop, deliver, effect, order, run_to_the_end, until};

/// A body that waits until the test lets it go on.
#[derive(Clone)]
struct Gate {
    entered: Arc<AtomicU32>,
    open: Arc<Semaphore>,
    fails: Arc<AtomicBool>,
}

impl Gate {
    fn new() -> Self {
        Self { entered: Arc::default(), open: Arc::new(Semaphore::new(0)), fails: Arc::default() }
    }
}

#[idempotent(key = "order:{id}")]
async fn gated(order: Order, tx: &mut SqliteConnection, State(gate): State<Gate>) -> inboxed::Result<()> {
    gate.entered.fetch_add(1, Ordering::SeqCst);
    effect(tx, order.id).await?;
    gate.open.acquire().await?.forget();
    if gate.fails.swap(false, Ordering::SeqCst) { Err(Error::from("the first fails")) } else { Ok(()) }
}

/// A consumer over a pool of two connections: one for the running body, one for this test.
async fn narrow(shop: &Shop, gate: &Gate) -> Consumer<Sqlite, Gate> {
    let options = shop.url.parse::<SqliteConnectOptions>().unwrap();
    let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
    let pool = SqlitePoolOptions::new().max_connections(2).acquire_timeout(Duration::from_secs(10));
    let inbox = Inbox::new(pool.connect_with(options).await.unwrap());
    Consumer::new("shop", inbox).state(gate.clone()).handle("orders", gated).concurrency(2).prefetch(38)
}

#[tokio::test]
async fn copies_wait_without_a_connection_and_are_settled_by_the_first_ones_proof() {
    let shop = Shop::open().await;
    let gate = Gate::new();
    let consumer = narrow(&shop, &gate).await;
    let broker = Memory::new();
    for _ in 0..40 {
        broker.publish("orders", order(7));
    }
    let work = async {
        // Those set aside leave their turns to others: else only two would have looked.
        until("all copies are here", async || broker.counts("orders").in_flight == 40).await;
        until("the first runs", async || gate.entered.load(Ordering::SeqCst) == 1).await;
        let free = consumer.inbox().pool().acquire().await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(gate.entered.load(Ordering::SeqCst), 1, "one body at a time");
        assert_eq!(broker.counts("orders").acknowledged, 0, "nothing is committed yet");
        drop(free);
        gate.open.add_permits(1);
    };
    tokio::join!(run_to_the_end(&consumer, &broker, &["orders"]), work);
    let counts = broker.counts("orders");
    assert_eq!((counts.acknowledged, counts.deliveries), (40, 40), "no copy needed another delivery");
    assert_eq!((gate.entered.load(Ordering::SeqCst), shop.effects().await), (1, 1));
}

#[tokio::test]
async fn copies_of_a_failed_first_come_again() {
    let shop = Shop::open().await;
    let gate = Gate::new();
    gate.fails.store(true, Ordering::SeqCst);
    let broker = Memory::new();
    for _ in 0..5 {
        broker.publish("orders", order(7));
    }
    let consumer = shop.consumer().state(gate.clone()).handle("orders", gated);
    let work = async {
        until("all copies are here", async || broker.counts("orders").in_flight == 5).await;
        until("the first runs", async || gate.entered.load(Ordering::SeqCst) == 1).await;
        gate.open.add_permits(2);
    };
    tokio::join!(run_to_the_end(&consumer, &broker, &["orders"]), work);
    assert_eq!((gate.entered.load(Ordering::SeqCst), shop.effects().await), (2, 1));
    assert_eq!(broker.counts("orders").acknowledged, 5);
}

#[tokio::test]
async fn other_messages_do_not_wait_for_a_copy() {
    let shop = Shop::open().await;
    let gate = Gate::new();
    let consumer = shop.consumer().state(gate.clone()).handle("orders", gated);
    gate.open.add_permits(1);
    let (one, copy) = tokio::join!(deliver(&consumer, 7), deliver(&consumer, 7));
    assert_eq!((one, copy), (Outcome::Done, Outcome::Duplicate));
    gate.open.add_permits(2);
    let (one, other) = tokio::join!(deliver(&consumer, 8), deliver(&consumer, 9));
    assert_eq!((one, other), (Outcome::Done, Outcome::Done));
    assert_eq!(shop.effects().await, 3);
}
