//! Nothing that came is lost from sight: each message has its letter, and no more are fetched than there are places.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::{BoxError, Decode, Key, Outcome, Received, State, idempotent, permanent};
use sqlx::SqliteConnection;

use crate::common::{Event, Script, Shop, deliver, effect, event, record, scripted, until, within};

/// Two messages that came under one key, and neither was handled: both are somebody's data.
#[tokio::test]
async fn second_message_under_a_key_overwrites_no_dead_letters_bytes() {
    let shop = Shop::open().await;
    let app = shop.consumer().state(Script::new(|_, _| Err(permanent("no")))).handle("events", scripted);
    assert_eq!(deliver(&app, "events", r#"{"id":"1","amount":5}"#).await, Outcome::DeadLettered);
    assert_eq!(deliver(&app, "events", r#"{"id":"1","amount":7}"#).await, Outcome::DeadLettered);
    let bodies = shop.letters().await.into_iter().map(|letter| letter.body).collect::<Vec<_>>();
    assert!(bodies.iter().any(|body| body.ends_with(b"5}")), "{bodies:?}");
}

/// The message is in its headers.
struct InHeaders;

impl Decode<Event> for InHeaders {
    fn decode(&self, received: &Received) -> Result<Event, BoxError> {
        Ok(Event { id: received.headers.get("id").ok_or("no id")?.to_owned() })
    }
}

#[tokio::test]
async fn refused_messages_that_differ_in_their_headers_are_letters_of_their_own() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle_with("events", record, InHeaders);
    for id in ["x1", "x2"] {
        assert_eq!(app.deliver("events", "", [("identity", id)]).await.unwrap(), Outcome::DeadLettered);
    }
    let ids = shop
        .letters()
        .await
        .iter()
        .map(|letter| letter.headers.get("identity").unwrap().to_owned())
        .collect::<Vec<_>>();
    assert_eq!(ids, ["x1", "x2"]);
}

#[derive(Clone, Default)]
struct Gate(Arc<tokio::sync::Notify>, Arc<AtomicU32>);

#[idempotent(key = "event:{id}")]
async fn waits(event: Event, tx: &mut SqliteConnection, State(gate): State<Gate>, _: &Key) -> inboxed::Result<()> {
    gate.1.fetch_add(1, Ordering::SeqCst);
    gate.0.notified().await;
    Ok(effect(tx, &event.id).await?)
}

#[tokio::test]
async fn copies_that_wait_for_a_running_one_are_fetched_no_faster_than_there_are_places() {
    let shop = Shop::open().await;
    let gate = Gate::default();
    let app = shop.consumer().concurrency(4).state(gate.clone()).handle("events", waits);
    let broker = Memory::new();
    for _ in 0..2_000 {
        broker.publish("events", event("1"));
    }
    let script = async {
        until(async || gate.1.load(Ordering::SeqCst) == 1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let fetched = broker.counts("events").in_flight;
        gate.0.notify_waiters();
        until(async || broker.counts("events").acknowledged == 2_000).await;
        app.shutdown().begin();
        fetched
    };
    let (ended, fetched) =
        within(async { tokio::join!(app.run_until(broker.clone(), std::future::pending()), script) }).await;
    ended.unwrap();
    assert_eq!(shop.effects().await, ["1"]);
    assert!(fetched <= 4, "{fetched} deliveries are held here for 4 places");
}
