//! The window in which a duplicate is noticed: refused if too small, pruned in small steps, judged by one clock.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use inboxed::memory::{Memory, Message};
use inboxed::store::{ConsumerId, DeadLetterError, LetterState, Reason};
use inboxed::{Check, Outcome, RunError, idempotent};

use super::{Connection, OLD, Shop, consumer, deliver, effect, record, run_dry, scripted};
use crate::common::{Event, Script, at_once, event, until, within};

const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);

/// Keeps its claims for an hour, and a message under a key that another payload has as a dead letter.
#[idempotent(key = "event:{id}", retention = "1h", on_conflict = "dead_letter")]
async fn forget_soon(message: Event, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &message.id).await?)
}

/// The number of a handler of the service `shop`.
async fn number_of(shop: &Shop, handler: &str) -> ConsumerId {
    let consumers = shop.inbox.registered().await.unwrap();
    consumers.into_iter().find(|consumer| consumer.name == format!("shop/{handler}")).unwrap().id
}

/// A time as the tables have it.
fn micros(time: SystemTime) -> i64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}

fn ago(age: Duration) -> SystemTime {
    SystemTime::now() - age
}

#[tokio::test]
async fn p09_retention_below_what_the_broker_keeps_refuses_the_start() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("events", forget_soon);
    let broker = Memory::builder().retention(14 * 24 * HOUR).build();
    let refused = within(app.run_until(broker, std::future::pending())).await.unwrap_err();
    let RunError::Findings(findings) = &refused else { panic!("{refused}") };
    assert_eq!((findings[0].check, &*findings[0].subject), (Check::Retention, "shop/forget_soon"));
}

#[tokio::test]
async fn p09_message_older_than_its_claims_retention_is_kept_for_review_and_never_run() {
    let shop = Shop::open().await;
    let broker = Memory::builder().retention(HOUR / 2).build();
    let app = shop.consumer().handle("events", forget_soon);
    assert_eq!(deliver(&app, "events", event("k")).await, Outcome::Done);
    let pruned = shop.inbox.prune(number_of(&shop, "forget_soon").await, Duration::ZERO).await.unwrap();
    assert_eq!(pruned.rows, 1);

    broker.publish("events", Message::new(event("k")).sent_at(ago(2 * HOUR)));
    run_dry(&app, &broker, &["events"]).await;
    assert_eq!(shop.effects().await, ["k"]);
    let letter = shop.letters().await.remove(0);
    assert_eq!((letter.reason, letter.state), (Reason::TooOld, LetterState::Open));
    let redriven = shop.inbox.dead_letters().redrive(letter.id).await;
    assert!(matches!(redriven, Err(DeadLetterError::TooOld(id)) if id == letter.id));
    shop.inbox.dead_letters().redrive_forced(letter.id).await.unwrap();
    assert_eq!(app.redrive().await.unwrap(), 1);
    assert_eq!(shop.effects().await, ["k", "k"], "an operator has taken it upon himself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p09_pruning_goes_in_small_steps_and_keeps_keys_with_an_open_letter() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("events", forget_soon);
    assert_eq!(deliver(&app, "events", event("conflict")).await, Outcome::Done);
    assert_eq!(deliver(&app, "events", r#"{ "id": "conflict" }"#).await, Outcome::DeadLettered);
    let consumer = number_of(&shop, "forget_soon").await;
    let consumer_id = shop.number("SELECT id FROM inbox_consumers WHERE name = 'shop/forget_soon'").await;
    let old = (0..OLD).map(|number| format!("({consumer_id}, 'old:{number}', 0, 0)")).collect::<Vec<_>>().join(", ");
    shop.execute(&format!("INSERT INTO inbox (consumer, message_key, received_at, payload) VALUES {old}")).await;
    shop.execute("UPDATE inbox SET received_at = 0").await;

    // Claims go on between the steps.
    let inbox = shop.inbox.clone();
    let pruning = tokio::spawn(async move { inbox.prune(consumer, HOUR).await.unwrap() });
    let (mut claimed, mut steps) = (0, BTreeSet::new());
    while !pruning.is_finished() {
        assert_eq!(deliver(&app, "events", event(&format!("new {claimed}"))).await, Outcome::Done);
        claimed += 1;
        steps.insert(shop.number("SELECT COUNT(*) FROM inbox WHERE message_key LIKE 'old:%'").await);
    }
    assert_eq!(within(pruning).await.unwrap().rows, OLD);
    assert!(steps.len() > 4, "claims got in at {steps:?} rows only");
    let keys = shop.keys().await;
    assert_eq!(keys.len(), 1 + claimed);
    assert!(keys.contains(&"event:conflict".to_owned()));
    assert_eq!(deliver(&app, "events", event("conflict")).await, Outcome::Duplicate);
}

#[tokio::test]
async fn x09_clocks_of_producers_and_workers_neither_age_a_claim_nor_a_message() {
    let shop = Shop::open().await;
    let broker = Memory::builder().retention(5 * MINUTE).build();
    let app = shop.consumer().retention(5 * MINUTE).handle("events", record);
    let before = shop.inbox.now().await.unwrap();
    broker.publish("events", Message::new(event("ahead")).sent_at(SystemTime::now() + 10 * MINUTE));
    broker.publish("events", Message::new(event("in time")));
    run_dry(&app, &broker, &["events"]).await;
    let after = shop.inbox.now().await.unwrap();
    assert_eq!(shop.effects().await, ["ahead", "in time"]);

    // The rows bear the database's time, whatever the messages say.
    let outside =
        format!("SELECT COUNT(*) FROM inbox WHERE received_at NOT BETWEEN {} AND {}", micros(before), micros(after));
    assert_eq!(shop.number(&outside).await, 0);
    let number = number_of(&shop, "record").await;
    assert_eq!(shop.inbox.prune(number, 5 * MINUTE).await.unwrap().rows, 0, "nothing is pruned early");
    shop.execute("UPDATE inbox SET received_at = received_at - 301000000 WHERE message_key = 'event:ahead'").await;
    assert_eq!(shop.inbox.prune(number, 5 * MINUTE).await.unwrap().rows, 1, "nor kept for ever");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x09_redriven_letter_is_leased_by_the_databases_clock_and_never_stolen() {
    let shop = Shop::open().await;
    let (entered, mut was_entered) = tokio::sync::mpsc::unbounded_channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let script = Script::new(move |_, _| {
        entered.send(()).unwrap();
        tokio::task::block_in_place(|| gone.lock().unwrap().recv().unwrap());
        Ok(())
    });
    let fails = shop.consumer().retry(at_once(1)).state(Script::new(|_, _| Err("broken".into())));
    assert_eq!(deliver(&fails.handle("events", scripted), "events", event("a")).await, Outcome::DeadLettered);
    let letter = shop.letters().await[0].id;
    shop.inbox.dead_letters().redrive(letter).await.unwrap();

    // One worker takes the letter and is in the middle of it; the other finds nothing to take.
    let one = shop.consumer().state(script).handle("events", scripted);
    let other_inbox = inboxed::Inbox::connect(&shop.url()).await.unwrap();
    let other = consumer(other_inbox).state(Script::new(|_, _| Ok(()))).handle("events", scripted);
    assert_eq!(deliver(&other, "events", event("b")).await, Outcome::Done);
    let taken = tokio::spawn(async move { one.redrive().await.unwrap() });
    within(was_entered.recv()).await.unwrap();
    let leased_until = shop.number("SELECT redrive_at FROM inbox_dead_letters").await;
    let left = leased_until - micros(shop.inbox.now().await.unwrap());
    assert_eq!(left / 60_000_000, 4, "a little less than five minutes by the database's clock");
    assert_eq!(within(other.redrive()).await.unwrap(), 0);
    go.send(()).unwrap();
    assert_eq!(within(taken).await.unwrap(), 1);
    until(async || shop.letters().await[0].state == LetterState::Done).await;
    assert_eq!(shop.effects().await, ["a", "b"]);
}
