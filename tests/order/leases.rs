//! A body longer than its lease: with the keeper nobody else gets its message, without it the effect is single all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::{Delivery, State, idempotent};
use sqlx::SqliteConnection;

use super::support::{Order, Shop, effect, order, run_to_the_end};

const LEASE: Duration = Duration::from_millis(600);

#[derive(Clone, Default)]
struct Seen {
    runs: Arc<AtomicU32>,
    lost: Arc<AtomicU32>,
}

/// Takes three leases.
#[idempotent(key = "order:{id}", timeout = "1m")]
async fn long(
    order: Order,
    tx: &mut SqliteConnection,
    delivery: &Delivery,
    State(seen): State<Seen>,
) -> inboxed::Result<()> {
    seen.runs.fetch_add(1, Ordering::SeqCst);
    effect(tx, order.id).await?;
    tokio::time::sleep(LEASE * 3).await;
    if delivery.lease_lost() {
        seen.lost.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

#[tokio::test]
async fn body_of_three_leases_keeps_its_message() {
    let shop = Shop::open().await;
    let broker = Memory::builder().lease(LEASE).build();
    broker.publish("orders", order(7));
    let seen = Seen::default();
    run_to_the_end(&shop.consumer().state(seen.clone()).handle("orders", long), &broker, &["orders"]).await;
    assert_eq!((seen.runs.load(Ordering::SeqCst), seen.lost.load(Ordering::SeqCst)), (1, 0));
    assert_eq!((broker.counts("orders").deliveries, shop.effects().await), (1, 1));
}

#[tokio::test]
async fn waiting_message_keeps_its_lease_too() {
    let shop = Shop::open().await;
    let broker = Memory::builder().lease(LEASE).build();
    broker.publish("orders", order(7));
    broker.publish("orders", order(8));
    let seen = Seen::default();
    let consumer = shop.consumer().concurrency(1).prefetch(1).state(seen.clone()).handle("orders", long);
    run_to_the_end(&consumer, &broker, &["orders"]).await;
    assert_eq!((broker.counts("orders").deliveries, shop.effects().await), (2, 2));
    assert_eq!((seen.runs.load(Ordering::SeqCst), seen.lost.load(Ordering::SeqCst)), (2, 0));
}

#[tokio::test]
async fn body_that_outlives_its_lease_has_one_effect_and_knows() {
    let shop = Shop::open().await;
    let broker = Memory::builder().lease(LEASE).build();
    broker.publish("orders", order(7));
    let seen = Seen::default();
    let consumer = shop.consumer().keep_leases(false).state(seen.clone()).handle("orders", long);
    run_to_the_end(&consumer, &broker, &["orders"]).await;
    assert!(broker.counts("orders").deliveries > 1, "it came again meanwhile");
    assert_eq!((seen.lost.load(Ordering::SeqCst), shop.effects().await), (1, 1));
    assert_eq!(seen.runs.load(Ordering::SeqCst), 1, "the copies waited for the first");
}

#[tokio::test]
async fn body_that_outlives_its_lease_has_one_effect_with_two_processes() {
    let shop = Shop::open().await;
    let broker = Memory::builder().lease(LEASE).build();
    broker.publish("orders", order(7));
    let process = || shop.consumer().keep_leases(false).state(Seen::default()).handle("orders", long);
    let (one, other) = (process(), process());
    tokio::join!(run_to_the_end(&one, &broker, &["orders"]), run_to_the_end(&other, &broker, &["orders"]));
    assert!(broker.counts("orders").deliveries > 1);
    assert_eq!(shop.effects().await, 1);
}

/// By default a body may run for two thirds of the lease: then it is rolled back while the message is still its own.
#[idempotent(key = "order:{id}")]
async fn hangs_once(
    order: Order,
    tx: &mut SqliteConnection,
    delivery: &Delivery,
    State(seen): State<Seen>,
) -> inboxed::Result<()> {
    effect(tx, order.id).await?;
    if delivery.lease_lost() {
        seen.lost.fetch_add(1, Ordering::SeqCst);
    }
    if seen.runs.fetch_add(1, Ordering::SeqCst) == 0 {
        std::future::pending::<()>().await;
    }
    Ok(())
}

#[tokio::test]
async fn default_deadline_lies_within_the_lease() {
    let shop = Shop::open().await;
    let broker = Memory::builder().lease(LEASE * 5).build();
    broker.publish("orders", order(7));
    let seen = Seen::default();
    let consumer = shop.consumer().keep_leases(false).state(seen.clone()).handle("orders", hangs_once);
    run_to_the_end(&consumer, &broker, &["orders"]).await;
    assert_eq!((seen.runs.load(Ordering::SeqCst), seen.lost.load(Ordering::SeqCst)), (2, 0));
    let counts = broker.counts("orders");
    assert_eq!((shop.effects().await, counts.deliveries, counts.acknowledged), (1, 2, 1), "it was given back in time");
}

/// Notes whether its lease was lost before it began; the first order takes longer than a lease.
#[idempotent(key = "order:{id}", timeout = "1m")]
async fn looks_first(
    order: Order,
    tx: &mut SqliteConnection,
    delivery: &Delivery,
    State(seen): State<Seen>,
) -> inboxed::Result<()> {
    if delivery.lease_lost() {
        seen.lost.fetch_add(1, Ordering::SeqCst);
    }
    effect(tx, order.id).await?;
    if seen.runs.fetch_add(1, Ordering::SeqCst) == 0 {
        tokio::time::sleep(LEASE * 3 / 2).await;
    }
    Ok(())
}

#[tokio::test]
async fn delivery_whose_lease_was_lost_while_it_waited_is_not_begun() {
    let shop = Shop::open().await;
    let broker = Memory::builder().lease(LEASE).build();
    broker.publish("orders", order(7));
    broker.publish("orders", order(8));
    let seen = Seen::default();
    let consumer = shop.consumer().keep_leases(false).concurrency(1).prefetch(1).state(seen.clone());
    run_to_the_end(&consumer.handle("orders", looks_first), &broker, &["orders"]).await;
    assert_eq!((shop.effects().await, seen.runs.load(Ordering::SeqCst), seen.lost.load(Ordering::SeqCst)), (2, 2, 0));
}
