//! The tables, and calls that stop halfway.

use super::*;
use crate::store::{SchemaError, StartError};

pub(crate) async fn migrating_twice_changes_nothing<F: Fixture>() {
    let fixture = ready::<F>().await;
    deliver(fixture.inbox(), &claim("order:1")).await.unwrap();
    fixture.inbox().migrate().await.unwrap();
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, DUPLICATE);
}

pub(crate) async fn eight_tasks_migrate_at_once<F: Fixture>() {
    let fixture = F::bare().await;
    let mut inboxes = vec![fixture.inbox().clone()];
    for _ in 1..8 {
        inboxes.push(fixture.another().await);
    }
    let tasks = inboxes.into_iter().map(|inbox| tokio::spawn(async move { inbox.migrate().await }));
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap().unwrap();
    }
    fixture.inbox().verify().await.unwrap();
}

pub(crate) async fn tables_that_were_migrated_are_verified<F: Fixture>() {
    ready::<F>().await.inbox().verify().await.unwrap();
}

pub(crate) async fn missing_tables_are_named<F: Fixture>() {
    let fixture = F::bare().await;
    let missing = fixture.inbox().verify().await.unwrap_err();
    assert!(matches!(missing, SchemaError::Older { found: 0, .. }), "{missing}");
    assert!(missing.to_string().contains("Inbox::migrate"));
    let refused = F::Db::begin(fixture.inbox(), &[claim("order:1")], LIMITS).await.map(|(_, verdicts)| verdicts);
    refused.unwrap_err();
}

pub(crate) async fn tables_of_a_later_release_are_refused<F: Fixture>() {
    let fixture = ready::<F>().await;
    execute(fixture.inbox(), "INSERT INTO {schema} (version, applied_at) VALUES (99, 0)", vec![]).await;
    for refused in [fixture.inbox().verify().await, fixture.inbox().migrate().await] {
        assert!(matches!(refused, Err(SchemaError::Newer { found: 99, .. })), "{refused:?}");
    }
}

pub(crate) async fn two_prefixes_are_two_inboxes<F: Fixture>() {
    let fixture = ready::<F>().await;
    let other = fixture.with_prefix("shop_inbox").await;
    other.migrate().await.unwrap();
    other.verify().await.unwrap();
    deliver(fixture.inbox(), &claim("order:1")).await.unwrap();
    assert_eq!(verdict(&other, &claim("order:1")).await, FRESH);
}

pub(crate) async fn prefixes_that_no_table_can_have_are_refused<F: Fixture>() {
    let fixture = F::bare().await;
    let long = "a".repeat(41);
    for prefix in ["", "1inbox", "Inbox", "in-box", "in box", "inbox;", "inbox\"", "ïnbox", &long] {
        let refused = Inbox::<F::Db>::options().prefix(prefix).with_pool(fixture.inbox().pool().clone());
        assert!(matches!(refused, Err(StartError::Prefix(_))), "{prefix:?}");
    }
}

pub(crate) async fn the_databases_clock_is_read<F: Fixture>() {
    let fixture = F::bare().await;
    let first = fixture.inbox().now().await.unwrap();
    let second = fixture.inbox().now().await.unwrap();
    assert!(second >= first);
    let here = std::time::SystemTime::now();
    let apart = here.duration_since(first).unwrap_or_else(|behind| behind.duration());
    assert!(apart < Duration::from_hours(1), "{apart:?}");
}

pub(crate) async fn a_dropped_call_leaves_no_open_transaction<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    for step in 0..60 {
        let patience = Duration::from_micros(step * 40);
        let _ = tokio::time::timeout(patience, inbox.record_failure(&claim("order:1"), "dropped")).await;
        let _ = tokio::time::timeout(patience, inbox.prune(CONSUMER, Duration::ZERO)).await;
        let _ = tokio::time::timeout(patience, inbox.now()).await;
    }
    // They go on without their callers; the last of them should have ended.
    let settled = async || {
        let before = inbox.attempts(&claim("order:1")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        inbox.attempts(&claim("order:1")).await.unwrap() == before
    };
    eventually("the dropped calls have ended", settled, |settled| *settled).await;
    let another = fixture.another().await;
    assert_eq!(deliver(&another, &claim("order:1")).await.unwrap(), deliver_again(&fixture).await);
    assert_eq!(effects(inbox).await, 1);
}

/// What the first delivery saw: the failures recorded by calls that went on without their callers.
async fn deliver_again<F: Fixture>(fixture: &F) -> Verdict {
    let attempts = fixture.inbox().attempts(&claim("order:1")).await.unwrap();
    Verdict::Fresh { prior: (attempts.failures > 0).then_some(attempts) }
}
