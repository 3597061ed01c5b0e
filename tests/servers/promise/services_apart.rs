//! Two services in one database.

use inboxed::Outcome;

use super::shop::{Shop, deliver, event, record};

#[tokio::test]
async fn services_with_handlers_of_one_name_both_handle_every_message() {
    let shop = Shop::open().await;
    let services = ["shop", "billing"].map(|name| shop.service(name).handle("events", record));
    for expected in [Outcome::Done, Outcome::Duplicate] {
        for app in &services {
            assert_eq!(deliver(app, event("a")).await, expected);
        }
    }
    assert_eq!((shop.claims().await, shop.effects().await), (2, vec!["a".to_owned(); 2]));
}
