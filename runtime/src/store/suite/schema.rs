//! The tables, and calls that stop halfway.

use std::path::PathBuf;

use super::*;
use crate::store::{Attempts, SchemaError, StartError};

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

pub(crate) async fn eight_processes_migrate_at_once<F: Fixture>() {
    if let Some(url) = process::database() {
        let inbox = F::options().connect(&url).await.unwrap();
        inbox.migrate().await.unwrap();
        return inbox.verify().await.unwrap();
    }
    let fixture = F::bare().await;
    process::all_succeed((0..8).map(|_| process::again(&fixture.url())).collect());
    fixture.inbox().verify().await.unwrap();
    assert_eq!(steps(fixture.inbox()).await, F::Db::MIGRATIONS.len());
}

/// How many versions the ledger has.
async fn steps<Db: Store>(inbox: &Inbox<Db>) -> usize {
    usize::try_from(number(inbox, "SELECT COUNT(*) FROM {schema}").await).unwrap()
}

/// The file with a version's statements.
fn plain_file<F: Fixture>(inbox: &Inbox<F::Db>, version: usize) -> PathBuf {
    let kind = if inbox.is_lean() { "_lean" } else { "" };
    let database = F::Db::TITLE.to_lowercase();
    PathBuf::from(format!("{}/../migrations/{database}/{version:04}{kind}.sql", env!("CARGO_MANIFEST_DIR")))
}

/// With `INBOXED_WRITE_MIGRATIONS=1` the files are written. A version that was released never changes.
pub(crate) async fn plain_files_are_what_is_migrated<F: Fixture>() {
    let fixture = F::bare().await;
    for (version, script) in (1..).zip(F::options().migrations().unwrap()) {
        let file = plain_file::<F>(fixture.inbox(), version);
        if std::env::var_os("INBOXED_WRITE_MIGRATIONS").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &script).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), script, "{}", file.display());
    }
}

/// Runs the statements of one version by hand.
async fn run_plain_file<F: Fixture>(fixture: &F, version: usize) {
    let script = std::fs::read_to_string(plain_file::<F>(fixture.inbox(), version)).unwrap();
    F::Db::run(&mut *fixture.inbox().acquire().await.unwrap(), &script, Vec::new()).await.unwrap();
}

pub(crate) async fn tables_made_by_hand_are_verified<F: Fixture>() {
    let fixture = F::bare().await;
    for version in 1..=F::Db::MIGRATIONS.len() {
        assert!(matches!(fixture.inbox().verify().await, Err(SchemaError::Older { .. })));
        run_plain_file(&fixture, version).await;
    }
    fixture.inbox().verify().await.unwrap();
    fixture.inbox().migrate().await.unwrap();
    assert_eq!(steps(fixture.inbox()).await, F::Db::MIGRATIONS.len());
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, FRESH);
}

/// Rows such as the first version wrote: a handled message, one that failed, and one that was given up.
async fn rows_of_version_1<Db: Store>(inbox: &Inbox<Db>) {
    let consumer = "INSERT INTO {consumers} (name, sources, key_template, first_at, seen_at, pruned_at) \
                    VALUES ('shop/queue', 'orders', 'order:{order_id}', 1, 1, 0)";
    execute(inbox, consumer, Vec::new()).await;
    let handled = "INSERT INTO {inbox} (consumer, message_key, received_at, payload) VALUES (1, ?, {now}, 7)";
    execute(inbox, handled, vec![inbox.held_of(&key("order:1"))]).await;
    let failed = "INSERT INTO {attempts} (consumer, {key_columns}, failures, starts, last_error, updated_at) \
                  VALUES (1, {key_places}, 2, 0, 'no stock', {now})";
    execute(inbox, failed, inbox.key_values(Some(&key("order:2")))).await;
    let given_up = "INSERT INTO {dead_letters} (consumer, {key_columns}, identity, source, body, headers, reason, error, \
                    attempts, state, sent_at, first_at, updated_at, redrive_at) VALUES (1, {key_places}, \
                    'key/order:3', 'orders', ?, ?, 'permanent', 'no such order', 1, 'open', NULL, {now}, {now}, NULL)";
    let mut arguments = inbox.key_values(Some(&key("order:3")));
    arguments.extend([Value::Blob(b"{}".to_vec()), Value::Blob(b"[]".to_vec())]);
    execute(inbox, given_up, arguments).await;
}

async fn rows_of_version_1_count<Db: Store>(inbox: &Inbox<Db>) {
    assert_eq!(verdict(inbox, &claim("order:1")).await, DUPLICATE);
    let prior = Some(Attempts { failures: 2, starts: 0 });
    assert_eq!(verdict(inbox, &claim("order:2")).await, Verdict::Fresh { prior });
    let letter = super::letters::only_letter(inbox).await;
    assert_eq!((letter.key, letter.consumer.as_str()), (Some(key("order:3")), "shop/queue"));
    assert_eq!(super::registry::register(inbox, "shop", "queue", &["orders"]).await.unwrap(), CONSUMER);
}

pub(crate) async fn an_inbox_as_version_1_left_it_is_upgraded<F: Fixture>() {
    let fixture = F::bare().await;
    run_plain_file(&fixture, 1).await;
    rows_of_version_1(fixture.inbox()).await;
    fixture.inbox().migrate().await.unwrap();
    fixture.inbox().verify().await.unwrap();
    assert_eq!(steps(fixture.inbox()).await, F::Db::MIGRATIONS.len());
    rows_of_version_1_count(fixture.inbox()).await;
}

pub(crate) async fn a_later_step_keeps_the_rows_and_runs_once<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    rows_of_version_1(inbox).await;
    let mut later = F::Db::MIGRATIONS.to_vec();
    later.push(&["ALTER TABLE {attempts} ADD COLUMN later INTEGER"]);
    for _ in 0..2 {
        inbox.migrate_by(later.clone()).await.unwrap();
    }
    assert_eq!(number(inbox, "SELECT COUNT(*) FROM {attempts} WHERE later IS NULL").await, 1);
    assert_eq!(steps(inbox).await, later.len());
    assert!(matches!(inbox.migrate().await, Err(SchemaError::Newer { .. })));
    rows_of_version_1_count(inbox).await;
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
