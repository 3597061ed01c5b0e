//! Which handler takes a message, with which state and which decoder.

use bytes::Bytes;
use inboxed::memory::{Memory, Message};
use inboxed::{BoxError, Decode, FromRef, Key, Outcome, Raw, Received, State, idempotent, on};
use serde::Deserialize;
use sqlx::SqliteConnection;

use super::support::{Order, Shop, deliver, effect, order, record, run_to_the_end};

/// Writes a number of its own beside the order's.
#[idempotent(key = "order:{id}")]
async fn bill(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    Ok(effect(tx, 1_000 + order.id).await?)
}

#[tokio::test]
async fn handlers_on_one_source_are_told_apart_by_header() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    broker.publish("orders", Message::new(order(1)).header("Type", "Placed"));
    broker.publish("orders", Message::new(order(1)).header("type", "Paid"));
    let consumer = shop
        .consumer()
        .handle(on("orders").header("type", "Placed"), record)
        .handle(on("orders").header("type", "Paid"), bill);
    run_to_the_end(&consumer, &broker, &["orders"]).await;
    assert_eq!(
        shop.number("SELECT SUM(id) FROM effects").await,
        1 + 1_001,
        "and one key is two messages for two handlers"
    );
    assert_eq!((shop.effects().await, shop.claims().await), (2, 2));
}

#[tokio::test]
async fn handlers_on_one_source_are_told_apart_by_field_and_the_rest_goes_to_the_last() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle(on("orders").field("type", "Paid"), bill).handle("orders", record);
    for body in [r#"{"type":"Paid","id":1}"#, r#"{"type":"Placed","id":2}"#, r#"{"id":3}"#] {
        assert_eq!(consumer.deliver("orders", body, ()).await.unwrap(), Outcome::Done);
    }
    assert_eq!(shop.number("SELECT SUM(id) FROM effects").await, 1_001 + 2 + 3);
}

#[tokio::test]
async fn one_consumer_takes_several_sources() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    for id in 0..20 {
        broker.publish(if id % 2 == 0 { "orders" } else { "payments" }, order(id));
    }
    let consumer = shop.consumer().handle("orders", record).handle("payments", bill);
    run_to_the_end(&consumer, &broker, &["orders", "payments"]).await;
    assert_eq!(shop.number("SELECT COUNT(*) FROM effects WHERE id < 1000").await, 10);
    assert_eq!(shop.number("SELECT COUNT(*) FROM effects WHERE id >= 1000").await, 10);
}

#[tokio::test]
async fn one_handler_on_two_sources_knows_a_message_from_either() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("orders", record).handle("replay", record);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
    assert_eq!(consumer.deliver("replay", order(7), ()).await.unwrap(), Outcome::Duplicate);
    assert_eq!(shop.effects().await, 1);
}

#[tokio::test]
async fn two_services_never_take_each_others_messages() {
    let shop = Shop::open().await;
    let (shipping, billing) = (shop.service("shipping"), shop.service("billing"));
    assert_eq!(deliver(&shipping.handle("orders", record), 7).await, Outcome::Done);
    assert_eq!(deliver(&billing.handle("orders", record), 7).await, Outcome::Done);
    assert_eq!(shop.effects().await, 2);
}

#[derive(Clone)]
struct Prices(u64);

#[derive(Clone)]
struct App {
    prices: Prices,
}

impl FromRef<App> for Prices {
    fn from_ref(app: &App) -> Self {
        app.prices.clone()
    }
}

#[idempotent(key = "order:{id}")]
async fn priced(
    State(prices): State<Prices>,
    tx: &mut SqliteConnection,
    order: Order,
    key: &Key,
) -> inboxed::Result<()> {
    assert_eq!(key.as_str(), format!("order:{}", order.id));
    Ok(effect(tx, prices.0 + order.id).await?)
}

#[tokio::test]
async fn state_holds_for_the_handlers_after_it() {
    let shop = Shop::open().await;
    let consumer = shop
        .consumer()
        .handle("plain", record)
        .state(Prices(100))
        .handle("cheap", priced)
        .state(App { prices: Prices(10_000) })
        .handle("dear", copy::priced);
    for source in ["plain", "cheap", "dear"] {
        assert_eq!(consumer.deliver(source, order(7), ()).await.unwrap(), Outcome::Done);
    }
    assert_eq!(shop.number("SELECT SUM(id) FROM effects").await, 7 + 107 + 10_007);
}

/// The same handler under another name.
mod copy {
    use super::{Order, Prices, SqliteConnection, State, effect, idempotent};

    #[idempotent(key = "order:{id}", consumer = "priced_by_app")]
    pub(super) async fn priced(
        order: Order,
        tx: &mut SqliteConnection,
        State(prices): State<Prices>,
    ) -> inboxed::Result<()> {
        Ok(effect(tx, prices.0 + order.id).await?)
    }
}

/// Orders as lines: `id;anything`.
struct Lines;

impl Decode<Order> for Lines {
    fn decode(&self, received: &Received) -> Result<Order, BoxError> {
        let line = std::str::from_utf8(&received.body)?;
        let (id, _) = line.split_once(';').ok_or("no semicolon in the line")?;
        Ok(Order { id: id.parse()? })
    }
}

#[tokio::test]
async fn handler_takes_messages_from_the_users_decoder() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle_with("orders", record, Lines);
    assert_eq!(consumer.deliver("orders", "7;nails", ()).await.unwrap(), Outcome::Done);
    assert_eq!(consumer.deliver("orders", "7;nails", ()).await.unwrap(), Outcome::Duplicate);
    assert_eq!(consumer.deliver("orders", "nails", ()).await.unwrap(), Outcome::DeadLettered);
    assert!(shop.letter().await.error.contains("no semicolon"));
    assert_eq!(shop.effects().await, 1);
}

#[idempotent(key = String::from_utf8_lossy(body).into_owned())]
async fn raw(body: Bytes, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    Ok(effect(tx, body.len() as u64).await?)
}

#[tokio::test]
async fn handler_takes_raw_bytes() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle_with("orders", raw, Raw);
    assert_eq!(consumer.deliver("orders", "seven b", ()).await.unwrap(), Outcome::Done);
    assert_eq!(consumer.deliver("orders", "seven b", ()).await.unwrap(), Outcome::Duplicate);
    assert_eq!(shop.number("SELECT SUM(id) FROM effects").await, 7);
}

#[derive(Deserialize, inboxed::Event)]
#[event(key = "refund:{order}:{line}")]
struct Refunded {
    order: u64,
    line: u32,
}

#[idempotent]
async fn refund(event: Refunded, tx: &mut SqliteConnection) -> Result<(), anyhow::Error> {
    Ok(effect(tx, event.order * 10 + u64::from(event.line)).await?)
}

#[tokio::test]
async fn key_comes_from_the_messages_contract() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().handle("refunds", refund);
    for (body, outcome) in [
        (r#"{"order":1,"line":1}"#, Outcome::Done),
        (r#"{"order":1,"line":2}"#, Outcome::Done),
        (r#"{"line":1,"order":1}"#, Outcome::Duplicate),
    ] {
        assert_eq!(consumer.deliver("refunds", body, ()).await.unwrap(), outcome, "{body}");
    }
    assert_eq!(shop.number("SELECT SUM(id) FROM effects").await, 11 + 12);
}
