//! Senders that go away before they are answered.

use std::sync::Arc;

use inboxed::http::Webhook;

use super::handlers::{Door, wait};
use super::{Shop, record};
use crate::client::{begin, head, post};
use crate::common::{event, until, within};
use crate::server::serve;

#[tokio::test]
async fn sender_that_goes_away_in_mid_body_leaves_nothing_behind() {
    let shop = Shop::open().await;
    let app = Arc::new(shop.consumer().handle("events", record));
    let address = serve(Webhook::new(app, "events").unwrap()).await;
    // What comes of it is a message too, but for the missing rest.
    let declared = head(&[&format!("Content-Length: {}", event("a").len() + 5)]) + &event("a");
    let in_chunks = head(&["Transfer-Encoding: chunked"]) + &format!("{:x}\r\n{}\r\n", event("a").len(), event("a"));
    for begun in [declared, in_chunks] {
        drop(begin(address, begun.as_bytes()).await.unwrap());
    }
    assert_eq!(post(address, event("b")).await.text, "done");
    assert_eq!(post(address, event("a")).await.text, "done", "it never ran before");
    assert!(shop.letters().await.is_empty());
}

#[tokio::test]
async fn sender_that_goes_away_does_not_end_the_work_and_its_retry_is_a_duplicate() {
    let (shop, door) = (Shop::open().await, Door::closed());
    let app = Arc::new(shop.consumer().state(door.clone()).handle("events", wait));
    let address = serve(Webhook::new(app, "events").unwrap()).await;
    let request = head(&[&format!("Content-Length: {}", event("a").len())]) + &event("a");
    let sender = begin(address, request.as_bytes()).await.unwrap();
    door.come(1).await;
    drop(sender);
    let retry = tokio::spawn(post(address, event("a")));
    door.open();
    assert_eq!(within(retry).await.unwrap().text, "duplicate");
    until(async || shop.effects().await == ["a"]).await;
    door.come(1).await;
}
