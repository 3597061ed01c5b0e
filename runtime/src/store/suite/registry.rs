//! The registry: a start that would take rows of another meaning for its own is refused.

use super::*;
use crate::store::{Registration, RegistryError};

fn registration(handler: &str, sources: &[&str]) -> Registration {
    Registration {
        service: "shop".to_owned(),
        handler: handler.to_owned(),
        sources: sources.iter().map(|source| (*source).to_owned()).collect(),
        key: "order:{order_id}".to_owned(),
        previous_key: None,
    }
}

pub(crate) async fn register<Db: Store>(
    inbox: &Inbox<Db>,
    service: &str,
    handler: &str,
    sources: &[&str],
) -> Result<ConsumerId, RegistryError> {
    let registration = Registration { service: service.to_owned(), ..registration(handler, sources) };
    inbox.register(&[registration]).await.map(|ids| ids[0])
}

pub(crate) async fn a_consumer_keeps_its_number<F: Fixture>() {
    let fixture = ready::<F>().await;
    let first = register(fixture.inbox(), "shop", "queue", &["orders"]).await.unwrap();
    let other = register(fixture.inbox(), "mail", "queue", &["orders"]).await.unwrap();
    assert_ne!(first, other);
    assert_eq!(register(&fixture.another().await, "shop", "queue", &["orders"]).await.unwrap(), first);
    let listed = fixture.inbox().registered().await.unwrap();
    let names = listed.iter().map(|consumer| (consumer.id, consumer.name.as_str())).collect::<Vec<_>>();
    assert_eq!(names, [(other, "mail/queue"), (first, "shop/queue")]);
    assert_eq!(
        (listed[1].sources.as_slice(), listed[1].key.as_str()),
        (&["orders".to_owned()][..], "order:{order_id}")
    );
    assert!(listed[1].seen_at >= listed[1].first_at);
}

pub(crate) async fn another_key_is_refused<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    inbox.register(&[registration("queue", &["orders"])]).await.unwrap();
    let changed = Registration { key: "order:{id}".to_owned(), ..registration("queue", &["orders"]) };
    let wrong = Registration { previous_key: Some("order:{nr}".to_owned()), ..changed.clone() };
    for refused in [changed, wrong] {
        let error = inbox.register(&[refused]).await.unwrap_err();
        assert!(matches!(error, RegistryError::KeyChanged { .. }));
        assert!(error.to_string().contains("previous_key = \"order:{order_id}\""), "{error}");
    }
    assert_eq!(inbox.registered().await.unwrap()[0].key, "order:{order_id}");
}

pub(crate) async fn another_key_that_names_the_previous_one_is_taken<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    let id = inbox.register(&[registration("queue", &["orders"])]).await.unwrap();
    let changed = Registration {
        key: "order:{id}".to_owned(),
        previous_key: Some("order:{order_id}".to_owned()),
        ..registration("queue", &["orders"])
    };
    for _ in 0..2 {
        assert_eq!(inbox.register(std::slice::from_ref(&changed)).await.unwrap(), id);
    }
    assert_eq!(inbox.registered().await.unwrap()[0].key, "order:{id}");
}

pub(crate) async fn foreign_sources_are_refused<F: Fixture>() {
    let fixture = ready::<F>().await;
    register(fixture.inbox(), "shop", "queue", &["orders", "returns"]).await.unwrap();
    let refused = register(fixture.inbox(), "shop", "queue", &["payments"]).await.unwrap_err();
    assert!(matches!(refused, RegistryError::SourcesChanged { .. }));
    assert!(refused.to_string().contains("move_source(\"shop/queue\""), "{refused}");
}

pub(crate) async fn overlapping_sources_are_taken<F: Fixture>() {
    let fixture = ready::<F>().await;
    let id = register(fixture.inbox(), "shop", "queue", &["orders", "returns"]).await.unwrap();
    assert_eq!(register(fixture.inbox(), "shop", "queue", &["returns", "a"]).await.unwrap(), id);
    assert_eq!(fixture.inbox().registered().await.unwrap()[0].sources, ["a", "returns"]);
    register(fixture.inbox(), "shop", "queue", &["orders"]).await.unwrap_err();
}

pub(crate) async fn a_renamed_source_can_be_moved<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    let id = register(inbox, "shop", "queue", &["orders"]).await.unwrap();
    assert!(matches!(inbox.move_source("shop/quue", "orders-v2").await, Err(RegistryError::Unknown { .. })));
    inbox.move_source("shop/queue", "orders-v2").await.unwrap();
    assert_eq!(register(inbox, "shop", "queue", &["orders-v2"]).await.unwrap(), id);
}

pub(crate) async fn two_handlers_of_one_name_are_refused<F: Fixture>() {
    let fixture = ready::<F>().await;
    let twice = [registration("queue", &["orders"]), registration("queue", &["payments"])];
    assert!(matches!(fixture.inbox().register(&twice).await, Err(RegistryError::Twice { .. })));
}

pub(crate) async fn a_refused_start_leaves_nothing_behind<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    inbox.register(&[registration("queue", &["orders"])]).await.unwrap();
    let before = inbox.registered().await.unwrap();
    let refused = [registration("mail", &["orders"]), registration("queue", &["payments"])];
    inbox.register(&refused).await.unwrap_err();
    assert_eq!(inbox.registered().await.unwrap(), before);
}

pub(crate) async fn eight_starts_at_once_agree<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inboxes = [fixture.inbox().clone(), fixture.another().await];
    let starts = (0..8).map(|start| {
        let inbox = inboxes[start % 2].clone();
        let all = ["a", "b", "c"].map(|handler| registration(handler, &["orders"]));
        tokio::spawn(async move { inbox.register(&all).await.unwrap() })
    });
    let mut ids = Vec::new();
    for start in starts.collect::<Vec<_>>() {
        ids.push(start.await.unwrap());
    }
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "{ids:?}");
    assert_eq!(fixture.inbox().registered().await.unwrap().len(), 3);
}

pub(crate) async fn messages_without_a_handler_have_a_namespace<F: Fixture>() {
    let fixture = ready::<F>().await;
    let declared = [registration("queue", &["orders"]), Registration::unrouted("shop")];
    let first = fixture.inbox().register(&declared).await.unwrap();
    assert_eq!(fixture.inbox().register(&declared).await.unwrap(), first);
    assert_eq!(fixture.inbox().registered().await.unwrap()[0].name, "shop/*");
}
