//! Dead letters and the rows by which their messages' duplicates are noticed.

use std::time::Duration;

use inboxed::store::{DeadLetterError, LetterState};
use inboxed::{Outcome, UnknownType, idempotent, on, permanent};
use sqlx::SqliteConnection;

use crate::common::{Event, Script, Shop, deliver, event, record, run_dry, scripted};

const DAY: Duration = Duration::from_hours(24);

/// Moves the whole inbox this far into the past, as if so much time had gone by.
async fn days_go_by(shop: &Shop, days: i64) {
    let past = days * 86_400_000_000;
    for column in [
        "inbox.received_at",
        "inbox_dead_letters.first_at",
        "inbox_dead_letters.updated_at",
        "inbox_dead_letters.sent_at",
    ] {
        let (table, column) = column.split_once('.').unwrap();
        shop.execute(&format!("UPDATE {table} SET {column} = {column} - {past}")).await;
    }
}

async fn prune(shop: &Shop) {
    for consumer in shop.inbox.registered().await.unwrap() {
        shop.inbox.prune(consumer.id, 30 * DAY).await.unwrap();
    }
}

/// An old process keeps a type that it doesn't know as a dead letter, a new one handles the message's other copy. When
/// that claim is pruned, the letter still tempts an operator.
#[tokio::test]
async fn letter_without_a_key_never_runs_again_when_its_claim_may_be_pruned() {
    let shop = Shop::open().await;
    let old =
        shop.consumer().unknown_type(UnknownType::DeadLetter).handle(on("events").header("type", "old"), never_called);
    let broker = inboxed::memory::Memory::new();
    let message = || inboxed::memory::Message::new(event("1")).header("type", "new");
    broker.publish("events", message());
    run_dry(&old, &broker, &["events"]).await;
    let letter = shop.letters().await[0].id;

    let new = shop.consumer().handle(on("events").header("type", "new"), record);
    let copy = inboxed::memory::Memory::new();
    copy.publish("events", message());
    run_dry(&new, &copy, &["events"]).await;
    assert_eq!(shop.effects().await, ["1"]);

    days_go_by(&shop, 40).await;
    prune(&shop).await;
    assert!(shop.keys().await.is_empty());
    let _ = shop.inbox.dead_letters().redrive(letter).await;
    new.redrive().await.unwrap();
    assert_eq!(shop.effects().await, ["1"]);

    // An operator who has looked may still insist.
    let letters = shop.letters().await;
    assert_eq!(letters.iter().filter(|letter| letter.state == LetterState::Open).count(), 1, "{letters:?}");
    let open = letters.iter().find(|letter| letter.state == LetterState::Open).unwrap().id;
    shop.inbox.dead_letters().redrive_forced(open).await.unwrap();
    new.redrive().await.unwrap();
    assert_eq!(shop.effects().await, ["1", "1"]);
}

#[idempotent(key = "event:{id}")]
#[allow(clippy::unused_async, reason = "a handler is async")]
async fn never_called(event: Event, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    let _ = (event, tx);
    Err(permanent("never called"))
}

/// A letter that was done is touched again much later, and so outlives the claim of its success.
#[tokio::test]
async fn letter_that_was_done_never_runs_again_when_its_claim_is_pruned() {
    let shop = Shop::open().await;
    let script = Script::new(|_, attempt| if attempt == 1 { Err(permanent("no")) } else { Ok(()) });
    let app = shop.consumer().state(script).handle("events", scripted);
    assert_eq!(deliver(&app, "events", event("1")).await, Outcome::DeadLettered);
    assert_eq!(deliver(&app, "events", event("1")).await, Outcome::Done);
    let letter = shop.letters().await[0].id;
    assert_eq!(shop.letters().await[0].state, LetterState::Done);

    days_go_by(&shop, 29).await;
    shop.inbox.dead_letters().redrive(letter).await.unwrap();
    app.redrive().await.unwrap();
    days_go_by(&shop, 2).await;
    prune(&shop).await;
    let again = shop.inbox.dead_letters().redrive(letter).await;
    app.redrive().await.unwrap();
    assert_eq!(shop.effects().await, ["1"]);
    assert!(matches!(again, Err(DeadLetterError::TooOld(_) | DeadLetterError::Unknown(_))), "{again:?}");
}
