//! Namespaces that meet.

use inboxed::{Consumer, Outcome, RunError};

use crate::common::{Shop, deliver, event};

mod orders {
    use inboxed::idempotent;
    use sqlx::SqliteConnection;

    use crate::common::{Event, effect};

    #[idempotent(key = "{id}")]
    pub(super) async fn handle(event: Event, tx: &mut SqliteConnection) -> inboxed::Result<()> {
        Ok(effect(tx, &format!("order {}", event.id)).await?)
    }
}

mod payments {
    use inboxed::idempotent;
    use sqlx::SqliteConnection;

    use crate::common::{Event, effect};

    #[idempotent(key = "{id}")]
    pub(super) async fn handle(event: Event, tx: &mut SqliteConnection) -> inboxed::Result<()> {
        Ok(effect(tx, &format!("payment {}", event.id)).await?)
    }
}

/// Two modules, each with its `handle`: the message of one must not be the other's duplicate.
#[tokio::test]
async fn two_functions_of_one_name_never_take_each_others_messages() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("orders", orders::handle).handle("payments", payments::handle);
    match app.deliver("orders", event("1"), ()).await {
        Err(RunError::SameName { .. }) => return,
        outcome => assert_eq!(outcome.unwrap(), Outcome::Done),
    }
    assert_eq!(deliver(&app, "payments", event("1")).await, Outcome::Done);
    assert_eq!(shop.effects().await, ["order 1", "payment 1"]);
}

#[tokio::test]
async fn one_function_on_two_sources_is_one_consumer() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("orders", orders::handle).handle("archive", orders::handle);
    assert_eq!(deliver(&app, "orders", event("1")).await, Outcome::Done);
    assert_eq!(deliver(&app, "archive", event("1")).await, Outcome::Duplicate);
}

#[tokio::test]
async fn service_whose_name_has_a_slash_is_no_other_service() {
    let shop = Shop::open().await;
    let one = Consumer::new("shop", shop.inbox.clone()).handle("orders", orders::handle);
    let other = Consumer::new("shop/eu", shop.inbox.clone()).handle("orders", orders::handle);
    assert_eq!(deliver(&one, "orders", event("1")).await, Outcome::Done);
    assert_eq!(deliver(&other, "orders", event("1")).await, Outcome::Done);
}
