//! What the attribute leaves of a function, and what it makes of it.

#![deny(warnings)]

use std::time::Duration;

use inboxed::{
    Delivery, Event, FromRef, Handler, Identity, Json, Key, KeyPart, OnConflict, Received, Spec, State, idempotent,
};
use serde::Deserialize;
use sqlx::{Connection as _, Sqlite, SqliteConnection};

fn spec<H: Handler<Sqlite, (), Json>>(_: &H) -> Spec {
    H::SPEC
}

fn identity<S: Send + Sync + 'static>(handler: &impl Handler<Sqlite, S, Json>, body: &str) -> Identity {
    handler.prepare(&Received::new("orders", body.to_owned()), &Json).unwrap().identity
}

fn key(handler: &impl Handler<Sqlite, (), Json>, body: &str) -> String {
    identity(handler, body).name().as_str().to_owned()
}

async fn connection() -> SqliteConnection {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    sqlx::query("CREATE TABLE effects (order_id INTEGER)").execute(&mut connection).await.unwrap();
    connection
}

#[derive(Deserialize)]
struct OrderPlaced {
    order_id: i64,
}

async fn record(order_id: i64, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO effects VALUES (?)").bind(order_id).execute(tx).await?;
    Ok(())
}

/// Public, with a private message.
#[idempotent(key = "order:{order_id}")]
pub async fn plain(order: OrderPlaced, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    record(order.order_id, tx).await?;
    Ok(())
}

#[tokio::test]
async fn the_untouched_body_is_callable_as_effect() {
    let mut connection = connection().await;
    plain::effect(OrderPlaced { order_id: 7 }, &mut connection).await.unwrap();
    let orders: Vec<i64> = sqlx::query_scalar("SELECT order_id FROM effects").fetch_all(&mut connection).await.unwrap();
    assert_eq!(orders, [7]);
}

mod ledger {
    use serde::Deserialize;
    use sqlx::SqliteConnection;

    /// A message that has the name of a type of sqlx's.
    #[derive(Deserialize)]
    pub(super) struct Transaction {
        id: i64,
    }

    #[inboxed::idempotent(key = "transaction:{id}")]
    pub(super) async fn book(transaction: Transaction, tx: &mut SqliteConnection) -> inboxed::Result<()> {
        Ok(super::record(transaction.id, tx).await?)
    }
}

#[test]
fn message_may_be_called_transaction() {
    assert_eq!(key(&ledger::book, r#"{"id":7}"#), "transaction:7");
}

#[test]
fn without_options_the_functions_name_is_the_consumer() {
    let spec = spec(&plain);
    assert_eq!((spec.consumer, spec.key), ("plain", "order:{order_id}"));
    assert_eq!((spec.previous_key, spec.timeout, spec.retention), (None, None, None));
    assert_eq!(spec.on_conflict, OnConflict::Acknowledge);
}

#[idempotent(
    key = "{order_id}",
    previous_key = "order:{order_id}",
    consumer = "fulfilment",
    retention = "30d",
    timeout = "1500 ms",
    on_conflict = "dead_letter"
)]
async fn with_options(order: OrderPlaced, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    record(order.order_id, tx).await
}

#[test]
fn options_are_in_the_spec() {
    let spec = spec(&with_options);
    assert_eq!((spec.consumer, spec.key), ("fulfilment", "{order_id}"));
    assert_eq!(spec.previous_key, Some("order:{order_id}"));
    assert_eq!(spec.timeout, Some(Duration::from_millis(1500)));
    assert_eq!(spec.retention, Some(Duration::from_hours(30 * 24)));
    assert_eq!(spec.on_conflict, OnConflict::DeadLetter);
}

#[test]
fn a_previous_key_is_derived_with_the_present_one() {
    let Identity::Key { key, previous } = identity::<()>(&with_options, r#"{"order_id":7}"#) else { unreachable!() };
    assert_eq!((key.as_str(), previous.as_ref().map(Key::as_str)), ("7", Some("order:7")));
}

#[derive(Deserialize, Event)]
#[event(key = "order:{order_id}:{type}:v{version}")]
struct OrderChanged {
    order_id: OrderId,
    r#type: Kind,
    version: u32,
}

#[derive(Clone, Copy, Deserialize, KeyPart)]
struct OrderId(i64);

#[derive(Deserialize, KeyPart)]
enum Kind {
    Placed,
    #[key_part(rename = "gone for good")]
    Cancelled,
}

#[idempotent]
async fn by_contract(order: OrderChanged, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    record(order.order_id.0, tx).await
}

#[test]
fn without_a_key_the_contract_holds() {
    assert_eq!(spec(&by_contract).key, OrderChanged::KEY);
    assert_eq!(key(&by_contract, r#"{"order_id":7,"type":"Placed","version":2}"#), "order:7:Placed:v2");
    let message = OrderChanged { order_id: OrderId(7), r#type: Kind::Cancelled, version: 3 };
    assert_eq!(message.key().unwrap().as_str(), "order:7:gone%20for%20good:v3", "the producer's own");
}

#[derive(Deserialize)]
struct Shipped(OrderPlaced, String);

#[idempotent(key = "{0.order_id}/{1}")]
async fn by_position(Shipped(order, _): Shipped, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    record(order.order_id, tx).await
}

#[test]
fn positions_and_dots_reach_inside() {
    assert_eq!(key(&by_position, r#"[{"order_id":7},"box 1"]"#), "7/box%201");
}

#[derive(Deserialize)]
struct Paid {
    tenant: String,
    order: OrderPlaced,
}

#[idempotent(key = (paid.tenant, paid.order.order_id))]
async fn by_expression(mut paid: Paid, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    paid.order.order_id += 1;
    paid.tenant.clear();
    record(paid.order.order_id, tx).await
}

#[idempotent(key = (tenant.to_lowercase(), order.order_id + 1))]
async fn by_pattern(Paid { tenant, mut order }: Paid, tx: &mut SqliteConnection) -> Result<(), String> {
    order.order_id += i64::try_from(tenant.len()).map_err(|error| error.to_string())?;
    record(order.order_id, tx).await.map_err(|error| error.to_string())
}

#[test]
fn an_expression_borrows_what_it_reads() {
    let body = r#"{"tenant":"A:b","order":{"order_id":7}}"#;
    assert_eq!(key(&by_expression, body), "A%3Ab:7");
    assert_eq!(key(&by_pattern, body), "a%3Ab:8");
    assert_eq!(spec(&by_expression).key, "(paid.tenant, paid.order.order_id)");
}

macro_rules! handler {
    ($name:ident, $key:literal) => {
        mod $name {
            use super::*;

            #[idempotent(key = $key)]
            pub(crate) async fn by_template(order: OrderPlaced, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
                record(order.order_id, tx).await
            }
        }
    };
}
handler!(made_by_a_macro, "macro:{order_id}");

#[test]
fn a_template_may_come_out_of_a_macro() {
    assert_eq!(key(&made_by_a_macro::by_template, r#"{"order_id":7}"#), "macro:7");
}

#[derive(Clone)]
struct App {
    shop: Shop,
}

#[derive(Clone)]
struct Shop(i64);

impl FromRef<App> for Shop {
    fn from_ref(app: &App) -> Self {
        app.shop.clone()
    }
}

#[idempotent(key = "order:{order_id}")]
async fn with_everything(
    State(shop): State<Shop>,
    key: &Key,
    order: OrderPlaced,
    delivery: &Delivery,
    tx: &mut SqliteConnection,
) -> anyhow::Result<()> {
    anyhow::ensure!(key.as_str() == format!("order:{}", order.order_id) && delivery.attempt() > 0);
    record(order.order_id + shop.0, tx).await?;
    Ok(())
}

#[test]
fn parameters_come_in_any_order_and_a_part_of_the_state_is_enough() {
    assert_eq!(identity::<Shop>(&with_everything, r#"{"order_id":7}"#).name().as_str(), "order:7");
    assert_eq!(identity::<App>(&with_everything, r#"{"order_id":7}"#).name().as_str(), "order:7");
}

#[cfg(any())]
#[idempotent(key = "order:{order_id}")]
async fn left_out(order: NoSuchType, tx: &mut SqliteConnection) -> inboxed::Result<()> {}

#[idempotent(key = "order:{order_id}")]
#[cfg(any())]
async fn left_out_too(order: NoSuchType, tx: &mut SqliteConnection) -> inboxed::Result<()> {}

#[idempotent(key = "order:{order_id}")]
#[deprecated = "the warehouse does it now"]
#[expect(unused_mut, reason = "lints stay with the body")]
async fn old(order: OrderPlaced, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut id = order.order_id;
    record(id, tx).await
}

#[test]
#[allow(deprecated)]
fn attributes_stay() {
    assert_eq!(spec(&old).consumer, "old");
}

mod renamed {
    pub(crate) use inboxed as inbox;
}

#[idempotent(key = "order:{order_id}", crate = crate::renamed::inbox)]
async fn under_another_name(order: OrderPlaced, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    record(order.order_id, tx).await
}

#[test]
fn the_runtime_may_have_another_path() {
    assert_eq!(spec(&under_another_name).consumer, "under_another_name");
}
