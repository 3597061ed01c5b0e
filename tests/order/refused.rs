//! Messages that never run: undecodable, without a key, too old, of an unknown type, under a key taken by another payload.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use inboxed::memory::{Memory, Message};
use inboxed::store::{LetterState, Reason};
use inboxed::{BoxError, Decode, Headers, Outcome, Received, UnknownType, idempotent, on};
use serde::Deserialize;
use sqlx::SqliteConnection;

use super::support::{Order, Shop, deliver, effect, order, record, run_to_the_end, until};

#[tokio::test]
async fn undecodable_bytes_are_dead_lettered_at_once_and_intact() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    let bytes = Bytes::from_static(b"\xff\x00{not json");
    broker.publish("orders", Message::new(bytes.clone()).header("raw", vec![0xfe]));
    run_to_the_end(&shop.consumer().handle("orders", record), &broker, &["orders"]).await;
    assert_eq!((broker.counts("orders").deliveries, broker.counts("orders").acknowledged), (1, 1));
    let letter = shop.letter().await;
    assert_eq!((letter.reason, letter.attempts, letter.key), (Reason::Undecodable, 0, None));
    assert_eq!((letter.body, letter.headers), (bytes, Headers::from([("raw", vec![0xfe])])));
}

#[tokio::test]
async fn undecodable_bytes_sent_twice_are_one_letter_and_others_another() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", record);
    for body in ["{", "{", "["] {
        assert_eq!(consumer.deliver("orders", body, ()).await.unwrap(), Outcome::DeadLettered);
    }
    assert_eq!(shop.letters().await.len(), 2);
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[idempotent(key = "named:{name}")]
async fn by_name(named: Named, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    let _ = named.name;
    Ok(effect(tx, 1).await?)
}

#[tokio::test]
async fn message_with_an_empty_key_part_is_dead_lettered_never_merged() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", by_name);
    for body in [r#"{"name":"","n":1}"#, r#"{"name":"","n":2}"#] {
        assert_eq!(consumer.deliver("orders", body, ()).await.unwrap(), Outcome::DeadLettered);
    }
    let letters = shop.letters().await;
    assert_eq!(letters.iter().map(|letter| letter.reason).collect::<Vec<_>>(), [Reason::BadKey; 2]);
    assert!(letters[0].error.contains("name"), "{}", letters[0].error);
    assert_eq!(shop.effects().await, 0);
}

#[tokio::test]
async fn delivery_older_than_its_claim_would_live_never_runs() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    let ago = |age| SystemTime::now() - age;
    // The margin is a tenth of the retention, at most a day.
    let retention = Duration::from_hours(100);
    broker.publish("orders", Message::new(order(1)).sent_at(ago(Duration::from_hours(89))));
    broker.publish("orders", Message::new(order(2)).sent_at(ago(Duration::from_hours(91))));
    let consumer = shop.consumer().retention(retention).handle("orders", record);
    run_to_the_end(&consumer, &broker, &["orders"]).await;
    assert_eq!(shop.number("SELECT SUM(id) FROM effects").await, 1);
    let letter = shop.letter().await;
    assert_eq!((letter.reason, letter.key.unwrap().as_str()), (Reason::TooOld, "order:2"));
    assert!(letter.error.contains("redrive_forced"), "{}", letter.error);
}

#[tokio::test]
async fn old_delivery_whose_claim_still_stands_is_a_duplicate() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", record);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    let broker = Memory::new();
    broker.publish("orders", Message::new(order(7)).sent_at(SystemTime::now() - Duration::from_hours(24 * 40)));
    run_to_the_end(&consumer, &broker, &["orders"]).await;
    assert!(shop.letters().await.is_empty());
    assert_eq!((shop.effects().await, broker.counts("orders").acknowledged), (1, 1));
}

#[tokio::test]
async fn unknown_type_is_given_back_for_a_newer_process() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    broker.publish("orders", Message::new(order(7)).header("type", "OrderShipped"));
    let older = shop.consumer().handle(on("orders").header("type", "OrderPlaced"), record);
    let tried = until("it was tried a few times", async || broker.counts("orders").deliveries > 4);
    older.run_until(broker.clone(), tried).await.unwrap();
    assert_eq!((broker.counts("orders").acknowledged, shop.effects().await, shop.letters().await.len()), (0, 0, 0));

    let newer = shop.consumer().handle(on("orders").header("type", "OrderShipped"), record);
    run_to_the_end(&newer, &broker, &["orders"]).await;
    assert_eq!((broker.counts("orders").acknowledged, shop.effects().await), (1, 1));
}

#[tokio::test]
async fn unknown_type_is_dead_lettered_by_declaration() {
    let shop = Shop::open().await;
    let consumer =
        shop.consumer().unknown_type(UnknownType::DeadLetter).handle(on("orders").field("type", "Paid"), record);
    let placed = r#"{"type":"Placed","id":7}"#;
    assert_eq!(consumer.deliver("orders", placed, ()).await.unwrap(), Outcome::DeadLettered);
    let letter = shop.letter().await;
    assert_eq!((letter.reason, letter.body), (Reason::UnknownType, Bytes::from_static(placed.as_bytes())));
}

#[tokio::test]
async fn unknown_type_is_skipped_by_declaration() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    broker.publish("orders", Message::new(order(7)).header("type", "OrderShipped"));
    let consumer = shop.consumer().unknown_type(UnknownType::Skip).handle(on("orders").header("type", "Paid"), record);
    run_to_the_end(&consumer, &broker, &["orders"]).await;
    assert_eq!((broker.counts("orders").acknowledged, shop.effects().await, shop.letters().await.len()), (1, 0, 0));
    assert_eq!(consumer.deliver("orders", order(7), ()).await.unwrap(), Outcome::Skipped);
}

#[idempotent(key = "order:{id}", on_conflict = "dead_letter")]
async fn keeps_conflicts(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    Ok(effect(tx, order.id).await?)
}

#[tokio::test]
async fn key_conflict_is_acknowledged_and_never_runs() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", record);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    let other = r#"{"id":7,"price":2}"#;
    assert_eq!(consumer.deliver("orders", other, ()).await.unwrap(), Outcome::Duplicate);
    assert_eq!((shop.effects().await, shop.letters().await.len()), (1, 0));
}

#[tokio::test]
async fn key_conflict_is_kept_as_a_dead_letter_by_declaration() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", keeps_conflicts);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Duplicate, "the same payload is no conflict");
    for (count, other) in [(1, r#"{"id":7,"price":2}"#), (2, r#"{"id":7,"price":3}"#), (2, r#"{"id":7,"price":3}"#)] {
        assert_eq!(consumer.deliver("orders", other, ()).await.unwrap(), Outcome::DeadLettered);
        assert_eq!(shop.letters().await.len(), count);
    }
    let letters = shop.letters().await;
    assert!(letters.iter().all(|letter| letter.reason == Reason::KeyConflict && letter.state == LetterState::Open));
    assert_eq!(letters[0].body, Bytes::from_static(br#"{"id":7,"price":2}"#));
    assert_eq!((shop.effects().await, shop.claims().await), (1, 1));
}

/// The first time that a conflict is looked at may be its second delivery: after a shutdown, a crash, a letter that was refused.
#[tokio::test]
async fn key_conflict_is_one_however_often_it_was_delivered() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", keeps_conflicts);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    let mut again = Received::new("orders", r#"{"id":7,"price":2}"#);
    (again.delivery_count, again.redelivered) = (2, true);
    assert_eq!(consumer.deliver_received(again).await.unwrap().outcome, Outcome::DeadLettered);

    // What would be a dead letter for another reason, too.
    let mut old = Received::new("orders", r#"{"id":7,"price":3}"#);
    old.sent_at = Some(SystemTime::now() - Duration::from_hours(24 * 31));
    assert_eq!(consumer.deliver_received(old).await.unwrap().outcome, Outcome::DeadLettered);
    let reasons = shop.letters().await.iter().map(|letter| letter.reason).collect::<Vec<_>>();
    assert_eq!(reasons, [Reason::KeyConflict; 2]);
    assert_eq!((shop.effects().await, shop.claims().await), (1, 1));
}

/// Copies that wait for the first one may be conflicts too, each with bytes of its own.
#[tokio::test]
async fn key_conflicts_among_copies_in_flight_are_all_kept() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", keeps_conflicts);
    // Started before, so that the three are handled in the order in which they are delivered.
    assert_eq!(deliver(&consumer, 6).await, Outcome::Done);
    let conflict = |body| consumer.deliver("orders", body, ());
    let others = [r#"{"id":7,"n":2}"#, r#"{"id":7,"n":3}"#];
    let (one, two, three) = tokio::join!(deliver(&consumer, 7), conflict(others[0]), conflict(others[1]));
    assert_eq!((one, two.unwrap(), three.unwrap()), (Outcome::Done, Outcome::DeadLettered, Outcome::DeadLettered));
    let letters = shop.letters().await;
    assert_eq!(letters.iter().map(|letter| &letter.body[..]).collect::<Vec<_>>(), others.map(str::as_bytes));
    assert!(letters.iter().all(|letter| letter.reason == Reason::KeyConflict));
    assert_eq!(shop.effects().await, 2);
}

/// A first one that is a conflict itself speaks for its copies: what is like it isn't like the committed message.
#[tokio::test]
async fn copies_of_a_key_conflict_in_flight_are_conflicts() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", keeps_conflicts);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    let conflict = || consumer.deliver("orders", r#"{"id":7,"n":2}"#, ());
    let (one, copy) = tokio::join!(conflict(), conflict());
    assert_eq!((one.unwrap(), copy.unwrap()), (Outcome::DeadLettered, Outcome::DeadLettered));
}

/// A decoder or a key that panics would otherwise end the message's task at every delivery, for ever.
#[tokio::test]
async fn message_at_which_the_decoder_panics_is_dead_lettered_at_once() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    broker.publish("orders", order(7));
    run_to_the_end(&shop.consumer().handle_with("orders", record, Panics), &broker, &["orders"]).await;
    let letter = shop.letter().await;
    assert_eq!((letter.reason, broker.counts("orders").deliveries), (Reason::Undecodable, 1));
    assert!(letter.error.contains("panicked: not these bytes"), "{}", letter.error);
}

struct Panics;

impl Decode<Order> for Panics {
    fn decode(&self, _: &Received) -> Result<Order, BoxError> {
        panic!("not these bytes")
    }
}
