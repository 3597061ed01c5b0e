//! Our own limit decides about a dead letter, whatever the broker counts and however the consumer ends.

use std::time::Duration;

use inboxed::broker::{Settlement, Settler as _, Source as _};
use inboxed::memory::Memory;
use inboxed::store::Reason;
use inboxed::{Inbox, Outcome, idempotent};

use super::{Connection, Db, Shop, consumer, deliver, effect, run_dry, scripted};
use crate::common::{Event, Script, at_once, child, event, within};

/// Outlives its lease and its time limit on every attempt.
#[idempotent(key = "event:{id}", timeout = "200ms")]
async fn hang(message: Event, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, &message.id).await?;
    tokio::time::sleep(Duration::from_hours(1)).await;
    Ok(())
}

#[tokio::test]
async fn n05_handler_that_always_hangs_ends_in_our_dead_letter() {
    let shop = Shop::open().await;
    let broker = Memory::builder().lease(Duration::from_secs(5)).build();
    let app = shop.consumer().retry(at_once(3)).handle("events", hang);
    broker.publish("events", event("stuck"));
    run_dry(&app, &broker, &["events"]).await;

    assert_eq!(broker.counts("events").deliveries, 3);
    let letters = shop.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].reason, letters[0].attempts), (Reason::AttemptsExhausted, 3));
    assert_eq!(letters[0].body, event("stuck"));
    assert!(letters[0].error.contains("ran for longer than 200ms"), "{}", letters[0].error);
    assert_eq!(shop.effects().await, [""; 0]);
}

/// Fails on the first two attempts, and on the third kills its process if it is a child.
fn fails_then_kills() -> Script {
    Script::new(|_, attempt| {
        if attempt == 3 && child::role().is_some() {
            std::process::abort();
        }
        Err(format!("failure {attempt}").into())
    })
}

#[tokio::test]
async fn n05_process_killed_on_its_last_attempt_loses_nothing() {
    if let Some((_, database)) = child::role() {
        let inbox = Inbox::<Db>::connect(&database).await.unwrap();
        let app = consumer(inbox).retry(at_once(3)).state(fails_then_kills()).handle("events", scripted);
        for _ in 0..3 {
            deliver(&app, "events", event("a")).await;
        }
        return;
    }
    let shop = Shop::open().await;
    assert!(child::killed(&child::end(child::start("killed", &shop.url())).await));
    assert!(shop.letters().await.is_empty());
    assert_eq!(shop.failed(2).await, 1, "a kill is no failure of the body");

    let app = shop.consumer().retry(at_once(3)).state(fails_then_kills()).handle("events", scripted);
    assert_eq!(deliver(&app, "events", event("a")).await, Outcome::DeadLettered);
    let letters = shop.letters().await;
    assert_eq!((letters[0].attempts, &letters[0].error[..]), (3, "failure 3"));
    assert_eq!(shop.effects().await, [""; 0]);
}

#[tokio::test]
async fn r04_twenty_five_failures_below_our_limit_lose_no_message() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    let script = Script::new(|id, attempt| match id {
        "late" if attempt > 25 => Ok(()),
        _ => Err("not yet".into()),
    });
    let app = shop.consumer().retry(at_once(30)).state(script).handle("events", scripted);
    broker.publish("events", event("late"));
    broker.publish("events", event("never"));
    run_dry(&app, &broker, &["events"]).await;

    assert_eq!(shop.effects().await, ["late"]);
    assert_eq!(broker.counts("events").deliveries, 26 + 30);
    let letters = shop.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((&letters[0].body[..], letters[0].attempts), (event("never").as_bytes(), 30));
}

/// Publishes a message to a broker of this process, which hands it out for the given time to the consumer.
async fn handed_out_for_the(time: u32, message: &str) -> Memory {
    let broker = Memory::new();
    broker.publish("events", event(message));
    let mut source = broker.open("events").await.unwrap();
    for _ in 1..time {
        let delivery = within(source.receive(1)).await.unwrap().pop().unwrap();
        source.settler().settle(vec![Settlement::Release(delivery.token)]).await;
    }
    broker
}

#[tokio::test]
async fn r04_message_that_kills_its_process_each_time_is_dead_lettered_and_kept() {
    let kills = Script::new(|_, _| std::process::abort());
    if let Some((delivery, database)) = child::role() {
        let broker = handed_out_for_the(delivery.parse().unwrap(), "poison").await;
        let inbox = Inbox::<Db>::connect(&database).await.unwrap();
        let app = consumer(inbox).state(kills).handle("events", scripted);
        return run_dry(&app, &broker, &["events"]).await;
    }
    let shop = Shop::open().await;
    let mut deaths = 0;
    for delivery in 1..=25 {
        if !child::killed(&child::end(child::start(&delivery.to_string(), &shop.url())).await) {
            break;
        }
        deaths += 1;
    }
    // Three deliveries until it is suspected, and two alone with a mark at the start that has no end.
    assert_eq!(deaths, 5);
    let letters = shop.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].reason, &letters[0].body[..]), (Reason::Poison, event("poison").as_bytes()));
    assert_eq!(shop.effects().await, [""; 0]);
}
