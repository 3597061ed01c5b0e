//! Several processes on one file.

use sqlx::Sqlite;

use super::SqliteFile;
use crate::store::suite::{FRESH, Fixture, LIMITS, claim, deliver, effect, effects, number, process, ready, rows};
use crate::store::{Inbox, Store as _, Value, Verdict};

const MESSAGES: u32 = 500;

/// Every worker of every process is given every eighth message: each comes twice, once to each process.
async fn read_then_write(inbox: Inbox<Sqlite>, worker: u32) {
    for message in (0..MESSAGES).filter(|message| message % 8 == worker) {
        let claim = claim(&format!("order:{message}"));
        let (mut tx, verdicts) = Sqlite::begin(&inbox, std::slice::from_ref(&claim), LIMITS).await.unwrap();
        if !matches!(verdicts[0], Verdict::Fresh { .. }) {
            Sqlite::rollback(tx).await;
            continue;
        }
        let read = Sqlite::run(&mut tx, "SELECT COUNT(*) FROM effects", vec![]).await.unwrap();
        let note = format!("after {}", read[0].int(0).unwrap());
        let write = "INSERT INTO effects (effect_key, note) VALUES (?, ?)";
        let arguments = vec![Value::from(claim.identity.name().as_str()), note.into()];
        Sqlite::run(&mut tx, write, arguments).await.unwrap();
        Sqlite::commit(tx).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l01_two_processes_of_eight_workers_that_read_then_write() {
    if let Some(url) = process::database() {
        let inbox = Inbox::<Sqlite>::connect(&url).await.unwrap();
        let workers = (0..8).map(|worker| tokio::spawn(read_then_write(inbox.clone(), worker)));
        for worker in workers.collect::<Vec<_>>() {
            worker.await.unwrap();
        }
        return;
    }
    let fixture = ready::<SqliteFile>().await;
    process::all_succeed(vec![process::again(&fixture.url()), process::again(&fixture.url())]);
    let messages = i64::from(MESSAGES);
    assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (messages, messages));
    // Each body saw what all before it had committed, or two notes would be the same.
    assert_eq!(number(fixture.inbox(), "SELECT COUNT(DISTINCT note) FROM effects").await, messages);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p01_a_killed_process_frees_its_claim() {
    if let Some(url) = process::database() {
        let inbox = Inbox::<Sqlite>::connect(&url).await.unwrap();
        let (mut tx, verdicts) = Sqlite::begin(&inbox, &[claim("order:1")], LIMITS).await.unwrap();
        assert!(matches!(verdicts[0], Verdict::Fresh { .. }));
        effect::<Sqlite>(&mut tx, &claim("order:1")).await.unwrap();
        std::process::abort();
    }
    let fixture = ready::<SqliteFile>().await;
    assert!(!process::again(&fixture.url()).wait().unwrap().success());
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
    assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (1, 1));
}
