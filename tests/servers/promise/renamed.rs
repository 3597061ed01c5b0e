//! Handlers whose key template was changed, through the consumer, on rows with the keys' text and on lean ones.

use inboxed::store::RegistryError;
use inboxed::{Consumer, Inbox, Outcome, RunError, StartError, idempotent};

use super::{Connection, Database, Db, Shop, deliver, effect, record};
use crate::common::{Event, event};

/// The handler `record` of later releases.
mod later {
    use super::*;

    #[idempotent(key = "event:{id}:again", consumer = "record")]
    pub(super) async fn renamed(event: Event, tx: &mut Connection) -> inboxed::Result<()> {
        Ok(effect(tx, &event.id).await?)
    }

    #[idempotent(key = "event:{id}:again", previous_key = "event:{id}", consumer = "record")]
    pub(super) async fn carried_over(event: Event, tx: &mut Connection) -> inboxed::Result<()> {
        Ok(effect(tx, &event.id).await?)
    }
}

async fn template_is_carried_over(shop: &Shop, inbox: Inbox<Db>) {
    let service = || Consumer::new("shop", inbox.clone());
    let before = service().handle("events", record);
    for id in ["a", "b"] {
        assert_eq!(deliver(&before, "events", event(id)).await, Outcome::Done);
    }
    let renamed = service().handle("events", later::renamed).deliver("events", event("c"), ()).await.unwrap_err();
    assert!(matches!(&renamed, RunError::Start(StartError::Registry(RegistryError::KeyChanged { .. }))), "{renamed}");
    assert!(renamed.to_string().contains(r#"previous_key = "event:{id}""#), "{renamed}");
    let after = service().handle("events", later::carried_over);
    for (id, outcome) in [("a", Outcome::Duplicate), ("c", Outcome::Done), ("b", Outcome::Duplicate)] {
        assert_eq!(deliver(&after, "events", event(id)).await, outcome, "{id}");
    }
    assert_eq!(deliver(&after, "events", event("c")).await, Outcome::Duplicate);
    // A process of the release before, which a rolling deployment leaves for a while.
    assert_eq!(deliver(&before, "events", event("c")).await, Outcome::Duplicate);
    assert_eq!((shop.effects().await, shop.letters().await.len()), (vec!["a".into(), "b".into(), "c".into()], 0));
}

#[tokio::test]
async fn with_previous_key_no_message_of_the_old_key_runs_again() {
    let shop = Shop::open().await;
    template_is_carried_over(&shop, shop.inbox.clone()).await;
}

#[tokio::test]
async fn with_previous_key_no_message_of_the_old_key_runs_again_on_lean_rows() {
    let shop = Shop::over(Database::default()).await;
    let lean = Inbox::options().lean().prefix("lean_inbox").connect(&shop.database.url()).await.unwrap();
    lean.migrate().await.unwrap();
    template_is_carried_over(&shop, lean).await;
}

#[tokio::test]
async fn tables_of_the_other_kind_refuse_the_start() {
    let shop = Shop::open().await;
    assert_eq!(deliver(&shop.consumer().handle("events", record), "events", event("a")).await, Outcome::Done);
    let lean = Inbox::options().lean().connect(&shop.database.url()).await.unwrap();
    let refused = Consumer::new("shop", lean).handle("events", record).deliver("events", event("a"), ()).await;
    assert!(refused.unwrap_err().to_string().contains("leave `lean` out"));
    assert_eq!(shop.effects().await, ["a"]);
}
