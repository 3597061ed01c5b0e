//! A database that is out of reach.

use std::sync::Arc;

use inboxed::{Report, http::Webhook};

use super::shop::{Shop, event, record};
use crate::client::post;
use crate::server::serve;
use crate::within;

#[tokio::test]
async fn database_out_of_reach_is_answered_503_and_nothing_is_counted() {
    let shop = Shop::open().await;
    let app = Arc::new(shop.consumer().handle("events", record));
    let health = app.health();
    let address = serve(Webhook::new(app, "events").unwrap()).await;
    assert_eq!(post(address, event("before")).await.status, 200);

    shop.database.let_in(false).await;
    for _ in 0..3 {
        let answer = post(address, event("during")).await;
        assert!(answer.status == 503 && answer.retry_after().is_some(), "{answer:?}");
    }
    within(health.wait_for(|report| report.store.is_some())).await;
    let answer = post(address, event("during")).await;
    assert_eq!((answer.status, answer.text.as_str()), (503, "not available at the moment"));

    shop.database.let_in(true).await;
    within(health.wait_for(Report::is_healthy)).await;
    let answer = post(address, event("during")).await;
    assert_eq!((answer.status, answer.text.as_str()), (200, "done"));
    assert_eq!(shop.effects().await, ["before", "during"]);
    assert_eq!(shop.number("SELECT COUNT(*) FROM inbox_attempts").await, 0);
}
