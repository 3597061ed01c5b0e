//! `deliver`: the one order without a broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use inboxed::{Outcome, RunError, State, idempotent, permanent};
use sqlx::SqliteConnection;
use tokio::sync::Semaphore;

use super::support::{Order, Script, Shop, deliver, effect, order, record, until};

#[tokio::test]
async fn outcome_says_what_is_durable() {
    let shop = Shop::open().await;
    let script = Script::new(|run| match run {
        1 => Err("the warehouse is closed".into()),
        2 => Ok(()),
        _ => Err(permanent("no such product")),
    });
    let consumer = shop.scripted(&script);
    assert!(matches!(deliver(&consumer, 1).await, Outcome::Retry(delay) if delay <= Duration::from_millis(10)));
    assert_eq!(deliver(&consumer, 1).await, Outcome::Done);
    assert_eq!(deliver(&consumer, 1).await, Outcome::Duplicate);
    assert_eq!(deliver(&consumer, 2).await, Outcome::DeadLettered);
}

#[tokio::test]
async fn source_without_a_handler_is_named() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", record);
    let error = consumer.deliver("invoices", order(1), ()).await.unwrap_err();
    assert!(matches!(&error, RunError::UnknownSource(source) if source == "invoices"), "{error}");
}

#[derive(Clone)]
struct Slow {
    entered: Arc<AtomicBool>,
    open: Arc<Semaphore>,
}

impl Slow {
    fn new() -> Self {
        Self { entered: Arc::default(), open: Arc::new(Semaphore::new(0)) }
    }
}

#[idempotent(key = "order:{id}")]
async fn slow(order: Order, tx: &mut SqliteConnection, State(state): State<Slow>) -> inboxed::Result<()> {
    state.entered.store(true, Ordering::SeqCst);
    effect(tx, order.id).await?;
    state.open.acquire().await?.forget();
    Ok(())
}

#[tokio::test]
async fn caller_that_goes_away_does_not_end_the_work() {
    let shop = Shop::open().await;
    let state = Slow::new();
    let consumer = shop.consumer().state(state.clone()).handle("orders", slow);
    tokio::select! {
        outcome = consumer.deliver("orders", order(7), ()) => panic!("{outcome:?}"),
        () = until("the body runs", async || state.entered.load(Ordering::SeqCst)) => {}
    }
    drop(consumer);
    state.open.add_permits(1);
    until("the effect is committed", async || shop.effects().await == 1).await;
    assert_eq!((shop.claims().await, shop.failures().await), (1, 0));
}

#[tokio::test]
async fn dropped_run_finishes_what_it_has_begun() {
    let shop = Shop::open().await;
    let state = Slow::new();
    let broker = inboxed::memory::Memory::new();
    broker.publish("orders", order(7));
    let consumer = shop.consumer().state(state.clone()).handle("orders", slow);
    tokio::select! {
        ended = consumer.run_until(broker.clone(), std::future::pending()) => panic!("{ended:?}"),
        () = until("the body runs", async || state.entered.load(Ordering::SeqCst)) => {}
    }
    broker.publish("orders", order(8));
    state.open.add_permits(2);
    until("it is acknowledged", async || broker.counts("orders").acknowledged == 1).await;
    assert_eq!((shop.effects().await, broker.counts("orders").waiting), (1, 1), "and nothing more is fetched");
}
