//! PgBouncer in transaction mode, with one connection to the server: the hardest case of a pooler.

use sqlx::Connection as _;

use super::*;
use crate::store::suite::{DUPLICATE, FRESH, claim, effects, number, ready};

async fn through_pooler(fixture: &PgDatabase) -> Inbox<Postgres> {
    let server = server("INBOXED_PGBOUNCER_URL");
    let (host, _) = server.rsplit_once('/').unwrap();
    Inbox::connect(&format!("{host}/{}", fixture.name)).await.unwrap()
}

/// A delivery whose body prepares its statement, as sqlx does by default, and has a part of its own.
async fn deliver(inbox: &Inbox<Postgres>, key: &str) -> crate::store::Verdict {
    let (mut tx, mut verdicts) = Postgres::begin(inbox, &[claim(key)], crate::store::suite::LIMITS).await.unwrap();
    if verdicts == [FRESH] {
        let mut part = tx.begin().await.unwrap();
        let insert = "INSERT INTO effects (effect_key, note) VALUES ($1, $2)";
        sqlx::query(insert).bind(key).bind("effect").execute(&mut *part).await.unwrap();
        part.commit().await.unwrap();
        Postgres::commit(tx).await.unwrap();
    } else {
        Postgres::rollback(tx).await;
    }
    verdicts.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p05_four_workers_behind_a_transaction_pooler_have_every_effect_once() {
    let fixture = ready::<PgDatabase>().await;
    let inboxes = [through_pooler(&fixture).await, through_pooler(&fixture).await];
    let workers = (0..4).map(|worker| {
        let inbox = inboxes[worker % 2].clone();
        tokio::spawn(async move {
            for number in 0..125 {
                assert_eq!(deliver(&inbox, &format!("order:{worker}:{number}")).await, FRESH);
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let inbox = &inboxes[0];
    let distinct = number(inbox, "SELECT COUNT(DISTINCT effect_key) FROM effects").await;
    assert_eq!((effects(inbox).await, distinct), (500, 500));
    assert_eq!(deliver(inbox, "order:0:0").await, DUPLICATE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p05_tables_failures_and_registry_work_through_a_pooler() {
    let fixture = ready::<PgDatabase>().await;
    let inbox = through_pooler(&fixture).await;
    inbox.migrate().await.unwrap();
    inbox.verify().await.unwrap();
    inbox.check_risks().await.unwrap();
    assert_eq!(inbox.record_failure(&claim("order:1"), "it's \\ no stock").await.unwrap(), 1);
    let id = crate::store::suite::registry::register(&inbox, "shop", "queue", &["orders"]).await.unwrap();
    inbox.prune(id, Duration::from_secs(60)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_the_inbox_stays_on_the_poolers_connection() {
    let fixture = ready::<PgDatabase>().await;
    let inbox = through_pooler(&fixture).await;
    deliver(&inbox, "order:1").await;
    deliver(&inbox, "order:1").await;
    // The one connection of the pooler is the one that was used; it sets these two for each of its clients.
    let own = "SELECT name || ' = ' || setting FROM pg_settings WHERE source = 'session' \
               AND setting IS DISTINCT FROM reset_val AND name NOT IN ('TimeZone', 'application_name')";
    assert_eq!(ask(&inbox, own).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bodys_own_commit_fails_behind_a_pooler_too() {
    let fixture = ready::<PgDatabase>().await;
    let inbox = through_pooler(&fixture).await;
    let (mut tx, _) = crate::store::suite::begin(&inbox, &claim("order:1")).await;
    Postgres::run(&mut tx, "COMMIT", Vec::new()).await.unwrap_err();
    Postgres::commit(tx).await.unwrap_err();
    assert_eq!(deliver(&inbox, "order:1").await, FRESH);
}
