//! An inbox over the user's own pool leaves its connections as they were.

use sqlx::Connection as _;

use super::*;
use crate::error::{Class, Error};
use crate::store::suite::{DUPLICATE, FRESH, Fixture as _, begin, claim, deliver, effects, ready, verdict};

const SETTINGS: &str = "SELECT @@innodb_lock_wait_timeout, @@wait_timeout, CAST(@@max_statement_time AS CHAR), \
    @@session.tx_isolation, @@autocommit, @@in_transaction";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_comes_back_as_it_was() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let pool = fixture.pool(1).await;
    let inbox = Inbox::new(pool.clone());
    let before = ask(&inbox, SETTINGS).await;
    let session = ask(&inbox, "SELECT CONNECTION_ID()").await;
    assert_eq!(deliver(&inbox, &claim("order:1")).await.unwrap(), FRESH);
    assert_eq!(deliver(&inbox, &claim("order:1")).await.unwrap(), DUPLICATE);
    inbox.record_failure(&claim("order:2"), "no stock").await.unwrap();
    MySql::rollback(begin(&inbox, &claim("order:2")).await.0).await;
    let group = [claim("order:1"), claim("order:3")];
    MySql::rollback(MySql::begin(&inbox, &group, crate::store::suite::LIMITS).await.unwrap().0).await;
    let after = ask(&inbox, SETTINGS).await;
    assert_eq!(ask(&inbox, "SELECT CONNECTION_ID()").await, session, "it was replaced, not returned");
    assert_eq!(after, before);

    let mut connection = pool.acquire().await.unwrap();
    let mut users = connection.begin().await.unwrap();
    sqlx::raw_sql("INSERT INTO effects VALUES ('mine', 'undone')").execute(&mut *users).await.unwrap();
    users.rollback().await.unwrap();
    drop(connection);
    assert_eq!(effects(&inbox).await, 1, "the user's own transaction was none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lock_is_left_by_which_a_session_was_found() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let inbox = Inbox::new(fixture.pool(1).await);
    deliver(&inbox, &claim("order:1")).await.unwrap();
    deliver(&inbox, &claim("order:1")).await.unwrap();
    let released = ask(&inbox, "SELECT RELEASE_ALL_LOCKS()").await;
    assert_eq!(released[0].int(0).unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_a_body_that_asks_a_full_pool_is_given_back() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let pool = sqlx::mysql::MySqlPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_millis(300))
        .connect(&fixture.url())
        .await
        .unwrap();
    let inbox = Inbox::new(pool.clone());
    let (tx, _) = begin(&inbox, &claim("order:1")).await;
    let second = Error::from(pool.acquire().await.map(drop).unwrap_err());
    assert_eq!(second.class(), Class::Unavailable);
    let other = MySql::begin(&inbox, &[claim("order:2")], HASTY).await.map(drop).unwrap_err();
    assert_eq!(other.class(), Class::Unavailable);
    MySql::rollback(tx).await;
    assert_eq!(deliver(&inbox, &claim("order:1")).await.unwrap(), FRESH);
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, DUPLICATE);
}

#[tokio::test]
async fn a_foreign_scheme_is_refused_and_its_password_is_not_shown() {
    let refused = Inbox::<MySql>::connect("postgres://shop:secret@localhost/shop").await.unwrap_err().to_string();
    assert!(refused.contains("`postgres`") && refused.contains("`mysql:`") && !refused.contains("secret"), "{refused}");
}
