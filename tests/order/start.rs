//! Starts that are refused, before any message is taken.

use std::future::pending;
use std::time::Duration;

use inboxed::memory::Memory;
use inboxed::store::{RegistryError, Risk, SchemaError};
use inboxed::{Check, Consumer, Inbox, Outcome, RunError, StartError, idempotent, on};
use sqlx::{Sqlite, SqliteConnection};

use super::support::{Order, Shop, deliver, effect, order, record};

/// Why the start is refused.
async fn refused<S>(consumer: &Consumer<Sqlite, S>) -> RunError {
    let broker = Memory::new();
    broker.publish("orders", order(1));
    let run = consumer.run_until(broker.clone(), pending());
    let ended = tokio::time::timeout(super::support::PATIENCE, run).await.expect("it ends by itself");
    assert_eq!(broker.counts("orders").acknowledged, 0);
    ended.unwrap_err()
}

mod again {
    use super::{Order, SqliteConnection, effect, idempotent};

    #[idempotent(key = "order:{id}:again", consumer = "record")]
    pub(super) async fn another_key(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
        Ok(effect(tx, order.id).await?)
    }

    #[idempotent(key = "order:{id}:again", consumer = "record", previous_key = "order:{id}")]
    pub(super) async fn carried_over(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
        Ok(effect(tx, order.id).await?)
    }

    #[idempotent(key = "order:{id}:again", consumer = "record", previous_key = "other:{id}")]
    pub(super) async fn wrong_previous(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
        Ok(effect(tx, order.id).await?)
    }
}

#[tokio::test]
async fn changed_key_template_is_refused() {
    let shop = Shop::open().await;
    assert_eq!(deliver(&shop.consumer().handle("orders", record), 7).await, Outcome::Done);
    for consumer in
        [shop.consumer().handle("orders", again::another_key), shop.consumer().handle("orders", again::wrong_previous)]
    {
        let error = refused(&consumer).await;
        assert!(matches!(&error, RunError::Start(StartError::Registry(RegistryError::KeyChanged { .. }))), "{error}");
        assert!(error.to_string().contains(r#"previous_key = "order:{id}""#), "{error}");
    }
    assert_eq!(shop.effects().await, 1);
}

#[tokio::test]
async fn previous_key_runs_nothing_twice() {
    let shop = Shop::open().await;
    assert_eq!(deliver(&shop.consumer().handle("orders", record), 7).await, Outcome::Done);
    let after = shop.consumer().handle("orders", again::carried_over);
    assert_eq!(deliver(&after, 7).await, Outcome::Duplicate, "handled under the key before");
    assert_eq!(deliver(&after, 8).await, Outcome::Done);
    assert_eq!(deliver(&after, 8).await, Outcome::Duplicate);
    assert_eq!(shop.number("SELECT COUNT(*) FROM inbox WHERE message_key IN ('order:8', 'order:8:again')").await, 2);
    assert_eq!(shop.effects().await, 2);
}

#[tokio::test]
async fn another_source_under_the_same_name_is_refused() {
    let shop = Shop::open().await;
    assert_eq!(deliver(&shop.consumer().handle("orders", record), 7).await, Outcome::Done);
    let moved = shop.consumer().handle("purchases", record);
    let error = refused(&moved).await;
    assert!(matches!(&error, RunError::Start(StartError::Registry(RegistryError::SourcesChanged { .. }))), "{error}");
    shop.inbox.move_source("shop/record", "purchases").await.unwrap();
    assert_eq!(moved.deliver("purchases", order(7), ()).await.unwrap(), Outcome::Duplicate);
    assert_eq!(shop.effects().await, 1);
}

#[tokio::test]
async fn handlers_that_would_take_each_others_messages_are_refused() {
    let shop = Shop::open().await;
    let error = refused(&shop.consumer().handle("orders", record).handle("other", again::another_key)).await;
    assert!(matches!(&error, RunError::SameName { consumer } if consumer == "record"), "{error}");
    for twice in [
        shop.consumer().handle("orders", record).handle("orders", record),
        shop.consumer().handle("orders", record).handle(on("orders").header("type", "Paid"), record),
        shop.consumer().handle(on("orders").header("a", "b"), record).handle(on("orders").header("a", "b"), record),
    ] {
        let error = refused(&twice).await;
        assert!(matches!(&error, RunError::Ambiguous { from } if from == "orders"), "{error}");
    }
    assert!(matches!(refused(&shop.consumer()).await, RunError::NoHandler));
}

#[idempotent(key = "order:{id}", retention = "1h")]
async fn forgets_soon(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    Ok(effect(tx, order.id).await?)
}

#[tokio::test]
async fn retention_below_the_horizon_is_refused_with_both_figures() {
    let shop = Shop::open().await;
    let broker_keeps_24_hours = shop.consumer().retention(Duration::from_hours(23)).handle("orders", record);
    let declared = shop.consumer().horizon(Duration::from_hours(24 * 31)).handle("orders", record);
    let by_attribute = shop.consumer().handle("orders", forgets_soon);
    for (consumer, figures) in [
        (broker_keeps_24_hours, ["82800s", "86400s"]),
        (declared, ["2592000s", "2678400s"]),
        (by_attribute, ["3600s", "86400s"]),
    ] {
        let error = refused(&consumer).await.to_string();
        assert!(figures.iter().all(|figure| error.contains(figure)), "{error}");
        assert!(error.contains("raise the retention"), "{error}");
    }
    assert_eq!(shop.effects().await, 0);
}

#[tokio::test]
async fn declared_horizon_is_held_against_the_retention_without_a_broker_too() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().horizon(Duration::from_hours(2)).handle("orders", forgets_soon);
    let error = consumer.deliver("orders", order(7), ()).await.unwrap_err();
    let RunError::Findings(findings) = &error else { panic!("{error}") };
    assert_eq!((findings[0].check, &*findings[0].subject), (Check::Retention, "shop/forgets_soon"));
    assert_eq!(shop.effects().await, 0);
}

#[tokio::test]
async fn tables_that_are_not_there_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("new.db").display());
    let inbox = Inbox::<Sqlite>::connect(&url).await.unwrap();
    let error = refused(&Consumer::new("shop", inbox).handle("orders", record)).await;
    assert!(matches!(&error, RunError::Start(StartError::Schema(SchemaError::Older { found: 0, .. }))), "{error}");
    assert!(error.to_string().contains("migrate"), "{error}");
}

#[tokio::test]
async fn database_that_forgets_commits_is_refused_unless_allowed_by_name() {
    let inbox = Inbox::<Sqlite>::connect("sqlite::memory:").await.unwrap();
    inbox.migrate().await.unwrap();
    let error = refused(&Consumer::new("shop", inbox).handle("orders", record)).await;
    assert!(matches!(&error, RunError::Start(StartError::Risks(risks)) if risks.contains(&Risk::InMemory)), "{error}");
    let allowed = Inbox::<Sqlite>::options().allow(Risk::InMemory).connect("sqlite::memory:").await.unwrap();
    allowed.migrate().await.unwrap();
    sqlx::raw_sql("CREATE TABLE effects (id INTEGER)").execute(allowed.pool()).await.unwrap();
    let consumer = Consumer::new("shop", allowed).handle("orders", record);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Done);
}
