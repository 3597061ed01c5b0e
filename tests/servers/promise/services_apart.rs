//! Two services in one database.

use inboxed::{Consumer, Outcome};

use super::{Shop, deliver, record};
use crate::common::event;

#[tokio::test]
async fn services_with_handlers_of_one_name_both_handle_every_message() {
    let shop = Shop::open().await;
    let services = ["shop", "billing"].map(|name| Consumer::new(name, shop.inbox.clone()).handle("events", record));
    for expected in [Outcome::Done, Outcome::Duplicate] {
        for app in &services {
            assert_eq!(deliver(app, "events", event("a")).await, expected);
        }
    }
    assert_eq!((shop.claims().await, shop.effects().await), (2, vec!["a".to_owned(); 2]));
}
