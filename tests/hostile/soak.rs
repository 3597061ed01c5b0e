//! Everything at once: copies, lost acknowledgements, failures, cancelled calls, processes killed at random moments.

use std::collections::BTreeMap;
use std::time::Duration;

use inboxed::memory::{Memory, Message};
use inboxed::{Outcome, RetryPolicy, State, idempotent};
use sqlx::SqliteConnection;

use crate::common::{Event, Shop, consumer, deliver, effect, event, record, run_dry, until, within};

/// Fails, panics or contends by chance after its effect.
#[idempotent(key = "event:{id}", timeout = "2s")]
async fn unlucky(event: Event, tx: &mut SqliteConnection, State(share): State<f64>) -> inboxed::Result<()> {
    effect(&mut *tx, &event.id).await?;
    if fastrand::f64() < share {
        match fastrand::u8(..4) {
            0 => return Err("bad luck".into()),
            1 => panic!("bad luck"),
            2 => drop(sqlx::raw_sql("ROLLBACK").execute(&mut *tx).await),
            _ => drop(sqlx::raw_sql("COMMIT").execute(&mut *tx).await),
        }
    }
    Ok(())
}

fn patient() -> RetryPolicy {
    RetryPolicy::default().attempts(1_000).backoff(Duration::from_millis(1), Duration::from_millis(5))
}

async fn each_once(shop: &Shop, messages: usize) {
    let mut counts = BTreeMap::<String, u32>::new();
    for id in shop.effects().await {
        *counts.entry(id).or_default() += 1;
    }
    let doubled = counts.iter().filter(|(_, count)| **count > 1).collect::<Vec<_>>();
    assert!(doubled.is_empty(), "doubled: {doubled:?}");
    assert_eq!(counts.len(), messages, "lost");
    assert!(shop.letters().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_are_dropped_at_any_moment_lose_and_double_nothing() {
    let shop = Shop::open().await;
    let broker = Memory::builder().lease(Duration::from_millis(400)).duplicates(0.1).lose_acks(0.1).reorder(16).build();
    for id in 0..400 {
        broker.publish("events", Message::new(event(&id.to_string())));
    }
    for _ in 0..20 {
        let app = consumer(shop.inbox.clone()).retry(patient()).state(0.2).handle("events", unlucky);
        let cut = Duration::from_micros(fastrand::u64(..60_000));
        let _ = tokio::time::timeout(cut, Box::pin(app.run_until(broker.clone(), std::future::pending()))).await;
    }
    let app = shop.consumer().retry(patient()).state(0.0).handle("events", unlucky);
    run_dry(&app, &broker, &["events"]).await;
    each_once(&shop, 400).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_dropped_at_any_moment_leave_the_pool_whole() {
    let shop = Shop::open().await;
    let inbox = inboxed::Inbox::options().max_connections(2).connect(&shop.url()).await.unwrap();
    let app = consumer(inbox.clone()).retry(patient()).handle("events", record);
    assert_eq!(deliver(&app, "events", event("first")).await, Outcome::Done);
    let id = inbox.registered().await.unwrap()[0].id;
    for round in 0..400 {
        let cut = Duration::from_micros(fastrand::u64(..3_000));
        let call = async {
            match round % 6 {
                0 => drop(app.deliver("events", event(&round.to_string()), ()).await),
                1 => drop(app.redrive().await),
                2 => drop(inbox.migrate().await),
                3 => drop(inbox.verify().await),
                4 => drop(inbox.prune(id, Duration::from_hours(24)).await),
                _ => drop(inbox.dead_letters().list(inboxed::store::Filter::default()).await),
            }
        };
        let _ = tokio::time::timeout(cut, call).await;
    }
    // Both connections are there still, and the writer is free.
    within(async { tokio::try_join!(inbox.pool().acquire(), inbox.pool().acquire()).map(drop) }).await.unwrap();
    assert_eq!(deliver(&app, "events", event("last")).await, Outcome::Done);
}

/// A runtime that ends in the middle of everything, as a process does, but with the file's locks and the writer's queue
/// left to this process.
#[test]
fn runtime_dropped_in_mid_flight_leaves_the_next_one_a_free_writer() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let last = runtime();
    let (shop, broker) = last.block_on(async {
        (Shop::open().await, Memory::builder().lease(Duration::from_millis(300)).duplicates(0.1).build())
    });
    for id in 0..200 {
        broker.publish("events", event(&id.to_string()));
    }
    for _ in 0..15 {
        let runtime = runtime();
        let (url, broker) = (shop.url(), broker.clone());
        runtime.spawn(async move {
            let app = consumer(inboxed::Inbox::connect(&url).await.unwrap());
            let app = app.retry(patient()).state(0.2).handle("events", unlucky);
            app.run_until(broker, std::future::pending()).await.unwrap();
        });
        std::thread::sleep(Duration::from_millis(fastrand::u64(20..80)));
        runtime.shutdown_background();
    }
    last.block_on(async {
        let app = shop.consumer().retry(patient()).state(0.0).handle("events", unlucky);
        run_dry(&app, &broker, &["events"]).await;
        each_once(&shop, 200).await;
    });
}

const MESSAGES: usize = 600;

/// A process that handles everything over and over, in an order of its own, until it is killed.
async fn victim(database: &str) {
    let inbox = inboxed::Inbox::connect(database).await.unwrap();
    let app = consumer(inbox).retry(patient()).concurrency(8).state(0.1).handle("events", unlucky);
    let broker = Memory::builder().duplicates(0.2).lose_acks(0.2).reorder(64).seed(fastrand::u64(..)).build();
    for id in 0..MESSAGES {
        broker.publish("events", event(&id.to_string()));
    }
    println!("ready");
    app.run_until(broker, std::future::pending()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_killed_at_any_moment_lose_and_double_nothing() {
    if let Some((_, database)) = crate::common::child::role() {
        return victim(&database).await;
    }
    let shop = Shop::open().await;
    for _ in 0..5 {
        let mut pair =
            [crate::common::child::start("victim", &shop.url()), crate::common::child::start("victim", &shop.url())];
        for child in &mut pair {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(100..400))).await;
            child.kill().await.unwrap();
        }
    }
    let killed = shop.effects().await.len();
    let broker = Memory::builder().duplicates(0.2).lose_acks(0.1).build();
    for id in 0..MESSAGES {
        broker.publish("events", event(&id.to_string()));
    }
    let app = shop.consumer().retry(patient()).state(0.0).handle("events", unlucky);
    run_dry(&app, &broker, &["events"]).await;
    each_once(&shop, MESSAGES).await;
    assert!(killed > 0, "the killed processes have done something");
}

/// Letters are redriven, discarded and delivered again while a consumer runs and another one delivers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_redriven_while_their_copies_run_have_one_effect_each() {
    let shop = Shop::open().await;
    let shop_with = |share: f64| {
        consumer(shop.inbox.clone()).retry(crate::common::at_once(1)).state(share).handle("events", unlucky)
    };
    let failing = shop_with(0.9);
    for id in 0..60 {
        let _ = deliver(&failing, "events", event(&id.to_string())).await;
    }
    let broker = Memory::builder().duplicates(0.3).lose_acks(0.3).build();
    for id in 0..60 {
        broker.publish("events", event(&id.to_string()));
    }
    let (running, other) = (shop_with(0.3), shop_with(0.3));
    let operator = async {
        for round in 0..6_u32 {
            for letter in shop.letters().await {
                if round < 5 {
                    let _ = shop.inbox.dead_letters().redrive(letter.id).await;
                }
            }
            for id in 0..60 {
                if fastrand::bool() {
                    let _ = deliver(&other, "events", event(&id.to_string())).await;
                }
            }
            other.redrive().await.unwrap();
        }
        until(async || broker.counts("events").waiting + broker.counts("events").in_flight == 0).await;
        running.shutdown().begin();
    };
    let run = Box::pin(running.run_until(broker.clone(), std::future::pending()));
    within(Box::pin(async { tokio::join!(run, operator) })).await.0.unwrap();
    let last = shop_with(0.0);
    for letter in shop.letters().await {
        let _ = shop.inbox.dead_letters().redrive(letter.id).await;
    }
    until(async || {
        last.redrive().await.unwrap();
        shop.number("SELECT COUNT(*) FROM inbox_dead_letters WHERE state = 'redrive'").await == 0
    })
    .await;
    let effects = shop.effects().await;
    let distinct = effects.iter().collect::<std::collections::BTreeSet<_>>();
    assert_eq!((effects.len(), distinct.len()), (60, 60));
    assert_eq!(shop.inbox.dead_letters().count().await.unwrap(), 0);
}
