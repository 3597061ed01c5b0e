//! Transactions that a body holds for too long: over a slow call, and while it waits for its own pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::store::Reason;
use inboxed::{Consumer, Inbox, Outcome, State, idempotent};
use sqlx::pool::{Pool, PoolOptions};

use super::{BODY_HAS_THE_POOL, Connection, Db, Shop, consumer, deliver, effect, run_dry};
use crate::common::{Event, at_once, event};

/// A provider that is slow on its first calls.
#[derive(Clone)]
struct Provider {
    slow_calls_left: Arc<AtomicU32>,
}

#[idempotent(key = "event:{id}", timeout = "100ms")]
async fn call_inside(message: Event, State(provider): State<Provider>, tx: &mut Connection) -> inboxed::Result<()> {
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
    pool: Pool<Db>,
    times_left: Arc<AtomicU32>,
}

#[idempotent(key = "event:{id}", timeout = "500ms")]
async fn take_a_second(message: Event, State(greedy): State<Greedy>, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, &message.id).await?;
    if greedy.times_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
        greedy.pool.acquire().await?;
    }
    Ok(())
}

/// A consumer over a pool of one connection that the body asks for a second.
async fn greedy_consumer(shop: &Shop, patience: Duration) -> Consumer<Db, Greedy> {
    let options = shop.inbox.pool().connect_options().as_ref().clone();
    let pool = PoolOptions::new().max_connections(1).acquire_timeout(patience).connect_with(options).await.unwrap();
    let state = Greedy { pool: pool.clone(), times_left: Arc::new(AtomicU32::new(2)) };
    consumer(Inbox::new(pool)).retry(at_once(2)).state(state).handle("events", take_a_second)
}

#[tokio::test]
async fn p10_body_that_waits_for_its_own_pool_ends_with_a_message() {
    let shop = Shop::open().await;
    let app = greedy_consumer(&shop, Duration::from_hours(1)).await;
    if BODY_HAS_THE_POOL {
        assert_eq!(deliver(&app, "events", event("a")).await, Outcome::Done, "there is nothing to wait for");
        return assert_eq!(shop.effects().await, ["a"]);
    }
    assert!(matches!(deliver(&app, "events", event("a")).await, Outcome::Retry(_)));
    assert_eq!(deliver(&app, "events", event("a")).await, Outcome::DeadLettered);
    let letters = shop.letters().await;
    assert_eq!(letters[0].reason, Reason::AttemptsExhausted);
    assert!(letters[0].error.contains("ran for longer than 500ms"), "{}", letters[0].error);
    assert_eq!(deliver(&app, "events", event("b")).await, Outcome::Done, "the pool isn't empty for ever");
    assert_eq!(shop.effects().await, ["b"]);
}

#[tokio::test]
async fn p10_pool_wait_is_given_back_uncounted() {
    let shop = Shop::open().await;
    let app = greedy_consumer(&shop, Duration::from_millis(100)).await;
    let waits = if BODY_HAS_THE_POOL { 0 } else { 2 };
    for _ in 0..waits {
        assert!(matches!(deliver(&app, "events", event("a")).await, Outcome::Retry(_)));
    }
    assert_eq!(shop.counted().await, 0);
    assert_eq!(deliver(&app, "events", event("a")).await, Outcome::Done);
    assert_eq!(shop.effects().await, ["a"]);
}
