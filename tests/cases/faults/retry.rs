//! Failures of the body, of the bytes and of the dead letter itself: what comes again, and what never does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use inboxed::broker::Source;
use inboxed::memory::{Memory, Message};
use inboxed::store::Reason;
use inboxed::{Delivery, Outcome, State, idempotent};
use serde::Deserialize;

use super::{Connection, Shop, deliver, effect, record, run_dry, scripted};
use crate::common::counters::Counters;
use crate::common::{Event, Script, at_once, event, until, within};

/// The body of these events always fails.
fn always_fails(bad: &'static str) -> Script {
    Script::new(move |id, _| if id == bad { Err("the warehouse is closed".into()) } else { Ok(()) })
}

#[tokio::test]
async fn s05_duplicate_is_acknowledged_until_an_acknowledgement_works() {
    let shop = Shop::open().await;
    let broker = Memory::builder().lose_ack_if(|delivery| delivery.delivery_count <= 3).build();
    let app = shop.consumer().handle("events", record);
    broker.publish("events", event("a"));
    run_dry(&app, &broker, &["events"]).await;

    let counts = broker.counts("events");
    assert_eq!((counts.deliveries, counts.lost_acks, counts.acknowledged), (4, 3, 1));
    assert_eq!(shop.effects().await, ["a"]);
    assert!(shop.letters().await.is_empty());
    assert_eq!(app.redrive().await.unwrap(), 0, "there is nothing to redrive");
}

#[tokio::test]
async fn s07_one_bad_message_of_a_batch_neither_repeats_nor_undoes_the_others() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    let app = shop.consumer().concurrency(10).retry(at_once(5)).state(always_fails("4")).handle("events", scripted);
    for id in 0..10 {
        broker.publish("events", event(&id.to_string()));
    }
    run_dry(&app, &broker, &["events"]).await;

    assert_eq!(shop.effects().await, ["0", "1", "2", "3", "5", "6", "7", "8", "9"]);
    assert_eq!(broker.counts("events").deliveries, 9 + 5, "only the bad one was redelivered");
    let letters = shop.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((&letters[0].body[..], letters[0].attempts), (event("4").as_bytes(), 5));
    assert_eq!(letters[0].reason, Reason::AttemptsExhausted);
}

/// Writes whether the broker called it a redelivery.
#[idempotent(key = "event:{id}")]
async fn record_flag(message: Event, delivery: &Delivery, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &format!("{} redelivered={}", message.id, delivery.redelivered())).await?)
}

#[tokio::test]
async fn r03_redelivered_flag_never_decides() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    let app = shop.consumer().handle("events", record_flag);
    // Handed out to a consumer that goes away before its handler: the flag is set, and nothing was done.
    broker.publish("events", event("a"));
    let mut source = broker.open("events").await.unwrap();
    for delivery in within(source.receive(1)).await.unwrap() {
        let release = inboxed::broker::Settlement::Release(delivery.token);
        inboxed::broker::Settler::settle(&source.settler(), vec![release]).await;
    }
    // Published twice: neither is flagged, and they are one message.
    broker.publish("events", event("b"));
    broker.publish("events", event("b"));
    run_dry(&app, &broker, &["events"]).await;
    assert_eq!(shop.effects().await, ["a redelivered=true", "b redelivered=false"]);
}

#[derive(Deserialize)]
struct Counted {
    id: u64,
}

#[idempotent(key = "counted:{id}")]
async fn counted(message: Counted, State(entered): State<Arc<AtomicU32>>, tx: &mut Connection) -> inboxed::Result<()> {
    entered.fetch_add(1, Ordering::SeqCst);
    Ok(effect(tx, &message.id.to_string()).await?)
}

#[tokio::test]
async fn r07_undecodable_bytes_are_dead_lettered_at_once_with_every_byte() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    let entered = Arc::new(AtomicU32::new(0));
    let app = shop.consumer().state(Arc::clone(&entered)).handle("counted", counted);
    let bad: [&[u8]; 6] = [b"\xff\xfe\x00", b"hello", b"{\"id\":1", b"", b"{\"name\":\"x\"}", b"{\"id\":1} and more"];
    for (id, bytes) in (0_u64..).zip(bad) {
        broker.publish("counted", serde_json::json!({ "id": id }).to_string());
        broker.publish("counted", Message::new(bytes));
    }
    run_dry(&app, &broker, &["counted"]).await;

    assert_eq!(broker.counts("counted").deliveries, 12, "nothing was tried twice");
    assert_eq!(entered.load(Ordering::SeqCst), 6);
    assert_eq!(shop.effects().await, ["0", "1", "2", "3", "4", "5"]);
    let letters = shop.letters().await;
    assert!(letters.iter().all(|letter| letter.reason == Reason::Undecodable && letter.attempts == 0));
    let mut kept = letters.iter().map(|letter| letter.body.to_vec()).collect::<Vec<_>>();
    kept.sort();
    let mut sent = bad.map(<[u8]>::to_vec);
    sent.sort();
    assert_eq!(kept, sent);
}

#[tokio::test]
async fn r08_message_stays_with_the_broker_until_its_dead_letter_is_durable() {
    let counters = Counters::default();
    let _counting = metrics::set_default_local_recorder(&counters);
    let shop = Shop::open().await;
    let broker = Memory::new();
    let app = shop.consumer().handle("events", record);
    assert_eq!(deliver(&app, "events", event("before")).await, Outcome::Done);
    shop.execute("ALTER TABLE inbox_dead_letters RENAME COLUMN error TO elsewhere").await;
    broker.publish("events", "poison");
    broker.publish("events", event("after"));

    let refused = || counters.sum("inboxed.dead_letter_refused", ("consumer", "shop/record"));
    let repair = async {
        until(async || refused() >= 3).await;
        let counts = broker.counts("events");
        assert_eq!((counts.acknowledged, counts.waiting + counts.in_flight), (1, 1), "only the good one");
        shop.execute("ALTER TABLE inbox_dead_letters RENAME COLUMN elsewhere TO error").await;
    };
    tokio::join!(run_dry(&app, &broker, &["events"]), repair);

    assert_eq!(broker.counts("events").acknowledged, 2);
    let letters = shop.letters().await;
    assert_eq!(letters.iter().map(|letter| &letter.body[..]).collect::<Vec<_>>(), [b"poison"]);
    assert_eq!(shop.effects().await, ["after", "before"]);
}

#[tokio::test]
async fn x10_failure_is_never_acknowledged_and_never_halts_the_rest() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    let script = Script::new(|id, attempt| match id {
        "slow start" if attempt <= 2 => Err("not yet".into()),
        "bad" => Err("never".into()),
        _ => Ok(()),
    });
    let app = shop.consumer().concurrency(1).retry(at_once(4)).state(script).handle("events", scripted);
    for id in ["bad", "slow start", "good"] {
        broker.publish("events", event(id));
    }
    run_dry(&app, &broker, &["events"]).await;

    assert_eq!(shop.effects().await, ["good", "slow start"]);
    let counts = broker.counts("events");
    assert_eq!((counts.deliveries, counts.acknowledged), (4 + 3 + 1, 3));
    let letters = shop.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((&letters[0].error[..], letters[0].attempts), ("never", 4));
    assert_eq!(shop.number("SELECT COUNT(*) FROM inbox_attempts WHERE message_key LIKE '%slow%'").await, 0);
}
