//! An inbox over the user's own pool leaves its connections as they were.

use sqlx::{Connection as _, MySqlConnection};

use super::*;
use crate::error::Class;
use crate::store::suite::{DUPLICATE, FRESH, Fixture as _, begin, claim, deliver, effect, effects, ready, verdict};

const SETTINGS: &str = "SELECT @@innodb_lock_wait_timeout, @@wait_timeout, CAST(@@max_statement_time AS CHAR), \
    @@idle_transaction_timeout, @@session.tx_isolation, @@autocommit, @@in_transaction";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pools_connections_stay_as_they_are() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let pool = fixture.pool(1).await;
    let inbox = Inbox::new(pool.clone());
    let mut untouched = MySqlConnection::connect(&fixture.url()).await.unwrap();
    let before = MySql::run(&mut untouched, SETTINGS, Vec::new()).await.unwrap();
    assert_eq!(deliver(&inbox, &claim("order:1")).await.unwrap(), FRESH);
    assert_eq!(deliver(&inbox, &claim("order:1")).await.unwrap(), DUPLICATE);
    inbox.record_failure(&claim("order:2"), "no stock").await.unwrap();
    MySql::rollback(begin(&inbox, &claim("order:2")).await.0).await;
    let group = [claim("order:1"), claim("order:3")];
    MySql::rollback(MySql::begin(&inbox, &group, crate::store::suite::LIMITS).await.unwrap().0).await;
    assert_eq!(ask(&inbox, SETTINGS).await, before);

    let mut connection = pool.acquire().await.unwrap();
    let mut users = connection.begin().await.unwrap();
    sqlx::raw_sql("INSERT INTO effects VALUES ('mine', 'undone')").execute(&mut *users).await.unwrap();
    users.rollback().await.unwrap();
    drop(connection);
    assert_eq!(effects(&inbox).await, 1, "the user's own transaction was none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_a_body_that_asks_the_pool_for_a_second_connection_gets_one() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let pool = fixture.pool(1).await;
    let inbox = Inbox::new(pool.clone());
    let (mut tx, _) = begin(&inbox, &claim("order:1")).await;
    let second = pool.acquire().await.unwrap();
    effect::<MySql>(&mut tx, &claim("order:1")).await.unwrap();
    MySql::commit(tx).await.unwrap();
    drop(second);
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, DUPLICATE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_a_claim_without_a_free_connection_is_given_back() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let inbox = Inbox::new(fixture.pool(1).await);
    let (tx, _) = begin(&inbox, &claim("order:1")).await;
    let refused = MySql::begin(&inbox, &[claim("order:2")], HASTY).await.map(drop).unwrap_err();
    assert_eq!(refused.class(), Class::Unavailable);
    MySql::rollback(tx).await;
    assert_eq!(deliver(&inbox, &claim("order:2")).await.unwrap(), FRESH);
}

#[tokio::test]
async fn a_foreign_scheme_is_refused_and_its_password_is_not_shown() {
    let refused = Inbox::<MySql>::connect("postgres://shop:secret@localhost/shop").await.unwrap_err().to_string();
    assert!(refused.contains("`postgres`") && refused.contains("`mysql:`") && !refused.contains("secret"), "{refused}");
}
