//! SIGTERM: fetching stops first, short work is acknowledged, long work is rolled back, the rest is given back.

use std::sync::Arc;
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::{Inbox, State, idempotent};
use tokio::sync::Notify;

use super::{Connection, Db, Shop, consumer, effect, run_dry};
use crate::common::{Event, child, event, until};

/// The broker of the process, and who waits for the first body.
#[derive(Clone)]
struct Deploy {
    broker: Memory,
    entered: Arc<Notify>,
}

/// A short one ends once the waiting ones are given back; the long one outlives every grace period.
#[idempotent(key = "event:{id}", timeout = "1h")]
async fn work(message: Event, State(deploy): State<Deploy>, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, &message.id).await?;
    deploy.entered.notify_one();
    if message.id.starts_with("short") {
        while deploy.broker.counts("events").in_flight > 3 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    } else {
        tokio::time::sleep(Duration::from_hours(1)).await;
    }
    Ok(())
}

/// Three run, seven wait.
fn ids() -> Vec<String> {
    let running = ["short 1", "short 2", "long"].map(str::to_owned);
    running.into_iter().chain((1..=7).map(|n| format!("waiting {n}"))).collect()
}

/// Sends this process the signal that a deploy sends.
async fn terminate_myself() {
    let kill = ["-c", "kill -TERM \"$0\"", &std::process::id().to_string()].map(str::to_owned);
    assert!(tokio::process::Command::new("sh").args(kill).status().await.unwrap().success());
}

/// The process that is to be replaced. What its broker knows at its end, it prints.
async fn old_process(database: &str) {
    let broker = Memory::new();
    for id in ids() {
        broker.publish("events", event(&id));
    }
    let deploy = Deploy { broker: broker.clone(), entered: Arc::default() };
    let inbox = Inbox::<Db>::connect(database).await.unwrap();
    let app = consumer(inbox).concurrency(3).prefetch(7).grace(Duration::from_secs(2));
    let app = app.state(deploy.clone()).handle("events", work);
    let signal = async {
        deploy.entered.notified().await;
        until(async || broker.counts("events").in_flight == 10).await;
        terminate_myself().await;
    };
    let (ended, ()) = tokio::join!(app.run(broker.clone()), signal);
    ended.unwrap();
    let counts = broker.counts("events");
    println!("deliveries {} acknowledged {} waiting {}", counts.deliveries, counts.acknowledged, counts.waiting);
}

#[tokio::test]
async fn x05_sigterm_acknowledges_short_work_and_gives_the_rest_back_uncounted() {
    if let Some((_, database)) = child::role() {
        return old_process(&database).await;
    }
    let shop = Shop::open().await;
    let printed = child::succeed(child::start("old", &shop.url())).await;
    assert!(printed.contains("deliveries 10 acknowledged 2 waiting 8"), "{printed}");
    assert_eq!(shop.effects().await, ["short 1", "short 2"]);
    assert_eq!(shop.counted().await, 0, "nothing was counted");
    assert!(shop.letters().await.is_empty());

    // The new process gets what wasn't acknowledged, and what was, once more.
    let broker = Memory::new();
    for id in ids() {
        broker.publish("events", event(&id));
    }
    let app = shop.consumer().handle("events", record_work);
    run_dry(&app, &broker, &["events"]).await;
    let mut expected = ids();
    expected.sort();
    assert_eq!(shop.effects().await, expected);
}

/// The same handler in the next release, which does its work at once.
#[idempotent(key = "event:{id}", consumer = "work")]
async fn record_work(message: Event, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &message.id).await?)
}

#[cfg(feature = "testing")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x05_sigterm_between_commit_and_acknowledgement_still_acknowledges() {
    use inboxed::testing::FaultPoint;

    use super::record;

    if let Some((_, database)) = child::role() {
        let broker = Memory::new();
        broker.publish("events", event("a"));
        let inbox = Inbox::<Db>::connect(&database).await.unwrap();
        let app = consumer(inbox).handle("events", record).on_fault_point(|point| {
            if point == FaultPoint::Committed {
                let kill = ["-c", "kill -TERM \"$0\"", &std::process::id().to_string()].map(str::to_owned);
                assert!(std::process::Command::new("sh").args(kill).status().unwrap().success());
                // Time for the shutdown to begin before this point is left.
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        app.run(broker.clone()).await.unwrap();
        let counts = broker.counts("events");
        println!("deliveries {} acknowledged {}", counts.deliveries, counts.acknowledged);
        return;
    }
    let shop = Shop::open().await;
    let printed = child::succeed(child::start("old", &shop.url())).await;
    assert!(printed.contains("deliveries 1 acknowledged 1"), "{printed}");
    assert_eq!(shop.effects().await, ["a"]);
}
