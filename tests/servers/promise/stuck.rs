//! A body whose statement doesn't end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use inboxed::{Outcome, State, idempotent};
use sqlx::Executor as _;

use super::{Connection, NO_LIMIT, STUCK, STUCK_SESSIONS, Shop, deliver, effect};
use crate::common::{Event, event, until};

const TIMEOUT: Duration = Duration::from_secs(1);

/// Whether the next body gets stuck.
#[derive(Clone)]
struct Stuck(Arc<AtomicBool>);

/// Gets stuck, after it has lifted the server's time limit if the event's id says so.
#[idempotent(key = "event:{id}", timeout = "1s")]
async fn sleeps(event: Event, tx: &mut Connection, State(stuck): State<Stuck>) -> inboxed::Result<()> {
    effect(tx, &event.id).await?;
    if stuck.0.swap(false, Ordering::SeqCst) {
        if event.id == "limitless" {
            tx.execute(NO_LIMIT).await?;
        }
        tx.execute(STUCK).await?;
    }
    Ok(())
}

async fn is_over_a_second_after_its_timeout(id: &str) {
    let shop = Shop::open().await;
    let app = shop.consumer().state(Stuck(Arc::new(AtomicBool::new(true)))).handle("events", sleeps);
    // What is opened and prepared once isn't of interest here.
    app.inbox().verify().await.unwrap();
    let began = Instant::now();
    assert!(matches!(deliver(&app, "events", event(id)).await, Outcome::Retry(_)));
    let over = began.elapsed();
    assert!(over >= TIMEOUT && over < TIMEOUT + Duration::from_secs(1), "{over:?}");
    assert_eq!((shop.claims().await, shop.effects().await.len(), shop.failed(1).await), (0, 0, 1));

    let began = Instant::now();
    assert_eq!(deliver(&app, "events", event(id)).await, Outcome::Done, "its key is free");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(shop.effects().await, [id]);
    until(async || shop.number(STUCK_SESSIONS).await == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_body_is_over_a_second_after_its_timeout_and_its_key_is_free() {
    is_over_a_second_after_its_timeout("patient").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_body_that_has_lifted_the_servers_limit_is_ended_all_the_same() {
    is_over_a_second_after_its_timeout("limitless").await;
}
