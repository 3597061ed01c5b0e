//! Code of the user's that panics where nobody expects it.

use std::fmt;
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::store::{LetterState, Reason};
use inboxed::{
    BoxError, Consumer, Decode, Inbox, KeyError, KeyPart, KeyWriter, Outcome, Received, idempotent, permanent,
};
use serde::Deserialize;
use sqlx::SqliteConnection;
use sqlx::sqlite::SqlitePoolOptions;

use crate::common::{Event, Script, Shop, at_once, deliver, effect, event, record, run_dry, scripted, within};

/// Panics on some bytes, as an index out of range does.
struct Slicing;

impl Decode<Event> for Slicing {
    fn decode(&self, received: &Received) -> Result<Event, BoxError> {
        let id = std::str::from_utf8(&received.body[4..])?;
        Ok(Event { id: id.to_owned() })
    }
}

#[tokio::test]
async fn decoder_that_panics_is_a_dead_letter_and_not_a_delivery_for_ever() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle_with("events", record, Slicing);
    let broker = Memory::builder().lease(Duration::from_millis(200)).build();
    broker.publish("events", "ab");
    broker.publish("events", "1234id");
    run_dry(&app, &broker, &["events"]).await;
    let letters = shop.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].reason, &letters[0].body[..]), (Reason::Undecodable, &b"ab"[..]));
    assert_eq!(shop.effects().await, ["id"]);
    assert_eq!(broker.counts("events").deliveries, 2);
}

#[derive(Deserialize)]
struct Code(String);

impl KeyPart for Code {
    fn write(&self, key: &mut KeyWriter) -> Result<(), KeyError> {
        key.text(&self.0[..3])
    }
}

#[derive(Deserialize)]
struct Coded {
    code: Code,
}

#[idempotent(key = "code:{code}")]
async fn coded(event: Coded, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    Ok(effect(tx, &event.code.0).await?)
}

#[tokio::test]
async fn key_that_panics_is_a_dead_letter() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("events", coded);
    assert_eq!(deliver(&app, "events", r#"{"code":"x"}"#).await, Outcome::DeadLettered);
    assert_eq!(deliver(&app, "events", r#"{"code":"xyz"}"#).await, Outcome::Done);
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

#[idempotent(key = "event:{id}", timeout = "50ms")]
async fn hangs(event: Event, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    let _guard = PanicsWhenDropped;
    effect(tx, &event.id).await?;
    std::future::pending().await
}

#[tokio::test]
async fn body_that_panics_when_its_deadline_drops_it_is_counted_and_ends() {
    let shop = Shop::open().await;
    let app = shop.consumer().retry(at_once(2)).handle("events", hangs);
    assert!(matches!(deliver(&app, "events", event("1")).await, Outcome::Retry(_)));
    assert_eq!(deliver(&app, "events", event("1")).await, Outcome::DeadLettered);
    assert!(shop.effects().await.is_empty());
}

#[derive(Debug)]
struct Unprintable;

impl fmt::Display for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no text");
    }
}

impl std::error::Error for Unprintable {}

#[idempotent(key = "event:{id}")]
async fn unprintable(event: Event, tx: &mut SqliteConnection) -> Result<(), Unprintable> {
    let _ = effect(tx, &event.id).await;
    Err(Unprintable)
}

#[tokio::test]
async fn error_whose_text_panics_is_counted_and_ends() {
    let shop = Shop::open().await;
    let app = shop.consumer().retry(at_once(2)).handle("events", unprintable);
    assert!(matches!(deliver(&app, "events", event("1")).await, Outcome::Retry(_)));
    assert_eq!(deliver(&app, "events", event("1")).await, Outcome::DeadLettered);
}

#[idempotent(key = "event:{id}")]
async fn panics_with_a_bomb(event: Event, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    let _ = effect(tx, &event.id).await;
    std::panic::panic_any(PanicsWhenDropped);
}

#[tokio::test]
async fn panic_whose_payload_panics_is_counted_and_ends() {
    let shop = Shop::open().await;
    let app = shop.consumer().retry(at_once(2)).handle("events", panics_with_a_bomb);
    assert!(matches!(deliver(&app, "events", event("1")).await, Outcome::Retry(_)));
    assert_eq!(deliver(&app, "events", event("1")).await, Outcome::DeadLettered);
}

#[tokio::test]
async fn letter_of_a_permanent_failure_counts_the_failures_before_it() {
    let shop = Shop::open().await;
    let script = Script::new(|_, attempt| if attempt < 3 { Err("later".into()) } else { Err(permanent("never")) });
    let app = shop.consumer().state(script).handle("events", scripted);
    for _ in 0..2 {
        assert!(matches!(deliver(&app, "events", event("1")).await, Outcome::Retry(_)));
    }
    assert_eq!(deliver(&app, "events", event("1")).await, Outcome::DeadLettered);
    assert_eq!(shop.letters().await[0].attempts, 3);
}

/// A store that is down when its runtime ends.
#[test]
fn consumer_works_on_the_next_runtime_after_an_outage_on_the_last() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let first = runtime();
    let (shop, app, pool) = first.block_on(async {
        let shop = Shop::open().await;
        let options = (*shop.inbox.pool().connect_options()).clone();
        let pool = SqlitePoolOptions::new().max_connections(1).acquire_timeout(Duration::from_millis(50));
        let pool = pool.connect_with(options).await.unwrap();
        let app = Consumer::new("shop", Inbox::new(pool.clone())).retry(at_once(3)).handle("events", record);
        assert_eq!(deliver(&app, "events", event("0")).await, Outcome::Done);
        (shop, app, pool)
    });
    let held = first.block_on(pool.acquire()).unwrap();
    first.block_on(async {
        assert!(matches!(deliver(&app, "events", event("1")).await, Outcome::Retry(_)));
        within(app.health().wait_for(|report| report.store.is_some())).await;
    });
    first.shutdown_background();
    let second = runtime();
    second.block_on(async {
        drop(held);
        let broker = Memory::new();
        broker.publish("events", event("1"));
        run_dry(&app, &broker, &["events"]).await;
    });
    assert_eq!(second.block_on(shop.effects()), ["0", "1"]);
}

#[tokio::test]
async fn failure_of_our_own_bookkeeping_after_a_body_that_succeeded_is_not_counted() {
    let shop = Shop::open().await;
    let script = Script::new(|_, attempt| if attempt == 1 { Err("once".into()) } else { Ok(()) });
    let app = shop.consumer().retry(at_once(2)).state(script).handle("events", scripted);
    assert!(matches!(deliver(&app, "events", event("1")).await, Outcome::Retry(_)));
    shop.execute("CREATE TRIGGER refuse BEFORE DELETE ON inbox_attempts BEGIN SELECT RAISE(ABORT, 'no'); END").await;
    assert!(matches!(deliver(&app, "events", event("1")).await, Outcome::Retry(_)));
    assert_eq!(shop.number("SELECT failures FROM inbox_attempts").await, 1);
    shop.execute("DROP TRIGGER refuse").await;
    assert_eq!(deliver(&app, "events", event("1")).await, Outcome::Done);
    assert!(shop.letters().await.iter().all(|letter| letter.state != LetterState::Open));
}
