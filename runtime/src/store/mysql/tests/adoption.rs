//! The keys of a hand-written `processed_messages` table, taken into the inbox as `docs/databases.md` says.

use super::*;
use crate::store::suite::{DUPLICATE, FRESH, Fixture as _, claim, number, ready, registry, verdict};

/// The statement of the docs, so that they can't differ.
fn documented() -> String {
    let docs = include_str!("../../../../../docs/databases.md");
    let mysql = &docs[docs.find("## MySQL").unwrap()..];
    let from = mysql.find("INSERT INTO inbox_consumers").unwrap();
    mysql[from..].split("```").next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_hand_written_table_are_duplicates_after_its_adoption() {
    let fixture = ready::<fixture::MySqlDatabase>().await;
    let inbox = fixture.inbox();
    fixture
        .execute("CREATE TABLE processed_messages (`key` VARCHAR(255) PRIMARY KEY, processed_at TIMESTAMP NOT NULL)")
        .await;
    fixture
        .execute(
            "INSERT INTO processed_messages VALUES ('order:1', NOW()), ('order:2', '2020-01-01'), ('or der', NOW())",
        )
        .await;
    for _ in 0..2 {
        fixture.execute(&documented()).await;
    }
    let id = registry::register(&fixture.another().await, "shop", "queue", &["orders"]).await.unwrap();
    assert_eq!(id, crate::store::suite::CONSUMER, "the start takes the adopted rows for its own");
    assert_eq!(verdict(inbox, &claim("order:1")).await, DUPLICATE);
    assert_eq!(verdict(inbox, &claim("order:3")).await, FRESH);
    assert_eq!(number(inbox, "SELECT COUNT(*) FROM {inbox}").await, 2, "what no key can be is left out");
    assert_eq!(inbox.prune(id, Duration::from_hours(24)).await.unwrap().rows, 1, "rows have the age they had");
}
