//! Shutdown: fetching stops, bodies finish or are rolled back, and what wasn't started is given back uncounted.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use inboxed::memory::Memory;
use inboxed::store::LetterState;
use inboxed::{Outcome, RunError, State, idempotent, permanent};
use serde::Deserialize;
use sqlx::SqliteConnection;

use super::support::{Order, PATIENCE, Script, Shop, deliver, effect, order, run_to_the_end, until};

#[derive(Deserialize)]
struct Job {
    id: u64,
    millis: u64,
}

/// Takes its time before it writes, so that several can be under way although SQLite has one writer.
#[idempotent(key = "order:{id}")]
async fn work(job: Job, tx: &mut SqliteConnection, State(started): State<Arc<AtomicU32>>) -> inboxed::Result<()> {
    started.fetch_add(1, Ordering::SeqCst);
    effect(tx, job.id).await?;
    tokio::time::sleep(Duration::from_millis(job.millis)).await;
    Ok(())
}

fn job(id: u64, millis: u64) -> String {
    format!(r#"{{"id":{id},"millis":{millis}}}"#)
}

#[tokio::test]
async fn running_body_finishes_and_the_rest_is_given_back_uncounted() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    for id in 0..10 {
        broker.publish("orders", job(id, 200));
    }
    let started = Arc::new(AtomicU32::new(0));
    let consumer = || {
        let consumer = shop.consumer().concurrency(1).prefetch(4).state(Arc::clone(&started));
        consumer.handle("orders", work)
    };
    let first = consumer();
    let shutdown = first.shutdown();
    let end = async {
        until("the first runs", async || started.load(Ordering::SeqCst) == 1).await;
        until("others wait here", async || broker.counts("orders").in_flight == 5).await;
        shutdown.begin();
    };
    let (ended, ()) = tokio::join!(first.run_until(broker.clone(), pending()), end);
    ended.unwrap();
    let counts = broker.counts("orders");
    assert_eq!(
        (counts.acknowledged, counts.in_flight, counts.waiting),
        (1, 0, 9),
        "given back, not left to their leases"
    );
    assert_eq!((shop.effects().await, shop.failures().await), (1, 0));

    run_to_the_end(&consumer(), &broker, &["orders"]).await;
    assert_eq!((shop.effects().await, started.load(Ordering::SeqCst)), (10, 10));
}

#[tokio::test]
async fn body_beyond_the_grace_period_is_rolled_back_and_given_back_uncounted() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    broker.publish("orders", job(7, 600_000));
    let started = Arc::new(AtomicU32::new(0));
    let consumer = shop.consumer().timeout(Duration::from_hours(1)).grace(Duration::from_millis(100));
    let consumer = consumer.state(Arc::clone(&started)).handle("orders", work);
    let begun = until("it runs", async || started.load(Ordering::SeqCst) == 1);
    let asked = Instant::now();
    tokio::time::timeout(PATIENCE, consumer.run_until(broker.clone(), begun)).await.expect("it ends in time").unwrap();
    assert!(asked.elapsed() < Duration::from_secs(10));
    let counts = broker.counts("orders");
    assert_eq!((counts.acknowledged, counts.in_flight, counts.waiting), (0, 0, 1));
    assert_eq!((shop.effects().await, shop.claims().await, shop.failures().await), (0, 0, 0));
}

#[tokio::test]
async fn redriven_body_beyond_the_grace_period_is_rolled_back_and_taken_again() {
    let shop = Shop::open().await;
    let started = Arc::new(AtomicU32::new(0));
    let process = || {
        let consumer = shop.consumer().timeout(Duration::from_hours(1)).grace(Duration::from_millis(50));
        consumer.state(Arc::clone(&started)).handle("orders", hangs_when_redriven)
    };
    assert_eq!(deliver(&process(), 7).await, Outcome::DeadLettered);
    shop.inbox.dead_letters().redrive(shop.letter().await.id).await.unwrap();
    let begun = until("it runs", async || started.load(Ordering::SeqCst) == 2);
    tokio::time::timeout(PATIENCE, process().run_until(Memory::new(), begun)).await.expect("it ends in time").unwrap();
    assert_eq!((shop.effects().await, shop.letter().await.state), (0, LetterState::Redrive));
    assert_eq!(process().redrive().await.unwrap(), 1);
    assert_eq!((shop.effects().await, shop.letter().await.state), (1, LetterState::Done));
}

/// Fails at first, and then hangs once.
#[idempotent(key = "order:{id}")]
async fn hangs_when_redriven(
    order: Order,
    tx: &mut SqliteConnection,
    State(started): State<Arc<AtomicU32>>,
) -> inboxed::Result<()> {
    effect(tx, order.id).await?;
    match started.fetch_add(1, Ordering::SeqCst) + 1 {
        1 => Err(permanent("not yet")),
        2 => pending().await,
        _ => Ok(()),
    }
}

#[tokio::test]
async fn consumer_works_again_after_a_run_that_was_cut_short() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    broker.publish("orders", job(7, 600_000));
    let started = Arc::new(AtomicU32::new(0));
    let consumer = shop.consumer().timeout(Duration::from_hours(1)).grace(Duration::from_millis(50));
    let consumer = consumer.state(Arc::clone(&started)).handle("orders", work);
    let begun = until("it runs", async || started.load(Ordering::SeqCst) == 1);
    consumer.run_until(broker, begun).await.unwrap();
    assert_eq!(consumer.deliver("orders", job(8, 0), ()).await.unwrap(), Outcome::Done);
    let broker = Memory::new();
    broker.publish("orders", job(9, 0));
    run_to_the_end(&consumer, &broker, &["orders"]).await;
    assert_eq!(shop.effects().await, 2);
}

#[tokio::test]
async fn body_that_fails_during_shutdown_is_recorded_and_given_back() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    broker.publish("orders", order(7));
    let script = Script::fails(1);
    let consumer = shop.scripted(&script);
    let shutdown = consumer.shutdown();
    let consumer = consumer.on_fault_point(move |at| {
        if at == inboxed::testing::FaultPoint::Claimed {
            shutdown.begin();
        }
    });
    consumer.run_until(broker.clone(), pending()).await.unwrap();
    assert_eq!((broker.counts("orders").acknowledged, broker.counts("orders").in_flight), (0, 0));
    assert_eq!((shop.effects().await, shop.failures().await), (0, 1));
}

#[tokio::test]
async fn sources_that_have_ended_end_the_run() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    broker.end_when_settled("orders");
    let consumer = shop.scripted(&Script::fails(0));
    let ended: Result<(), RunError> = consumer.run_until(broker, pending()).await;
    ended.unwrap();
    assert!(matches!(deliver(&consumer, 1).await, Outcome::Done));
}
