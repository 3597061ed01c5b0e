//! A database that is out of reach.

use std::sync::Arc;

use inboxed::Report;
use inboxed::http::Webhook;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::{Shop, VARIABLE, record};
use crate::client::post;
use crate::common::services::shared;
use crate::common::{event, within};
use crate::server::serve;

impl Shop {
    /// Lets connections in or refuses new ones, and ends those that are there.
    async fn let_in(&self, let_in: bool) {
        let url = self.url();
        let name = url.rsplit_once('/').unwrap().1;
        let mut server = PgConnection::connect(&shared(VARIABLE)).await.unwrap();
        for statement in [
            format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {let_in}"),
            format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"),
        ] {
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut server).await.unwrap();
        }
    }
}

#[tokio::test]
async fn database_out_of_reach_is_answered_503_and_nothing_is_counted() {
    let shop = Shop::open().await;
    let app = Arc::new(shop.consumer().handle("events", record));
    let health = app.health();
    let address = serve(Webhook::new(app, "events").unwrap()).await;
    assert_eq!(post(address, event("before")).await.status, 200);

    shop.let_in(false).await;
    for _ in 0..3 {
        let answer = post(address, event("during")).await;
        assert!(answer.status == 503 && answer.retry_after().is_some(), "{answer:?}");
    }
    within(health.wait_for(|report| report.store.is_some())).await;
    let answer = post(address, event("during")).await;
    assert_eq!((answer.status, answer.text.as_str()), (503, "not available at the moment"));

    shop.let_in(true).await;
    within(health.wait_for(Report::is_healthy)).await;
    let answer = post(address, event("during")).await;
    assert_eq!((answer.status, answer.text.as_str()), (200, "done"));
    assert_eq!(shop.effects().await, ["before", "during"]);
    assert_eq!(shop.counted().await, 0);
}
